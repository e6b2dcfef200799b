//! What the names in a view's text stand for among TiDB's tables.
//!
//! TiDB renames tables and columns, and adds and drops them, without asking the views over them. A view means
//! the tables and columns that its text named when it was created, by id: a rename changes nothing, and `*`
//! stays the list of columns that it was. A table that was replaced (truncated, exchanged, created anew) is
//! looked for under the name that it last had, and so are its columns.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidb::MetaTable;
use types::{Error, Result, TableId};

use super::{Catalog, ForeignSchema, ForeignTable, Refusal, TableDefinition, ViewDefinition};

/// A table of TiDB that a view's text names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundTable {
    /// The database, as the text has it, in lower case.
    pub database: String,
    /// The table, as the text has it, in lower case.
    pub name: String,
    /// The table.
    pub id: TableId,
    /// Its columns, in the order of `*`.
    pub columns: Vec<BoundColumn>,
    /// Database, name and columns as they were before the table was changed so that the view is built anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownTable>,
}

/// A column of such a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundColumn {
    /// The column.
    pub id: i64,
    /// Its name in the text.
    pub name: String,
}

/// The names of a table and its columns at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownTable {
    database: String,
    name: String,
    columns: Vec<BoundColumn>,
}

impl BoundTable {
    /// What a name in a new view's text stands for.
    pub(crate) fn new(database: &str, name: &str, definition: &TableDefinition) -> BoundTable {
        let columns = definition.visible_columns().iter();
        let columns = columns.map(|column| BoundColumn { id: column.id, name: column.name.clone() });
        BoundTable {
            database: database.to_lowercase(),
            name: name.to_lowercase(),
            id: definition.id(),
            columns: columns.collect(),
            known: None,
        }
    }

    /// Notes the names that a schema has for the table, if it is there.
    pub(super) fn note_known(&mut self, schema: &ForeignSchema) {
        let named = schema.name_of(self.id).zip(schema.meta(self.id));
        if let Some(((database, name), meta)) = named {
            let columns = meta.columns.iter();
            let columns = columns.map(|column| BoundColumn { id: column.id, name: column.name.clone() });
            self.known = Some(KnownTable {
                database: database.to_owned(),
                name: name.to_owned(),
                columns: columns.collect(),
            });
        }
    }

    /// The table as the text knows it: its columns under the names and in the order of the text.
    fn present(&self, catalog: &Catalog) -> Result<Arc<TableDefinition>> {
        let schema = &catalog.foreign;
        let known = self.known.as_ref();
        let id = match schema.meta(self.id) {
            Some(_) => Some(self.id),
            None => match known {
                Some(known) => schema.id_of(&known.database, &known.name),
                None => schema.id_of(&self.database, &self.name),
            },
        };
        let definition = id.and_then(|id| catalog.tables.get(&id)).filter(|table| table.foreign.is_some());
        let (Some(definition), Some(id)) = (definition, id) else { return Err(self.gone(catalog)) };
        let Some(foreign) = &definition.foreign else { return Err(self.gone(catalog)) };
        Ok(Arc::new(self.renamed(definition, foreign, id == self.id)))
    }

    /// Why the table is not there.
    fn gone(&self, catalog: &Catalog) -> Error {
        let (database, name) = match &self.known {
            Some(known) => (&known.database, &known.name),
            None => (&self.database, &self.name),
        };
        let now = catalog.foreign.name_of(self.id);
        let (database, name) = now.unwrap_or((database, name));
        let refused = catalog.foreign.refused.get(&(database.to_lowercase(), name.to_lowercase()));
        match refused {
            Some(refused) => refused.refusal.error(),
            None => Error::mysql(1146, format!("Table '{database}.{name}' doesn't exist")),
        }
    }

    fn renamed(&self, definition: &TableDefinition, foreign: &ForeignTable, same: bool) -> TableDefinition {
        let mut info = definition.info.clone();
        let mut refused = Vec::new();
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut positions = BTreeMap::new();
        for bound in &self.columns {
            let column = self.column_of(bound, &foreign.meta, same);
            let position = column.and_then(|(id, _)| info.columns.iter().position(|read| read.id == id));
            let Some(position) = position else {
                let refusal = column.and_then(|(_, name)| {
                    foreign
                        .refused
                        .iter()
                        .find(|(refused, _)| refused == name)
                        .map(|(_, refusal)| refusal.clone())
                });
                let dropped = || {
                    let text =
                        format!("column `{}` of table `{}` was dropped", bound.name, definition.full_name());
                    Refusal { code: 1054, text }
                };
                refused.push((bound.name.clone(), refusal.unwrap_or_else(dropped)));
                continue;
            };
            positions.insert(position, columns.len());
            let mut column = info.columns[position].clone();
            column.name.clone_from(&bound.name);
            columns.push(column);
        }
        let n_visible = columns.len();
        for position in info.primary_key.clone() {
            if let Entry::Vacant(new) = positions.entry(position) {
                new.insert(columns.len());
                columns.push(info.columns[position].clone());
            }
        }
        let n_hidden = columns.len() - n_visible;
        for key_column in &mut info.primary_key {
            *key_column = positions[key_column];
        }
        info.columns = columns;
        let foreign = ForeignTable { refused, n_hidden, ..foreign.clone() };
        TableDefinition {
            database: definition.database.clone(),
            info,
            view: None,
            foreign: Some(Arc::new(foreign)),
        }
    }

