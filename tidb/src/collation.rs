//! Collations: the ids and names of those that TiDB has, and the sort keys of the binary ones.
//!
//! A PAD SPACE collation compares without trailing U+0020, then by bytes: its sort key, which stands in keys,
//! is the text without them, and the text itself is then stored in the row's value as well ("restored
//! data"). Tidemill's own texts are utf8mb4_bin. Collations that fold case or accents have sort keys of
//! weights; they are known by name here only to be refused by name.

/// The sort key of a text under utf8mb4_bin.
#[must_use]
pub fn pad_key(text: &str) -> &str {
    text.trim_end_matches(' ')
}

/// How a collation compares texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// By bytes, without trailing spaces.
    Padded,
    /// By bytes.
    Bytes,
    /// By weights of characters.
    Weights,
}

/// A collation that TiDB has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collation {
    /// MySQL's number.
    pub id: u16,
    /// The name.
    pub name: &'static str,
    /// The character set.
    pub charset: &'static str,
    /// How it compares.
    pub comparison: Comparison,
}

const fn known(id: u16, name: &'static str, charset: &'static str, comparison: Comparison) -> Collation {
    Collation { id, name, charset, comparison }
}

/// All that TiDB has, by id.
const COLLATIONS: [Collation; 15] = [
    known(28, "gbk_chinese_ci", "gbk", Comparison::Weights),
    known(33, "utf8_general_ci", "utf8", Comparison::Weights),
    known(45, "utf8mb4_general_ci", "utf8mb4", Comparison::Weights),
    known(46, "utf8mb4_bin", "utf8mb4", Comparison::Padded),
    known(47, "latin1_bin", "latin1", Comparison::Padded),
    known(63, "binary", "binary", Comparison::Bytes),
    known(65, "ascii_bin", "ascii", Comparison::Padded),
    known(83, "utf8_bin", "utf8", Comparison::Padded),
    // GBK's own codes are the order, not the bytes that are stored.
    known(87, "gbk_bin", "gbk", Comparison::Weights),
    known(192, "utf8_unicode_ci", "utf8", Comparison::Weights),
    known(224, "utf8mb4_unicode_ci", "utf8mb4", Comparison::Weights),
    known(248, "gb18030_chinese_ci", "gb18030", Comparison::Weights),
    known(249, "gb18030_bin", "gb18030", Comparison::Weights),
    known(255, "utf8mb4_0900_ai_ci", "utf8mb4", Comparison::Weights),
    known(309, "utf8mb4_0900_bin", "utf8mb4", Comparison::Bytes),
];

impl Collation {
    /// The collation of a name, in any case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Collation> {
        COLLATIONS.into_iter().find(|collation| collation.name.eq_ignore_ascii_case(name))
    }

    /// The collation of a number. In keys and requests TiDB negates it where the new collations are on.
    #[must_use]
    pub fn by_id(id: i32) -> Option<Collation> {
        COLLATIONS.into_iter().find(|collation| u32::from(collation.id) == id.unsigned_abs())
    }

    /// What stands in a key for a text; `None` where that is made of weights.
    #[must_use]
    pub fn sort_key<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        match self.comparison {
            Comparison::Bytes => Some(text),
            Comparison::Padded => {
                let n_spaces = text.iter().rev().take_while(|byte| **byte == b' ').count();
                Some(&text[..text.len() - n_spaces])
            }
            Comparison::Weights => None,
        }
    }

    /// Whether texts under it compare as those of Tidemill do, so that a query over them means the same.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.comparison == Comparison::Padded
    }
}
