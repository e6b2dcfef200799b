//! A scalar subquery's result: exactly one row at every barrier, of NULLs if its input has none.

use arrow::array::new_null_array;
use arrow::datatypes::SchemaRef;
use types::{Delta, Error, Result};

use crate::arrange::{Arrangement, Layout, check_deletions, decode_rows, delta_of};
use crate::encoding::keyed;
use crate::failures::FailedRows;
use crate::operator::{Context, Output, Stateful};
use crate::state::State;

/// MySQL's number for a scalar subquery with more than one row.
const SUBQUERY_ROWS: u16 = 1242;

#[derive(Debug)]
pub(crate) struct AtMostOneRow {
    schema: SchemaRef,
    input: Arrangement,
    rows: State,
    /// Says that a row was put out.
    marker: State,
}

impl AtMostOneRow {
    pub(crate) fn new(
        input: &SchemaRef,
        schema: &SchemaRef,
        rows: State,
        marker: State,
    ) -> Result<AtMostOneRow> {
        let all: Vec<usize> = (0..input.fields().len()).collect();
        let layout = Layout::new(input, all.clone(), all.len())?;
        Ok(AtMostOneRow { schema: SchemaRef::clone(schema), input: Arrangement::new(layout), rows, marker })
    }

    /// Puts out the row that stands for the state now; two rows are no result.
    fn put_out(&self, weight: i64, output: &mut Output<'_>, failed: &mut FailedRows) -> Result<()> {
        let mut scan = self.rows.scan_all()?;
        let first = scan.next_weight()?;
        match first {
            None => {
                let columns = self.schema.fields().iter().map(|field| new_null_array(field.data_type(), 1));
                output(delta_of(&self.schema, columns.collect(), vec![weight])?)
            }
            Some((row, 1)) if scan.next_weight()?.is_none() => {
                output(delta_of(&self.schema, decode_rows(self.input.layout(), vec![row])?, vec![weight])?)
            }
            Some(_) => {
                failed.add(Error::mysql(SUBQUERY_ROWS, "subquery returns more than 1 row"), &[], weight)
            }
        }
    }
}

impl Stateful for AtMostOneRow {
    fn push(&mut self, _input: usize, delta: Delta) -> Result<()> {
        self.input.push(delta)
    }

    fn barrier(
        &mut self,
        _context: &Context,
        output: &mut Output<'_>,
        failed: &mut FailedRows,
    ) -> Result<()> {
        let delta = self.input.take()?;
        let marker = keyed(&[]);
        let is_first = self.marker.get(&marker)?.is_none();
        if delta.n_rows() == 0 && !is_first {
            return Ok(());
        }
        check_deletions(&self.rows, &delta, self.input.layout())?;
        if is_first {
            self.marker.put(&marker, Some(&[]))?;
        } else {
            self.put_out(-1, output, failed)?;
        }
        self.rows.append(delta)?;
        self.put_out(1, output, failed)
    }

    fn states(&self) -> Vec<&State> {
        vec![&self.rows, &self.marker]
    }

    fn states_mut(&mut self) -> Vec<&mut State> {
        vec![&mut self.rows, &mut self.marker]
    }

    fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    fn pending_bytes(&self) -> u64 {
        self.input.n_bytes()
    }
}
