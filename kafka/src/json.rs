//! JSON as change events need it: numbers stay the text they were, names keep their order.
//!
//! `serde_json` is not used here. Its values order names alphabetically unless a feature of the whole
//! workspace says otherwise, it takes a certain name in a foreign object for a number of its own, and it
//! says nothing of names that stand twice. Texts borrow from the message where they have no escapes. Depth
//! is limited, so no message exhausts the stack.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, digit by digit as it was written.
    Number(&'a str),
    /// A text.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object, its members in the order they came in.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why bytes are not JSON.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not JSON at byte {at}: {what}")]
pub struct JsonError {
    /// Where, in bytes from the beginning.
    pub at: usize,
    /// What was expected or is wrong.
    pub what: &'static str,
}

impl<'a> Json<'a> {
    /// Reads one value that takes up all of the input.
    ///
    /// # Errors
    /// If the input is not UTF-8, is no JSON, or nests too deep.
    pub fn parse(input: &'a [u8]) -> Result<Json<'a>, JsonError> {
        let text = std::str::from_utf8(input)
            .map_err(|error| JsonError { at: error.valid_up_to(), what: "a byte that is not UTF-8" })?;
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip_space();
        if parser.at < text.len() { Err(parser.error("something after the end")) } else { Ok(value) }
    }

    /// The member of an object; of members with the same name the last, as most parsers have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => {
                members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// As [`Json::get`], without members that are `null`.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json<'a>> {
        self.get(name).filter(|value| **value != Json::Null)
    }

    /// The members, if this is an object.
    #[must_use]
    pub fn members(&self) -> Option<&[(Cow<'a, str>, Json<'a>)]> {
        if let Json::Object(members) = self { Some(members) } else { None }
    }

    /// The elements, if this is an array.
    #[must_use]
    pub fn elements(&self) -> Option<&[Json<'a>]> {
        if let Json::Array(elements) = self { Some(elements) } else { None }
    }

    /// The text, if this is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }

    /// Whether this is `true`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        *self == Json::Bool(true)
    }

    /// The number, if this is a whole one that fits.
    #[must_use]
    pub fn unsigned(&self) -> Option<u64> {
        if let Json::Number(digits) = self { digits.parse().ok() } else { None }
    }

    /// The number, if this is a whole one that fits.
    #[must_use]
    pub fn signed(&self) -> Option<i64> {
        if let Json::Number(digits) = self { digits.parse().ok() } else { None }
    }

    /// What kind of value this is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a text",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        }
    }
}

impl fmt::Display for Json<'_> {
    /// Writes the value without spaces.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => out.write_str("null"),
            Json::Bool(value) => write!(out, "{value}"),
            Json::Number(digits) => out.write_str(digits),
            Json::Text(text) => Quoted(text).fmt(out),
            Json::Array(elements) => {
                out.write_str("[")?;
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.write_str(",")?;
                    }
                    element.fmt(out)?;
                }
                out.write_str("]")
            }
            Json::Object(members) => {
                out.write_str("{")?;
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.write_str(",")?;
                    }
                    write!(out, "{}:{value}", Quoted(name))?;
                }
                out.write_str("}")
            }
        }
    }
}

/// A text as it stands in JSON, with its quotes.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"")?;
        let mut plain_from = 0;
        for (at, byte) in self.0.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            out.write_str(&self.0[plain_from..at])?;
            plain_from = at + 1;
            match byte {
                b'"' => out.write_str("\\\"")?,
                b'\\' => out.write_str("\\\\")?,
                b'\n' => out.write_str("\\n")?,
                b'\r' => out.write_str("\\r")?,
                b'\t' => out.write_str("\\t")?,
                other => write!(out, "\\u{other:04x}")?,
            }
        }
        out.write_str(&self.0[plain_from..])?;
        out.write_str("\"")
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        if depth > DEPTH_MAX {
            return Err(self.error("it nests too deep"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.error("no value begins like this")),
            None => Err(self.error("a value is missing")),
        }
    }

    fn word(&mut self, word: &'static str, value: Json<'a>) -> Result<Json<'a>, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("no value begins like this"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error("a name is missing"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.error("a colon is missing"));
            }
            members.push((name, self.value(depth + 1)?));
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.eat(b',') {
                return Err(self.error("a comma or the end of an object is missing"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Json::Array(elements));
            }
            if !self.eat(b',') {
                return Err(self.error("a comma or the end of an array is missing"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err(self.error("a digit is missing")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let from = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()?;
        }
        Ok(Json::Number(&self.text[from..self.at]))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let text: &'a str = self.text;
        let mut plain_from = self.at;
        let mut unescaped: Option<String> = None;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &text[plain_from..self.at];
                    self.at += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(rest),
                        Some(mut unescaped) => {
                            unescaped.push_str(rest);
                            Cow::Owned(unescaped)
                        }
                    });
                }
                Some(b'\\') => {
                    let whole = unescaped.get_or_insert_default();
                    whole.push_str(&text[plain_from..self.at]);
                    let escaped = self.escape()?;
                    whole.push(escaped);
                    plain_from = self.at;
                }
                Some(0..=0x1f) => return Err(self.error("a control character in a text")),
                Some(_) => self.at += 1,
                None => return Err(self.error("a text does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let letter = self.text.as_bytes().get(self.at + 1).copied();
        self.at += 2;
        let plain = match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(self.error("an unknown escape")),
        };
        Ok(plain)
    }

    fn code_point(&mut self) -> Result<char, JsonError> {
        let first = self.four_hex()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !(self.eat(b'\\') && self.eat(b'u')) {
                    return Err(self.error("half a surrogate pair"));
                }
                let second = self.four_hex()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.error("half a surrogate pair"));
                }
                0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| self.error("half a surrogate pair"))
    }

    fn four_hex(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| JsonError { at: self.at - 4, what: "four hexadecimal digits are missing" })
    }
}
