//! tidemill
