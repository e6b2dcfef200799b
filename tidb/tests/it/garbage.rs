//! Whatever bytes come in, a decoder answers with a value or an error.

use proptest::collection::vec;
use proptest::prelude::*;
use tidb::comparable::{take_bytes, take_f64, take_i64, take_u64};
use tidb::{
    Decimal, RowDecoder, RowEncoder, RowView, decode_record_key, describe_key, describe_row, parse_time,
    record_prefix, table_of_key, unpack_date, unpack_time,
};

use crate::arbitrary::table_and_rows;

proptest! {
    #![proptest_config(crate::arbitrary::cases(2000))]

    #[test]
    fn primitives_never_panic(bytes in vec(any::<u8>(), 0..40), precision in any::<u8>(), scale in any::<u8>()) {
        let _ = take_i64(&mut bytes.as_slice());
        let _ = take_u64(&mut bytes.as_slice());
        let _ = take_f64(&mut bytes.as_slice());
        let _ = take_bytes(&mut bytes.as_slice(), &mut Vec::new());
        let _ = Decimal::take_binary(&mut bytes.as_slice(), precision, scale);
        let _ = decode_record_key(&bytes);
        let _ = table_of_key(&bytes);
        let _ = describe_key(&bytes);
        let _ = RowView::parse(&bytes, &bytes);
    }

    #[test]
    fn packed_times_never_panic(packed in any::<u64>(), shift in 0_u32..64) {
        if let Ok(micros) = unpack_time(packed >> shift) {
            prop_assert_eq!(tidb::pack_time(micros).unwrap(), packed >> shift);
        }
        if let Ok(days) = unpack_date(packed >> shift) {
            prop_assert_eq!(tidb::pack_date(days).unwrap(), packed >> shift);
        }
    }

    #[test]
    fn texts_never_panic(text in "\\PC{0,30}", number in "[-+]?[0-9.eE+-]{0,30}", time in "[0-9 :.T+-]{0,30}") {
        for text in [&text, &number, &time] {
            let _ = text.parse::<Decimal>();
            let _ = text.parse::<tidb::Zone>();
            let _ = parse_time(text);
        }
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(400))]

    /// Random bytes as values and handles of random tables.
    #[test]
    fn random_rows_never_panic(
        (table, _) in table_and_rows(),
        handle in vec(any::<u8>(), 0..40),
        value in vec(any::<u8>(), 0..60),
    ) {
        let mut key = record_prefix(table.id);
        key.extend_from_slice(&handle);
        let mut decoder = RowDecoder::new(&table, &(0..table.columns.len()).collect::<Vec<_>>()).unwrap();
        let mut value = value;
        for version in [None, Some(128)] {
            if let (Some(version), Some(first)) = (version, value.first_mut()) {
                *first = version;
            }
            let n_before = decoder.n_rows();
            let appended = decoder.append(&key, &value).is_ok();
            prop_assert_eq!(decoder.n_rows(), n_before + usize::from(appended));
            let _ = describe_row(&table, &value);
        }
        let n_rows = decoder.n_rows();
        prop_assert_eq!(decoder.finish().unwrap().num_rows(), n_rows);
    }

    /// One byte changed, or cut off: no panic, and good rows around it stay.
    #[test]
    fn a_broken_row_leaves_its_neighbours(
        (table, batch) in table_and_rows(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        prop_assume!(batch.num_rows() > 0);
        let encoder = RowEncoder::new(&table).unwrap();
        let handles = table.primary_key.is_empty().then(|| vec![1; batch.num_rows()]);
        let rows = encoder.encode_batch(&batch, handles.as_deref()).unwrap();
        let mut decoder = RowDecoder::new(&table, &(0..table.columns.len()).collect::<Vec<_>>()).unwrap();
        let mut n_good = 0;
        for (key, value) in &rows {
            let mut broken = [key.as_slice(), value.as_slice()].concat();
            let at = at.index(broken.len());
            if cut { broken.truncate(at) } else { broken[at] = byte }
            let (broken_key, broken_value) = broken.split_at(key.len().min(broken.len()));
            n_good += usize::from(decoder.append(broken_key, broken_value).is_ok());
            decoder.append(key, value).unwrap();
            n_good += 1;
        }
        let decoded = decoder.finish().unwrap();
        prop_assert_eq!(decoded.num_rows(), n_good);
    }
}
