//! Reading TiDB's schema out of the meta keys of a snapshot.
//!
//! Its own databases are left out. A definition that cannot be read refuses its own name only, so that a newer
//! TiDB does not take the other tables away.

use std::sync::Arc;

use arrow::array::{Array, StringArray};
use serde_json::Value as Json;
use store::{Key, KeyRange, Snapshot, Value};
use tidb::{
    KeySpan, MetaDatabase, MetaKey, MetaTable, NewCollations, RowDecoder, STATE_PUBLIC, SourceTable,
    TableRefusal, database_range, databases_range, meta_number,
};
use types::{Error, Result, TableId};

use super::change::SYSTEM_DATABASES;
use super::foreign::{Refusal, refused_columns};
use super::{ForeignSchema, ForeignTable, RefusedName, SchemaStamp, TableDefinition};

/// TiDB's own databases, in lower case.
const OWN_DATABASES: [&str; 5] =
    ["mysql", "information_schema", "performance_schema", "metrics_schema", "sys"];
/// The table of a cluster's settings, in the database `mysql`.
const SETTINGS_TABLE: &str = "tidb";
/// The setting that says how texts compare.
const NEW_COLLATIONS: &str = "new_collation_enabled";

/// The keys that tell one schema from another, the stamp that was seen last assumed.
pub(super) fn stamp_keys(known: Option<SchemaStamp>) -> [Key; 2] {
    let known = known.map_or(0, |stamp| stamp.version);
    [MetaKey::SchemaVersion.encode().into(), MetaKey::Diff(known).encode().into()]
}

/// The stamp of a snapshot, from what stands under the keys of [`stamp_keys`].
pub(super) async fn stamp_of(
    snapshot: &Snapshot,
    known: Option<SchemaStamp>,
    version: Option<&Value>,
    known_diff: Option<&Value>,
) -> Result<Option<SchemaStamp>> {
    let Some(version) = version else { return Ok(None) };
    let version = meta_number(version)?;
    let has_diff = if known.is_some_and(|known| known.version == version) {
        known_diff.is_some_and(|diff| !diff.is_empty())
    } else {
        let diff = snapshot.get(&MetaKey::Diff(version).encode()).await?;
        diff.is_some_and(|diff| !diff.is_empty())
    };
    Ok(Some(SchemaStamp { version, has_diff }))
}

/// Reads TiDB's schema, which has a stamp.
pub(super) async fn load_foreign(snapshot: &Snapshot, stamp: SchemaStamp) -> Result<ForeignSchema> {
    let mut databases = Vec::new();
    for (key, value) in snapshot.scan_all(&range(databases_range())).await? {
        if let MetaKey::Database(_) = MetaKey::decode(&key)? {
            databases.push(MetaDatabase::parse(&value)?);
        }
    }
    let collations = collations(snapshot, &databases).await?;
    let mut schema = ForeignSchema { stamp: Some(stamp), collations, ..ForeignSchema::default() };
    for database in &databases {
        let name = database.name.to_lowercase();
        let is_left_out = OWN_DATABASES.contains(&name.as_str()) || SYSTEM_DATABASES.contains(&name.as_str());
        if database.state != STATE_PUBLIC || is_left_out {
            continue;
        }
        schema.databases.push(database.name.clone());
        for (id, value) in tables_of(snapshot, database.id).await? {
            match MetaTable::parse(&value) {
                Ok(meta) => schema.add(&database.name, meta)?,
                Err(error) => schema.add_unreadable(&database.name, id, &value, error)?,
            }
        }
    }
    Ok(schema)
}

impl ForeignSchema {
    fn add(&mut self, database: &str, meta: MetaTable) -> Result<()> {
        let id = u64::try_from(meta.id).map_err(|_| Error::corrupt("a table of TiDB has a negative id"))?;
        let id = TableId(id);
        let key = (database.to_lowercase(), meta.name.to_lowercase());
        // A table that is on its way in or out has given its name away.
        if meta.state == STATE_PUBLIC || !self.ids.contains_key(&key) {
            self.ids.insert(key.clone(), id);
        }
        let meta = Arc::new(meta);
        self.metas.insert(id, (database.to_owned(), Arc::clone(&meta)));
        match readable(&meta, self.collations) {
            Ok((source, refusal)) => {
                self.refused.remove(&key);
                let refused = refused_columns(&meta.name, &source.refused);
                let name = format!("{database}.{}", meta.name);
                let refusal = refusal.map(|refusal| Refusal::new(&refusal.of_table(&name)));
                let mut physical_ids = source.physical_ids;
                physical_ids.sort_unstable();
                let foreign = ForeignTable { meta, physical_ids, refused, n_hidden: 0, refusal };
                self.tables.push(Arc::new(TableDefinition {
                    database: database.to_owned(),
                    info: source.info,
                    view: None,
                    foreign: Some(Arc::new(foreign)),
                }));
            }
            Err(refusal) => {
                if self.ids.get(&key) == Some(&id) {
                    let refusal = Refusal::new(&refusal.of_table(&format!("{database}.{}", meta.name)));
                    self.refused.insert(key, RefusedName { meta: Some(meta), refusal });
                }
            }
        }
        Ok(())
    }

