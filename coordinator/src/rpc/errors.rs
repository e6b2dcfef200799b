//! Errors on the wire.

use prost::Message;
use tonic::{Code, Status};
use types::{Error, ErrorKind};

use super::proto;

pub(super) fn to_wire(error: &Error) -> proto::Error {
    let kind = match error.kind() {
        ErrorKind::Conflict => proto::ErrorKind::Conflict,
        ErrorKind::Fenced => proto::ErrorKind::Fenced,
        ErrorKind::Unavailable => proto::ErrorKind::Unavailable,
        ErrorKind::Invalid => proto::ErrorKind::Invalid,
        ErrorKind::Corrupt => proto::ErrorKind::Corrupt,
        ErrorKind::Closed => proto::ErrorKind::Closed,
    };
    proto::Error {
        kind: kind.into(),
        message: error.message().to_owned(),
        mysql_code: error.mysql_code().map(u32::from),
    }
}

pub(super) fn from_wire(error: &proto::Error) -> Error {
    let kind = match error.kind() {
        proto::ErrorKind::Conflict => ErrorKind::Conflict,
        proto::ErrorKind::Fenced => ErrorKind::Fenced,
        proto::ErrorKind::Unavailable => ErrorKind::Unavailable,
        proto::ErrorKind::Invalid => ErrorKind::Invalid,
        // A kind this version does not know cannot be acted upon.
        proto::ErrorKind::Corrupt | proto::ErrorKind::Unspecified => ErrorKind::Corrupt,
        proto::ErrorKind::Closed => ErrorKind::Closed,
    };
    let made = Error::new(kind, error.message.clone());
    match error.mysql_code.and_then(|code| u16::try_from(code).ok()) {
        Some(code) => made.with_mysql_code(code),
        None => made,
    }
}

/// An error as a status: the code for people and proxies, the details for our client.
pub(super) fn to_status(error: &Error) -> Status {
    let code = match error.kind() {
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::Fenced => Code::FailedPrecondition,
        ErrorKind::Unavailable | ErrorKind::Closed => Code::Unavailable,
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::Corrupt => Code::DataLoss,
    };
    Status::with_details(code, error.message(), to_wire(error).encode_to_vec().into())
}

/// A status with our details as the error it was; any other by what a caller can do about it.
pub(super) fn from_status(status: &Status) -> Error {
    if !status.details().is_empty()
        && let Ok(error) = proto::Error::decode(status.details())
        && error.kind() != proto::ErrorKind::Unspecified
    {
        return from_wire(&error);
    }
    let message = format!("{}: {}", status.code(), status.message());
    match status.code() {
        // The message itself is at fault (too large, or a method that is not there): repeating is no use.
        Code::OutOfRange | Code::ResourceExhausted | Code::Unimplemented | Code::InvalidArgument => {
            Error::invalid(message)
        }
        _ => Error::unavailable(message),
    }
}
