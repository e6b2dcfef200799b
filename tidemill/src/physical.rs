//! The physical schema of a view: what is stored of it, and what its operators keep beside that.
//!
//! What a user sees are the stored rows; sums, counts and values that could be asked for again are state,
//! kept at the same checkpoint. All of it is read off the view's plan, derived again from its text.

use std::collections::BTreeMap;
use std::fmt::Write;

use operators::{AggregateCall, Lineage, LineageKind, NodeId, Operator, Plan, StateKind};
use runtime::ViewStatus;
use sql::catalog::{Catalog, Refresh, TableDefinition, ViewDefinition};
use tidb::{ROW_ID_NAME, TableInfo, Zone};
use types::{Error, Result, TableId};

use crate::describe::quoted;
use crate::system::shown_time;

/// What the sink of a view without a key keeps.
const HANDLE_STATE: &str = "for each row the handles under which it is stored";

/// A stored column of a view.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PhysicalColumn {
    /// Its position, from 1 on; `None` if nobody sees it.
    pub(crate) ordinal: Option<usize>,
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) is_nullable: bool,
    /// `key`, `value` or `hidden identity`.
    pub(crate) role: &'static str,
    /// `group`, `aggregate`, `plain`, `constant` or `handle`.
    pub(crate) origin: &'static str,
    /// What it is made of.
    pub(crate) source: String,
    /// What is kept of it beside the rows, by the number of the state.
    pub(crate) state: Option<String>,
}

/// A view with its plan.
pub(crate) struct Physical<'a> {
    catalog: &'a Catalog,
    definition: &'a TableDefinition,
    view: &'a ViewDefinition,
    plan: Plan,
}

