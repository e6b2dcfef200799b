//! Holds and readings: what keeps the cluster's history.
//!
//! A hold is a barrier at the placement driver under a name of ours. It ends by itself a day after nobody
//! renews it, so that an installation that is gone for good does not fill the disks; every process that is
//! connected renews all that are listed, when half of their time is over. An older placement driver keeps
//! safe points of services but lists them to nobody: then the list is in records of ours. What this process
//! reads has one short-lived barrier for all, at the oldest reading.

use std::sync::{Arc, Weak};
use std::time::Duration;

use store::{Mutation, Readers};
use tokio::sync::Mutex;
use types::{Error, Result, Timestamp};

use crate::cluster::Cluster;
use crate::own_keys;
use crate::pd::Barrier;

/// What names of barriers begin with.
const HOLD_PREFIX: &str = "tidemill/";
/// What the barrier of a process's readings begins with; no hold.
const READING_PREFIX: &str = "tidemill-reading/";

/// The holds of an installation, and what this process reads.
pub(crate) struct Holds {
    cluster: Arc<Cluster>,
    pub(crate) readers: Arc<Readers>,
    /// Locked over the calls that change holds, so that a renewal brings back nothing that is being released.
    changing: Mutex<()>,
    /// The barrier for readings, and where it is.
    reading_id: String,
    reading: Mutex<Option<Timestamp>>,
}

fn barrier_id(name: &str) -> String {
    format!("{HOLD_PREFIX}{name}")
}

/// A hold, and how long it stays unless it is renewed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    name: String,
    ts: Timestamp,
    left: Duration,
}

/// The holds among barriers, by name.
fn holds_among(barriers: Vec<Barrier>) -> Vec<Held> {
    let ours = |barrier: Barrier| {
        let name = barrier.id.strip_prefix(HOLD_PREFIX)?.to_owned();
        Some(Held { name, ts: barrier.ts, left: barrier.left })
    };
    let mut holds: Vec<Held> = barriers.into_iter().filter_map(ours).collect();
    holds.sort();
    holds
}

impl Holds {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Arc<Holds> {
        let reading_id = format!("{READING_PREFIX}{:016x}", rand::random::<u64>());
        Arc::new(Holds {
            cluster,
            readers: Arc::new(Readers::default()),
            changing: Mutex::new(()),
            reading_id,
            reading: Mutex::new(None),
        })
    }

