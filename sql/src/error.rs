//! From DataFusion's errors, and sqlparser's, to ours.

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
        DataFusionError::NotImplemented(text) => {
            Error::mysql(1235, format!("this version doesn't yet support '{text}'"))
        }
        DataFusionError::Execution(text) if text.contains("returned more than one row") => {
            Error::mysql(1242, "subquery returns more than 1 row")
        }
        root => Error::mysql(1105, first_line(&root.strip_backtrace())),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn from_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            Error::mysql(1054, format!("unknown column '{}'", field.flat_name()))
        }
        SchemaError::AmbiguousReference { field } => {
            Error::mysql(1052, format!("column '{}' is ambiguous", field.flat_name()))
        }
        SchemaError::DuplicateUnqualifiedField { name } => {
            Error::mysql(1060, format!("duplicate column name '{name}'"))
        }
        SchemaError::DuplicateQualifiedField { name, .. } => {
            Error::mysql(1060, format!("duplicate column name '{name}'"))
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
