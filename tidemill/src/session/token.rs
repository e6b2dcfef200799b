//! Tokens: a commit, as text that another connection can wait for.
//!
//! `<identity of the store>-<commit timestamp>`, both in digits; the identity tells a token of another store.

use types::{Error, Result, Timestamp};

/// The token of a commit.
pub(super) fn of(store_identity: u64, commit_ts: Timestamp) -> String {
    format!("{store_identity:016x}-{}", commit_ts.0)
}

/// The commit of a token.
///
/// # Errors
/// 1105 if it is no token, or one of another store.
pub(super) fn parse(text: &str, store_identity: u64) -> Result<Timestamp> {
    let parts = text.split_once('-').and_then(|(identity, commit_ts)| {
        Some((u64::from_str_radix(identity, 16).ok()?, commit_ts.parse::<u64>().ok()?))
    });
    match parts {
        Some((identity, commit_ts)) if identity == store_identity => Ok(Timestamp(commit_ts)),
        Some(_) => Err(Error::mysql(1105, format!("token '{text}' is of another store"))),
        None => Err(Error::mysql(1105, format!("'{text}' is no token: SELECT tidemill_token() gives one"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_by_its_own_store_only() {
        let token = of(7, Timestamp(470_000_000_000_000_001));
        assert_eq!(parse(&token, 7).unwrap(), Timestamp(470_000_000_000_000_001));
        assert!(parse(&token, 8).unwrap_err().message().contains("another store"));
        for wrong in ["", "7", "7-", "-1", "x-1", "7-1-1"] {
            assert!(parse(wrong, 7).unwrap_err().message().contains("is no token"), "{wrong}");
        }
    }
}
