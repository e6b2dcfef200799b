//! From DataFusion's errors, and sqlparser's, to ours.

mod planning;

use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use types::Error;

/// Turns an error of the batch engine into ours: our own errors inside keep kind and MySQL code.
#[must_use]
pub fn from_datafusion(error: DataFusionError) -> Error {
    if let Some(own) = own_error(&error) {
        return own;
    }
    match error.find_root() {
        DataFusionError::SchemaError(schema, _) => from_schema(schema),
        DataFusionError::ResourcesExhausted(text) => {
            Error::unavailable(format!("out of memory: {text}")).with_mysql_code(1038)
        }
        DataFusionError::Execution(text) if text.contains("returned more than one row") => {
            Error::mysql(1242, "Subquery returns more than 1 row")
        }
        DataFusionError::ArrowError(error, _) => from_arrow(error),
        DataFusionError::Plan(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Execution(text)
        | DataFusionError::Internal(text)
        | DataFusionError::Configuration(text) => planning::translated(text).unwrap_or_else(|| unknown(text)),
        root => {
            let text = root.strip_backtrace();
            planning::translated(&text).unwrap_or_else(|| unknown(&text))
        }
    }
}

/// What no user should meet: told by the log.
fn unknown(text: &str) -> Error {
    tracing::warn!(text, "the batch engine refuses a query for a reason without a number of MySQL's");
    Error::mysql(1105, "the query cannot be planned or run as it is written; the server's log says why")
}

fn from_arrow(error: &ArrowError) -> Error {
    match error {
        ArrowError::ArithmeticOverflow(_) => Error::mysql(1690, "value is out of range"),
        ArrowError::DivideByZero => Error::mysql(1365, "Division by 0"),
        ArrowError::CastError(_) | ArrowError::ParseError(_) => {
            Error::mysql(1292, "Incorrect value: it cannot be converted to the type that is wanted")
        }
        other => {
            let text = other.to_string();
            planning::translated(&text).unwrap_or_else(|| unknown(&text))
        }
    }
}

fn from_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            Error::mysql(1054, format!("Unknown column '{}'", field.flat_name()))
        }
        SchemaError::AmbiguousReference { field } => {
            Error::mysql(1052, format!("Column '{}' is ambiguous", field.flat_name()))
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            Error::mysql(1060, format!("Duplicate column name '{name}'"))
        }
        SchemaError::DuplicateQualifiedField { name, .. } => {
            Error::mysql(1060, format!("Duplicate column name '{name}'"))
        }
    }
}

/// Finds our own error in a chain of wrappers.
fn own_error(error: &DataFusionError) -> Option<Error> {
    match error {
        DataFusionError::External(inner) => own_in(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => own_in(inner.as_ref()),
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => own_error(inner),
        DataFusionError::Shared(inner) => own_error(inner),
        DataFusionError::Collection(all) => all.iter().find_map(own_error),
        _ => None,
    }
}

fn own_in(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    if let Some(own) = error.downcast_ref::<Error>() {
        return Some(own.clone());
    }
    if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        return own_error(inner);
    }
    match error.downcast_ref::<ArrowError>() {
        Some(ArrowError::ExternalError(inner)) => own_in(inner.as_ref()),
        _ => None,
    }
}

/// Wraps our error for DataFusion, so that `from_datafusion` finds it again.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
