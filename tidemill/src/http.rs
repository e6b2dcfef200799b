//! HTTP for operators: `/metrics` in Prometheus' text form, and `/healthz`.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use crate::instance::Instance;

/// The process's recorder; metrics are global, instances of one process share it.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

fn recorder() -> &'static PrometheusHandle {
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics go to a recorder that was installed before; /metrics stays empty");
        }
        handle
    })
}

/// Serves until the token is cancelled.
///
/// # Errors
/// `Unavailable` if the listener fails.
pub(crate) async fn serve(
    listener: TcpListener,
    instance: Arc<Instance>,
    stop: CancellationToken,
) -> Result<()> {
    recorder();
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .with_state(instance);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(|error| Error::unavailable(format!("http: {error}")))
}

/// Healthy is: the store answers. Jobs that are restarted again and again are seen by
/// `tidemill_job_restarts` of `/metrics`: the server still answers, so it is not for a restart to mend.
async fn healthz(State(instance): State<Arc<Instance>>) -> (StatusCode, String) {
    match instance.store.read_timestamp().await {
        Ok(_) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("store: {error}\n")),
    }
}

async fn metrics_text(State(instance): State<Arc<Instance>>) -> String {
    let gauge = |value: u64| u32::try_from(value).map_or(f64::from(u32::MAX), f64::from);
    metrics::gauge!("tidemill_sessions").set(gauge(instance.sessions.list().len() as u64));
    // Without the store, what was reported last is better than nothing.
    let jobs = instance.runtime.recorded_jobs().await.unwrap_or_else(|_| instance.runtime.jobs());
    for job in jobs {
        let job_id = job.job.to_string();
        metrics::gauge!("tidemill_job_epoch", "job" => job_id.clone()).set(gauge(job.epoch.0));
        metrics::gauge!("tidemill_job_restarts", "job" => job_id).set(gauge(job.n_restarts));
    }
    if let Ok(views) = instance.runtime.views().await {
        for view in views {
            let name = format!("{}.{}", view.database, view.name);
            if let Some(lag_ms) = view.lag_ms {
                metrics::gauge!("tidemill_view_lag_ms", "view" => name).set(gauge(lag_ms));
            }
        }
    }
    let recorder = recorder();
    recorder.run_upkeep();
    recorder.render()
}
