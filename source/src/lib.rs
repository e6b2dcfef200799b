//! Tables as deltas: the rows at a timestamp in pages, and the changes between two timestamps.
//!
//! A [`Source`] answers two questions about a set of tables: which rows are there at T (for fills), and
//! what changed in (S, T] (for epochs, refreshes and the read fix). [`TableSource`] answers them from a
//! transactional store. Only the needed columns are decoded; an update that changes none of them is no
//! change. A row that cannot be decoded is reported beside the others, with its key. This crate keeps no
//! position: the caller holds the cursor and commits it with what it covers.

mod project;
mod table;
mod traits;

pub use project::project_delta;
pub use table::TableSource;
pub use traits::{ChangeCursor, ChangesPage, RowFault, RowsPage, Source, TableDelta};
