//! What a transaction does to a key, and what it knows of it before.

use crate::traits::{Key, Value};

/// What a transaction does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationOp {
    /// Writes the value.
    Put,
    /// Deletes the key.
    Delete,
    /// Guards the key against concurrent writers.
    Lock,
    /// Writes the value if the key does not exist.
    Insert,
    /// Checks that the key does not exist; leaves no lock.
    CheckNotExists,
}

/// What the caller knows about the state before its mutation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assertion {
    /// Nothing.
    #[default]
    None,
    /// The key exists.
    Exist,
    /// The key does not exist.
    NotExist,
}

/// Whether assertions are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssertionLevel {
    /// They are ignored.
    #[default]
    Off,
    /// They are checked where the previous write is loaded anyway.
    Fast,
    /// They are always checked.
    Strict,
}

/// One key of a transaction with its one final value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// What to do.
    pub op: MutationOp,
    /// The key.
    pub key: Key,
    /// The value of a Put or Insert; empty otherwise.
    pub value: Value,
    /// What is known about the state before.
    pub assertion: Assertion,
}

impl Mutation {
    /// Writes a value.
    pub fn put(key: impl Into<Key>, value: impl Into<Value>) -> Mutation {
        Mutation { op: MutationOp::Put, key: key.into(), value: value.into(), assertion: Assertion::None }
    }

    /// Writes a value where there must be none.
    pub fn insert(key: impl Into<Key>, value: impl Into<Value>) -> Mutation {
        Mutation { op: MutationOp::Insert, key: key.into(), value: value.into(), assertion: Assertion::None }
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Key>) -> Mutation {
        Mutation { op: MutationOp::Delete, key: key.into(), value: Value::new(), assertion: Assertion::None }
    }

    /// Checks that a key does not exist and has not changed since the start; leaves nothing behind.
    pub fn check_not_exists(key: impl Into<Key>) -> Mutation {
        Mutation {
            op: MutationOp::CheckNotExists,
            key: key.into(),
            value: Value::new(),
            assertion: Assertion::None,
        }
    }

    /// Guards a key without changing it.
    pub fn lock(key: impl Into<Key>) -> Mutation {
        Mutation { op: MutationOp::Lock, key: key.into(), value: Value::new(), assertion: Assertion::None }
    }

    /// Asserts the state before.
    #[must_use]
    pub fn asserting(mut self, assertion: Assertion) -> Mutation {
        self.assertion = assertion;
        self
    }
}
