//! Values of change events, before a column of ours gives them a type.
//!
//! A decoder says as much as its format does: digits stay text, an index of an ENUM stays an index, a
//! time in UTC is an instant. `convert` makes a column's value of it, with the same rules for all formats.

use tidb::Decimal;

/// A value of a change event.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A large value that did not change and was left out of the event.
    Unavailable,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A number as it was written: all its digits, perhaps an exponent.
    Number(String),
    /// A FLOAT.
    Single(f32),
    /// A DOUBLE.
    Double(f64),
    /// An exact decimal.
    Decimal(Decimal),
    /// A text: of characters, or of what the source wrote as text (dates, most numbers).
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A BIT, its bits as a number.
    Bits(u64),
    /// An ENUM by its index, from 1 on; 0 is the empty value of what was not valid.
    Index(u64),
    /// A SET, one bit for each member.
    Members(u64),
    /// A date, in days since 1970-01-01.
    Days(i64),
    /// A TIME, in microseconds; it may be negative and longer than a day.
    Duration(i64),
    /// A local time, in microseconds since 1970-01-01 00:00.
    Local(i64),
    /// An instant, in microseconds since the epoch.
    Instant(i64),
    /// A time written in a zone that is named beside it.
    Zoned {
        /// The time zone's name or offset.
        zone: String,
        /// The time as text.
        text: String,
    },
    /// A JSON document as text.
    Json(String),
}

impl Value {
    /// Whether this is NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        *self == Value::Null
    }

    /// The value as messages show it: short, on one line.
    #[must_use]
    pub fn shown(&self) -> String {
        const CHARS_MAX: usize = 64;
        let whole = match self {
            Value::Text(text) | Value::Json(text) | Value::Number(text) => format!("'{text}'"),
            Value::Zoned { zone, text } => format!("'{text}' in {zone}"),
            Value::Bytes(bytes) => {
                let digits: String = bytes.iter().take(CHARS_MAX).map(|byte| format!("{byte:02X}")).collect();
                format!("0x{digits}")
            }
            Value::Bool(value) => value.to_string(),
            Value::Int(value) | Value::Days(value) | Value::Duration(value) => value.to_string(),
            Value::Local(value) | Value::Instant(value) => value.to_string(),
            Value::UInt(value) | Value::Bits(value) | Value::Index(value) | Value::Members(value) => {
                value.to_string()
            }
            Value::Single(value) => value.to_string(),
            Value::Double(value) => value.to_string(),
            Value::Decimal(value) => value.to_string(),
            Value::Null => "NULL".to_owned(),
            Value::Unavailable => "a value that was left out".to_owned(),
        };
        if whole.chars().count() <= CHARS_MAX {
            return whole;
        }
        let start: String = whole.chars().take(CHARS_MAX).collect();
        format!("{start}…")
    }
}

/// The type that a format gives a column, as far as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceType {
    /// MySQL's name of the type in lower case, without parameters: `decimal`, `varchar`, `bit`.
    pub name: String,
    /// Whether it is UNSIGNED.
    pub unsigned: bool,
    /// The first number in the parentheses: a length, a precision, a fraction's digits.
    pub length: Option<u32>,
    /// The second number in the parentheses.
    pub scale: Option<u32>,
    /// The members of an ENUM or a SET, if they are known.
    pub labels: Vec<String>,
}

impl SourceType {
    /// A type that is nothing but a name.
    #[must_use]
    pub fn named(name: &str) -> SourceType {
        SourceType { name: name.to_owned(), ..SourceType::default() }
    }

    /// Reads a type as MySQL writes it: `decimal(10,4)`, `bigint(20) unsigned`, `enum('a','b''c')`.
    #[must_use]
    pub fn parse(text: &str) -> SourceType {
        let (name, rest) = match text.find(['(', ' ']) {
            Some(end) => text.split_at(end),
            None => (text, ""),
        };
        let mut found = SourceType::named(&name.trim().to_ascii_lowercase());
        let (parameters, attributes) = parenthesised(rest);
        found.unsigned = attributes.to_ascii_lowercase().contains("unsigned");
        if matches!(found.name.as_str(), "enum" | "set") {
            found.labels = labels(parameters);
        } else {
            let mut numbers = parameters.split(',').map(|number| number.trim().parse().ok());
            found.length = numbers.next().flatten();
            found.scale = numbers.next().flatten();
        }
        found
    }

    /// Whether values are bytes rather than characters.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.name.ends_with("blob") || self.name.ends_with("binary")
    }
}

/// What stands in the parentheses at the beginning, and what follows them.
fn parenthesised(text: &str) -> (&str, &str) {
    let Some(inside) = text.strip_prefix('(') else { return ("", text) };
    let mut quoted = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b')' if !quoted => return (&inside[..at], &inside[at + 1..]),
            _ => {}
        }
    }
    (inside, "")
}

/// The members of `'a','b''c'`; two quotes within one stand for one.
fn labels(text: &str) -> Vec<String> {
    let mut labels = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(start) = chars.next() {
        if start != '\'' {
            continue;
        }
        let mut label = String::new();
        while let Some(next) = chars.next() {
            if next != '\'' {
                label.push(next);
            } else if chars.peek() == Some(&'\'') {
                chars.next();
                label.push('\'');
            } else {
                break;
            }
        }
        labels.push(label);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::SourceType;

    #[test]
    fn types_are_read_as_mysql_writes_them() {
        let decimal = SourceType::parse("decimal(10,4)");
        assert_eq!((decimal.name.as_str(), decimal.length, decimal.scale), ("decimal", Some(10), Some(4)));
        let bigint = SourceType::parse("BIGINT(20) unsigned zerofill");
        assert_eq!((bigint.name.as_str(), bigint.unsigned, bigint.length), ("bigint", true, Some(20)));
        assert!(SourceType::parse("int unsigned").unsigned);
        let choice = SourceType::parse("enum('a','b''c','d),','')");
        assert_eq!(choice.labels, ["a", "b'c", "d),", ""]);
        assert!(SourceType::parse("varbinary(8)").is_binary() && !SourceType::parse("text").is_binary());
        assert_eq!(SourceType::parse(""), SourceType::default());
    }
}
