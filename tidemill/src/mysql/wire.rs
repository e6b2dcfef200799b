//! The atoms of MySQL's protocol: little-endian numbers, length-encoded numbers and strings.
//!
//! [`Reader`] takes bytes that a stranger sent: it never panics and never reads past the end; whatever
//! does not fit is [`Malformed`]. The `put_*` functions append to a packet that is being built.

/// A packet that does not follow the protocol; the text says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads a packet's payload from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes so many bytes.
    pub(crate) fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed(what))?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N, what)?;
        <[u8; N]>::try_from(bytes).map_err(|_| Malformed(what))
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number in 1, 3, 4 or 9 bytes.
    pub(crate) fn lenenc(&mut self, what: &'static str) -> Result<u64, Malformed> {
        match self.u8(what)? {
            small @ 0..=0xfa => Ok(u64::from(small)),
            0xfc => Ok(u64::from(self.u16(what)?)),
            0xfd => {
                let [a, b, c] = self.array(what)?;
                Ok(u64::from(u32::from_le_bytes([a, b, c, 0])))
            }
            0xfe => self.u64(what),
            _ => Err(Malformed(what)),
        }
    }

    /// A string with its length before it.
    pub(crate) fn lenenc_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.lenenc(what)?).map_err(|_| Malformed(what))?;
        self.bytes(length, what)
    }

    /// A string that ends with a zero byte.
    pub(crate) fn zero_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed(what))?;
        let (head, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(head)
    }
}

/// Appends a length-encoded number.
pub(crate) fn put_lenenc(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_le_bytes();
    match number {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a string with its length before it.
pub(crate) fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(number: u64, length: usize) {
        let mut out = Vec::new();
        put_lenenc(&mut out, number);
        assert_eq!(out.len(), length, "{number}");
        let mut reader = Reader::new(&out);
        assert_eq!(reader.lenenc("number"), Ok(number));
        assert!(reader.is_empty());
        for cut in 0..out.len() {
            assert_eq!(Reader::new(&out[..cut]).lenenc("number"), Err(Malformed("number")));
        }
    }

    #[test]
    fn length_encoded_numbers_round_trip() {
        for (number, length) in [
            (0, 1),
            (0xfa, 1),
            (0xfb, 3),
            (0xffff, 3),
            (0x1_0000, 4),
            (0xff_ffff, 4),
            (0x100_0000, 9),
            (u64::MAX, 9),
        ] {
            round_trip(number, length);
        }
    }

    #[test]
    fn a_string_longer_than_its_packet_is_malformed() {
        let mut out = Vec::new();
        put_lenenc(&mut out, u64::MAX);
        out.extend_from_slice(b"abc");
        assert_eq!(Reader::new(&out).lenenc_bytes("name"), Err(Malformed("name")));
        assert_eq!(Reader::new(b"abc").zero_bytes("name"), Err(Malformed("name")));
        assert_eq!(Reader::new(b"\xfb").lenenc("name"), Err(Malformed("name")));
        assert_eq!(Reader::new(b"\xff").lenenc("name"), Err(Malformed("name")));
    }
}
