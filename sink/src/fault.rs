//! What goes wrong with one view's rows, apart from what goes wrong with everything.

use std::fmt;

use types::Error;

/// Why a view cannot go on: its rows contradict each other, or what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub reason: String,
    /// The row, or its key, in words.
    pub key: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(formatter, "{} ({key})", self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

/// Why an epoch's rows could not be prepared.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SinkError {
    /// The view is at fault: the epoch goes on without it.
    #[error("{0}")]
    Fault(Fault),
    /// Something else is: the store is away, or a run is broken.
    #[error("{0}")]
    Other(Error),
}

impl From<Error> for SinkError {
    fn from(error: Error) -> SinkError {
        SinkError::Other(error)
    }
}

impl From<Fault> for SinkError {
    fn from(fault: Fault) -> SinkError {
        SinkError::Fault(fault)
    }
}

impl From<SinkError> for Error {
    fn from(error: SinkError) -> Error {
        match error {
            SinkError::Fault(fault) => Error::corrupt(fault.to_string()),
            SinkError::Other(error) => error,
        }
    }
}
