//! Tests of the formats, of the conversion into our types and of the cutter; no broker.

mod canal;
mod compression;
mod convert;
mod cut;
mod cut_events;
mod cut_model;
mod debezium;
mod json;
mod maxwell;
mod open;
mod plain;
mod simple;
mod support;
