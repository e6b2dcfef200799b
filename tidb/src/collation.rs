//! utf8mb4_bin, a PAD SPACE collation: trailing spaces do not count, then bytes compare.
//!
//! The sort key is the text without trailing U+0020; it is what stands in keys. The text itself is then
//! stored in the row's value as well ("restored data"), because the key no longer has it.

/// The sort key of a text under utf8mb4_bin.
#[must_use]
pub fn pad_key(text: &str) -> &str {
    text.trim_end_matches(' ')
}
