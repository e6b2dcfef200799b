//! Reading the catalog out of the store.

use std::sync::{Arc, Mutex, PoisonError};

use store::{KeyRange, Snapshot, Value};
use types::{Error, Result, records};

use super::change::note_refresh;
use super::{Catalog, Refresh, TableDefinition};

/// Reads all definitions of a snapshot, getting past the locks it meets.
///
/// # Errors
/// `Corrupt` if a record cannot be read; what the store says.
async fn load_at(snapshot: &Snapshot) -> Result<Catalog> {
    let version =
        number(&records::catalog_version_key(), snapshot.get(&records::catalog_version_key()).await?)?;
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
    Ok(catalog)
}

impl Catalog {
    /// Adds a definition to the maps; a view that is built to replace another has no name yet.
    fn add(&mut self, definition: TableDefinition) -> Result<()> {
        let id = definition.id();
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

/// The newest catalog that was loaded, kept as long as its version is the store's.
#[derive(Debug, Default)]
pub struct CatalogCache {
    newest: Mutex<Option<Arc<Catalog>>>,
}

impl CatalogCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> CatalogCache {
        CatalogCache::default()
    }

    /// The catalog of a snapshot, getting past the locks it meets: one read of the version key if the
    /// cached one is right.
    ///
    /// # Errors
    /// `Corrupt` if a record cannot be read; what the store says.
    pub async fn load_at(&self, snapshot: &Snapshot) -> Result<Arc<Catalog>> {
        let key = records::catalog_version_key();
        let version = number(&key, snapshot.get(&key).await?)?;
        if let Some(cached) = self.cached().filter(|cached| cached.version == version) {
            return Ok(cached);
        }
        let catalog = Arc::new(load_at(snapshot).await?);
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_none_or(|known| known.version < catalog.version) {
            *newest = Some(Arc::clone(&catalog));
        }
        Ok(catalog)
    }

    fn cached(&self) -> Option<Arc<Catalog>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn number(key: &[u8], value: Option<Value>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| Error::corrupt(format!("{} is not a number", key.escape_ascii())))
}