    /// What a column of the text is in a definition: its id and name there.
    fn column_of<'a>(&self, bound: &BoundColumn, meta: &'a MetaTable, same: bool) -> Option<(i64, &'a str)> {
        let public = meta.public_columns();
        let by_id = public.iter().find(|column| same && column.id == bound.id);
        let known = self.known.as_ref();
        let known = known.and_then(|known| known.columns.iter().find(|column| column.id == bound.id));
        let name = known.map_or(&bound.name, |known| &known.name);
        // A column of another type may be a new one under the name; one that the text knows already is not it.
        let is_other = |id: i64| same && self.columns.iter().any(|other| other.id == id);
        let by_name =
            || public.iter().find(|column| column.name.eq_ignore_ascii_case(name) && !is_other(column.id));
        by_id.or_else(by_name).map(|column| (column.id, column.name.as_str()))
    }

    /// Whether the table, or a column of it, is not there any more under its id.
    fn is_gone(&self, schema: &ForeignSchema) -> bool {
        let Some(meta) = schema.meta(self.id) else { return true };
        let public = meta.public_columns();
        self.columns.iter().any(|bound| public.iter().all(|column| column.id != bound.id))
    }
}

impl Catalog {
    /// The catalog in which names mean what they mean in a view's text.
    #[must_use]
    pub fn bound_to(&self, view: &ViewDefinition) -> std::borrow::Cow<'_, Catalog> {
        if view.bound.is_empty() && self.bound.is_empty() {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut catalog = self.clone();
        let present =
            |table: &BoundTable| ((table.database.clone(), table.name.clone()), table.present(self));
        catalog.bound = view.bound.iter().map(present).collect();
        std::borrow::Cow::Owned(catalog)
    }

    /// What the names of a text stand for among TiDB's tables.
    pub(crate) fn binding(&self, database: &str, name: &str) -> Option<BoundTable> {
        let definition = self.find(database, name)?;
        definition.foreign.as_ref()?;
        Some(BoundTable::new(database, name, definition))
    }

    /// The same catalog, in which views know the names that an older one has for tables and columns that are
    /// gone.
    #[must_use]
    pub fn remembering(self: &Arc<Catalog>, before: &Catalog) -> Arc<Catalog> {
        self.with_views(|view| {
            for table in &mut view.bound {
                if table.known.is_none() && table.is_gone(&self.foreign) {
                    table.note_known(&before.foreign);
                }
            }
        })
    }

    /// The same catalog, in which views know the names that they have noted in a younger one.
    #[must_use]
    pub fn knowing_names_of(self: &Arc<Catalog>, younger: &Catalog) -> Arc<Catalog> {
        let noted: BTreeMap<TableId, &KnownTable> = younger
            .views()
            .flat_map(|(_, _, view)| &view.bound)
            .filter_map(|table| Some((table.id, table.known.as_ref()?)))
            .collect();
        self.with_views(|view| {
            for table in view.bound.iter_mut().filter(|table| table.known.is_none()) {
                table.known = noted.get(&table.id).map(|known| (*known).clone());
            }
        })
    }

    fn with_views(self: &Arc<Catalog>, edit: impl Fn(&mut ViewDefinition)) -> Arc<Catalog> {
        let mut changed = Vec::new();
        for (id, definition, view) in self.views().filter(|(_, _, view)| !view.bound.is_empty()) {
            let mut edited = view.clone();
            edit(&mut edited);
            if edited != *view {
                let definition = TableDefinition { view: Some(edited), ..TableDefinition::clone(definition) };
                changed.push((id, Arc::new(definition)));
            }
        }
        if changed.is_empty() {
            return Arc::clone(self);
        }
        let mut catalog = Catalog::clone(self);
        catalog.tables.extend(changed);
        Arc::new(catalog)
    }
}
