//! A statement's answer, all of it, for programs and the shell.

use std::fmt;

use arrow::record_batch::RecordBatch;
use comfy_table::{Table, TableComponent, presets};
use types::Result;

use crate::mysql::text_rows;
use crate::result::{Column, Outcome};
use tidb::Zone;

/// Everything that a statement answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The columns; empty for a statement without rows.
    pub columns: Vec<Column>,
    /// The rows as Arrow batches.
    pub batches: Vec<RecordBatch>,
    /// The rows as a MySQL client sees them; `None` is NULL, bytes that are no text are shown as hex.
    pub rows: Vec<Vec<Option<String>>>,
    /// Rows written by a statement without rows.
    pub affected_rows: u64,
    /// MySQL's summary, often empty.
    pub info: String,
}

impl Answer {
    /// Takes all of an outcome.
    pub(crate) async fn of_outcome(outcome: Outcome, zone: Zone) -> Result<Answer> {
        match outcome {
            Outcome::Done(done) => {
                Ok(Answer { affected_rows: done.affected_rows, info: done.info, ..Answer::default() })
            }
            Outcome::Rows(rows) => {
                let columns = rows.columns.clone();
                let batches = rows.collect().await?;
                let rows = text_rows(&columns, &batches, zone)?;
                Ok(Answer { columns, batches, rows, ..Answer::default() })
            }
        }
    }

    /// The first column of the first row, as text.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    /// The rows as strings, NULL as `NULL`, in their order.
    #[must_use]
    pub fn texts(&self) -> Vec<Vec<String>> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "NULL".to_owned());
        self.rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }
}

/// Prints a table as the MySQL shell does.
impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.columns.is_empty() {
            return write!(formatter, "{} rows affected", self.affected_rows);
        }
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        formatter.write_str(&table(&names, &self.texts()))
    }
}

/// A table of text.
pub(crate) fn table(names: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_FULL_CONDENSED);
    table.set_style(TableComponent::HeaderLines, '-');
    for component in [
        TableComponent::LeftHeaderIntersection,
        TableComponent::MiddleHeaderIntersections,
        TableComponent::RightHeaderIntersection,
    ] {
        table.set_style(component, '+');
    }
    table.set_header(names.iter().map(|name| (*name).to_owned()));
    for row in rows {
        table.add_row(row.iter().map(|text| visible(text)));
    }
    table.to_string()
}

/// Text without what would move the cursor.
fn visible(text: &str) -> String {
    text.chars()
        .map(
            |letter| if letter.is_control() && letter != '\n' { char::REPLACEMENT_CHARACTER } else { letter },
        )
        .collect()
}