    /// A definition of which only the name can be read.
    fn add_unreadable(&mut self, database: &str, id: i64, value: &[u8], error: Error) -> Result<()> {
        let json: Json = serde_json::from_slice(value).unwrap_or_default();
        let name = json["name"]["O"].as_str().or_else(|| json["name"].as_str());
        let Some(name) = name else {
            return Err(error.context(format!("table {id} of TiDB's database '{database}'")));
        };
        let key = (database.to_lowercase(), name.to_lowercase());
        let text = format!("table `{database}.{name}` of TiDB: {}", error.message());
        let refusal = Refusal { code: 1235, text };
        self.refused.insert(key, RefusedName { meta: None, refusal });
        Ok(())
    }
}

/// What can be read of a table, and why nothing new may be begun over it: rows stay where they are until an
/// exchange is over, so what runs goes on.
fn readable(
    meta: &MetaTable,
    collations: NewCollations,
) -> std::result::Result<(SourceTable, Option<TableRefusal>), TableRefusal> {
    let (source, refusal) = match SourceTable::from_meta(meta, collations) {
        Err(refusal @ TableRefusal::Exchanging) => {
            let settled = MetaTable { is_exchanging: false, ..meta.clone() };
            (SourceTable::from_meta(&settled, collations)?, Some(refusal))
        }
        other => (other?, None),
    };
    if source.info.columns.is_empty() {
        return Err(TableRefusal::Contradiction("none of its columns can be read".to_owned()));
    }
    Ok((source, refusal))
}

/// The definitions of a database's tables, with their ids.
async fn tables_of(snapshot: &Snapshot, database: i64) -> Result<Vec<(i64, Value)>> {
    let mut tables = Vec::new();
    for (key, value) in snapshot.scan_all(&range(database_range(database))).await? {
        if let MetaKey::Table { table, .. } = MetaKey::decode(&key)? {
            tables.push((table, value));
        }
    }
    Ok(tables)
}

/// How texts compare in the cluster; by bytes if that is written down in a way that cannot be read, because
/// then no text is read rather than one compared wrongly.
async fn collations(snapshot: &Snapshot, databases: &[MetaDatabase]) -> Result<NewCollations> {
    let Some(mysql) = databases.iter().find(|database| database.name.eq_ignore_ascii_case("mysql")) else {
        return Ok(NewCollations::On);
    };
    for (_, value) in tables_of(snapshot, mysql.id).await? {
        let Ok(meta) = MetaTable::parse(&value) else { continue };
        if meta.name.eq_ignore_ascii_case(SETTINGS_TABLE) {
            let setting = setting(snapshot, &meta).await;
            return match setting {
                Ok(Some(value)) if !value.eq_ignore_ascii_case("true") => Ok(NewCollations::Off),
                Ok(_) => Ok(NewCollations::On),
                Err(error)
                    if matches!(error.kind(), types::ErrorKind::Invalid | types::ErrorKind::Corrupt) =>
                {
                    tracing::warn!(%error, "cannot read how texts compare in TiDB: its texts are refused");
                    Ok(NewCollations::Off)
                }
                Err(error) => Err(error),
            };
        }
    }
    Ok(NewCollations::On)
}

/// The value of the setting, if there is a row of it.
async fn setting(snapshot: &Snapshot, meta: &MetaTable) -> Result<Option<String>> {
    let source =
        SourceTable::from_meta(meta, NewCollations::On).map_err(|refusal| refusal.of_table("tidb"))?;
    let column = |name: &str| {
        let position = source.info.column_index(name);
        position.ok_or_else(|| Error::corrupt(format!("table mysql.tidb has no column {name}")))
    };
    let columns = [column("variable_name")?, column("variable_value")?];
    let mut decoder = RowDecoder::new(&source.info, &columns)?.with_tables(&source.physical_ids);
    for span in source.record_ranges() {
        for (key, value) in snapshot.scan_all(&range(span)).await? {
            decoder.append(&key, &value)?;
        }
    }
    let batch = decoder.finish()?;
    let text = |column: usize| {
        let array = batch.column(column).as_any().downcast_ref::<StringArray>();
        array.ok_or_else(|| Error::corrupt("a column of table mysql.tidb is no text"))
    };
    let (names, values) = (text(0)?, text(1)?);
    let row = (0..batch.num_rows()).find(|row| names.is_valid(*row) && names.value(*row) == NEW_COLLATIONS);
    Ok(row.filter(|row| values.is_valid(*row)).map(|row| values.value(row).to_owned()))
}

fn range(span: KeySpan) -> KeyRange {
    KeyRange::new(span.start, span.end)
}
