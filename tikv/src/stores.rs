//! Stores: their addresses and the connections to them.
//!
//! A store that does not answer is forgotten with its address, which may have moved; the next caller asks the
//! placement driver and connects anew, certificates included.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Mutex as AsyncMutex;
use tonic::transport::Channel;
use types::{Error, Result};

use crate::connect::connect;
use crate::options::Options;
use crate::pd::{Pd, holds_rows};
use crate::proto::metapb;

/// One store's connection; the lock is held while it is made, so that only one caller makes it.
type Slot = Arc<AsyncMutex<Option<Channel>>>;

/// The connections to stores.
pub(crate) struct Stores {
    options: Arc<Options>,
    pd: Arc<Pd>,
    slots: Mutex<BTreeMap<u64, Slot>>,
}

impl Stores {
    pub(crate) fn new(options: Arc<Options>, pd: Arc<Pd>) -> Stores {
        Stores { options, pd, slots: Mutex::new(BTreeMap::new()) }
    }

    /// The connection to a store.
    ///
    /// # Errors
    /// `Unavailable` if it does not answer or is gone.
    pub(crate) async fn channel(&self, store_id: u64) -> Result<Channel> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(store_id).or_default())
        };
        let mut channel = slot.lock().await;
        if let Some(channel) = &*channel {
            return Ok(channel.clone());
        }
        let store =
            self.pd.store(store_id).await?.filter(|store| store.state() != metapb::StoreState::Tombstone);
        let store = store.ok_or_else(|| Error::unavailable(format!("store {store_id} is gone")))?;
        if !holds_rows(&store) {
            return Err(Error::unavailable(format!("store {store_id} holds columns, not rows")));
        }
        let made = connect(&self.options, &store.address).await;
        let made = made.map_err(|error| error.context(format!("store {store_id}")))?;
        *channel = Some(made.clone());
        Ok(made)
    }

    /// Forgets a connection and the address it went to.
    pub(crate) fn forget(&self, store_id: u64) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&store_id);
    }
}
