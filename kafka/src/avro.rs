//! Avro: schemas in JSON, values in binary, read with the writer's schema.
//!
//! A library was weighed and left out: those there are bring features into crates that the whole workspace
//! shares, or read into batches where one bad message spoils its neighbours. What is read here is a value by
//! the *writer's* schema; our columns take its fields by name, so there is no second schema to resolve it to.
//! Nothing of a message is trusted: lengths are checked against what is left, and depth is limited.

mod reading;
mod schema;

pub use reading::read_record;
pub use schema::AvroSchema;
