//! Protobuf by descriptors that are known at run time only: from `.proto` files, or from texts by id.
//!
//! Fields become columns by name. A field with presence that is not set is NULL; one without presence has its
//! default, as the language says. Enums go by name, a number that the schema does not know stays a number.
//! Timestamps and wrappers among the well-known types are values of their own; other messages, lists and maps
//! become JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage,
};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use types::{Error, Result};

use crate::event::{BadMessage, Cell};
use crate::json::Quoted;
use crate::value::{SourceType, Value};

/// The type of messages.
#[derive(Clone, Debug)]
pub struct ProtobufSchema {
    message: MessageDescriptor,
}

impl ProtobufSchema {
    /// A message's type from `.proto` files; imports are looked for in the same folders.
    ///
    /// # Errors
    /// `Invalid` if a file is missing or no Protobuf, or has no such message.
    pub fn from_files(
        files: &[impl AsRef<Path>],
        folders: &[impl AsRef<Path>],
        message: &str,
    ) -> Result<ProtobufSchema> {
        let compiled = protox::compile(files, folders).map_err(|error| invalid(&error))?;
        let pool = DescriptorPool::from_file_descriptor_set(compiled).map_err(|error| invalid(&error))?;
        ProtobufSchema::of(&pool, message)
    }

    /// A message's type from a text and the texts that it imports, by their names there.
    ///
    /// # Errors
    /// As [`ProtobufSchema::from_files`].
    pub fn from_texts(
        text: &str,
        imports: &BTreeMap<String, String>,
        message: &str,
    ) -> Result<ProtobufSchema> {
        ProtobufSchema::of(&pool_of(text, imports)?, message)
    }

    /// A message's type from a text, by the way that Confluent's frame names it: the position of the message
    /// in the file, then within that message, and so on.
    ///
    /// # Errors
    /// As [`ProtobufSchema::from_files`].
    pub fn at_indexes(
        text: &str,
        imports: &BTreeMap<String, String>,
        indexes: &[usize],
    ) -> Result<ProtobufSchema> {
        let pool = pool_of(text, imports)?;
        let file = pool.get_file_by_name(ROOT).ok_or_else(|| invalid(&"the file is not there"))?;
        let missing = || invalid(&format!("there is no message at {indexes:?}"));
        let (first, rest) = indexes.split_first().ok_or_else(missing)?;
        let outer = file.messages().nth(*first).ok_or_else(missing)?;
        let message = rest.iter().try_fold(outer, |message, at| message.child_messages().nth(*at));
        Ok(ProtobufSchema { message: message.ok_or_else(missing)? })
    }

    fn of(pool: &DescriptorPool, message: &str) -> Result<ProtobufSchema> {
        let found = pool.get_message_by_name(message);
        let message = found.ok_or_else(|| invalid(&format!("there is no message {message}")))?;
        Ok(ProtobufSchema { message })
    }

    /// The fields of a message.
    ///
    /// # Errors
    /// If the bytes are no such message.
    pub fn read(&self, bytes: &[u8]) -> std::result::Result<Vec<Cell>, BadMessage> {
        let message = DynamicMessage::decode(self.message.clone(), bytes)
            .map_err(|error| BadMessage::new(format!("protobuf: {error}")))?;
        let mut cells = Vec::new();
        for field in self.message.fields() {
            let value = if field.supports_presence() && !message.has_field(&field) {
                Value::Null
            } else {
                value(&field, &message.get_field(&field))
                    .map_err(|bad| BadMessage::column(field.name(), bad))?
            };
            let is_enum = matches!(field.kind(), Kind::Enum(_)) && !field.is_list() && !field.is_map();
            let source_type = is_enum.then(|| std::sync::Arc::new(SourceType::named("varchar")));
            cells.push(Cell { name: field.name().to_owned(), value, source_type });
        }
        Ok(cells)
    }
}

/// The name under which a text without a file is compiled.
const ROOT: &str = "schema.proto";

fn invalid(error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("protobuf schema: {error}"))
}

/// Finds files among texts.
struct Texts(BTreeMap<String, String>);

