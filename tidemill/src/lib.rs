//! tidemill

pub mod demo;