    /// Starts the task that renews what is held and learns of the safe point.
    pub(crate) fn start(self: &Arc<Self>) {
        let stop = self.cluster.tasks.stop_token();
        let every = self.cluster.options.hold_refresh;
        let holds = Arc::downgrade(self);
        self.cluster.tasks.spawn("holds", async move {
            while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                let Some(holds) = Weak::upgrade(&holds) else { return };
                if stop.run_until_cancelled(Box::pin(holds.renew())).await.is_none() {
                    return;
                }
            }
        });
    }

    async fn renew(&self) {
        if let Err(error) = self.cluster.renew_safe_point().await {
            tracing::warn!(%error, "the safe point is not known");
        }
        if let Err(error) = self.renew_reading().await {
            tracing::warn!(%error, "what is read is not held");
        }
        if let Err(error) = self.renew_holds().await {
            tracing::warn!(%error, "holds are not renewed");
        }
    }

    async fn renew_holds(&self) -> Result<()> {
        let ttl = self.cluster.options.hold_ttl;
        let _changing = self.changing.lock().await;
        for hold in self.listed().await?.into_iter().filter(|hold| hold.left < ttl / 2) {
            match self.cluster.pd.set_barrier(&barrier_id(&hold.name), hold.ts, ttl).await {
                Ok(_) => {}
                Err(error) if error.is_history_gone() => {
                    tracing::error!(name = hold.name, %error, "a hold was lost");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves the barrier for readings to the oldest, or drops it if nobody reads.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time, [`Error::history_gone`] if a reading is
    /// too late.
    pub(crate) async fn renew_reading(&self) -> Result<()> {
        let oldest = self.oldest_reading();
        let mut reading = self.reading.lock().await;
        match oldest {
            Some(ts) => {
                let ttl = (self.cluster.options.hold_refresh * 6).max(Duration::from_secs(60));
                self.cluster.pd.set_barrier(&self.reading_id, ts, ttl).await?;
            }
            None if reading.is_some() => self.cluster.pd.drop_barrier(&self.reading_id).await?,
            None => {}
        }
        *reading = oldest;
        Ok(())
    }

    /// The oldest reading that is young enough to be honoured.
    pub(crate) fn oldest_reading(&self) -> Option<Timestamp> {
        let newest = self.cluster.pd.oracle().newest();
        let age_ms_max = self.cluster.options.reading_age_max.as_millis() as u64;
        let limit = Timestamp::from_parts(newest.physical_ms().saturating_sub(age_ms_max), 0);
        self.readers.oldest(limit).filter(|oldest| *oldest != Timestamp::MAX)
    }

    /// Takes or moves a hold; see [`store::Store::hold`].
    ///
    /// # Errors
    /// [`Error::history_gone`] if it is too late.
    pub(crate) async fn hold(&self, name: &str, ts: Timestamp) -> Result<()> {
        self.cluster.passed(ts).await?;
        self.cluster.history.check(ts)?;
        let _changing = self.changing.lock().await;
        let listed =
            self.cluster.pd.set_barrier(&barrier_id(name), ts, self.cluster.options.hold_ttl).await?;
        if !listed {
            let record = Mutation::put(own_keys::hold(name), ts.0.to_be_bytes().to_vec());
            self.cluster.write_own(vec![record]).await?;
        }
        Ok(())
    }

    /// Drops a hold; see [`store::Store::release`].
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn release(&self, name: &str) -> Result<()> {
        let _changing = self.changing.lock().await;
        self.cluster.pd.drop_barrier(&barrier_id(name)).await?;
        if self.cluster.pd.gc_state().await?.barriers.is_none() {
            self.cluster.write_own(vec![Mutation::delete(own_keys::hold(name))]).await?;
        }
        Ok(())
    }

    /// The holds in force; see [`store::Store::holds`].
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn list(&self) -> Result<Vec<(String, Timestamp)>> {
        Ok(self.listed().await?.into_iter().map(|hold| (hold.name, hold.ts)).collect())
    }

    /// The holds; of those in records nobody knows how long they stay, so they are always due.
    async fn listed(&self) -> Result<Vec<Held>> {
        if let Some(barriers) = self.cluster.pd.gc_state().await?.barriers {
            return Ok(holds_among(barriers));
        }
        let records = self.cluster.read_own(&own_keys::holds()).await?;
        let held = |(key, value): &(store::Key, store::Value)| {
            let (name, ts) = own_keys::hold_of(key, value)?;
            Ok(Held { name, ts, left: Duration::ZERO })
        };
        records.iter().map(held).collect()
    }

    /// Drops versions, if that is ours to do; see [`store::Store::collect_garbage`].
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer in time.
    pub(crate) async fn collect(&self, barrier: Timestamp) -> Result<Timestamp> {
        let cluster = &self.cluster;
        let safe_point = cluster.renew_safe_point().await?;
        if !cluster.options.drives_gc {
            return Ok(safe_point);
        }
        self.renew_reading().await?;
        let held: Vec<Timestamp> = match cluster.pd.gc_state().await?.barriers {
            Some(barriers) => barriers.into_iter().map(|barrier| barrier.ts).collect(),
            None => self.list().await?.into_iter().map(|(_, ts)| ts).collect(),
        };
        let held = held.into_iter().chain(self.oldest_reading()).min();
        let barrier = held.map_or(barrier, |held| barrier.min(held));
        if barrier <= safe_point {
            return Ok(safe_point);
        }
        let barrier = cluster.finish_decided(barrier).await?.max(safe_point);
        let barrier = cluster.pd.advance_readers(barrier).await?;
        // Readers of this process are refused from here on, before anything is dropped.
        cluster.history.learn(barrier);
        let collected = cluster.pd.advance_collection(barrier).await?;
        if collected > barrier {
            let text = format!("the cluster drops versions below {collected}, {barrier} was asked for");
            return Err(Error::corrupt(text));
        }
        Ok(barrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_holds_are_listed() {
        let left = Duration::from_secs(60);
        let barrier = |id: &str, ts: u64| Barrier { id: id.to_owned(), ts: Timestamp(ts), left };
        let barriers = vec![
            barrier("tidemill/view", 3),
            barrier("ticdc-7", 2),
            barrier("tidemill-reading/00", 1),
            barrier("tidemill/fill", 4),
        ];
        let hold = |name: &str, ts: u64| Held { name: name.to_owned(), ts: Timestamp(ts), left };
        assert_eq!(holds_among(barriers), [hold("fill", 4), hold("view", 3)]);
    }
}
