//! Messages, clients and servers of the protocols of TiKV and PD.
//!
//! Generated from `tikv/proto`, which holds the part of kvproto that is used here under the same names and
//! numbers; fields that a newer server sends beside them are skipped. The servers are for test servers.

#![allow(missing_docs, reason = "generated")]
#![allow(unreachable_pub, unused_qualifications, reason = "generated")]
#![allow(
    clippy::all,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes_without_reason,
    clippy::large_futures,
    reason = "generated"
)]

pub mod metapb {
    tonic::include_proto!("metapb");
}
pub mod errorpb {
    tonic::include_proto!("errorpb");
}
pub mod kvrpcpb {
    tonic::include_proto!("kvrpcpb");
}
pub mod tikvpb {
    tonic::include_proto!("tikvpb");
}
pub mod cdcpb {
    tonic::include_proto!("cdcpb");
}
pub mod pdpb {
    tonic::include_proto!("pdpb");
}
