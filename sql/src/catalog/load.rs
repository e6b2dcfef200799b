//! Reading the catalog out of the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use store::{Key, KeyRange, Snapshot, Value};
use types::{Error, Result, records};

use super::change::note_refresh;
use super::foreign_load::{load_foreign, stamp_keys, stamp_of};
use super::{Catalog, DroppedTidbTable, ForeignSchema, Refresh, SchemaStamp, TableDefinition};

/// How many catalogs are kept: the newest, and those at the cuts of views that lag behind a change.
const REMEMBERED: usize = 4;

/// Reads the own definitions of a snapshot, getting past the locks it meets.
///
/// # Errors
/// `Corrupt` if a record cannot be read; what the store says.
async fn load_own(snapshot: &Snapshot, version: u64) -> Result<Catalog> {
    let next_id = number(&records::id_allocator_key(), snapshot.get(&records::id_allocator_key()).await?)?;
    let mut catalog = Catalog { version, next_id, ..Catalog::default() };
    for (_, value) in snapshot.scan_all(&KeyRange::prefix(&records::database_prefix())).await? {
        let name = String::from_utf8(value.to_vec());
        catalog.databases.push(name.map_err(|_| Error::corrupt("a database's name is not UTF-8"))?);
    }
    for (key, value) in snapshot.scan_all(&KeyRange::prefix(&records::table_prefix())).await? {
        let mut definition: TableDefinition = serde_json::from_slice(&value)
            .map_err(|error| Error::corrupt(format!("definition {}: {error}", key.escape_ascii())))?;
        if let Some(view) = &mut definition.view
            && view.options.get("refresh").is_some_and(|text| Refresh::parse(text).is_err())
        {
            // The text of an interval that is longer than one may be.
            note_refresh(&mut view.options, view.refresh);
        }
        catalog.add(definition)?;
    }
    catalog.n_own_databases = catalog.databases.len();
    // A note comes with a change of the catalog; that one is cached which is gone by now does no harm.
    for (key, value) in snapshot.scan_all(&KeyRange::prefix(&records::dropped_prefix())).await? {
        let note: Note = serde_json::from_slice(&value)
            .map_err(|error| Error::corrupt(format!("note {}: {error}", key.escape_ascii())))?;
        if let Some(tidb) = note.tidb {
            catalog.gone.insert(records::table_of_dropped_key(&key)?, tidb);
        }
    }
    Ok(catalog)
}

/// What is needed here of the note that a table was dropped.
#[derive(Deserialize)]
struct Note {
    #[serde(default)]
    tidb: Option<DroppedTidbTable>,
}

impl Catalog {
    /// Adds a definition to the maps; a view that is built to replace another has no name yet.
    fn add(&mut self, definition: TableDefinition) -> Result<()> {
        let id = definition.id();
        // What was created in a database of TiDB stays when TiDB drops that.
        if !self.has_database(&definition.database) {
            self.databases.push(definition.database.clone());
        }
        if definition.view.as_ref().is_none_or(|view| view.replaces.is_none()) {
            let name = (definition.database.to_lowercase(), definition.info.name.to_lowercase());
            if self.names.insert(name, id).is_some() {
                return Err(Error::corrupt(format!("two tables are named '{}'", definition.full_name())));
            }
        }
        self.tables.insert(id, Arc::new(definition));
        Ok(())
    }
}

/// The newest catalogs that were loaded, each right for as long as the store says the same of both sides.
#[derive(Debug, Default)]
pub struct CatalogCache {
    /// The one that was asked for last is first.
    recent: Mutex<VecDeque<Arc<Catalog>>>,
}

impl CatalogCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> CatalogCache {
        CatalogCache::default()
    }

    /// The catalog of a snapshot, getting past the locks it meets: one read of a few keys if a cached one is
    /// right.
    ///
    /// # Errors
    /// `Corrupt` if a record cannot be read; what the store says.
    pub async fn load_at(&self, snapshot: &Snapshot) -> Result<Arc<Catalog>> {
        let known = self.recent().front().and_then(|newest| newest.foreign.stamp);
        let own_key: Key = records::catalog_version_key().into();
        let [version_key, diff_key] = stamp_keys(known);
        let found = snapshot.batch_get(&[own_key.clone(), version_key, diff_key]).await?;
        let [own, version, diff] = found.as_slice() else {
            return Err(Error::corrupt("a batch of three keys has another number of answers"));
        };
        let own = number(&own_key, own.clone())?;
        let stamp = stamp_of(snapshot, known, version.as_ref(), diff.as_ref()).await?;
        if let Some(cached) = self.cached(|cached| cached.version == own && cached.foreign.stamp == stamp) {
            return Ok(cached);
        }
        let catalog = Arc::new(self.load(snapshot, own, stamp).await?);
        let mut recent = self.recent();
        recent.push_front(Arc::clone(&catalog));
        recent.truncate(REMEMBERED);
        Ok(catalog)
    }

    /// TiDB's side at a snapshot if it is another than a catalog's; one read of two keys if it is not. Reads
    /// no key that a transaction of Tidemill's could have locked.
    ///
    /// # Errors
    /// `Corrupt` if a definition cannot be read; what the store says.
    pub async fn foreign_since(
        &self,
        snapshot: &Snapshot,
        catalog: &Catalog,
    ) -> Result<Option<Arc<ForeignSchema>>> {
        let known = catalog.foreign.stamp;
        let found = snapshot.batch_get(&stamp_keys(known)).await?;
        let [version, diff] = found.as_slice() else {
            return Err(Error::corrupt("a batch of two keys has another number of answers"));
        };
        let stamp = stamp_of(snapshot, known, version.as_ref(), diff.as_ref()).await?;
        if stamp == known {
            return Ok(None);
        }
        if let Some(cached) = self.cached(|cached| cached.foreign.stamp == stamp) {
            return Ok(Some(Arc::clone(&cached.foreign)));
        }
        Ok(Some(match stamp {
            Some(stamp) => Arc::new(load_foreign(snapshot, stamp).await?),
            None => Arc::default(),
        }))
    }

    /// Loads what is not cached of either side.
    async fn load(&self, snapshot: &Snapshot, own: u64, stamp: Option<SchemaStamp>) -> Result<Catalog> {
        let mut catalog = match self.cached(|cached| cached.version == own) {
            Some(cached) => cached.without_foreign(),
            None => load_own(snapshot, own).await?,
        };
        let foreign = match (stamp, self.cached(|cached| cached.foreign.stamp == stamp)) {
            (None, _) => Arc::new(ForeignSchema::default()),
            (Some(_), Some(cached)) => Arc::clone(&cached.foreign),
            (Some(stamp), None) => Arc::new(load_foreign(snapshot, stamp).await?),
        };
        catalog.add_foreign(foreign)?;
        Ok(catalog)
    }

    /// A catalog that is right, which becomes the first.
    fn cached(&self, is_right: impl Fn(&Catalog) -> bool) -> Option<Arc<Catalog>> {
        let mut recent = self.recent();
        let at = recent.iter().position(|cached| is_right(cached))?;
        let cached = recent.remove(at)?;
        recent.push_front(Arc::clone(&cached));
        Some(cached)
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Arc<Catalog>>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(key: &[u8], value: Option<Value>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| Error::corrupt(format!("{} is not a number", key.escape_ascii())))
}
