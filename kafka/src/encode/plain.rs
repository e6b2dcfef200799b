//! Rows as objects of JSON: appended, or by key.
//!
//! Numbers are numbers with all their digits, bytes are base64, dates and times are text, an instant with its
//! `Z`.

use types::{Error, Result};

use super::{CellValue, ChangeEncoder, EncodedMessage};
use crate::json::Quoted;

impl ChangeEncoder {
    pub(super) fn plain(
        &self,
        old: Option<&[CellValue<'_>]>,
        new: Option<&[CellValue<'_>]>,
    ) -> Result<Vec<EncodedMessage>> {
        match (old, new) {
            (None, Some(new)) => {
                Ok(vec![EncodedMessage { key: None, value: Some(self.row(new).into_bytes()) }])
            }
            (None, None) => Ok(Vec::new()),
            _ => {
                let reason =
                    format!("{} does not only append, and its messages say nothing else", self.table);
                Err(Error::invalid(reason))
            }
        }
    }

    pub(super) fn upsert(
        &self,
        old: Option<&[CellValue<'_>]>,
        new: Option<&[CellValue<'_>]>,
    ) -> Vec<EncodedMessage> {
        let mut messages = Vec::with_capacity(2);
        let moves = |old: &[CellValue<'_>]| new.is_none_or(|new| !self.keeps_key(old, new));
        if let Some(old) = old.filter(|old| moves(old)) {
            messages.push(EncodedMessage { key: Some(self.key_of(old).into_bytes()), value: None });
        }
        if let Some(new) = new {
            let (key, value) = (self.key_of(new).into_bytes(), self.row(new).into_bytes());
            messages.push(EncodedMessage { key: Some(key), value: Some(value) });
        }
        messages
    }

    fn row(&self, cells: &[CellValue<'_>]) -> String {
        self.object((0..cells.len()).collect::<Vec<_>>().as_slice(), cells)
    }

    fn key_of(&self, cells: &[CellValue<'_>]) -> String {
        self.object(&self.key, cells)
    }

    fn object(&self, columns: &[usize], cells: &[CellValue<'_>]) -> String {
        let members: Vec<String> = columns
            .iter()
            .map(|at| format!("{}:{}", Quoted(&self.columns[*at].name), json_value(&cells[*at])))
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

fn json_value(cell: &CellValue<'_>) -> String {
    match cell {
        CellValue::Null => "null".to_owned(),
        CellValue::Int(_) | CellValue::Decimal(_) => cell.text(),
        // Without an exponent these are as long as the number is large.
        CellValue::Single(value) => format!("{value:e}"),
        CellValue::Double(value) => format!("{value:e}"),
        CellValue::Instant(..) => Quoted(&format!("{}Z", cell.text())).to_string(),
        _ => Quoted(&cell.text()).to_string(),
    }
}
