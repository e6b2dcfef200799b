//! Members of a message, taken out with errors that name them.
//!
//! `null` is as good as missing everywhere: senders leave members out in either way.

use crate::event::BadMessage;
use crate::json::Json;

/// A message's outer object.
pub(crate) fn object<'a>(bytes: &'a [u8], what: &str) -> Result<Json<'a>, BadMessage> {
    let json = Json::parse(bytes)?;
    match json {
        Json::Object(_) => Ok(json),
        other => Err(BadMessage::new(format!("{what} is {}, not an object", other.kind()))),
    }
}

/// A member that must be there and be a text.
pub(crate) fn text<'a>(object: &'a Json<'_>, name: &str) -> Result<&'a str, BadMessage> {
    let member = required(object, name)?;
    member.text().ok_or_else(|| BadMessage::new(format!("`{name}` is {}, not a text", member.kind())))
}

/// A text that may be left out or `null`: then it is empty.
pub(crate) fn text_or_empty<'a>(object: &'a Json<'_>, name: &str) -> Result<&'a str, BadMessage> {
    match object.member(name) {
        None => Ok(""),
        Some(_) => text(object, name),
    }
}

/// A member that must be there and be a whole number without a sign.
pub(crate) fn unsigned(object: &Json<'_>, name: &str) -> Result<u64, BadMessage> {
    let member = required(object, name)?;
    member.unsigned().ok_or_else(|| {
        BadMessage::new(format!("`{name}` is {member}, not a whole number of at most 64 bits"))
    })
}

/// A number that may be left out or `null`.
pub(crate) fn unsigned_if_any(object: &Json<'_>, name: &str) -> Result<Option<u64>, BadMessage> {
    match object.member(name) {
        None => Ok(None),
        Some(_) => unsigned(object, name).map(Some),
    }
}

/// A member that must be there and not be `null`.
pub(crate) fn required<'a, 'b>(object: &'a Json<'b>, name: &str) -> Result<&'a Json<'b>, BadMessage> {
    object.member(name).ok_or_else(|| BadMessage::new(format!("`{name}` is missing")))
}

/// The texts of an array that may be left out or `null`.
pub(crate) fn texts(object: &Json<'_>, name: &str) -> Result<Vec<String>, BadMessage> {
    let Some(member) = object.member(name) else { return Ok(Vec::new()) };
    let texts = member.elements().and_then(|elements| {
        elements.iter().map(|element| element.text().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| BadMessage::new(format!("`{name}` is not an array of texts")))
}

/// The members of an object, or an error that names it.
pub(crate) fn members<'a, 'b>(
    member: &'a Json<'b>,
    name: &str,
) -> Result<&'a [(std::borrow::Cow<'b, str>, Json<'b>)], BadMessage> {
    member.members().ok_or_else(|| BadMessage::new(format!("`{name}` is {}, not an object", member.kind())))
}
