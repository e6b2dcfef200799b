//! TiDB's side of the catalog: its tables as base tables, and the names that cannot be read.
//!
//! Where a TiDB lives in the cluster, its databases and tables are found beside Tidemill's own; of two tables
//! of one name the own one is found. They are read only: TiDB keeps indexes of them that a write past it would
//! not maintain. What a change of a definition means for a view that reads the table is decided here, from the
//! catalogs at two timestamps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store::KeyRange;
use tidb::{ColumnInfo, Gone, MetaTable, NewCollations, Reaction, RebuildReason, RefusedColumn, react};
use types::{Error, Result, TableId};

use super::{Catalog, TableDefinition};

/// Why something cannot be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// MySQL's number.
    pub code: u16,
    /// The text.
    pub text: String,
}

impl Refusal {
    pub(super) fn new(error: &Error) -> Refusal {
        Refusal { code: error.mysql_code().unwrap_or(1235), text: error.message().to_owned() }
    }

    /// The refusal as an error.
    #[must_use]
    pub fn error(&self) -> Error {
        Error::mysql(self.code, self.text.clone())
    }
}

/// What makes a definition a table of TiDB.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTable {
    /// The definition as TiDB writes it.
    pub meta: Arc<MetaTable>,
    /// The ids in record keys, one a partition, in ascending order.
    pub physical_ids: Vec<i64>,
    /// Public columns that cannot be read, each with the error that naming it is.
    pub refused: Vec<(String, Refusal)>,
    /// How many of the last columns nobody may name: a view's text does not know them, but they are of the key.
    pub n_hidden: usize,
    /// Why no statement may name the table, although its rows can be read.
    pub refusal: Option<Refusal>,
}

/// A table of TiDB that cannot be read at all.
#[derive(Clone, Debug)]
pub struct RefusedName {
    /// The definition, if it could be read.
    pub meta: Option<Arc<MetaTable>>,
    /// The error that naming it is.
    pub refusal: Refusal,
}

/// Which schema of TiDB a snapshot has. A version is drawn before what it changes is written, so a snapshot
/// may have a version and not yet the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaStamp {
    /// The schema version.
    pub version: i64,
    /// Whether what the version changes is there.
    pub has_diff: bool,
}

/// TiDB's databases and tables at one timestamp.
#[derive(Clone, Debug, Default)]
pub struct ForeignSchema {
    /// Which one it is; `None` without a TiDB.
    pub stamp: Option<SchemaStamp>,
    /// Names of databases as declared, but for TiDB's own.
    pub databases: Vec<String>,
    /// Tables that can be read.
    pub tables: Vec<Arc<TableDefinition>>,
    /// Tables that cannot, by database and name in lower case.
    pub refused: BTreeMap<(String, String), RefusedName>,
    /// How texts compare.
    pub collations: NewCollations,
    /// Every table's definition by id, with its full name.
    pub(super) metas: BTreeMap<TableId, (String, Arc<MetaTable>)>,
    /// Ids by database and name in lower case.
    pub(super) ids: BTreeMap<(String, String), TableId>,
}

impl ForeignSchema {
    /// Whether TiDB has a database of that name.
    #[must_use]
    pub fn has_database(&self, name: &str) -> bool {
        self.databases.iter().any(|database| database.eq_ignore_ascii_case(name))
    }

    /// Every table: its id, its database as declared, its name.
    pub fn names(&self) -> impl Iterator<Item = (TableId, &str, &str)> {
        self.metas.iter().map(|(id, (database, meta))| (*id, database.as_str(), meta.name.as_str()))
    }

    /// The definition of a table of TiDB, one that cannot be read too.
    #[must_use]
    pub fn meta(&self, table: TableId) -> Option<&Arc<MetaTable>> {
        self.metas.get(&table).map(|(_, meta)| meta)
    }

    /// The id of a table by its database and name, in any case.
    #[must_use]
    pub fn id_of(&self, database: &str, name: &str) -> Option<TableId> {
        self.ids.get(&(database.to_lowercase(), name.to_lowercase())).copied()
    }

    /// The database of a table, as declared, and its name.
    #[must_use]
    pub fn name_of(&self, table: TableId) -> Option<(&str, &str)> {
        let (database, meta) = self.metas.get(&table)?;
        Some((database, &meta.name))
    }
}

