//! What tests of decoders share.

use kafka::{BadMessage, Decoder, Event, EventKind, Image, Message, Value};

/// The events of a message without a key.
pub(crate) fn decode(decoder: &mut dyn Decoder, value: &str) -> Result<Vec<Event>, BadMessage> {
    decoder.decode(Message { value: Some(value.as_bytes()), ..Message::default() })
}

/// The only event of a message without a key.
pub(crate) fn one(decoder: &mut dyn Decoder, value: &str) -> Event {
    only(decode(decoder, value).unwrap_or_else(|error| panic!("{error}: {value}")))
}

/// The only event of a message with a key.
pub(crate) fn one_of(decoder: &mut dyn Decoder, key: &[u8], value: Option<&[u8]>) -> Event {
    only(decoder.decode(Message { key: Some(key), value, ..Message::default() }).unwrap())
}

pub(crate) fn only(mut events: Vec<Event>) -> Event {
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

/// Why a message without a key is bad.
pub(crate) fn reason(decoder: &mut dyn Decoder, value: &str) -> String {
    match decode(decoder, value) {
        Ok(events) => panic!("{value} is {events:?}"),
        Err(error) => error.reason,
    }
}

/// The image that there must be.
pub(crate) fn after(event: &Event) -> &Image {
    event.after.as_ref().expect("a row after")
}

pub(crate) fn before(event: &Event) -> &Image {
    event.before.as_ref().expect("a row before")
}

/// A value of an image.
pub(crate) fn get<'a>(image: &'a Image, name: &str) -> &'a Value {
    image.get(name).unwrap_or_else(|| panic!("no column {name} in {image:?}"))
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(crate) fn number(text: &str) -> Value {
    Value::Number(text.to_owned())
}

pub(crate) fn is_watermark(event: &Event, at: u64) -> bool {
    event.kind == EventKind::Watermark(types::Timestamp(at))
}

/// A good message, changed in a few places: bytes replaced, removed, repeated, or the end cut off.
pub(crate) fn mutated(golden: &[u8], changes: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = golden.to_vec();
    for (at, kind, byte) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = at % bytes.len();
        match kind % 5 {
            0 => bytes[at] = *byte,
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, *byte),
            3 => bytes[at] ^= 1 << (byte % 8),
            _ => bytes.truncate(at),
        }
    }
    bytes
}
