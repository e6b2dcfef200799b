//! Regions that never rest: splits, merges, moves and new leaders, drawn from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use store::Key;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::keys;
use crate::shared::Shared;

/// There are never more regions than this because of it.
const REGIONS_MAX: usize = 60;

/// Regions in motion until it is stopped or dropped.
pub struct Churn {
    stop: CancellationToken,
    changes: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Churn {
    /// Stops; returns how many changes there were.
    pub async fn stop(mut self) -> u64 {
        self.stop.cancel();
        // It ends at its next pause; a panic in it has been reported.
        let _ = (&mut self.task).await;
        self.changes.load(Ordering::SeqCst)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    /// Changes regions all the time, one change per pause.
    #[must_use]
    pub fn churn(&self, seed: u64, pause: Duration) -> Churn {
        let (stop, changes) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let (shared, stopped, counted) = (Arc::clone(&self.shared), stop.clone(), Arc::clone(&changes));
        let ends = self.shared.tasks.stop_token();
        let task = self.shared.tasks.spawn(async move {
            let mut random = StdRng::seed_from_u64(seed);
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = ends.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                if shared.change_regions(&mut random).await {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Churn { stop, changes, task }
    }
}

impl Shared {
    /// One change; false if the drawn one could not be.
    async fn change_regions(&self, random: &mut StdRng) -> bool {
        let mut side = self.mvcc.exclusive().await;
        let regions = side.regions.all();
        let Some(region) = regions.choose(random) else { return false };
        match random.random_range(0..10) {
            0..=3 if regions.len() < REGIONS_MAX => {
                let inside: Vec<Key> = side.keys_in(&region.raw_range()).cloned().collect();
                let Some(key) = inside.choose(random) else { return false };
                let cuts = [keys::encode(key)].into();
                self.mvcc.split(&mut side, region.id(), &cuts).await.is_ok()
            }
            4..=6 => {
                let at = random.random_range(0..regions.len().saturating_sub(1).max(1));
                let (Some(left), Some(right)) = (regions.get(at), regions.get(at + 1)) else { return false };
                let (source, target) = if random.random() { (left, right) } else { (right, left) };
                self.mvcc.merge(&mut side, source.id(), target.id()).await.is_ok()
            }
            7 => {
                let up = self.up_stores();
                let (Some(to), Some(peer)) = (up.choose(random), region.meta.peers.choose(random)) else {
                    return false;
                };
                let moved = side.regions.move_peer(region.id(), peer.store_id, *to);
                moved && side.save_regions(&self.mvcc.store).await.is_ok()
            }
            _ => {
                let up = self.up_stores();
                let Some(to) = up.choose(random) else { return false };
                self.mvcc.lead(&mut side, region.id(), Some(*to)).await.is_ok()
            }
        }
    }

    fn up_stores(&self) -> Vec<u64> {
        self.stores().iter().filter(|(_, store)| store.gate.is_up()).map(|(id, _)| *id).collect()
    }
}
