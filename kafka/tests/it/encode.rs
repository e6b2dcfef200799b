//! What sinks write, read back by the decoders.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use kafka::{
    CanalDecoder, ChangeEncoder, ConvertOptions, DebeziumDecoder, DebeziumOptions, Decoder, EncodedMessage,
    Encoding, Event, EventKind, Image, Message, PlainDecoder, PlainMode, RowChange, RowConverter, RowOf,
    SinkFormat, TableName,
};
use proptest::prelude::*;
use tidb::{Cast, ColumnInfo, ColumnType, convert_column};
use types::Timestamp;

use crate::convert::column;
use crate::support::{is_watermark, only};

fn columns() -> Vec<ColumnInfo> {
    let types = [
        ("id", ColumnType::Int { bits: 64, unsigned: true }),
        ("small \"q\"", ColumnType::Int { bits: 8, unsigned: false }),
        ("price", ColumnType::Decimal { precision: 65, scale: 30 }),
        ("w", ColumnType::Float),
        ("x", ColumnType::Double),
        ("name", ColumnType::Varchar(100)),
        ("pic", ColumnType::Varbinary(100)),
        ("born", ColumnType::Date),
        ("short", ColumnType::Datetime(3)),
        ("long", ColumnType::Datetime(6)),
        ("at", ColumnType::Timestamp(6)),
    ];
    types.into_iter().map(|(name, kind)| column(name, kind)).collect()
}

/// A row from texts, as an INSERT has it.
fn batch(texts: &[Option<String>]) -> RecordBatch {
    let columns = columns();
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .zip(texts)
        .map(|(column, text)| {
            let array: ArrayRef = Arc::new(StringArray::from(vec![text.as_deref()]));
            convert_column(column, &array, &Cast::default()).unwrap()
        })
        .collect();
    let fields: Vec<_> = columns.iter().map(ColumnInfo::arrow_field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn texts() -> impl Strategy<Value = Vec<Option<String>>> {
    let some = |pattern: &str| proptest::string::string_regex(pattern).unwrap();
    let time = "(19[789][0-9]|20[012][0-9])-0[1-9]-[012][1-8] [01][0-9]:[0-5][0-9]:[0-5][0-9]";
    (
        any::<u64>().prop_map(|id| Some(id.to_string())),
        prop::option::of(any::<i8>().prop_map(|value| value.to_string())),
        prop::option::of(some("-?[1-9][0-9]{0,34}\\.[0-9]{1,30}")),
        prop::option::of(
            any::<f32>().prop_filter("finite", |value| value.is_finite()).prop_map(|value| value.to_string()),
        ),
        prop::option::of(
            any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(|value| value.to_string()),
        ),
        prop::option::of(some("[a\"\\\\\n\u{1}é漢<>&😀]{0,10}")),
        prop::option::of(some("[a\u{0}\u{7f}é\"\\\\]{0,10}")),
        prop::option::of(some("(0[0-9]{3}|[19]999|20[0-9]{2})-(0[1-9]|1[012])-([01][1-9]|2[0-8])")),
        prop::option::of(some(&format!("{time}\\.[0-9]{{3}}"))),
        prop::option::of(some(&format!("{time}\\.[0-9]{{6}}"))),
        prop::option::of(some(&format!("{time}\\.[0-9]{{6}}"))),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j, k)| vec![a, b, c, d, e, f, g, h, i, j, k])
}

fn encoder(format: SinkFormat) -> ChangeEncoder {
    ChangeEncoder::new(format, TableName::new("d", "v"), columns(), vec![0]).unwrap()
}

fn row(batch: &RecordBatch) -> Option<RowOf<'_>> {
    Some(RowOf { batch, row: 0 })
}

fn encode(format: SinkFormat, old: Option<&RecordBatch>, new: Option<&RecordBatch>) -> Vec<EncodedMessage> {
    let change = RowChange { old: old.and_then(row), new: new.and_then(row) };
    encoder(format).encode(change, Timestamp(458_421_964_860_358_657)).unwrap()
}

/// Reads messages back with the decoder of the format.
fn decode(format: SinkFormat, messages: &[EncodedMessage]) -> Vec<Event> {
    let table = TableName::new("d", "v");
    let mut decoder: Box<dyn Decoder> = match format {
        SinkFormat::Plain => {
            Box::new(PlainDecoder::new(PlainMode::Append, Encoding::json(), None, table).unwrap())
        }
        SinkFormat::Upsert => {
            let json = Encoding::json();
            Box::new(PlainDecoder::new(PlainMode::Upsert, json.clone(), Some(json), table).unwrap())
        }
        SinkFormat::Debezium { .. } => Box::new(DebeziumDecoder::new(DebeziumOptions::default())),
        SinkFormat::Canal => Box::new(CanalDecoder::default()),
    };
    let mut events = Vec::new();
    for message in messages {
        let message =
            Message { key: message.key.as_deref(), value: message.value.as_deref(), ..Message::default() };
        events.extend(decoder.decode(message).unwrap());
    }
    events
}

