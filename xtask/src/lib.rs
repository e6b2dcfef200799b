//! Checks of the workspace itself.
//!
//! What clippy cannot see is checked by the tests of this crate (`make tidy`): the levels of the
//! crates, the heads and lengths of files, that each guarantee is named by tests that exist. The crate
//! has no code of its own and depends on nothing of the workspace, so that it runs before all else.
