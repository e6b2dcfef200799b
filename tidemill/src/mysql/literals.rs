//! Bytes inside statements: `_binary'...'` literals of clients that send them raw.
//!
//! A statement is UTF-8, but a client like PyMySQL puts bytes into a string literal after `_binary`. Where
//! a statement is not UTF-8, such literals are rewritten as `X'...'`; everything else stays, and is refused
//! later if it still is not UTF-8.

use std::borrow::Cow;
use std::fmt::Write;

/// Rewrites raw binary literals in a statement that is not UTF-8.
pub(crate) fn binary_as_hex(statement: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(statement).is_ok() {
        return Cow::Borrowed(statement);
    }
    let mut out = Vec::with_capacity(statement.len() * 2);
    let mut at = 0;
    while at < statement.len() {
        let rest = &statement[at..];
        let end = token_end(rest);
        let is_string = matches!(rest[0], b'\'' | b'"');
        if is_string && std::str::from_utf8(&rest[..end]).is_err() && has_introducer(&out) {
            let keep = introducer_start(&out);
            out.truncate(keep);
            let mut hex = String::from("X'");
            for byte in unescape(&rest[..end]) {
                write!(hex, "{byte:02X}").expect("a string takes every write");
            }
            hex.push('\'');
            out.extend_from_slice(hex.as_bytes());
        } else {
            out.extend_from_slice(&rest[..end]);
        }
        at += end;
    }
    Cow::Owned(out)
}

/// Where the string, quoted name, comment or single byte at the front ends.
fn token_end(rest: &[u8]) -> usize {
    match rest {
        [quote @ (b'\'' | b'"' | b'`'), ..] => string_end(rest, *quote),
        [b'#', ..] => line_end(rest),
        [b'-', b'-', next, ..] if next.is_ascii_whitespace() => line_end(rest),
        [b'/', b'*', ..] => {
            rest.windows(2).skip(2).position(|pair| pair == b"*/").map_or(rest.len(), |at| at + 4)
        }
        _ => 1,
    }
}

fn line_end(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1)
}

fn string_end(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' if quote != b'`' => at += 2,
            byte if byte == quote && rest.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn introducer_start(out: &[u8]) -> usize {
    let trimmed = out.trim_ascii_end();
    trimmed.len().saturating_sub(b"_binary".len())
}

fn has_introducer(out: &[u8]) -> bool {
    let trimmed = out.trim_ascii_end();
    let start = introducer_start(out);
    let bounded = start == 0 || !(trimmed[start - 1].is_ascii_alphanumeric() || trimmed[start - 1] == b'_');
    bounded && trimmed[start..].eq_ignore_ascii_case(b"_binary")
}

/// The bytes between the quotes.
fn unescape(literal: &[u8]) -> Vec<u8> {
    let (quote, inner) = (literal[0], &literal[1..literal.len().saturating_sub(1).max(1)]);
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'0') => 0,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'b') => 8,
                Some(b'Z') => 26,
                Some(other) => other,
                None => break,
            },
            byte if byte == quote => {
                // The second of a doubled quote.
                bytes.next();
                quote
            }
            byte => byte,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(statement: &[u8], expected: &[u8]) {
        assert_eq!(binary_as_hex(statement).as_ref(), expected);
    }

    #[test]
    fn raw_bytes_after_the_introducer_become_hex() {
        check(b"VALUES (_binary'\xff\\'\\\\\\0''x')", b"VALUES (X'FF275C002778')");
        check(b"VALUES (_BINARY '\xff', 'a')", b"VALUES (X'FF', 'a')");
        check(b"VALUES (_binary\"\xfe\")", b"VALUES (X'FE')");
    }

    #[test]
    fn everything_else_stays() {
        check("VALUES (_binary'grün')".as_bytes(), "VALUES (_binary'grün')".as_bytes());
        check(b"VALUES ('\xff')", b"VALUES ('\xff')");
        check(b"VALUES (my_binary'\xff')", b"VALUES (my_binary'\xff')");
        check(b"/* _binary' */ '\xff'", b"/* _binary' */ '\xff'");
        check(b"SELECT 1 -- _binary'\n, '\xff'", b"SELECT 1 -- _binary'\n, '\xff'");
        check(b"_binary'\xff", b"X''");
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut seed = 11_u64;
        for _ in 0..5000 {
            let mut bytes = b"_binary".to_vec();
            for _ in 0..seed % 30 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let choices = b"'\"`\\#-/*\n\xff a_";
                bytes.push(choices[usize::try_from(seed >> 33).unwrap() % choices.len()]);
            }
            seed = seed.wrapping_add(0x9e37_79b9);
            let _text = binary_as_hex(&bytes);
        }
    }
}
