//! The SQL crate from outside: statements, meaning through the batch engine, and views through both.

#![allow(clippy::unwrap_used, reason = "tests panic rather than return errors")]

mod catalog;
mod errors;
mod expressions;
mod items;
mod meaning;
mod oracle;
mod statements;
mod subqueries;
mod using;
mod views;
mod world;
