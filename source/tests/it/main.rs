//! Tables as a source, over the store in memory.

mod changes;
mod fixture;
mod projection;
mod rows;
