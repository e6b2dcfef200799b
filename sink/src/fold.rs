//! The net of an epoch's output, by encoded key.
//!
//! An ordered map from key to what is left of it: two mutations of one key cannot come out, whatever goes
//! in, in whatever order and pieces.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use types::{Error, Result};

/// The values of one key with what is left of their weights: mostly an old and a new one.
type WeightedValues = SmallVec<[(Vec<u8>, i64); 2]>;

/// The rows of one epoch, netted.
#[derive(Debug, Default)]
pub struct Fold {
    /// Of a view with a key: encoded key -> values with their weights. Of one without: content -> one
    /// empty value with its weight. Weights of 0 are not kept.
    pub(crate) keys: BTreeMap<Vec<u8>, WeightedValues>,
    n_bytes: u64,
}

impl Fold {
    /// The number of keys that change.
    #[must_use]
    pub fn n_keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of keys and values in memory, about.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Adds a weight to a value of a key.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Vec<u8>, weight: i64) -> Result<()> {
        use std::collections::btree_map::Entry;
        if weight == 0 {
            return Ok(());
        }
        let n_value_bytes = value.len() as u64;
        match self.keys.entry(key) {
            Entry::Vacant(vacant) => {
                self.n_bytes += vacant.key().len() as u64 + n_value_bytes;
                let mut values = SmallVec::new();
                values.push((value, weight));
                vacant.insert(values);
            }
            Entry::Occupied(mut occupied) => {
                let values = occupied.get_mut();
                let Some(at) = values.iter().position(|(known, _)| *known == value) else {
                    self.n_bytes += n_value_bytes;
                    values.push((value, weight));
                    return Ok(());
                };
                let sum = values[at].1.checked_add(weight);
                values[at].1 = sum.ok_or_else(|| Error::corrupt("weight overflow"))?;
                if values[at].1 == 0 {
                    values.swap_remove(at);
                    self.n_bytes -= n_value_bytes;
                }
                if values.is_empty() {
                    self.n_bytes -= occupied.key().len() as u64;
                    occupied.remove();
                }
            }
        }
        Ok(())
    }
}
