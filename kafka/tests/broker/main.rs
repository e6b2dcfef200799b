//! The client against a real broker (Java and Maven are needed).

mod fixture;
mod publishing;
mod reading;
mod ticdc;
