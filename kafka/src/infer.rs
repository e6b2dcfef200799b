//! Columns for rows of JSON, guessed from examples, to be shown before they are used.
//!
//! A guess takes the widest type that every example fits: whole numbers become BIGINT, DECIMAL where there
//! are digits after the point and no exponent, DOUBLE else; texts that are all dates or times become DATE or
//! DATETIME; objects and arrays stay JSON as text. A column that is not in every example may be NULL.

use tidb::{ColumnInfo, ColumnType, Parsed, parse_time};

use crate::event::BadMessage;
use crate::formats::fields::object;
use crate::json::Json;

/// The longest VARCHAR that is guessed; longer texts are TEXT.
const CHARS_MAX: usize = 255;

/// What is known of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Guess {
    /// Nothing but NULLs.
    Nothing,
    Boolean,
    /// A whole number; whether one does not fit with a sign, whether one needs the sign.
    Whole {
        is_large: bool,
        is_negative: bool,
    },
    /// Digits before and after the point.
    Exact {
        n_whole: u8,
        scale: u8,
    },
    Floating,
    Date,
    /// Digits after the second.
    Datetime(u8),
    /// The most characters.
    Text(usize),
    Json,
}

/// A column's guess, and in how many examples it was not NULL.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    guess: Guess,
    n_present: usize,
}

/// Gathers examples.
#[derive(Clone, Debug, Default)]
pub struct Inference {
    columns: Vec<Column>,
    n_rows: usize,
}

impl Inference {
    /// Takes a row as an example.
    ///
    /// # Errors
    /// If it is not an object of JSON; then it is no example.
    pub fn add(&mut self, row: &[u8]) -> Result<(), BadMessage> {
        let json = object(row, "a row")?;
        self.n_rows += 1;
        for (name, found) in json.members().unwrap_or_default() {
            let at = self.columns.iter().position(|column| column.name == *name).unwrap_or_else(|| {
                self.columns.push(Column { name: name.to_string(), guess: Guess::Nothing, n_present: 0 });
                self.columns.len() - 1
            });
            let column = &mut self.columns[at];
            let guess = guess(found);
            column.n_present += usize::from(guess != Guess::Nothing);
            column.guess = wider(std::mem::replace(&mut column.guess, Guess::Nothing), guess);
        }
        Ok(())
    }

    /// The columns, in the order in which they were first seen.
    #[must_use]
    pub fn columns(&self) -> Vec<ColumnInfo> {
        let columns = self.columns.iter().zip(1..).map(|(column, id)| ColumnInfo {
            id,
            name: column.name.clone(),
            column_type: column.guess.column_type(),
            not_null: column.n_present == self.n_rows,
            default: None,
            origin_default: None,
            comment: String::new(),
        });
        columns.collect()
    }

    /// The columns as they stand in a CREATE TABLE.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        for column in self.columns() {
            let not_null = if column.not_null { " NOT NULL" } else { "" };
            let name = column.name.replace('`', "``");
            let separator = if shown.is_empty() { "" } else { ",\n" };
            let kind = sql_type(&column.column_type);
            shown.push_str(&format!("{separator}`{name}` {kind}{not_null}"));
        }
        shown
    }
}

impl Guess {
    fn column_type(&self) -> ColumnType {
        match *self {
            Guess::Boolean => ColumnType::Int { bits: 8, unsigned: false },
            Guess::Whole { is_large: true, is_negative: false } => {
                ColumnType::Int { bits: 64, unsigned: true }
            }
            Guess::Whole { is_large: true, .. } => ColumnType::Decimal { precision: 20, scale: 0 },
            Guess::Whole { .. } => ColumnType::Int { bits: 64, unsigned: false },
            Guess::Exact { n_whole, scale } => {
                // Room for more than the examples had.
                let precision = (n_whole + scale).max(20.min(scale + 18));
                ColumnType::Decimal { precision, scale }
            }
            Guess::Floating => ColumnType::Double,
            Guess::Date => ColumnType::Date,
            Guess::Datetime(fsp) => ColumnType::Datetime(fsp),
            Guess::Text(n_chars) if n_chars > CHARS_MAX => ColumnType::Text(u32::MAX),
            Guess::Nothing | Guess::Text(_) => ColumnType::Varchar(CHARS_MAX as u32),
            Guess::Json => ColumnType::Text(u32::MAX),
        }
    }
}

