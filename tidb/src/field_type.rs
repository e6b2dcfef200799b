//! From MySQL's numbers for types to the types of columns, and what is refused on the way.

use crate::collation::Collation;
use crate::meta_table::{MetaFieldType, MetaTable};
use crate::refusal::ColumnRefusal;
use crate::schema::ColumnType;

/// Whether the cluster compares texts by collations (`new_collation_enabled`, fixed when a cluster begins).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewCollations {
    /// By the columns' collations.
    #[default]
    On,
    /// By bytes, whatever columns say.
    Off,
}

mod code {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const NEW_DATE: u8 = 14;
    pub(super) const VARCHAR: u8 = 15;
    pub(super) const NEW_DECIMAL: u8 = 246;
    pub(super) const TINY_BLOB: u8 = 249;
    pub(super) const MEDIUM_BLOB: u8 = 250;
    pub(super) const LONG_BLOB: u8 = 251;
    pub(super) const BLOB: u8 = 252;
    pub(super) const VAR_STRING: u8 = 253;
    pub(super) const STRING: u8 = 254;
}

impl MetaFieldType {
    /// The collation of a text column, in lower case; `None` for all other types, binary strings too.
    #[must_use]
    pub fn text_collation(&self, table: &MetaTable) -> Option<String> {
        if !matches!(self.tp, code::VARCHAR | code::VAR_STRING | code::STRING) && !self.is_blob() {
            return None;
        }
        let own = [&self.collate, &table.collate].into_iter().find(|name| !name.is_empty());
        let name = own.map_or_else(|| "utf8mb4_bin".to_owned(), |name| name.to_lowercase());
        (name != "binary").then_some(name)
    }

    /// The type of a column.
    ///
    /// # Errors
    /// The type or the collation that is not supported, by name.
    pub fn column_type(
        &self,
        table: &MetaTable,
        collations: NewCollations,
    ) -> Result<ColumnType, ColumnRefusal> {
        let int = |bits| Ok(ColumnType::Int { bits, unsigned: self.is_unsigned() });
        match self.tp {
            code::TINY => int(8),
            code::SHORT => int(16),
            code::INT24 => int(24),
            code::LONG => int(32),
            code::LONGLONG => int(64),
            code::FLOAT => Ok(ColumnType::Float),
            code::DOUBLE => Ok(ColumnType::Double),
            code::NEW_DECIMAL => self.decimal_type(),
            code::DATE | code::NEW_DATE => Ok(ColumnType::Date),
            code::DATETIME => self.fraction().map(ColumnType::Datetime),
            code::TIMESTAMP => self.fraction().map(ColumnType::Timestamp),
            code::VARCHAR | code::VAR_STRING | code::STRING => self.string_type(table, collations),
            _ if self.is_blob() => self.string_type(table, collations),
            _ => Err(self.unsupported()),
        }
    }

    fn is_blob(&self) -> bool {
        (code::TINY_BLOB..=code::BLOB).contains(&self.tp)
    }

    fn decimal_type(&self) -> Result<ColumnType, ColumnRefusal> {
        // TiDB writes DECIMAL without numbers as (10, 0) itself; -1 is from old clusters.
        let precision = if self.flen < 0 { 10 } else { self.flen };
        let scale = self.decimal.max(0);
        match (u8::try_from(precision), u8::try_from(scale)) {
            (Ok(precision @ 1..=65), Ok(scale @ 0..=30)) if scale <= precision => {
                Ok(ColumnType::Decimal { precision, scale })
            }
            _ => Err(self.unsupported()),
        }
    }

    fn fraction(&self) -> Result<u8, ColumnRefusal> {
        match self.decimal {
            -1 => Ok(0),
            0..=6 => Ok(self.decimal as u8),
            _ => Err(self.unsupported()),
        }
    }

    fn string_type(&self, table: &MetaTable, collations: NewCollations) -> Result<ColumnType, ColumnRefusal> {
        let length = if self.is_blob() { self.blob_length() } else { self.flen };
        let length = u32::try_from(length).map_err(|_| self.unsupported())?;
        let Some(collation) = self.text_collation(table) else {
            return Ok(match self.tp {
                code::STRING => ColumnType::Binary(length),
                code::VARCHAR | code::VAR_STRING => ColumnType::Varbinary(length),
                _ => ColumnType::Blob(length),
            });
        };
        if !Collation::by_name(&collation).is_some_and(|known| known.is_supported()) {
            return Err(ColumnRefusal::Collation(collation));
        }
        if collations == NewCollations::Off {
            return Err(ColumnRefusal::OldCollations);
        }
        Ok(match self.tp {
            code::STRING => ColumnType::Char(length),
            code::VARCHAR | code::VAR_STRING => ColumnType::Varchar(length),
            _ => ColumnType::Text(length),
        })
    }

    /// The most bytes of a TEXT or BLOB; older clusters leave the number to the type.
    fn blob_length(&self) -> i64 {
        if self.flen > 0 {
            return self.flen;
        }
        match self.tp {
            code::TINY_BLOB => 255,
            code::BLOB => 65_535,
            code::MEDIUM_BLOB => 16_777_215,
            code::LONG_BLOB => i64::from(u32::MAX),
            _ => self.flen,
        }
    }

    fn unsupported(&self) -> ColumnRefusal {
        let name = match self.tp {
            0 => "DECIMAL of old clusters",
            6 => "NULL",
            code::NEW_DECIMAL => {
                return ColumnRefusal::Type(format!("DECIMAL({},{})", self.flen, self.decimal));
            }
            code::DATETIME => return ColumnRefusal::Type(format!("DATETIME({})", self.decimal)),
            code::TIMESTAMP => return ColumnRefusal::Type(format!("TIMESTAMP({})", self.decimal)),
            11 => "TIME",
            13 => "YEAR",
            16 => "BIT",
            225 => "VECTOR",
            245 => "JSON",
            247 => "ENUM",
            248 => "SET",
            255 => "GEOMETRY",
            other => return ColumnRefusal::Type(format!("number {other} with length {}", self.flen)),
        };
        ColumnRefusal::Type(name.to_owned())
    }
}