impl FileResolver for Texts {
    fn open_file(&self, name: &str) -> std::result::Result<File, protox::Error> {
        let text = self.0.get(name).ok_or_else(|| protox::Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

fn pool_of(text: &str, imports: &BTreeMap<String, String>) -> Result<DescriptorPool> {
    let mut texts = imports.clone();
    texts.insert(ROOT.to_owned(), text.to_owned());
    let mut resolver = ChainFileResolver::new();
    resolver.add(Texts(texts));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    compiler.open_file(ROOT).map_err(|error| invalid(&error))?;
    Ok(compiler.descriptor_pool())
}

/// A value of a column; what has parts becomes JSON.
fn value(field: &FieldDescriptor, found: &prost_reflect::Value) -> std::result::Result<Value, BadMessage> {
    use prost_reflect::Value as Found;
    Ok(match found {
        Found::Bool(value) => Value::Bool(*value),
        Found::I32(value) => Value::Int((*value).into()),
        Found::I64(value) => Value::Int(*value),
        Found::U32(value) => Value::UInt((*value).into()),
        Found::U64(value) => Value::UInt(*value),
        Found::F32(value) => Value::Single(*value),
        Found::F64(value) => Value::Double(*value),
        Found::String(text) => Value::Text(text.clone()),
        Found::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        Found::EnumNumber(number) => match field.kind() {
            Kind::Enum(kind) => Value::Text(label(&kind, *number)),
            _ => Value::Int((*number).into()),
        },
        Found::Message(message) => well_known(message)?.unwrap_or_else(|| Value::Json(json_of(message))),
        Found::List(_) | Found::Map(_) => {
            let mut text = String::new();
            put_json(&field.kind(), found, &mut text);
            Value::Json(text)
        }
    })
}

fn label(kind: &EnumDescriptor, number: i32) -> String {
    kind.get_value(number).map_or_else(|| number.to_string(), |value| value.name().to_owned())
}

/// Timestamps and wrappers are values, not messages.
fn well_known(message: &DynamicMessage) -> std::result::Result<Option<Value>, BadMessage> {
    let descriptor = message.descriptor();
    let name = descriptor.full_name();
    let field = |number: u32| message.get_field_by_number(number).map(std::borrow::Cow::into_owned);
    if name == "google.protobuf.Timestamp" {
        let (Some(prost_reflect::Value::I64(seconds)), Some(prost_reflect::Value::I32(nanos))) =
            (field(1), field(2))
        else {
            return Err(BadMessage::new("a timestamp without its fields"));
        };
        let micros =
            seconds.checked_mul(1_000_000).and_then(|micros| micros.checked_add(i64::from(nanos / 1_000)));
        return micros
            .map(|micros| Some(Value::Instant(micros)))
            .ok_or_else(|| BadMessage::new("a time beyond all"));
    }
    let is_wrapper =
        name.starts_with("google.protobuf.") && name.ends_with("Value") && descriptor.fields().len() == 1;
    match descriptor.get_field(1).filter(|_| is_wrapper && name != "google.protobuf.ListValue") {
        Some(inner) => value(&inner, &message.get_field(&inner)).map(Some),
        None => Ok(None),
    }
}

fn json_of(message: &DynamicMessage) -> String {
    let mut text = String::from("{");
    let descriptor = message.descriptor();
    let fields = descriptor.fields().filter(|field| !field.supports_presence() || message.has_field(field));
    for (at, field) in fields.enumerate() {
        if at > 0 {
            text.push(',');
        }
        write!(text, "{}:", Quoted(field.name())).expect("a text can be written to");
        put_json(&field.kind(), &message.get_field(&field), &mut text);
    }
    text.push('}');
    text
}

fn put_json(kind: &Kind, found: &prost_reflect::Value, out: &mut String) {
    use base64::Engine;
    use prost_reflect::Value as Found;
    let text = match found {
        Found::Bool(value) => value.to_string(),
        Found::I32(value) => value.to_string(),
        Found::I64(value) => value.to_string(),
        Found::U32(value) => value.to_string(),
        Found::U64(value) => value.to_string(),
        Found::F32(value) if value.is_finite() => value.to_string(),
        Found::F64(value) if value.is_finite() => value.to_string(),
        Found::F32(value) => Quoted(&value.to_string()).to_string(),
        Found::F64(value) => Quoted(&value.to_string()).to_string(),
        Found::String(text) => Quoted(text).to_string(),
        Found::Bytes(bytes) => Quoted(&base64::engine::general_purpose::STANDARD.encode(bytes)).to_string(),
        Found::EnumNumber(number) => match kind {
            Kind::Enum(kind) => Quoted(&label(kind, *number)).to_string(),
            _ => number.to_string(),
        },
        Found::Message(message) => json_of(message),
        Found::List(elements) => {
            let texts = elements.iter().map(|element| {
                let mut text = String::new();
                put_json(kind, element, &mut text);
                text
            });
            format!("[{}]", texts.collect::<Vec<_>>().join(","))
        }
        Found::Map(entries) => map_json(kind, entries.iter()),
    };
    out.push_str(&text);
}

/// A map, in the order of its keys: they come in any order.
fn map_json<'a>(
    kind: &Kind,
    entries: impl Iterator<Item = (&'a MapKey, &'a prost_reflect::Value)>,
) -> String {
    let value_kind = match kind {
        Kind::Message(entry) => entry.map_entry_value_field().kind(),
        other => other.clone(),
    };
    let mut sorted = BTreeMap::new();
    for (key, value) in entries {
        let key = match key {
            MapKey::Bool(key) => key.to_string(),
            MapKey::I32(key) => key.to_string(),
            MapKey::I64(key) => key.to_string(),
            MapKey::U32(key) => key.to_string(),
            MapKey::U64(key) => key.to_string(),
            MapKey::String(key) => key.clone(),
        };
        let mut text = String::new();
        put_json(&value_kind, value, &mut text);
        sorted.insert(key, text);
    }
    let members: Vec<String> =
        sorted.into_iter().map(|(key, value)| format!("{}:{value}", Quoted(&key))).collect();
    format!("{{{}}}", members.join(","))
}
