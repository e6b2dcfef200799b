//! A whole cluster in this process: PD's members and the stores, each with its own address.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use store::{EmbeddedStore, Store};
use tikv::proto::cdcpb::change_data_server::ChangeDataServer;
use tikv::proto::pdpb::pd_server::PdServer;
use tikv::proto::tikvpb::tikv_server::TikvServer;
use tonic::transport::Server;

use crate::keys;
use crate::listen::{Gate, listen};
use crate::mvcc::Mvcc;
use crate::options::Options;
use crate::oracle::Oracle;
use crate::pd::{Driver, MemberState, PdService};
use crate::regions::Regions;
use crate::service::StoreService;
use crate::shared::{Shared, StoreState};
use crate::tasks::Tasks;
use crate::violations::Ledger;

/// Messages of any size come in: a real store's limit is its region log's.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// The id of the first region: a real cluster has given one to its store.
const FIRST_REGION_ID: u64 = 2;

/// A cluster that runs in this process until [`Cluster::shutdown`].
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

impl Cluster {
    /// Starts PD and the stores.
    ///
    /// # Errors
    /// If the data directory cannot be opened or an address cannot be listened on.
    pub async fn start(options: Options) -> anyhow::Result<Cluster> {
        anyhow::ensure!(options.n_stores > 0, "a cluster has a store");
        anyhow::ensure!(options.n_members > 0, "a cluster has a member of PD");
        let store = match &options.data_dir {
            None => {
                let inline = store::Options {
                    inline: true,
                    clock: Arc::clone(&options.clock),
                    ..store::Options::default()
                };
                EmbeddedStore::over(Arc::new(store::engine::MemoryEngine::new()), inline)?
            }
            Some(directory) => {
                let kept = store::Options { clock: Arc::clone(&options.clock), ..store::Options::default() };
                EmbeddedStore::open(directory, kept)?
            }
        };
        let ids: BTreeSet<u64> = (1..=options.n_stores).collect();
        let regions = Regions::new(FIRST_REGION_ID, &ids, &cuts(&options), options.seed);
        let oracle = Arc::new(Oracle::new(Arc::clone(&store)).await?);
        let ledger = Arc::new(Ledger::default());
        let durable = options.data_dir.is_some();
        let driver = if durable { Driver::kept(&store).await? } else { Driver::default() };
        let mvcc = Mvcc::new(store, oracle, ledger, options.cluster_id, &ids, regions, durable).await?;
        mvcc.gc_passed.store(driver.barriers.safe_point(), Ordering::SeqCst);
        let tasks = Tasks::default();
        let shared = Arc::new(Shared::new(options, mvcc, driver, tasks));
        for store_id in ids {
            start_store(&shared, store_id).await?;
        }
        for member in 0..shared.options.n_members {
            start_member(&shared, member).await?;
        }
        Ok(Cluster { shared })
    }

    /// The addresses of PD's members, as `http://host:port`.
    #[must_use]
    pub fn pd_endpoints(&self) -> Vec<String> {
        self.shared.driver.members().iter().map(|member| member.url.clone()).collect()
    }

    /// The addresses of the stores, by id, as `host:port`.
    #[must_use]
    pub fn store_addresses(&self) -> Vec<(u64, String)> {
        self.shared.stores().iter().map(|(id, store)| (*id, store.address.clone())).collect()
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> u64 {
        self.shared.options.cluster_id
    }

    /// The engine below, for what a test looks at directly.
    #[must_use]
    pub fn store(&self) -> Arc<EmbeddedStore> {
        Arc::clone(&self.shared.mvcc.store)
    }

    /// Ends everything and closes the data.
    ///
    /// # Errors
    /// If clients did what they must not (see [`Cluster::violations`]), or the engine cannot be closed.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.finish().await
    }

    /// As [`Cluster::shutdown`], for a cluster that others hold too; they can do nothing more with it.
    ///
    /// # Errors
    /// As [`Cluster::shutdown`].
    pub async fn finish(&self) -> anyhow::Result<()> {
        for member in self.shared.driver.members().iter() {
            member.gate.down();
        }
        for store in self.shared.stores().values() {
            store.gate.down();
        }
        self.shared.faults.release();
        self.shared.mvcc.oracle.stall(false);
        self.shared.mvcc.hold_in_memory(false);
        self.shared.pace.hold_scans(false);
        self.shared.tasks.shutdown().await;
        self.shared.mvcc.store.close().await.context("closing the engine")?;
        let violations = self.shared.mvcc.ledger.violations();
        anyhow::ensure!(violations.is_empty(), "clients did what they must not: {}", violations.join("; "));
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.tasks.stop_token().cancel();
    }
}

fn cuts(options: &Options) -> BTreeSet<bytes::Bytes> {
    if !options.cuts.is_empty() {
        return options.cuts.iter().map(|key| keys::encode(key)).collect();
    }
    let n_regions = options.n_regions.clamp(1, 256);
    let byte = |index: u16| u8::try_from(index * 256 / n_regions).unwrap_or(u8::MAX);
    (1..n_regions).map(|index| keys::encode(&[byte(index)])).collect()
}

/// The port of one of several, from the first one's; any free one if that is zero.
fn port_of(first: u16, index: u64) -> anyhow::Result<u16> {
    let offset = u16::try_from(index).context("too many of them")?;
    if first == 0 { Ok(0) } else { first.checked_add(offset).context("there is no such port") }
}

async fn start_store(shared: &Arc<Shared>, store_id: u64) -> anyhow::Result<()> {
    let gate = Gate::open();
    let port = port_of(shared.options.store_port, store_id - 1)?;
    let (address, incoming) = listen(port, gate.clone(), &shared.tasks).await.context("listening")?;
    shared.stores().insert(store_id, StoreState { address: address.to_string(), gate });
    let service = StoreService { store_id, shared: Arc::clone(shared) };
    let feed = ChangeDataServer::new(service.clone()).max_encoding_message_size(MESSAGE_BYTES_MAX);
    let tikv = TikvServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let server = Server::builder().add_service(tikv).add_service(feed);
    let resolving = Arc::clone(shared);
    shared.tasks.spawn_stoppable(async move { resolving.send_resolved(store_id).await });
    shared.tasks.spawn_stoppable(async move {
        if let Err(error) = server.serve_with_incoming(incoming).await {
            tracing::error!(%error, store_id, "a store's server ended");
        }
    });
    Ok(())
}

async fn start_member(shared: &Arc<Shared>, member: u64) -> anyhow::Result<()> {
    let gate = Gate::open();
    let port = port_of(shared.options.pd_port, member)?;
    let (address, incoming) = listen(port, gate.clone(), &shared.tasks).await.context("listening")?;
    shared.driver.members().push(MemberState { url: format!("http://{address}"), gate });
    let service = PdServer::new(PdService { member, shared: Arc::clone(shared) });
    let server = Server::builder().add_service(service);
    shared.tasks.spawn_stoppable(async move {
        if let Err(error) = server.serve_with_incoming(incoming).await {
            tracing::error!(%error, member, "a member of PD ended");
        }
    });
    Ok(())
}
