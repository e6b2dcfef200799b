//! The partition of a key, as Java's client and Kafka Streams have it: murmur2 of the serialized key.
//!
//! librdkafka's own default is another hash; sinks always name the partition themselves.

/// The partition of a key among so many.
///
/// # Panics
/// If there are no partitions.
#[must_use]
pub fn partition_of_key(key: &[u8], n_partitions: u32) -> u32 {
    assert!(n_partitions > 0, "a topic has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % n_partitions
}

/// The 32-bit murmur2 of Kafka, with its seed.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // The length is an `int` in Java, and a key is far shorter.
    let mut hash = SEED ^ bytes.len() as u32;
    let (chunks, rest) = bytes.as_chunks::<4>();
    for chunk in chunks {
        let mut k = u32::from_le_bytes(*chunk).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::{murmur2, partition_of_key};

    #[test]
    fn hashes_are_those_of_kafka() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
        }
        assert_eq!(partition_of_key(b"21", 10), (-973_932_308_i32 & 0x7fff_ffff) as u32 % 10);
    }
}
