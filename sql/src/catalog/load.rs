//! Reading the catalog out of the store.

use std::sync::{Arc, Mutex, PoisonError};

use store::{Key, KeyRange, ReadContext, ScanRequest, Snapshot, Store, Value};
use types::{Error, Result, Timestamp, records};

use super::{Catalog, TableDefinition};

/// Keys a page of the scan.
const PAGE_KEYS: usize = 1024;

/// Reads all definitions at a timestamp.
///
/// # Errors
/// `Corrupt` if a record cannot be read; what the store says.
pub async fn load(store: &dyn Store, ts: Timestamp) -> Result<Catalog> {
    let version = read_number(store, ts, &records::catalog_version_key()).await?;
    let next_id = read_number(store, ts, &records::id_allocator_key()).await?;
    let mut catalog = Catalog { version, next_id, ..Catalog::default() };
    for (_, value) in scan(store, ts, &records::database_prefix()).await? {
        let name = String::from_utf8(value.to_vec());
        catalog.databases.push(name.map_err(|_| Error::corrupt("a database's name is not UTF-8"))?);
    }
    for (key, value) in scan(store, ts, &records::table_prefix()).await? {
        let definition: TableDefinition = serde_json::from_slice(&value)
            .map_err(|error| Error::corrupt(format!("definition {}: {error}", key.escape_ascii())))?;
        catalog.add(definition)?;
    }
    Ok(catalog)
}

/// Reads all definitions of a snapshot, getting past the locks it meets.
///
/// # Errors
/// As [`load`].
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
        let definition: TableDefinition = serde_json::from_slice(&value)
            .map_err(|error| Error::corrupt(format!("definition {}: {error}", key.escape_ascii())))?;
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

    /// The catalog at a timestamp: one read of the version key if the cached one is right.
    ///
    /// # Errors
    /// As `load`.
    pub async fn load(&self, store: &dyn Store, ts: Timestamp) -> Result<Arc<Catalog>> {
        let version = read_number(store, ts, &records::catalog_version_key()).await?;
        if let Some(cached) = self.cached().filter(|cached| cached.version == version) {
            return Ok(cached);
        }
        let catalog = Arc::new(load(store, ts).await?);
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_none_or(|known| known.version < catalog.version) {
            *newest = Some(Arc::clone(&catalog));
        }
        Ok(catalog)
    }

    /// The same for a snapshot, getting past the locks it meets.
    ///
    /// # Errors
    /// As `load`.
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

async fn read_number(store: &dyn Store, ts: Timestamp, key: &[u8]) -> Result<u64> {
    number(key, store.kv_get(key, &ReadContext::at(ts)).await?)
}

fn number(key: &[u8], value: Option<Value>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| Error::corrupt(format!("{} is not a number", key.escape_ascii())))
}

async fn scan(store: &dyn Store, ts: Timestamp, prefix: &[u8]) -> Result<Vec<(Key, Value)>> {
    let context = ReadContext::at(ts);
    let mut range = KeyRange::prefix(prefix);
    let mut found = Vec::new();
    loop {
        let request = ScanRequest { range: range.clone(), limit: PAGE_KEYS, key_only: false, reverse: false };
        let page = store.kv_scan(&request, &context).await?;
        let full = page.len() == PAGE_KEYS;
        for pair in page {
            range.start = [pair.key.as_ref(), &[0]].concat().into();
            found.push((pair.key, pair.value?));
        }
        if !full {
            return Ok(found);
        }
    }
}
