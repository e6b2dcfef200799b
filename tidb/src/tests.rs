//! Unit tests of the encodings.
