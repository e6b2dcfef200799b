//! EXPLAIN: the plan of the batch engine, and on which path each view is read.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_plan::displayable;
use futures::StreamExt;
use tidb::ColumnType;
use types::{Result, Timestamp};

use crate::select::Planned;
use crate::{Engine, QueryResult, ResultColumn, ViewPath};

impl Engine {
    /// Explains a planned query.
    pub(crate) fn explain_planned(planned: Planned) -> Result<QueryResult> {
        lines_result(plan_lines(&planned), planned.read_ts, planned.paths)
    }
}

/// The path of each view, then the plan of the batch engine.
pub(crate) fn plan_lines(planned: &Planned) -> Vec<String> {
    let text = displayable(planned.plan.as_ref()).indent(false).to_string();
    let mut lines: Vec<String> = planned.paths.iter().map(ToString::to_string).collect();
    lines.extend(text.lines().map(str::to_owned));
    lines
}

/// Lines as the one column of EXPLAIN.
pub(crate) fn lines_result(
    lines: Vec<String>,
    read_ts: Timestamp,
    paths: Vec<ViewPath>,
) -> Result<QueryResult> {
    let schema = Arc::new(Schema::new(vec![Field::new("EXPLAIN", DataType::Utf8, false)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])?;
    let column = ResultColumn {
        name: "EXPLAIN".to_owned(),
        column_type: Some(ColumnType::Varchar(1024)),
        nullable: false,
        table: None,
        database: None,
    };
    Ok(QueryResult {
        columns: vec![column],
        schema,
        batches: futures::stream::iter([Ok(batch)]).boxed(),
        read_ts,
        paths,
    })
}
