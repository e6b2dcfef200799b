//! The runtime over a store in memory: epochs, fills, adoption, faults, restarts, sweeping.

mod epochs;
mod faults;
mod fills;
mod plans;
mod recovery;
mod simulation;
mod sweeping;
mod world;