impl TableDefinition {
    /// Why no statement may name the table; views that are bound to it go on.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        self.foreign.as_ref()?.refusal.as_ref().map(Refusal::error)
    }

    /// Columns that the table has and that cannot be read, each with the error that naming it is.
    #[must_use]
    pub fn refused_columns(&self) -> &[(String, Refusal)] {
        self.foreign.as_ref().map_or(&[], |foreign| &foreign.refused)
    }

    /// The columns that a statement may name.
    #[must_use]
    pub fn visible_columns(&self) -> &[ColumnInfo] {
        let n_hidden = self.foreign.as_ref().map_or(0, |foreign| foreign.n_hidden);
        &self.info.columns[..self.info.columns.len() - n_hidden]
    }

    /// The ids in record keys: one, or one a partition.
    #[must_use]
    pub fn physical_ids(&self) -> &[i64] {
        self.foreign.as_ref().map_or(std::slice::from_ref(&self.info.id), |foreign| &foreign.physical_ids)
    }

    /// The ranges of the rows' keys, in ascending order.
    #[must_use]
    pub fn record_ranges(&self) -> Vec<KeyRange> {
        let range = |id: &i64| {
            let (start, end) = tidb::record_range(*id);
            KeyRange::new(start, end)
        };
        self.physical_ids().iter().map(range).collect()
    }

    /// The number by which plans name a column: the position, or of TiDB's tables, whose columns come, go and
    /// move, the column's id.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn column_number(&self, position: usize) -> usize {
        match &self.foreign {
            None => position,
            Some(_) => usize::try_from(self.info.columns[position].id).expect("ids of columns are positive"),
        }
    }

    /// The position of a column by the number that plans have for it.
    #[must_use]
    pub fn column_position(&self, number: usize) -> Option<usize> {
        if self.foreign.is_none() {
            return (number < self.info.columns.len()).then_some(number);
        }
        let id = i64::try_from(number).ok()?;
        self.info.columns.iter().position(|column| column.id == id)
    }

    /// How many columns a delta has in which each column stands at its number.
    #[must_use]
    pub fn width(&self) -> usize {
        let numbers = (0..self.info.columns.len()).map(|position| self.column_number(position));
        numbers.max().map_or(0, |largest| largest + 1)
    }
}

impl Catalog {
    /// Whether a name is taken by a table or view, one that cannot be read too.
    #[must_use]
    pub fn is_taken(&self, database: &str, name: &str) -> bool {
        let key = (database.to_lowercase(), name.to_lowercase());
        self.names.contains_key(&key) || self.refused(&key).is_some()
    }

    /// The error that a name is whose table of TiDB cannot be read.
    #[must_use]
    pub fn refusal(&self, database: &str, name: &str) -> Option<Error> {
        let key = (database.to_lowercase(), name.to_lowercase());
        match (self.bound.get(&key), self.names.get(&key)) {
            (Some(bound), _) => bound.as_ref().err().cloned(),
            (None, Some(id)) => self.tables.get(id)?.refusal(),
            (None, None) => self.refused(&key).map(|refused| refused.refusal.error()),
        }
    }

    /// The table of TiDB under a name, in lower case, that cannot be read.
    pub(super) fn refused(&self, key: &(String, String)) -> Option<&RefusedName> {
        let hidden = |refused: &RefusedName| {
            let id = refused.meta.as_ref().and_then(|meta| u64::try_from(meta.id).ok());
            id.is_some_and(|id| self.hides(TableId(id), &key.1))
        };
        self.foreign.refused.get(key).filter(|refused| !hidden(refused))
    }

    /// Whether a table is TiDB's, or was: it is none of Tidemill's own.
    #[must_use]
    pub fn is_foreign(&self, table: TableId) -> bool {
        self.tables.get(&table).is_none_or(|definition| definition.foreign.is_some())
    }

    /// Whether a view reads tables of TiDB, through other views too.
    #[must_use]
    pub fn reads_foreign(&self, base_tables: &[TableId]) -> bool {
        base_tables.iter().any(|table| self.is_foreign(*table))
    }

    /// The same catalog with TiDB's side of another timestamp.
    ///
    /// # Errors
    /// `Corrupt` if a table of TiDB has the id of an own one.
    pub fn with_foreign_of(self: &Arc<Catalog>, other: &Catalog) -> Result<Arc<Catalog>> {
        if self.foreign.stamp == other.foreign.stamp {
            return Ok(Arc::clone(self));
        }
        let mut catalog = self.without_foreign();
        catalog.add_foreign(Arc::clone(&other.foreign))?;
        Ok(Arc::new(catalog))
    }

