//! Values that TiCDC compressed itself.

use kafka::{CanalDecoder, CanalDialect, Compression, Decompressing, claim_check_content};
use proptest::prelude::*;

use crate::support::mutated;

/// An LZ4 frame, byte by byte: independent blocks, a content checksum, one block that repeats "abc" and one
/// that is stored as it is.
fn frame() -> Vec<u8> {
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7];
    // Three literals, a copy of nine bytes from three before, then two literals.
    let block = [0x35, b'a', b'b', b'c', 3, 0, 0x20, b'd', b'e'];
    frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
    frame.extend_from_slice(&block);
    frame.extend_from_slice(&(3_u32 | 1 << 31).to_le_bytes());
    frame.extend_from_slice(b"xyz");
    frame.extend_from_slice(&0_u32.to_le_bytes());
    frame.extend_from_slice(&[1, 2, 3, 4]);
    frame
}

#[test]
fn lz4_frames_are_read_and_known_by_their_first_bytes() {
    let expected = b"abcabcabcabcdexyz";
    for compression in [Compression::Lz4, Compression::None] {
        assert_eq!(compression.decompress(&frame()).unwrap().as_ref(), expected);
    }
    assert_eq!(Compression::None.decompress(b"{}").unwrap().as_ref(), b"{}");
    let short = &frame()[..12];
    assert!(Compression::Lz4.decompress(short).unwrap_err().reason.contains("cut off"));
    assert!(Compression::Lz4.decompress(b"{}xx").unwrap_err().reason.contains("no LZ4 frame"));
}

#[test]
fn snappy_blocks_are_read_and_limited() {
    let text = br#"{"isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}"#;
    let packed = snap::raw::Encoder::new().compress_vec(text).unwrap();
    let decoder = CanalDecoder::new(CanalDialect::Ticdc);
    let mut decoder = Decompressing { decoder, compression: Compression::Snappy };
    let message = kafka::Message { value: Some(&packed), ..kafka::Message::default() };
    let events = kafka::Decoder::decode(&mut decoder, message).unwrap();
    assert!(crate::support::is_watermark(&events[0], 7));
    // Four gigabytes are promised by the first five bytes.
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(Compression::Snappy.decompress(&huge).unwrap_err().reason.contains("too large"));
}

#[test]
fn a_claim_checks_file_holds_key_and_value() {
    let (key, value) = claim_check_content(br#"{"key":"AAE=","value":"e30="}"#).unwrap();
    assert_eq!((key.as_deref(), value.as_slice()), (Some(&[0, 1][..]), &b"{}"[..]));
    assert_eq!(claim_check_content(br#"{"key":"","value":"e30="}"#).unwrap().0, None);
    assert!(claim_check_content(br#"{"key":"AAE="}"#).unwrap_err().reason.contains("`value` is missing"));
}

proptest! {
    #[test]
    fn no_bytes_make_decompression_panic(changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..6)) {
        let snappy = snap::raw::Encoder::new().compress_vec(&b"abcabcabcabcabcabc".repeat(9)).unwrap();
        for (compression, golden) in [(Compression::Lz4, frame()), (Compression::Snappy, snappy)] {
            let _: Result<_, _> = compression.decompress(&mutated(&golden, &changes));
        }
    }
}
