//! One view read in each mode: which rows it shows, and what EXPLAIN says about the path.
//!
//! The epoch interval is set so long that the view lags behind its table: `stale` shows the older
//! snapshot, `fresh` merges what is not yet materialised, `live` asks the table, `wait` makes the view
//! catch up; and a snapshot of the past can be read at any time.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use tidemill::{Config, Tidemill};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut config = Config::in_memory();
    config.runtime.epoch_interval_ms = 3_600_000;
    config.runtime.idle_interval_ms = 3_600_000;
    let tidemill = Tidemill::open(config).await?;
    tidemill.execute("CREATE TABLE visits (id INT PRIMARY KEY, page VARCHAR(10) NOT NULL)").await?;
    tidemill.execute("INSERT INTO visits VALUES (1, 'home'), (2, 'home'), (3, 'docs')").await?;
    tidemill
        .execute("CREATE MATERIALIZED VIEW hits AS SELECT page, count(*) AS n FROM visits GROUP BY page")
        .await?;
    let past = tidemill.execute("SELECT * FROM hits ORDER BY page").await?;
    let past_ts = tidemill.execute("SELECT @@tidemill_last_read_ts").await?;
    tidemill.execute("INSERT INTO visits VALUES (4, 'docs')").await?;
    tidemill.execute("DELETE FROM visits WHERE id = 1").await?;

    let before = [["docs", "1"], ["home", "2"]];
    let after = [["docs", "2"], ["home", "1"]];
    for (mode, expected) in [("stale", &before), ("fresh", &after), ("live", &after), ("wait", &after)] {
        tidemill.execute(&format!("SET tidemill_read_mode = '{mode}'")).await?;
        let explained = tidemill.execute("EXPLAIN SELECT * FROM hits").await?.to_string();
        let path =
            explained.lines().find(|line| line.contains("ReadPath")).unwrap_or("no ReadPath line").to_owned();
        let answer = tidemill.execute("SELECT * FROM hits ORDER BY page").await?;
        println!("{mode}:\n{path}\n{answer}\n");
        assert_eq!(answer.texts(), *expected, "mode {mode}");
    }

    tidemill.execute("SET tidemill_read_mode = 'fresh'").await?;
    let past_ts = past_ts.first().unwrap_or_default().to_owned();
    tidemill.execute(&format!("SET tidemill_snapshot = '{past_ts}'")).await?;
    assert_eq!(tidemill.execute("SELECT * FROM hits ORDER BY page").await?.texts(), past.texts());
    tidemill.shutdown().await?;
    Ok(())
}
