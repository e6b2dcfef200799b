//! Avro's binary encoding, read by the schema that it was written with.
//!
//! The top record's fields are columns; what is deeper (records, arrays, maps) becomes JSON.

use std::fmt::Write;

use super::schema::{AvroSchema, Field, Logical, Node};
use crate::event::{BadMessage, Cell};
use crate::formats::connect::{little_endian, signed_big_endian, zoned};
use crate::json::Quoted;
use crate::value::Value;

/// How deep values may nest.
const DEPTH_MAX: usize = 64;

/// The most elements of an array that take no bytes.
const EMPTY_ELEMENTS_MAX: usize = 100_000;

/// The fields of a record that takes up all of the bytes.
///
/// # Errors
/// If the bytes are not such a record, or the schema is not one of a record.
pub fn read_record(schema: &AvroSchema, bytes: &[u8]) -> Result<Vec<Cell>, BadMessage> {
    let mut reader = Reader { schema, input: bytes };
    let Node::Record(fields) = reader.resolve(&schema.root)? else {
        return Err(BadMessage::new("avro: the schema is not one of a record"));
    };
    let cells = reader.cells(fields, 0)?;
    if reader.input.is_empty() { Ok(cells) } else { Err(bad("bytes after the end")) }
}

fn bad(what: &str) -> BadMessage {
    BadMessage::new(format!("avro: {what}"))
}

struct Reader<'a> {
    schema: &'a AvroSchema,
    input: &'a [u8],
}

impl<'a> Reader<'a> {
    fn resolve(&self, node: &'a Node) -> Result<&'a Node, BadMessage> {
        match node {
            Node::Reference(name) => {
                self.schema.named.get(name).ok_or_else(|| bad("a type that is not defined"))
            }
            other => Ok(other),
        }
    }

    fn cells(&mut self, fields: &'a [Field], depth: usize) -> Result<Vec<Cell>, BadMessage> {
        let mut cells = Vec::with_capacity(fields.len());
        for field in fields {
            let value =
                self.value(&field.node, depth).map_err(|error| BadMessage::column(&field.name, error))?;
            cells.push(Cell { name: field.name.clone(), value, source_type: None });
        }
        Ok(cells)
    }

    /// A value of a column; what has parts becomes JSON.
    fn value(&mut self, node: &'a Node, depth: usize) -> Result<Value, BadMessage> {
        if depth > DEPTH_MAX {
            return Err(bad("it nests too deep"));
        }
        Ok(match self.resolve(node)? {
            Node::Null => Value::Null,
            Node::Boolean => Value::Bool(self.boolean()?),
            Node::Int(logical) => {
                let value = self.long()?;
                i32::try_from(value).map_err(|_| bad("an int beyond 32 bits"))?;
                whole(value, *logical)?
            }
            Node::Long(logical) => whole(self.long()?, *logical)?,
            Node::Float => Value::Single(f32::from_le_bytes(self.array()?)),
            Node::Double => Value::Double(f64::from_le_bytes(self.array()?)),
            Node::Bytes(logical) => {
                let n_bytes = self.length()?;
                bytes(self.take(n_bytes)?, *logical)?
            }
            Node::Fixed(n_bytes, logical) => bytes(self.take(*n_bytes)?, *logical)?,
            Node::Text(logical) => {
                let text = self.text()?;
                match logical {
                    Logical::ZonedText => zoned(text)?,
                    Logical::Json => Value::Json(text.to_owned()),
                    _ => Value::Text(text.to_owned()),
                }
            }
            Node::Enum(symbols) => Value::Text(self.symbol(symbols)?.to_owned()),
            Node::Union(branches) => {
                let branch = self.branch(branches)?;
                self.value(branch, depth + 1)?
            }
            parts @ (Node::Array(_) | Node::Map(_) | Node::Record(_)) => {
                let mut text = String::new();
                self.json(parts, depth, &mut text)?;
                Value::Json(text)
            }
            Node::Reference(_) => return Err(bad("a type that is not defined")),
        })
    }

    /// A value as JSON.
    fn json(&mut self, node: &'a Node, depth: usize, out: &mut String) -> Result<(), BadMessage> {
        if depth > DEPTH_MAX {
            return Err(bad("it nests too deep"));
        }
        match self.resolve(node)? {
            Node::Record(fields) => {
                for (at, field) in fields.iter().enumerate() {
                    out.push(if at == 0 { '{' } else { ',' });
                    write!(out, "{}:", Quoted(&field.name)).expect("a text can be written to");
                    self.json(&field.node, depth + 1, out)?;
                }
                out.push_str(if fields.is_empty() { "{}" } else { "}" });
            }
            Node::Array(items) => {
                self.blocks(out, ['[', ']'], |reader, out| reader.json(items, depth + 1, out))?
            }
            Node::Map(values) => self.blocks(out, ['{', '}'], |reader, out| {
                write!(out, "{}:", Quoted(reader.text()?)).expect("a text can be written to");
                reader.json(values, depth + 1, out)
            })?,
            Node::Union(branches) => {
                let branch = self.branch(branches)?;
                self.json(branch, depth + 1, out)?;
            }
            simple => {
                let value = self.value(simple, depth)?;
                let text = match &value {
                    Value::Null => "null".to_owned(),
                    Value::Bool(value) => value.to_string(),
                    Value::Number(text) | Value::Json(text) => text.clone(),
                    Value::Int(value) => value.to_string(),
                    Value::Single(value) if value.is_finite() => value.to_string(),
                    Value::Double(value) if value.is_finite() => value.to_string(),
                    Value::Decimal(value) => value.to_string(),
                    Value::Text(text) => Quoted(text).to_string(),
                    other => Quoted(other.shown().trim_matches('\'')).to_string(),
                };
                out.push_str(&text);
            }
        }
        Ok(())
    }

    /// The blocks of an array or a map: a count, negative if the size in bytes follows, until a count of 0.
    fn blocks(
        &mut self,
        out: &mut String,
        [open, close]: [char; 2],
        mut element: impl FnMut(&mut Self, &mut String) -> Result<(), BadMessage>,
    ) -> Result<(), BadMessage> {
        out.push(open);
        let mut is_first = true;
        let mut n_empty = 0_usize;
        loop {
            let count = self.long()?;
            if count == 0 {
                break;
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                if !std::mem::take(&mut is_first) {
                    out.push(',');
                }
                let n_bytes_before = self.input.len();
                element(self, out)?;
                // Nulls take no bytes: without a limit a few bytes would stand for any number of them.
                n_empty += usize::from(self.input.len() == n_bytes_before);
                if n_empty > EMPTY_ELEMENTS_MAX {
                    return Err(bad("more elements than bytes"));
                }
            }
        }
        out.push(close);
        Ok(())
    }

    fn branch(&mut self, branches: &'a [Node]) -> Result<&'a Node, BadMessage> {
        let at = usize::try_from(self.long()?).ok();
        at.and_then(|at| branches.get(at)).ok_or_else(|| bad("a union has no such branch"))
    }

    fn symbol(&mut self, symbols: &'a [String]) -> Result<&'a str, BadMessage> {
        let at = usize::try_from(self.long()?).ok();
        at.and_then(|at| symbols.get(at)).map(String::as_str).ok_or_else(|| bad("an enum has no such symbol"))
    }

    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8], BadMessage> {
        let (taken, rest) = self.input.split_at_checked(n_bytes).ok_or_else(|| bad("it is cut off"))?;
        self.input = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (taken, rest) = self.input.split_first_chunk::<N>().ok_or_else(|| bad("it is cut off"))?;
        self.input = rest;
        Ok(*taken)
    }

    fn boolean(&mut self) -> Result<bool, BadMessage> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(bad("a boolean that is neither 0 nor 1")),
        }
    }

