//! Parameters of COM_STMT_EXECUTE.

use std::collections::BTreeMap;

use super::column::wire_type;
use super::wire::{Malformed, Reader};
use sql::Literal;

/// A parameter's type: the wire type, and whether integers are unsigned.
pub(crate) type ParameterType = (u8, bool);

/// What COM_STMT_EXECUTE carries behind the statement's id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Execute {
    pub(crate) cursor: u8,
    pub(crate) types: Vec<ParameterType>,
    pub(crate) parameters: Vec<Literal>,
}

/// Parses COM_STMT_EXECUTE, after the statement's id.
///
/// `known_types` are those of the previous execution, `long` what came by COM_STMT_SEND_LONG_DATA.
pub(crate) fn parse_execute(
    payload: &[u8],
    n_parameters: usize,
    known_types: &[ParameterType],
    long: &BTreeMap<u16, Vec<u8>>,
) -> Result<Execute, Malformed> {
    let mut reader = Reader::new(payload);
    let cursor = reader.u8("cursor flags")?;
    if reader.u32("iteration count")? != 1 {
        return Err(Malformed("an iteration count of 1"));
    }
    if n_parameters == 0 {
        return Ok(Execute { cursor, types: Vec::new(), parameters: Vec::new() });
    }
    let nulls = reader.bytes(n_parameters.div_ceil(8), "null bitmap")?;
    let mut types = known_types.to_vec();
    if reader.u8("flag of new parameter types")? == 1 {
        types.clear();
        for _ in 0..n_parameters {
            let wire_type = reader.u8("parameter type")?;
            types.push((wire_type, reader.u8("parameter flags")? & 0x80 != 0));
        }
    }
    if types.len() != n_parameters {
        return Err(Malformed("parameter types in the first execution"));
    }
    let mut parameters = Vec::with_capacity(n_parameters);
    for (index, (wire_type, unsigned)) in types.iter().enumerate() {
        let long = u16::try_from(index).ok().and_then(|index| long.get(&index));
        let null = nulls[index / 8] & (1 << (index % 8)) != 0;
        parameters.push(match long {
            Some(bytes) => text_or_bytes(bytes),
            None if null => Literal::Null,
            None => parse_value(&mut reader, *wire_type, *unsigned)?,
        });
    }
    if !reader.is_empty() {
        return Err(Malformed("nothing after the last parameter"));
    }
    Ok(Execute { cursor, types, parameters })
}

fn text_or_bytes(bytes: &[u8]) -> Literal {
    match std::str::from_utf8(bytes) {
        Ok(text) => Literal::String(text.to_string()),
        Err(_) => Literal::Bytes(bytes.to_vec()),
    }
}

/// Extends the sign of a number that was read in fewer bits.
fn signed(number: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    (number << shift).cast_signed() >> shift
}

fn integer(number: u64, bits: u32, unsigned: bool) -> Literal {
    if unsigned { Literal::UInt(number) } else { Literal::Int(signed(number, bits)) }
}

