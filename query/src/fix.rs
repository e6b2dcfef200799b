//! The read fix: a view's dataflow over the changes since its checkpoint, in memory.
//!
//! The third driver of the same dataflow: it runs over a private overlay on the checkpoint's manifests and
//! commits nothing. Its output is merged with the stored rows: by key, or by content and count for a view
//! under hidden handles.

use store::Change;
use types::{Error, Result};

use crate::Engine;
use crate::names::{Scope, StoredRows};
use crate::paths::Candidate;

impl Engine {
    /// Runs the read fix and returns the stored rows with it.
    pub(crate) async fn read_fix(
        &self,
        scope: &Scope,
        candidate: &Candidate<'_>,
        changes: Vec<Change>,
    ) -> Result<StoredRows> {
        let _ = (scope, candidate.definition, candidate.view, changes);
        Err(Error::invalid("dataflows do not run yet"))
    }
}