fn guess(found: &Json<'_>) -> Guess {
    match found {
        Json::Null => Guess::Nothing,
        Json::Bool(_) => Guess::Boolean,
        Json::Number(digits) => guess_number(digits),
        Json::Text(text) => guess_text(text),
        Json::Array(_) | Json::Object(_) => Guess::Json,
    }
}

fn guess_number(digits: &str) -> Guess {
    if digits.contains(['e', 'E']) {
        return Guess::Floating;
    }
    let is_negative = digits.starts_with('-');
    let (whole, fraction) =
        digits.trim_start_matches('-').split_once('.').unwrap_or((digits.trim_start_matches('-'), ""));
    if fraction.is_empty() && digits.parse::<i64>().is_ok() {
        return Guess::Whole { is_large: false, is_negative };
    }
    if fraction.is_empty() && digits.parse::<u64>().is_ok() {
        return Guess::Whole { is_large: true, is_negative };
    }
    if whole.len() + fraction.len() > 65 || fraction.len() > 30 {
        return Guess::Floating;
    }
    Guess::Exact { n_whole: whole.len() as u8, scale: fraction.len() as u8 }
}

fn guess_text(text: &str) -> Guess {
    let is_dated = text.len() >= 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    if is_dated && let Some(Parsed::Local(_)) = parse_time(text) {
        if text.len() == 10 {
            return Guess::Date;
        }
        let fsp = text.split_once('.').map_or(0, |(_, fraction)| fraction.len().min(6));
        return Guess::Datetime(fsp as u8);
    }
    Guess::Text(text.chars().count())
}

/// The narrowest guess that both fit.
fn wider(one: Guess, other: Guess) -> Guess {
    use Guess::{Boolean, Date, Datetime, Exact, Floating, Json, Nothing, Text, Whole};
    match (one, other) {
        (Nothing, guess) | (guess, Nothing) => guess,
        (one, other) if one == other => one,
        (Whole { is_large, is_negative }, Whole { is_large: large, is_negative: negative }) => {
            Whole { is_large: is_large || large, is_negative: is_negative || negative }
        }
        (Whole { .. }, Exact { n_whole, scale }) | (Exact { n_whole, scale }, Whole { .. }) => {
            Exact { n_whole: n_whole.max(20), scale }
        }
        (Exact { n_whole, scale }, Exact { n_whole: whole, scale: digits }) => {
            let (n_whole, scale) = (n_whole.max(whole), scale.max(digits));
            if n_whole + scale > 65 { Floating } else { Exact { n_whole, scale } }
        }
        (Floating, Whole { .. } | Exact { .. }) | (Whole { .. } | Exact { .. }, Floating) => Floating,
        (Date, Datetime(fsp)) | (Datetime(fsp), Date) => Datetime(fsp),
        (Datetime(one), Datetime(other)) => Datetime(one.max(other)),
        (Text(one), Text(other)) => Text(one.max(other)),
        (Text(n_chars), Date | Datetime(_)) | (Date | Datetime(_), Text(n_chars)) => Text(n_chars.max(32)),
        (Boolean, whole @ Whole { .. }) | (whole @ Whole { .. }, Boolean) => whole,
        // What fits nothing else is kept as it is written.
        (Json, _) | (_, Json) => Json,
        _ => Text(CHARS_MAX),
    }
}

/// A type as SQL writes it.
fn sql_type(column_type: &ColumnType) -> String {
    match column_type {
        ColumnType::Int { bits: 8, .. } => "BOOLEAN".to_owned(),
        ColumnType::Int { unsigned: true, .. } => "BIGINT UNSIGNED".to_owned(),
        ColumnType::Int { .. } => "BIGINT".to_owned(),
        ColumnType::Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
        ColumnType::Double | ColumnType::Float => "DOUBLE".to_owned(),
        ColumnType::Date => "DATE".to_owned(),
        ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp) => format!("DATETIME({fsp})"),
        ColumnType::Varchar(n_chars) => format!("VARCHAR({n_chars})"),
        _ => "LONGTEXT".to_owned(),
    }
}
