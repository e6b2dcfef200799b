//! Fixed rows: they appear in the first epoch, once; a marker in the state says that they did.

use arrow::array::RecordBatch;
use types::{Delta, Error, Result};

use crate::encoding::keyed;
use crate::failures::FailedRows;
use crate::operator::{Context, Output, Stateful};
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Values {
    rows: RecordBatch,
    state: State,
}

impl Values {
    pub(crate) fn new(rows: RecordBatch, state: State) -> Values {
        Values { rows, state }
    }
}

impl Stateful for Values {
    fn push(&mut self, _input: usize, _delta: Delta) -> Result<()> {
        Err(Error::invalid("fixed rows take no input"))
    }

    fn barrier(
        &mut self,
        _context: &Context,
        output: &mut Output<'_>,
        _failed: &mut FailedRows,
    ) -> Result<()> {
        let marker = keyed(&[]);
        if self.state.get(&marker)?.is_none() {
            self.state.put(&marker, Some(&[]))?;
            output(Delta::inserts(self.rows.clone()))?;
        }
        Ok(())
    }

    fn states(&self) -> Vec<&State> {
        vec![&self.state]
    }

    fn states_mut(&mut self) -> Vec<&mut State> {
        vec![&mut self.state]
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn pending_bytes(&self) -> u64 {
        0
    }
}
