//! Values that TiCDC compressed before it gave them to Kafka, with nothing in the message that says so.
//!
//! LZ4 is the frame format, Snappy the bare block. Kafka's own compression is the client's business. What
//! comes out is limited in size, and nothing is trusted: the bytes are anybody's. Checksums of frames are
//! skipped over; Kafka has its own.

use std::borrow::Cow;

use crate::event::{BadMessage, Decoder, Event, Message};

/// The most bytes that a value may have.
const BYTES_MAX: usize = 256 << 20;

/// The first bytes of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// How values are compressed (`large-message-handle-compression`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not, or in LZ4 frames, which are known by their first bytes.
    #[default]
    None,
    /// LZ4 frames.
    Lz4,
    /// Snappy blocks.
    Snappy,
}

impl Compression {
    /// The value as it was before.
    ///
    /// # Errors
    /// If it is not compressed so, or too large.
    pub fn decompress<'a>(self, value: &'a [u8]) -> Result<Cow<'a, [u8]>, BadMessage> {
        match self {
            Compression::None if value.starts_with(&LZ4_MAGIC) => lz4_frame(value).map(Cow::Owned),
            Compression::None => Ok(Cow::Borrowed(value)),
            Compression::Lz4 => lz4_frame(value).map(Cow::Owned),
            Compression::Snappy => snappy(value).map(Cow::Owned),
        }
    }
}

/// A decoder of messages whose whole value is compressed.
pub struct Decompressing<D> {
    /// The decoder of what comes out.
    pub decoder: D,
    /// How values are compressed.
    pub compression: Compression,
}

impl<D: Decoder> Decoder for Decompressing<D> {
    fn decode(&mut self, message: Message<'_>) -> Result<Vec<Event>, BadMessage> {
        let value = message.value.map(|value| self.compression.decompress(value)).transpose()?;
        self.decoder.decode(Message { value: value.as_deref(), ..message })
    }

    fn n_held(&self) -> usize {
        self.decoder.n_held()
    }
}

fn bad(what: &str) -> BadMessage {
    BadMessage::new(format!("a compressed value: {what}"))
}

fn snappy(value: &[u8]) -> Result<Vec<u8>, BadMessage> {
    let n_bytes = snap::raw::decompress_len(value).map_err(|error| bad(&error.to_string()))?;
    if n_bytes > BYTES_MAX {
        return Err(bad("too large"));
    }
    snap::raw::Decoder::new().decompress_vec(value).map_err(|error| bad(&error.to_string()))
}

fn take<'a>(input: &mut &'a [u8], n_bytes: usize) -> Result<&'a [u8], BadMessage> {
    let (taken, rest) = input.split_at_checked(n_bytes).ok_or_else(|| bad("it is cut off"))?;
    *input = rest;
    Ok(taken)
}

fn take_u32(input: &mut &[u8]) -> Result<u32, BadMessage> {
    let bytes = take(input, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn lz4_frame(mut input: &[u8]) -> Result<Vec<u8>, BadMessage> {
    if take(&mut input, 4)? != LZ4_MAGIC {
        return Err(bad("no LZ4 frame begins like this"));
    }
    let flags = take(&mut input, 2)?[0];
    if flags >> 6 != 1 {
        return Err(bad("an unknown version of LZ4 frames"));
    }
    let has = |bit: u8| flags >> bit & 1 == 1;
    if has(0) {
        return Err(bad("an LZ4 frame with a dictionary"));
    }
    // Content size, if any, and the checksum of the header.
    take(&mut input, if has(3) { 9 } else { 1 })?;
    let mut out = Vec::new();
    loop {
        let word = take_u32(&mut input)?;
        if word == 0 {
            break;
        }
        let block = take(&mut input, (word & 0x7fff_ffff) as usize)?;
        if has(4) {
            take(&mut input, 4)?;
        }
        // A block that depends on those before it copies from what they gave; one that does not, does not.
        if word >> 31 == 1 { put(&mut out, block)? } else { lz4_block(block, &mut out)? }
    }
    if has(2) {
        take(&mut input, 4)?;
    }
    if input.is_empty() { Ok(out) } else { Err(bad("something after the end of an LZ4 frame")) }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), BadMessage> {
    if out.len() + bytes.len() > BYTES_MAX {
        return Err(bad("too large"));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

fn lz4_block(mut input: &[u8], out: &mut Vec<u8>) -> Result<(), BadMessage> {
    while !input.is_empty() {
        let token = take(&mut input, 1)?[0];
        let n_literals = length(usize::from(token >> 4), &mut input)?;
        let literals = take(&mut input, n_literals)?;
        put(out, literals)?;
        if input.is_empty() {
            return Ok(());
        }
        let offset = take(&mut input, 2)?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        let n_copied = length(usize::from(token & 15), &mut input)? + 4;
        if offset == 0 || offset > out.len() {
            return Err(bad("a copy from before the beginning"));
        }
        if out.len() + n_copied > BYTES_MAX {
            return Err(bad("too large"));
        }
        let from = out.len() - offset;
        // What is copied may be what this very copy has just written.
        for at in from..from + n_copied {
            out.push(out[at]);
        }
    }
    Ok(())
}

/// A length of 15 goes on in further bytes, the last of which is not 255.
fn length(first: usize, input: &mut &[u8]) -> Result<usize, BadMessage> {
    let mut length = first;
    if first == 15 {
        loop {
            let byte = take(input, 1)?[0];
            length += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Ok(length)
}

/// What a claim check's file holds: the message's key, if it has one, and its value.
///
/// # Errors
/// If it is not `{"key": base64, "value": base64}`.
pub fn claim_check_content(file: &[u8]) -> Result<(Option<Vec<u8>>, Vec<u8>), BadMessage> {
    use crate::formats::{base64_bytes, fields};
    let json = fields::object(file, "a claim check's file")?;
    let key = match json.member("key") {
        None => None,
        Some(_) => Some(base64_bytes("key", fields::text(&json, "key")?)?).filter(|key| !key.is_empty()),
    };
    Ok((key, base64_bytes("value", fields::text(&json, "value")?)?))
}
