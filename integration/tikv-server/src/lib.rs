//! A server that speaks the gRPC of TiKV and PD over the embedded engine, for tests.
//!
//! It follows a real server's rules to the letter where recordings of one say what they are.
