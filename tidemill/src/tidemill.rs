//! Opens an instance, starts what the configuration asks for, and ends all of it in order.
//!
//! ```text
//! store -> coordinator, gRPC -> runtime -> engine -> MySQL, HTTP        (shutdown: the other way round)
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordinator::{
    Coordinator, LocalCoordinator, LocalOptions, RemoteCoordinator, RemoteOptions, RpcServer, Services,
};
use query::Engine;
use runtime::{LeaseOptions, Runtime, RuntimeOptions, Supervisor, TidbOptions};
use sql::Literal;
use store::{EmbeddedStore, Store};
use tokio::net::TcpListener;
use tokio::time::Instant;
use types::{Error, Result};

use crate::answer::Answer;
use crate::config::Config;
use crate::instance::{Instance, Metrics, RuntimeWaiter};
use crate::mysql::handshake::Users;
use crate::session::{self, Session, Variables};
use crate::sessions::Sessions;
use crate::system::SystemTables;
use crate::tidb_sql::TidbConnection;
use crate::{http, mysql};

/// How long running statements may go on after shutdown began.
const GRACE: Duration = Duration::from_secs(5);

/// An open instance. Call [`Tidemill::shutdown`] when done; dropping it only warns.
pub struct Tidemill {
    instance: Arc<Instance>,
    /// The session of [`Tidemill::execute`].
    session: tokio::sync::Mutex<Session>,
    local_coordinator: Option<Arc<LocalCoordinator>>,
    rpc: Option<RpcServer>,
    /// Tasks that outlive the jobs.
    services: Supervisor,
    mysql_address: Option<SocketAddr>,
    http_address: Option<SocketAddr>,
    is_shut_down: bool,
}

impl Drop for Tidemill {
    fn drop(&mut self) {
        if !self.is_shut_down {
            tracing::warn!("an instance was dropped without shutdown; its tasks end with the process");
        }
    }
}

/// Binds an address, if there is one.
async fn bind(address: Option<SocketAddr>, what: &str) -> Result<Option<(TcpListener, SocketAddr)>> {
    let Some(address) = address else { return Ok(None) };
    let failed = |error| Error::invalid(format!("cannot listen on {address} for {what}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, bound)))
}

/// Opens the store that is configured.
///
/// # Errors
/// What the store says.
pub(crate) async fn open_store(config: &Config, supervisor: &Supervisor) -> Result<Arc<dyn Store>> {
    #[cfg(feature = "tikv")]
    if let Some(cluster) = &config.cluster {
        let store = tikv::TikvStore::connect(tikv_options(config, cluster)).await?;
        return Ok(Arc::new(store));
    }
    let Some(path) = config.data_dir.clone() else { return Ok(EmbeddedStore::memory()) };
    let reading_ms_max = config.runtime.history_limit_ms;
    let options = store::Options { force: config.force, reading_ms_max, ..store::Options::default() };
    let store = supervisor.blocking("opening the store", move || EmbeddedStore::open(path, options)).await?;
    Ok(store)
}

#[cfg(feature = "tikv")]
fn tikv_options(config: &Config, cluster: &crate::Cluster) -> tikv::Options {
    let identity = cluster.cert.clone().zip(cluster.key.clone());
    tikv::Options {
        tls: cluster.ca.clone().map(|ca| tikv::Tls { ca, identity, domain: None }),
        reading_age_max: Duration::from_millis(config.runtime.history_limit_ms),
        drives_gc: cluster.drives_gc,
        ..tikv::Options::new(cluster.pd.clone())
    }
}

/// A coordinator, also as it is in this process, if it is.
type Configured = (Arc<dyn Coordinator>, Option<Arc<LocalCoordinator>>);

/// The coordinator that is configured.
fn coordinator_of(config: &Config, store: &Arc<dyn Store>) -> Result<Configured> {
    if let Some(address) = &config.coordinator {
        return Ok((Arc::new(RemoteCoordinator::new(address, RemoteOptions::default())?), None));
    }
    let local = Arc::new(LocalCoordinator::new(Arc::clone(store), LocalOptions::default()));
    Ok((Arc::clone(&local) as Arc<dyn Coordinator>, Some(local)))
}

/// How jobs run: on a cluster, in one of its processes.
fn runtime_options(config: &Config) -> Result<RuntimeOptions> {
    let lease = config.cluster.as_ref().map(|cluster| LeaseOptions {
        holder: cluster.name.clone().unwrap_or_else(process_name),
        ttl_ms: cluster.lease_ms,
    });
    let tidb = config.cluster.as_ref().and_then(|cluster| Some((cluster, cluster.tidb.as_ref()?)));
    let tidb = match tidb {
        Some((cluster, url)) => {
            let sql = Arc::new(TidbConnection::new(url, cluster.ca.clone())?);
            Some(TidbOptions { sql, intent_ms: TidbOptions::INTENT_MS })
        }
        None => config.runtime.tidb.clone(),
    };
    Ok(RuntimeOptions { lease, tidb, ..config.runtime.clone() })
}

/// The host's name and the process id.
fn process_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), std::process::id())
}

impl Tidemill {
    /// Opens the store and starts everything.
    ///
    /// # Errors
    /// `Invalid` for a setting or an address, or if another process has the directory; `Corrupt` if the
    /// store is broken.
    pub async fn open(config: Config) -> Result<Tidemill> {
        Tidemill::open_announcing(config, |_| Ok::<(), Error>(())).await
    }