    /// A number in zigzag, seven bits a byte.
    fn long(&mut self) -> Result<i64, BadMessage> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
            }
        }
        Err(bad("a number of more than 64 bits"))
    }

    fn length(&mut self) -> Result<usize, BadMessage> {
        usize::try_from(self.long()?).map_err(|_| bad("a negative length"))
    }

    fn text(&mut self) -> Result<&'a str, BadMessage> {
        let n_bytes = self.length()?;
        std::str::from_utf8(self.take(n_bytes)?).map_err(|_| bad("text that is not UTF-8"))
    }
}

fn whole(value: i64, logical: Logical) -> Result<Value, BadMessage> {
    let micros = |per_second: i64| {
        if per_second > 1_000_000 {
            Ok(value.div_euclid(per_second / 1_000_000))
        } else {
            value.checked_mul(1_000_000 / per_second).ok_or_else(|| bad("a time beyond all"))
        }
    };
    Ok(match logical {
        Logical::Days => Value::Days(value),
        Logical::Time(per_second) => Value::Duration(micros(per_second)?),
        Logical::Local(per_second) => Value::Local(micros(per_second)?),
        Logical::Instant(per_second) => Value::Instant(micros(per_second)?),
        _ => Value::Int(value),
    })
}

fn bytes(bytes: &[u8], logical: Logical) -> Result<Value, BadMessage> {
    Ok(match logical {
        Logical::Decimal(scale) => {
            Value::Decimal(tidb::Decimal { unscaled: signed_big_endian(bytes)?, scale })
        }
        Logical::Bits => Value::Bits(little_endian(bytes)?),
        _ => Value::Bytes(bytes.to_vec()),
    })
}
