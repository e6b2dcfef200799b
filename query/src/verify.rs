//! VERIFY MATERIALIZED VIEW: the stored rows against the query, at one timestamp, both ways.
//!
//! The stored rows at T are the query's answer at the view's cut (G1), so the query is answered at the cut
//! and the view needs not be idle. Rows are compared as they would be stored: by bytes, with their counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use futures::StreamExt;
use sql::PlannedQuery;
use sql::catalog::{TableDefinition, ViewState};
use tidb::{ColumnType, Handle, RowDecoder, RowEncoder};
use types::{Error, Result};

use crate::names::live_plan;
use crate::paths::view_of;
use crate::select::Planned;
use crate::table::StoreTable;
use crate::transaction::Writes;
use crate::{Engine, QueryResult, ReadPath, ReadSettings, ResultColumn, ViewPath};

/// Rows as they are stored, without a hidden handle, with how often the view has them more than the query.
type Counted = BTreeMap<(Vec<u8>, Vec<u8>), i64>;

impl Engine {
    pub(crate) async fn verify_view(
        &self,
        settings: &ReadSettings,
        database: &str,
        name: &str,
    ) -> Result<QueryResult> {
        let scope = self.scope(settings, None).await?;
        let definition = Arc::clone(scope.catalog.require(database, name)?);
        let name = definition.full_name();
        let view = view_of(&definition)?;
        match &view.state {
            ViewState::Ready => {}
            ViewState::Unfilled => {
                return Err(Error::mysql(
                    1105,
                    format!("view '{name}' has never been refreshed: it has no rows to verify"),
                ));
            }
            ViewState::Filling => {
                return Err(Error::mysql(1105, format!("view '{name}' is being filled")));
            }
            ViewState::Faulted { reason, .. } => {
                return Err(Error::mysql(1105, format!("view '{name}' is faulted: {reason}")));
            }
        }
        let record = self.epoch_record(view.job, scope.at).await?;
        let record = record.ok_or_else(|| Error::corrupt(format!("view '{name}' has no checkpoint")))?;
        let mut counted = Counted::new();
        let stored = StoreTable::new(&definition, scope.reads(), scope.batch_rows);
        let columns: Vec<usize> = (0..definition.info.columns.len()).collect();
        let mut rows = stored.all_rows(&columns)?;
        while let Some((key, value)) = rows.next_pair().await? {
            let key =
                if definition.info.has_hidden_handle() { hidden_key(&definition) } else { key.to_vec() };
            count(&mut counted, (key, value.to_vec()), 1);
        }
        let mut at_cut = self.scope_at(settings, record.cut, Writes::default()).await?;
        // The definition may be younger than the cut; those of TiDB's tables are of the cut.
        at_cut.catalog = scope.catalog.with_foreign_of(&at_cut.catalog)?;
        let plan = live_plan(&at_cut, &definition, view)?;
        let query = PlannedQuery { plan, columns: Vec::new() };
        let planned = self.ready(query, Vec::new(), record.cut).await?;
        self.subtract_query(planned, &definition, &mut counted).await?;
        let path = ViewPath {
            view: name,
            path: ReadPath::Stale,
            cut: record.cut,
            read: record.cut,
            reason: "compared with the query at the cut".to_owned(),
        };
        let mut result = differences(&definition, &counted)?;
        result.read_ts = record.cut;
        result.paths = vec![path];
        Ok(result)
    }

    async fn subtract_query(
        &self,
        planned: Planned,
        definition: &TableDefinition,
        counted: &mut Counted,
    ) -> Result<()> {
        let encoder = RowEncoder::new(&definition.info)?;
        let handle = definition.info.has_hidden_handle().then_some(0);
        let schema = definition.info.arrow_schema();
        let mut batches = crate::select::stream(&planned)?;
        while let Some(batch) = batches.next().await {
            let batch = crate::select::renamed(&batch?, &schema)?;
            let mut rows = encoder.bind(&batch)?;
            for row in 0..batch.num_rows() {
                let pair = (rows.key(row, handle)?, rows.value(row)?);
                count(counted, pair, -1);
            }
        }
        Ok(())
    }
}

fn hidden_key(definition: &TableDefinition) -> Vec<u8> {
    tidb::record_key(definition.info.id, &Handle::Int(0))
}

fn count(counted: &mut Counted, row: (Vec<u8>, Vec<u8>), by: i64) {
    use std::collections::btree_map::Entry;
    match counted.entry(row) {
        Entry::Occupied(mut entry) => {
            *entry.get_mut() += by;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        Entry::Vacant(entry) => {
            entry.insert(by);
        }
    }
}

/// The rows whose counts differ, after which way and how often.
fn differences(definition: &TableDefinition, counted: &Counted) -> Result<QueryResult> {
    let columns: Vec<usize> = (0..definition.info.columns.len()).collect();
    let mut decoder = RowDecoder::new(&definition.info, &columns)?;
    for (key, value) in counted.keys() {
        decoder.append(key, value)?;
    }
    let batch = decoder.finish()?;
    let side = |by: &i64| if *by > 0 { "extra" } else { "missing" };
    let sides: StringArray = counted.values().map(|by| Some(side(by))).collect();
    let counts: Int64Array = counted.values().map(|by| Some(by.abs())).collect();
    let mut fields =
        vec![Field::new("difference", DataType::Utf8, false), Field::new("count", DataType::Int64, false)];
    fields.extend(batch.schema().fields().iter().map(|field| field.as_ref().clone()));
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(sides), Arc::new(counts)];
    arrays.extend(batch.columns().iter().cloned());
    let schema = Arc::new(Schema::new(fields));
    let rows = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let own =
        [("difference", ColumnType::Varchar(7)), ("count", ColumnType::Int { bits: 64, unsigned: false })];
    let own = own.into_iter().map(|(name, column_type)| (name.to_owned(), column_type, true));
    let declared = definition.info.columns.iter();
    let declared = declared.map(|column| (column.name.clone(), column.column_type.clone(), column.not_null));
    let columns = own.chain(declared).map(|(name, column_type, not_null)| ResultColumn {
        name,
        column_type: Some(column_type),
        nullable: !not_null,
        table: None,
        database: None,
    });
    Ok(QueryResult {
        columns: columns.collect(),
        schema,
        batches: futures::stream::iter([Ok(rows)]).boxed(),
        read_ts: types::Timestamp::ZERO,
        paths: Vec::new(),
    })
}
