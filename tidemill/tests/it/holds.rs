//! `tidemill.holds`: who keeps history, and since when.

use mysql_async::prelude::Queryable;

use crate::support::{connect, open, rows};

const READERS: &str = "SELECT kind, connection_id, held_ts, statement FROM tidemill.holds \
     WHERE kind <> 'hold' ORDER BY held_ts";

#[tokio::test]
async fn an_open_transaction_is_shown_with_its_connection_until_it_is_over() {
    let (tidemill, address) = open(|_| {}).await;
    let (mut idle, mut watcher) = (connect(address).await, connect(address).await);
    idle.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    let nobody = Vec::<Vec<String>>::new();
    assert_eq!(rows(&mut watcher, READERS).await, nobody, "the one who asks is not shown");
    let id = idle.id().to_string();
    for end in ["COMMIT", "ROLLBACK", "CREATE TABLE IF NOT EXISTS u (id INT PRIMARY KEY)"] {
        idle.query_drop("BEGIN").await.unwrap();
        let counted = rows(&mut idle, "SELECT count(*) FROM t").await;
        let at = rows(&mut idle, "SELECT @@tidemill_last_read_ts").await.remove(0).remove(0);
        // Others go on, and it stays where it is.
        watcher.query_drop("REPLACE INTO t VALUES (1)").await.unwrap();
        let shown = rows(&mut watcher, READERS).await;
        assert_eq!(shown, [["transaction", &id, &at, "NULL"]], "until {end}");
        assert_eq!(rows(&mut idle, "SELECT count(*) FROM t").await, counted);
        idle.query_drop(end).await.unwrap();
        assert_eq!(rows(&mut watcher, READERS).await, nobody, "after {end}");
    }
    // Without autocommit a read begins one; its own session sees it too.
    idle.query_drop("SET autocommit = 0").await.unwrap();
    idle.query_drop("SELECT count(*) FROM t").await.unwrap();
    let own = rows(&mut idle, "SELECT kind, connection_id FROM tidemill.holds WHERE kind <> 'hold'").await;
    assert_eq!(own, [["transaction", &id]]);
    assert_eq!(rows(&mut watcher, READERS).await.len(), 1);
    idle.reset().await.unwrap();
    assert_eq!(rows(&mut watcher, READERS).await, nobody, "after a reset");
    idle.query_drop("BEGIN").await.unwrap();
    assert_eq!(rows(&mut watcher, READERS).await.len(), 1);
    // A connection that ends takes its transaction with it.
    watcher.query_drop(format!("KILL {id}")).await.unwrap();
    drop(idle);
    for _ in 0..1_000 {
        if rows(&mut watcher, READERS).await.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(rows(&mut watcher, READERS).await, nobody, "after its end");
    tidemill.shutdown().await.unwrap();
}

#[tokio::test]
async fn holds_of_jobs_are_shown_with_their_age() {
    let (tidemill, address) = open(|_| {}).await;
    let mut conn = connect(address).await;
    conn.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    conn.query_drop("CREATE MATERIALIZED VIEW v WITH (refresh = 'on demand') AS SELECT id FROM t")
        .await
        .unwrap();
    conn.query_drop("REFRESH MATERIALIZED VIEW v").await.unwrap();
    let cut = rows(&mut conn, "SELECT cut_ts FROM tidemill.views").await.remove(0).remove(0);
    let held = format!(
        "SELECT count(*) FROM tidemill.holds WHERE kind = 'hold' AND held_ts <= {cut} \
         AND connection_id IS NULL AND age_ms >= 0 AND held_time IS NOT NULL AND name <> ''"
    );
    let n_holds: u64 = rows(&mut conn, &held).await[0][0].parse().unwrap();
    assert!(n_holds >= 1, "the view's job keeps what it has not taken in");
    tidemill.shutdown().await.unwrap();
}
