//! The error that crosses crates.
//!
//! The kind answers one question: what should the caller do now? Details stay in the message.

use std::fmt;

/// TiDB's number for a read below the safe point of its garbage collection.
const HISTORY_GONE: u16 = 9006;

/// The result of everything that can fail across crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Retry the transaction or the epoch under a new start.
    Conflict,
    /// Stop: a newer run exists.
    Fenced,
    /// Wait and retry: the outcome is unknown or a part is away.
    Unavailable,
    /// Fix the request.
    Invalid,
    /// Stop and repair: data is broken.
    Corrupt,
    /// Reopen: the handle is closed or poisoned.
    Closed,
}

/// An error with its kind, a message, and where a user sees it, MySQL's number.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    mysql_code: Option<u16>,
}

impl Error {
    /// Makes an error of a kind; the message is lower case, without a period, and names the thing.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), mysql_code: None }
    }

    /// An error of kind `Invalid`.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// An error of kind `Corrupt`.
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// An error of kind `Conflict`.
    pub fn conflict(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Conflict, message)
    }

    /// An error of kind `Unavailable`.
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// An error of kind `Fenced`.
    pub fn fenced(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Fenced, message)
    }

    /// An error of kind `Closed`.
    pub fn closed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Closed, message)
    }

    /// An error of kind `Invalid` that a MySQL client sees under the given number.
    pub fn mysql(code: u16, message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Invalid, message: message.into(), mysql_code: Some(code) }
    }

    /// An error of kind `Invalid`: what is asked for lies before the history that is kept.
    pub fn history_gone(what: impl fmt::Display) -> Error {
        Error::mysql(HISTORY_GONE, format!("history is gone: {what}"))
    }

    /// Whether the history that was asked for is gone ([`Error::history_gone`]): rebuild, or read something
    /// else; nothing is wrong with the store.
    #[must_use]
    pub fn is_history_gone(&self) -> bool {
        self.mysql_code == Some(HISTORY_GONE)
    }

    /// Gives the error a MySQL number.
    #[must_use]
    pub fn with_mysql_code(mut self, code: u16) -> Error {
        self.mysql_code = Some(code);
        self
    }

    /// Puts what was being done before the message.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Error {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// What a caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// MySQL's error number, if the error has one of its own.
    #[must_use]
    pub fn mysql_code(&self) -> Option<u16> {
        self.mysql_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Error {
        // Arrow reports bad data (overflow, failed casts) and misuse alike; both are the request's fault.
        Error::invalid(error.to_string())
    }
}