    /// As [`Tidemill::open`]; says where the store is offered as soon as it is, because a coordinator of
    /// its own needs it before anything else can start.
    ///
    /// # Errors
    /// As [`Tidemill::open`], or what `announce` returns.
    pub async fn open_announcing<E: std::fmt::Display>(
        config: Config,
        announce: impl FnOnce(SocketAddr) -> std::result::Result<(), E>,
    ) -> Result<Tidemill> {
        config.validate()?;
        // Addresses first: a taken one is the commonest mistake, and nothing has happened yet.
        let mysql = bind(config.listen, "MySQL").await?;
        let http = bind(config.http_listen, "HTTP").await?;
        let services = Supervisor::new();
        let store = open_store(&config, &services).await?;

        // Beside TiDB, which counts from 1, own tables have ids and keys of their own.
        let ids_from = if config.cluster.is_some() { tidb::PRIVATE_TABLES_FROM } else { 0 };
        session::bootstrap(&store, ids_from.unsigned_abs()).await?;
        let store_identity = session::store_identity(&store).await?;
        let (coordinator, local_coordinator) = coordinator_of(&config, &store)?;
        let rpc = match config.grpc_listen {
            Some(address) => {
                // Workers and a coordinator elsewhere: both may be offered by the process that has the store.
                let local = local_coordinator.clone().map(|local| local as Arc<dyn Coordinator>);
                let services =
                    Services { coordinator: local, store: Some(Arc::clone(&store)), ..Services::default() };
                let rpc = RpcServer::start(address, services).await?;
                announce(rpc.address()).map_err(|error| Error::invalid(error.to_string()))?;
                Some(rpc)
            }
            None => None,
        };
        let runtime =
            Runtime::start(Arc::clone(&store), coordinator, runtime_options(&config)?, Supervisor::new())
                .await?;
        let sessions = Arc::new(Sessions::default());
        let globals = Arc::new(Mutex::new(global_variables(&config, mysql.as_ref().map(|(_, at)| *at))));
        let system_tables = SystemTables::new(Arc::clone(&sessions), Arc::clone(&globals), runtime.clone());
        let engine = Engine::new(Arc::clone(&store), runtime.run_source(), config.query.clone())
            .with_virtual_tables(Arc::new(system_tables))
            .with_waiter(Arc::new(RuntimeWaiter { runtime: runtime.clone() }));

        let instance = Arc::new(Instance {
            users: Users::new(config.users.clone()),
            config,
            store,
            store_identity,
            engine,
            runtime,
            sessions,
            globals,
            metrics: Metrics::default(),
            supervisor: Supervisor::new(),
            started: Instant::now(),
        });
        let session = Session::of_process(&instance)?;
        let mysql_address = mysql.as_ref().map(|(_, address)| *address);
        let http_address = http.as_ref().map(|(_, address)| *address);
        if instance.config.cluster.is_some() {
            let errands = session::serve_errands(Arc::clone(&instance));
            drop(instance.supervisor.spawn("errands of other processes", errands));
        }
        if let Some((listener, _)) = mysql {
            instance.supervisor.spawn("mysql listener", mysql::serve(listener, Arc::clone(&instance)));
        }
        if let Some((listener, _)) = http {
            services.spawn("http", http::serve(listener, Arc::clone(&instance), services.token()));
        }
        Ok(Tidemill {
            instance,
            session: tokio::sync::Mutex::new(session),
            local_coordinator,
            services,
            mysql_address,
            rpc,
            http_address,
            is_shut_down: false,
        })
    }

    /// Where MySQL clients connect, also if the configured port was 0.
    #[must_use]
    pub fn mysql_address(&self) -> Option<SocketAddr> {
        self.mysql_address
    }

    /// Where the store is offered over gRPC.
    #[must_use]
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.rpc.as_ref().map(RpcServer::address)
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Opens a session of its own, in the database `test`.
    ///
    /// # Errors
    /// `Closed` after shutdown began.
    pub fn session(&self) -> Result<Session> {
        Session::of_process(&self.instance)
    }

    /// Runs statements, separated by semicolons, in the instance's own session; the answer is the last one's.
    ///
    /// # Errors
    /// The first statement's error.
    pub async fn execute(&self, sql: &str) -> Result<Answer> {
        self.session.lock().await.execute(sql).await
    }

    /// Ends everything in order and returns when all tasks have ended: clients first, then jobs (each
    /// finishes or gives up its epoch), then the coordinator, gRPC and HTTP, then the store.
    ///
    /// # Errors
    /// If the store could not be closed in order; it is closed all the same.
    pub async fn shutdown(mut self) -> Result<()> {
        self.is_shut_down = true;
        self.instance.stopping().cancel();
        let deadline = Instant::now() + GRACE;
        while self.instance.sessions.n_running() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.instance.sessions.kill_all();
        self.instance.supervisor.shutdown().await;
        self.instance.runtime.shutdown().await;
        if let Some(coordinator) = &self.local_coordinator {
            coordinator.shutdown().await;
        }
        if let Some(rpc) = &self.rpc {
            // After the jobs: their coordinator may be another process, which needs the store.
            rpc.shutdown().await;
        }
        self.services.shutdown().await;
        self.instance.store.close().await
    }
}

/// What sessions begin with.
fn global_variables(config: &Config, mysql: Option<SocketAddr>) -> Variables {
    let mut variables = Variables::default();
    let connections = i64::try_from(config.connections_max).unwrap_or(i64::MAX);
    variables.put("max_connections", Literal::Int(connections));
    variables.put("max_allowed_packet", Literal::Int(i64::from(config.max_allowed_packet)));
    if let Some(address) = mysql {
        variables.put("port", Literal::Int(i64::from(address.port())));
    }
    variables
}