/// A row in our types. Bytes in plain JSON are base64, which the column must say.
fn converted(format: SinkFormat, image: &Image) -> RecordBatch {
    let mut image = image.clone();
    if matches!(format, SinkFormat::Plain | SinkFormat::Upsert) {
        for cell in image.cells.iter_mut().filter(|cell| cell.name == "pic") {
            if let kafka::Value::Text(text) = &cell.value {
                use base64::Engine;
                let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
                cell.value = kafka::Value::Bytes(bytes);
            }
        }
    }
    let done = RowConverter::new(columns(), ConvertOptions::default()).convert(&[&image]).unwrap();
    assert_eq!(done.errors, []);
    done.batch
}

const FORMATS: [SinkFormat; 4] =
    [SinkFormat::Plain, SinkFormat::Upsert, SinkFormat::Debezium { tombstones: true }, SinkFormat::Canal];

proptest! {
    #[test]
    fn rows_come_back_as_they_were(old in texts(), new in texts()) {
        let (old, mut new) = (old, new);
        new[0].clone_from(&old[0]);
        let (old, new) = (batch(&old), batch(&new));
        for format in FORMATS {
            let inserted = only(decode(format, &encode(format, None, Some(&new))));
            prop_assert_eq!(&converted(format, inserted.after.as_ref().unwrap()), &new, "{:?}", format);
            if matches!(format, SinkFormat::Debezium { .. } | SinkFormat::Canal) {
                let updated = only(decode(format, &encode(format, Some(&old), Some(&new))));
                prop_assert_eq!(&updated.kind, &EventKind::Update);
                prop_assert_eq!(&converted(format, updated.before.as_ref().unwrap()), &old);
                prop_assert_eq!(&converted(format, updated.after.as_ref().unwrap()), &new);
                prop_assert_eq!(updated.commit_ts, Some(Timestamp(458_421_964_860_358_657)));
                prop_assert_eq!(updated.key_columns, vec!["id".to_owned()]);
            }
        }
    }
}

fn simple(id: &str) -> RecordBatch {
    let mut texts = vec![None; columns().len()];
    texts[0] = Some(id.to_owned());
    batch(&texts)
}

fn kinds(format: SinkFormat, old: Option<&RecordBatch>, new: Option<&RecordBatch>) -> Vec<EventKind> {
    decode(format, &encode(format, old, new)).into_iter().map(|event| event.kind).collect()
}

#[test]
fn deletes_and_moves_to_another_key_are_said_in_the_manner_of_each_format() {
    use EventKind::{Delete, Insert, Tombstone, Upsert};
    let (one, two) = (simple("1"), simple("2"));
    let debezium = SinkFormat::Debezium { tombstones: true };
    assert_eq!(kinds(SinkFormat::Upsert, Some(&one), None), [Tombstone]);
    assert_eq!(kinds(SinkFormat::Upsert, Some(&one), Some(&two)), [Tombstone, Upsert]);
    assert_eq!(kinds(SinkFormat::Upsert, Some(&one), Some(&one)), [Upsert]);
    assert_eq!(kinds(debezium, Some(&one), None), [Delete]);
    assert_eq!(encode(debezium, Some(&one), None)[1].value, None, "and a tombstone, which says nothing new");
    assert_eq!(encode(SinkFormat::Debezium { tombstones: false }, Some(&one), None).len(), 1);
    assert_eq!(kinds(debezium, Some(&one), Some(&two)), [Delete, Insert]);
    assert_eq!(kinds(SinkFormat::Canal, Some(&one), Some(&two)), [Delete, Insert]);
    let plain = encoder(SinkFormat::Plain);
    let change = RowChange { old: row(&one), new: None };
    assert!(plain.encode(change, Timestamp(1)).unwrap_err().message().contains("does not only append"));
}

#[test]
fn watermarks_are_those_of_ticdc() {
    let message = encoder(SinkFormat::Canal).watermark(Timestamp(7)).unwrap();
    assert!(is_watermark(&only(decode(SinkFormat::Canal, &[message])), 7));
    assert_eq!(encoder(SinkFormat::Upsert).watermark(Timestamp(7)), None);
}

#[test]
fn what_cannot_be_said_is_refused() {
    let no_key = ChangeEncoder::new(SinkFormat::Upsert, TableName::new("d", "v"), columns(), Vec::new());
    assert!(no_key.unwrap_err().message().contains("has no key"));
    let other = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let change = RowChange { old: None, new: row(&other) };
    assert!(encoder(SinkFormat::Canal).encode(change, Timestamp(1)).is_err());
}
