//! Framing against bytes that follow the protocol and bytes that do not.

use super::*;

fn frame(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut bytes = vec![length[0], length[1], length[2], sequence];
    bytes.extend_from_slice(payload);
    bytes
}

async fn read_all(bytes: &[u8], max: usize) -> (Vec<Vec<u8>>, Option<ReadError>) {
    let mut stream = PacketStream::new(bytes, tokio::io::sink(), max);
    let mut payloads = Vec::new();
    loop {
        match stream.read().await {
            Ok(Some(payload)) => payloads.push(payload),
            Ok(None) => return (payloads, None),
            Err(error) => return (payloads, Some(error)),
        }
    }
}

#[tokio::test]
async fn payloads_of_any_size_come_back_as_written() {
    for length in [0, 1, 65_535, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 40_000_000] {
        let payload: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut wire = Vec::new();
        let mut writer = PacketStream::new(tokio::io::empty(), &mut wire, usize::MAX);
        writer.write(&payload).await.unwrap();
        writer.write(b"next").await.unwrap();
        writer.flush().await.unwrap();
        let (payloads, error) = read_all(&wire, 64 << 20).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(payloads.len(), 2);
        assert!(payloads[0] == payload, "length {length}");
        assert_eq!(payloads[1], b"next");
    }
}

#[tokio::test]
async fn a_payload_beyond_the_limit_is_skipped_and_the_next_one_is_read() {
    let mut wire = frame(0, &vec![7; PIECE_BYTES_MAX]);
    wire.extend(frame(1, &[7; 1000]));
    wire.extend(frame(2, b"ping"));
    let mut stream = PacketStream::new(wire.as_slice(), tokio::io::sink(), 1 << 20);
    assert!(matches!(stream.read().await, Err(ReadError::TooLarge)));
    assert_eq!(stream.read().await.unwrap().unwrap(), b"ping");
}

#[tokio::test]
async fn a_wrong_sequence_number_is_refused() {
    let (_, error) = read_all(&frame(3, b"x"), 100).await;
    assert!(matches!(error, Some(ReadError::OutOfOrder)));
}

#[tokio::test]
async fn every_cut_of_a_packet_is_truncated_and_none_is_data() {
    let wire = frame(0, b"hello");
    for cut in 1..wire.len() {
        let (payloads, error) = read_all(&wire[..cut], 100).await;
        assert!(payloads.is_empty());
        assert!(matches!(error, Some(ReadError::Truncated)), "cut {cut}: {error:?}");
    }
    assert!(matches!(read_all(b"", 100).await, (payloads, None) if payloads.is_empty()));
}

#[tokio::test]
async fn random_bytes_end_in_an_error_or_in_packets_of_their_own_bytes() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        let mut bytes = Vec::new();
        for _ in 0..(seed % 64) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Small numbers make headers that are sometimes right.
            bytes.push(u8::try_from(seed % if seed & 256 == 0 { 4 } else { 256 }).unwrap());
        }
        seed = seed.wrapping_add(0x1234_5678_9abc_def1);
        let (payloads, error) = read_all(&bytes, 1 << 16).await;
        let read: usize = payloads.iter().map(|payload| payload.len() + 4).sum();
        assert!(read <= bytes.len());
        assert!(error.is_some() || read == bytes.len());
    }
}