fn parse_value(reader: &mut Reader<'_>, wire_type: u8, unsigned: bool) -> Result<Literal, Malformed> {
    Ok(match wire_type {
        wire_type::NULL => Literal::Null,
        wire_type::TINY => integer(u64::from(reader.u8("TINYINT parameter")?), 8, unsigned),
        wire_type::SHORT | wire_type::YEAR => {
            integer(u64::from(reader.u16("SMALLINT parameter")?), 16, unsigned)
        }
        wire_type::LONG | wire_type::INT24 => integer(u64::from(reader.u32("INT parameter")?), 32, unsigned),
        wire_type::LONGLONG => integer(reader.u64("BIGINT parameter")?, 64, unsigned),
        wire_type::FLOAT => {
            let value = f32::from_bits(reader.u32("FLOAT parameter")?);
            // By its shortest text, so that 0.1 stays 0.1.
            Literal::Double(value.to_string().parse().unwrap_or(f64::from(value)))
        }
        wire_type::DOUBLE => Literal::Double(f64::from_bits(reader.u64("DOUBLE parameter")?)),
        wire_type::DECIMAL | wire_type::NEWDECIMAL => {
            let text = reader.lenenc_bytes("DECIMAL parameter")?;
            let text = std::str::from_utf8(text).map_err(|_| Malformed("DECIMAL parameter"))?;
            if !is_decimal(text) {
                return Err(Malformed("DECIMAL parameter"));
            }
            Literal::Decimal(text.to_string())
        }
        wire_type::DATE | wire_type::DATETIME | wire_type::TIMESTAMP => parse_datetime(reader, wire_type)?,
        wire_type::TIME => parse_time(reader)?,
        wire_type::VARCHAR
        | wire_type::BIT
        | wire_type::JSON
        | wire_type::ENUM
        | wire_type::SET
        | wire_type::TINY_BLOB..=wire_type::STRING => text_or_bytes(reader.lenenc_bytes("string parameter")?),
        _ => return Err(Malformed("known parameter type")),
    })
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn parse_datetime(reader: &mut Reader<'_>, wire_type: u8) -> Result<Literal, Malformed> {
    let length = reader.u8("length of a date")?;
    if !matches!(length, 0 | 4 | 7 | 11) {
        return Err(Malformed("length of a date"));
    }
    let (mut year, mut fields, mut micros) = (0, [0_u8; 5], 0);
    if length >= 4 {
        year = reader.u16("year")?;
        fields[0] = reader.u8("month")?;
        fields[1] = reader.u8("day")?;
    }
    if length >= 7 {
        for field in &mut fields[2..] {
            *field = reader.u8("time of day")?;
        }
    }
    if length == 11 {
        micros = reader.u32("microseconds")?;
    }
    let [month, day, hour, minute, second] = fields;
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if wire_type != wire_type::DATE || length > 4 {
        text.push_str(&format!(" {hour:02}:{minute:02}:{second:02}"));
    }
    if micros > 0 {
        text.push_str(&format!(".{micros:06}"));
    }
    Ok(if wire_type == wire_type::DATE && length <= 4 {
        Literal::Date(text)
    } else {
        Literal::Datetime(text)
    })
}

fn parse_time(reader: &mut Reader<'_>) -> Result<Literal, Malformed> {
    let length = reader.u8("length of a time")?;
    if !matches!(length, 0 | 8 | 12) {
        return Err(Malformed("length of a time"));
    }
    if length == 0 {
        return Ok(Literal::String("00:00:00".to_string()));
    }
    let sign = if reader.u8("sign of a time")? == 1 { "-" } else { "" };
    let days = u64::from(reader.u32("days of a time")?);
    let (hour, minute) = (reader.u8("hours")?, reader.u8("minutes")?);
    let second = reader.u8("seconds")?;
    let mut text = format!("{sign}{:02}:{minute:02}:{second:02}", days * 24 + u64::from(hour));
    if length == 12 {
        text.push_str(&format!(".{:06}", reader.u32("microseconds")?));
    }
    Ok(Literal::String(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(types: &[(u8, u8)], nulls: u8, values: &[u8]) -> Result<Vec<Literal>, Malformed> {
        let mut payload = vec![0, 1, 0, 0, 0, nulls, 1];
        for (wire_type, flags) in types {
            payload.extend_from_slice(&[*wire_type, *flags]);
        }
        payload.extend_from_slice(values);
        Ok(parse_execute(&payload, types.len(), &[], &BTreeMap::new())?.parameters)
    }

    #[test]
    fn integers_keep_sign_and_width() {
        let types = [(wire_type::TINY, 0), (wire_type::TINY, 0x80), (wire_type::SHORT, 0)];
        let values = execute(&types, 0, &[0xff, 0xff, 0xfe, 0xff]).unwrap();
        assert_eq!(values, [Literal::Int(-1), Literal::UInt(255), Literal::Int(-2)]);
        let max = execute(&[(wire_type::LONGLONG, 0x80)], 0, &[0xff; 8]).unwrap();
        assert_eq!(max, [Literal::UInt(u64::MAX)]);
    }

    #[test]
    fn nulls_text_bytes_and_times() {
        let types = [(wire_type::VAR_STRING, 0), (wire_type::LONG, 0), (wire_type::BLOB, 0)];
        let values = execute(&types, 0b10, b"\x02hi\x02\xff\xfe").unwrap();
        let expected = [Literal::String("hi".into()), Literal::Null, Literal::Bytes(vec![0xff, 0xfe])];
        assert_eq!(values, expected);
        let time = execute(&[(wire_type::DATETIME, 0)], 0, &[7, 0xe8, 7, 2, 29, 1, 2, 3]).unwrap();
        assert_eq!(time, [Literal::Datetime("2024-02-29 01:02:03".into())]);
        let time = execute(&[(wire_type::TIME, 0)], 0, &[8, 1, 1, 0, 0, 0, 2, 3, 4]).unwrap();
        assert_eq!(time, [Literal::String("-26:03:04".into())]);
    }

    #[test]
    fn long_data_stands_for_its_parameter() {
        let payload = [0, 1, 0, 0, 0, 0, 1, wire_type::BLOB, 0];
        let long = BTreeMap::from([(0, b"long".to_vec())]);
        let execute = parse_execute(&payload, 1, &[], &long).unwrap();
        assert_eq!(execute.parameters, [Literal::String("long".into())]);
    }

    #[test]
    fn what_is_cut_or_too_long_is_malformed() {
        let types = [(wire_type::VAR_STRING, 0), (wire_type::DATETIME, 0)];
        let values = b"\x03abc\x04\xe8\x07\x01\x01";
        assert!(execute(&types, 0, values).is_ok());
        for cut in 0..values.len() {
            assert!(execute(&types, 0, &values[..cut]).is_err(), "cut {cut}");
        }
        assert!(execute(&types, 0, b"\x03abc\x04\xe8\x07\x01\x01x").is_err());
        assert!(execute(&[(200, 0)], 0, b"\x03abc").is_err());
        assert!(execute(&[(wire_type::DATE, 0)], 0, b"\x05aaaaa").is_err());
        assert!(execute(&[(wire_type::NEWDECIMAL, 0)], 0, b"\x071; DROP").is_err());
    }

    #[test]
    fn random_executions_never_panic() {
        let mut seed = 3_u64;
        for _ in 0..20_000 {
            let mut payload = vec![0, 1, 0, 0, 0];
            for _ in 0..seed % 40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                payload.push(seed.to_be_bytes()[0] & if seed & 1 == 0 { 0x0f } else { 0xff });
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let n_parameters = usize::try_from(seed >> 60).unwrap();
            let _outcome = parse_execute(&payload, n_parameters, &[], &BTreeMap::new());
        }
    }
}
