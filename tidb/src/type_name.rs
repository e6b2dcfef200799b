//! Names of types, as MySQL writes them in DESCRIBE and SHOW CREATE TABLE.

use std::fmt;

use crate::ColumnType;

impl fmt::Display for ColumnType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ColumnType::Int { bits, unsigned } => {
                let name = match bits {
                    8 => "tinyint",
                    16 => "smallint",
                    24 => "mediumint",
                    32 => "int",
                    _ => "bigint",
                };
                write!(formatter, "{name}{}", if unsigned { " unsigned" } else { "" })
            }
            ColumnType::Float => formatter.write_str("float"),
            ColumnType::Double => formatter.write_str("double"),
            ColumnType::Decimal { precision, scale } => write!(formatter, "decimal({precision},{scale})"),
            ColumnType::Char(n) => write!(formatter, "char({n})"),
            ColumnType::Varchar(n) => write!(formatter, "varchar({n})"),
            ColumnType::Text(bytes) => write!(formatter, "{}text", size(bytes)),
            ColumnType::Binary(n) => write!(formatter, "binary({n})"),
            ColumnType::Varbinary(n) => write!(formatter, "varbinary({n})"),
            ColumnType::Blob(bytes) => write!(formatter, "{}blob", size(bytes)),
            ColumnType::Date => formatter.write_str("date"),
            ColumnType::Datetime(0) => formatter.write_str("datetime"),
            ColumnType::Datetime(fsp) => write!(formatter, "datetime({fsp})"),
            ColumnType::Timestamp(0) => formatter.write_str("timestamp"),
            ColumnType::Timestamp(fsp) => write!(formatter, "timestamp({fsp})"),
        }
    }
}

fn size(bytes: u32) -> &'static str {
    match bytes {
        0..=255 => "tiny",
        256..=65_535 => "",
        65_536..=16_777_215 => "medium",
        _ => "long",
    }
}
