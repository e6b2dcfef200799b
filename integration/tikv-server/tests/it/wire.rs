//! Messages as the recordings write them: JSON with hex bytes and symbols for timestamps.

use bytes::Bytes;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value,
};
use serde_json::Value as Json;

/// Descriptions of every message.
pub(crate) fn descriptors() -> DescriptorPool {
    let protocols = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tikv/proto");
    let files = protox::compile(["tikvpb.proto", "cdcpb.proto", "pdpb.proto"], [protocols]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
}

/// What a symbol stands for.
pub(crate) type Numbers<'a> = &'a dyn Fn(&str) -> u64;

/// Reads a message.
pub(crate) fn message(json: &Json, descriptor: &MessageDescriptor, numbers: Numbers<'_>) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, json) in json.as_object().unwrap_or_else(|| panic!("{json} is no message")) {
        let field = descriptor.get_field_by_name(name);
        let field = field.unwrap_or_else(|| panic!("{} has no field {name}", descriptor.full_name()));
        message.set_field(&field, field_value(json, &field, numbers));
    }
    message
}

fn field_value(json: &Json, field: &FieldDescriptor, numbers: Numbers<'_>) -> Value {
    if field.is_list() {
        let list = json.as_array().unwrap_or_else(|| panic!("{json} is no list"));
        return Value::List(list.iter().map(|json| value(json, field, numbers)).collect());
    }
    value(json, field, numbers)
}

fn value(json: &Json, field: &FieldDescriptor, numbers: Numbers<'_>) -> Value {
    match field.kind() {
        Kind::Message(descriptor) => Value::Message(message(json, &descriptor, numbers)),
        Kind::Bytes => Value::Bytes(bytes(json.as_str().unwrap())),
        Kind::String => Value::String(json.as_str().unwrap().to_owned()),
        Kind::Bool => Value::Bool(json.as_bool().unwrap()),
        Kind::Uint64 => Value::U64(match json.as_str() {
            Some(symbol) => numbers(symbol),
            None => json.as_u64().unwrap(),
        }),
        Kind::Uint32 => Value::U32(u32::try_from(json.as_u64().unwrap()).unwrap()),
        Kind::Enum(names) => Value::EnumNumber(match json.as_str() {
            None => i32::try_from(json.as_i64().unwrap()).unwrap(),
            Some(name) => {
                let same = |known: &str| known.eq_ignore_ascii_case(name);
                let known = names.values().find(|known| same(known.name()));
                known.unwrap_or_else(|| panic!("{} has no {name}", names.full_name())).number()
            }
        }),
        other => panic!("no recording has {other:?}"),
    }
}

/// Bytes in hex; `hh*count` is a run.
pub(crate) fn bytes(text: &str) -> Bytes {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    if let Some((hex, count)) = text.split_once('*') {
        return vec![byte(hex); count.parse().unwrap()].into();
    }
    (0..text.len()).step_by(2).map(|at| byte(&text[at..at + 2])).collect::<Vec<u8>>().into()
}

/// Takes out what cannot be the same: the wording of errors, and sizes that count what is not sent.
pub(crate) fn normalise(message: &mut DynamicMessage) {
    let descriptor = message.descriptor();
    let fields = descriptor.fields().filter(|field| message.has_field(field));
    for field in &fields.collect::<Vec<FieldDescriptor>>() {
        match field.name() {
            "abort" | "retryable" => message.set_field(field, Value::String("in words".to_owned())),
            "message" if is_sized(message) => message.set_field(field, Value::String("in words".to_owned())),
            "entry_size" => message.set_field(field, Value::U64(1)),
            _ => match message.get_field_mut(field) {
                Value::Message(inner) => normalise(inner),
                Value::List(list) => {
                    for value in list {
                        if let Value::Message(inner) = value {
                            normalise(inner);
                        }
                    }
                }
                _ => {}
            },
        }
    }
}

fn is_sized(error: &DynamicMessage) -> bool {
    error.has_field_by_name("raft_entry_too_large")
}

/// Bytes as they are, for calls of any kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, item: Bytes, buffer: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        bytes::BufMut::put(buffer, item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, buffer: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        let length = bytes::Buf::remaining(buffer);
        Ok(Some(bytes::Buf::copy_to_bytes(buffer, length)))
    }
}