impl<'a> Physical<'a> {
    /// The physical schema of a view.
    ///
    /// # Errors
    /// MySQL 1347 if it is no view; what planning it again says, and if that gives another plan than the one
    /// that its state is of.
    pub(crate) fn of(catalog: &'a Catalog, definition: &'a TableDefinition) -> Result<Physical<'a>> {
        let planned = sql::plan_stored_view(catalog, definition)?;
        let view = definition.view.as_ref().ok_or_else(|| Error::corrupt("a planned view is a view"))?;
        Ok(Physical { catalog, definition, view, plan: planned.plan })
    }

    fn info(&self) -> &TableInfo {
        &self.definition.info
    }

    /// The stored columns, what identifies a row included.
    pub(crate) fn columns(&self) -> Vec<PhysicalColumn> {
        let mut columns: Vec<PhysicalColumn> =
            (0..self.info().columns.len()).map(|position| self.column(position)).collect();
        if self.info().primary_key.is_empty() {
            columns.push(PhysicalColumn {
                ordinal: None,
                name: ROW_ID_NAME.to_owned(),
                type_name: "bigint".to_owned(),
                is_nullable: false,
                role: "hidden identity",
                origin: "handle",
                source: "vnode << 55 | counter".to_owned(),
                state: Some(format!("sink: {HANDLE_STATE}")),
            });
        }
        columns
    }

    fn column(&self, position: usize) -> PhysicalColumn {
        let column = &self.info().columns[position];
        let lineage = self.plan.lineage(position);
        let is_key = self.info().primary_key.contains(&position);
        PhysicalColumn {
            ordinal: Some(position + 1),
            name: column.name.clone(),
            type_name: column.column_type.to_string(),
            is_nullable: !column.not_null,
            role: if is_key { "key" } else { "value" },
            origin: match lineage.kind {
                LineageKind::Constant => "constant",
                LineageKind::Plain => "plain",
                LineageKind::Group => "group",
                LineageKind::Aggregate => "aggregate",
            },
            source: self.source(&lineage),
            state: self.state(&lineage),
        }
    }

    /// What a column is made of, in words.
    fn source(&self, lineage: &Lineage) -> String {
        let of_calls = lineage.kind == LineageKind::Aggregate || lineage.columns.is_empty();
        let parts: Vec<String> = match of_calls {
            true => lineage.calls.iter().map(|(node, call)| self.call_text(*node, *call)).collect(),
            false => {
                lineage.columns.iter().map(|(table, column)| self.base_column(*table, *column)).collect()
            }
        };
        let text = parts.join(", ");
        if lineage.is_computed { format!("computed from {text}") } else { text }
    }

    fn base_column(&self, table: TableId, column: usize) -> String {
        let known = self.catalog.tables.get(&table);
        let column = known.and_then(|table| Some(&table.info.columns[table.column_position(column)?]));
        let name = column.map(|column| column.name.as_str());
        format!("{}.{}", self.table_name(table), name.unwrap_or("?"))
    }

    fn table_name(&self, table: TableId) -> String {
        self.catalog.tables.get(&table).map_or_else(|| format!("#{table}"), |known| known.full_name())
    }

    fn call_text(&self, node: NodeId, call: usize) -> String {
        let AggregateCall { function, arguments, distinct, filter } = self.plan.call(node, call);
        let lineages = self.plan.argument_lineage(node, call);
        let texts: Vec<String> = lineages.iter().map(|argument| self.source(argument)).collect();
        let arguments = if arguments.is_empty() { "*".to_owned() } else { texts.join(", ") };
        let distinct = if *distinct { "distinct " } else { "" };
        let filter = if filter.is_some() { " of some rows" } else { "" };
        format!("{}({distinct}{arguments}){filter}", function.name())
    }

    fn state(&self, lineage: &Lineage) -> Option<String> {
        if lineage.kind != LineageKind::Aggregate {
            return None;
        }
        let states = lineage.calls.iter().flat_map(|(node, call)| self.plan.call_states(*node, *call));
        let texts: Vec<String> = states.map(|(number, what)| format!("{number}: {what}")).collect();
        Some(texts.join("; "))
    }

    /// SHOW CREATE MATERIALIZED VIEW … PHYSICAL.
    pub(crate) fn text(&self, status: Option<&ViewStatus>, zone: Zone) -> String {
        let mut text = String::new();
        self.write_table(&mut text, status);
        self.write_operators(&mut text);
        self.write_base_tables(&mut text);
        self.write_job(&mut text, status, zone);
        text.trim_end().to_owned()
    }

    fn write_table(&self, text: &mut String, status: Option<&ViewStatus>) {
        let info = self.info();
        let rows = status.and_then(|status| status.n_rows).map_or(String::new(), |n| format!(", {n} rows"));
        let name = format!("{}.{}", quoted(&self.definition.database), quoted(&info.name));
        let _ = writeln!(text, "STORED TABLE {name} (id {}{rows})", info.id);
        for column in self.columns() {
            let PhysicalColumn { name, type_name, is_nullable, role, origin, source, state, .. } = column;
            let null = if is_nullable { "" } else { " NOT NULL" };
            let state = state.map_or(String::new(), |state| format!(", state {state}"));
            let _ =
                writeln!(text, "  {} {type_name}{null} -- {role}; {origin}: {source}{state}", quoted(&name));
        }
        let key = info.primary_key.iter().map(|position| quoted(&info.columns[*position].name));
        let key: Vec<String> = key.collect();
        let order = if key.is_empty() { quoted(ROW_ID_NAME) } else { key.join(", ") };
        let _ = writeln!(text, "  rows are stored in the order of {order}");
    }

    fn write_operators(&self, text: &mut String) {
        let states = self.plan.states();
        let _ = writeln!(text, "OPERATORS");
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let what = match &node.operator {
                Operator::Source { table, columns } => {
                    format!("source {} ({})", self.table_name(*table), self.column_names(*table, columns))
                }
                other => other.describe(),
            };
            let inputs: Vec<String> = node.inputs.iter().map(|input| format!("#{}", input.0)).collect();
            let from = if inputs.is_empty() { String::new() } else { format!(" <- {}", inputs.join(", ")) };
            let _ = writeln!(text, "  #{index} {what}{from}");
            for (number, (of, state)) in states.iter().enumerate() {
                if *of == Some(NodeId(index)) {
                    let _ = writeln!(text, "    state {number}, {}: {}", kind_name(state.kind), state.what);
                }
            }
        }
        for (number, (of, state)) in states.iter().enumerate() {
            if of.is_none() {
                let _ = writeln!(text, "  state {number}, {}: {}", kind_name(state.kind), state.what);
            }
        }
        if self.info().primary_key.is_empty() {
            let _ = writeln!(text, "  state of the sink, map: {HANDLE_STATE}");
        }
    }

    fn column_names(&self, table: TableId, columns: &[usize]) -> String {
        let known = self.catalog.tables.get(&table);
        let name = |column: &usize| {
            let column = known.and_then(|table| Some(&table.info.columns[table.column_position(*column)?]));
            quoted(column.map_or("?", |column| column.name.as_str()))
        };
        columns.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    fn write_base_tables(&self, text: &mut String) {
        let _ = writeln!(text, "BASE TABLES");
        let mut read: BTreeMap<TableId, Vec<usize>> = BTreeMap::new();
        for node in &self.plan.nodes {
            if let Operator::Source { table, columns } = &node.operator {
                read.entry(*table).or_default().extend(columns);
            }
        }
        for (table, mut columns) in read {
            columns.sort_unstable();
            columns.dedup();
            let names = self.column_names(table, &columns);
            let _ = writeln!(text, "  {} ({names})", self.table_name(table));
        }
    }

    fn write_job(&self, text: &mut String, status: Option<&ViewStatus>, zone: Zone) {
        let refresh = match self.view.refresh {
            Refresh::Continuous => "continuous".to_owned(),
            ref other => format!("refreshed {other}"),
        };
        let state = status.map_or(String::new(), |status| format!(", {}", status.state));
        let _ = writeln!(text, "JOB {}, {refresh}{state}", self.view.job.0);
        let cut = status.and_then(|status| status.cut);
        let shown = match cut.and_then(|cut| Some((cut, shown_time(cut, zone)?))) {
            Some((cut, time)) => format!("cut {} ({time})", cut.0),
            None => "no cut yet".to_owned(),
        };
        let _ = writeln!(text, "  {shown}, fingerprint {}", self.view.fingerprint);
    }
}

fn kind_name(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Multiset => "multiset",
        StateKind::Map => "map",
    }
}