    /// What happened to a table of TiDB since another catalog, from which this one is younger, so that a view
    /// that reads the columns of the given numbers is not what it was; `None` if it is, and for own tables.
    #[must_use]
    pub fn change_since(&self, before: &Catalog, table: TableId, used: &BTreeSet<usize>) -> Option<String> {
        if self.foreign.stamp == before.foreign.stamp {
            return None;
        }
        let Some((database, old)) = before.foreign.metas.get(&table) else {
            let is_new = self.foreign.metas.contains_key(&table);
            return is_new.then(|| format!("table {table} of TiDB was not there before"));
        };
        let same = self.foreign.meta(table);
        let named = || self.foreign.id_of(database, &old.name).and_then(|id| self.foreign.meta(id));
        let new = same.or_else(named).map(AsRef::as_ref);
        let used: Vec<i64> = used.iter().filter_map(|number| i64::try_from(*number).ok()).collect();
        let name = format!("{database}.{}", old.name);
        match react(old, new, &used, self.foreign.collations) {
            Reaction::Keep => None,
            Reaction::Rebuild(reasons) => Some(rebuilt(&name, &reasons)),
            Reaction::Gone(Gone::Table) => Some(format!("table {name} of TiDB was dropped")),
            Reaction::Gone(Gone::Column(column)) => {
                Some(format!("column `{column}` of table {name} of TiDB was dropped"))
            }
            Reaction::Refused(refusal) => Some(format!("table {name} of TiDB {refusal}")),
        }
    }

    /// What happened to any of a view's tables of TiDB since another catalog; `used` are the columns that its
    /// plan reads.
    #[must_use]
    pub fn changes_since(
        &self,
        before: &Catalog,
        base_tables: &[TableId],
        used: &BTreeMap<TableId, BTreeSet<usize>>,
    ) -> Option<String> {
        let nothing = BTreeSet::new();
        base_tables
            .iter()
            .find_map(|table| self.change_since(before, *table, used.get(table).unwrap_or(&nothing)))
    }

    /// The catalog of Tidemill's own tables and views.
    pub(super) fn without_foreign(&self) -> Catalog {
        let mut catalog = self.clone();
        catalog.tables.retain(|_, definition| definition.foreign.is_none());
        let tables = &catalog.tables;
        catalog.names.retain(|_, id| tables.contains_key(id));
        catalog.databases.truncate(catalog.n_own_databases);
        catalog.foreign = Arc::default();
        catalog
    }

    /// Adds TiDB's side to a catalog that has none.
    pub(super) fn add_foreign(&mut self, foreign: Arc<ForeignSchema>) -> Result<()> {
        for database in &foreign.databases {
            if !self.has_database(database) {
                self.databases.push(database.clone());
            }
        }
        for definition in &foreign.tables {
            let id = definition.id();
            if self.hides(id, &definition.info.name) {
                continue;
            }
            if self.tables.insert(id, Arc::clone(definition)).is_some() {
                let name = definition.full_name();
                return Err(Error::corrupt(format!("table '{name}' of TiDB has the id {id} of an own one")));
            }
            let name = (definition.database.to_lowercase(), definition.info.name.to_lowercase());
            self.names.entry(name).or_insert(id);
        }
        self.foreign = foreign;
        Ok(())
    }
}

/// Refused columns with the errors that naming them is.
pub(super) fn refused_columns(table: &str, refused: &[RefusedColumn]) -> Vec<(String, Refusal)> {
    let column = |column: &RefusedColumn| {
        (column.name.clone(), Refusal::new(&column.refusal.of_column(table, &column.name)))
    };
    refused.iter().map(column).collect()
}

/// The error of a change of what is TiDB's.
pub(super) fn denied(verb: &str, what: &str) -> Error {
    let text = format!("{verb} command denied to {what}: it belongs to TiDB, change it through TiDB");
    Error::mysql(1142, text)
}

fn rebuilt(name: &str, reasons: &[RebuildReason]) -> String {
    let texts = reasons.iter().map(|reason| match reason {
        RebuildReason::TableId { old, new } => {
            format!("it was truncated, exchanged or created anew (its id was {old} and is {new})")
        }
        other => other.to_string(),
    });
    format!("table {name} of TiDB was changed: {}", texts.collect::<Vec<_>>().join("; "))
}
