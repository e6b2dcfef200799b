//! Views through SQL, in one process on disk: reads of views that lag, refreshes, reads beside writers.
//!
//! Every figure is a ratio of two ways to the same answer in one run; what the budget is stands beside it,
//! and nothing is asserted but the answers, since machines differ. `cargo bench -p tidemill` takes some
//! minutes; `VIEWS_BENCH_ROWS=10000000` is the large form (default one million rows).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops at the first error"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidemill::{Config, Session, Tidemill};

/// Rows of one INSERT while loading.
const LOADED_ROWS: u64 = 50_000;
/// Groups of the grouped view.
const GROUPS: u64 = 10_000;
/// Changes that wait, or that a refresh takes in.
const CHANGED: u64 = 1_000;
/// The small table that refreshes are compared with.
const SMALL_ROWS: u64 = 100_000;

struct Bench {
    tidemill: Tidemill,
    session: Session,
    _home: tempfile::TempDir,
}

#[allow(clippy::disallowed_methods, reason = "the one clock of the benchmark")]
async fn timed<T>(work: impl Future<Output = T>) -> (f64, T) {
    let start = std::time::Instant::now();
    let value = work.await;
    (start.elapsed().as_secs_f64(), value)
}

impl Bench {
    async fn new() -> Bench {
        let home = tempfile::tempdir().unwrap();
        let tidemill = Tidemill::open(Config::in_directory(home.path())).await.unwrap();
        let session = tidemill.session().unwrap();
        let mut bench = Bench { tidemill, session, _home: home };
        bench.run("USE test").await;
        bench
    }

    async fn run(&mut self, sql: &str) -> Vec<Vec<String>> {
        let answer = self.session.execute(sql).await;
        answer.unwrap_or_else(|error| panic!("{sql}: {error}")).texts()
    }

    /// The median of some runs, in milliseconds, and the answer.
    async fn median(&mut self, sql: &str, runs: usize) -> (f64, Vec<Vec<String>>) {
        let mut times = Vec::new();
        let mut answer = Vec::new();
        for _ in 0..runs {
            let (time, rows) = timed(self.run(sql)).await;
            times.push(time * 1e3);
            answer = rows;
        }
        times.sort_by(f64::total_cmp);
        (times[runs / 2], answer)
    }

    async fn load(&mut self, table: &str, rows: u64) {
        self.run(&format!(
            "CREATE TABLE {table} (id INT PRIMARY KEY, g INT NOT NULL, amount INT NOT NULL, note VARCHAR(40))"
        ))
        .await;
        let first = (0..LOADED_ROWS.min(rows))
            .map(|id| format!("({id}, {}, {}, 'note of row {id}')", id % GROUPS, id % 997));
        for chunk in first.collect::<Vec<_>>().chunks(10_000) {
            self.run(&format!("INSERT INTO {table} VALUES {}", chunk.join(", "))).await;
        }
        let mut loaded = LOADED_ROWS;
        while loaded < rows {
            self.run(&format!(
                "INSERT INTO {table} SELECT id + {loaded}, (g + {loaded}) % {GROUPS}, amount, note FROM {table} \
                 WHERE id < {LOADED_ROWS}"
            ))
            .await;
            loaded += LOADED_ROWS;
        }
    }

    /// Changes rows that are spread over a table, each of another group, in ten transactions.
    async fn change(&mut self, table: &str, rows: u64, by: u64) {
        let step = rows / CHANGED;
        let id_of = |number: u64| number * step + if step < CHANGED { number / 10 } else { number };
        for part in 0..10 {
            let ids: Vec<String> = (0..CHANGED / 10).map(|at| id_of(at * 10 + part).to_string()).collect();
            let ids = ids.join(", ");
            self.run(&format!("UPDATE {table} SET amount = amount + {by} WHERE id IN ({ids})")).await;
        }
    }
}

fn ratio(what: &str, ours: f64, other: f64, budget: &str) {
    println!("{what}: {ours:.2} ms, {other:.2} ms, ratio {:.3} (budget: {budget})", ours / other);
}

/// Reads of a view that is behind, beside one that is not, and beside its query.
async fn lagging_reads(bench: &mut Bench, rows: u64) {
    bench.load("fact", rows).await;
    let view_rows = rows.min(1_000_000);
    let on_demand = "WITH (refresh = 'on demand')";
    for name in ["behind", "caught"] {
        bench
            .run(&format!(
                "CREATE MATERIALIZED VIEW {name} {on_demand} AS SELECT id, g, amount FROM fact WHERE id < {view_rows}"
            ))
            .await;
        bench
            .run(&format!(
                "CREATE MATERIALIZED VIEW {name}_groups {on_demand} AS \
                 SELECT g, count(*) AS n, sum(amount) AS total, min(amount) AS least FROM fact GROUP BY g"
            ))
            .await;
        let (fill, _) = timed(bench.run(&format!("REFRESH MATERIALIZED VIEW {name}"))).await;
        println!("fill of {view_rows} rows from {rows}: {:.0} rows/s", rows as f64 / fill);
        bench.run(&format!("REFRESH MATERIALIZED VIEW {name}_groups")).await;
    }
    bench.change("fact", view_rows, 1).await;
    bench.run("REFRESH MATERIALIZED VIEW caught").await;
    bench.run("REFRESH MATERIALIZED VIEW caught_groups").await;
    for (what, query, budget, runs) in [
        ("point query", "SELECT amount FROM {} WHERE id = 4711", "5", 31),
        ("full scan", "SELECT count(*), sum(amount), sum(g) FROM {}", "1.3", 5),
        ("group by its key", "SELECT total FROM {}_groups WHERE g = 47", "5", 31),
        ("all groups", "SELECT count(*), sum(total), sum(least) FROM {}_groups", "none", 11),
    ] {
        let (behind, answer) = bench.median(&query.replace("{}", "behind"), runs).await;
        let (caught, expected) = bench.median(&query.replace("{}", "caught"), runs).await;
        assert_eq!(answer, expected, "{what}");
        let what =
            format!("{what}, {CHANGED} changes pending, beside the same read of a view that caught up");
        ratio(&what, behind, caught, budget);
    }
    for (what, query) in [
        ("a group", "SELECT total FROM behind_groups WHERE g = 47"),
        ("10,000 groups", "SELECT count(*), sum(total), sum(least) FROM behind_groups"),
    ] {
        let (hybrid, answer) = bench.median(query, 11).await;
        bench.run("SET tidemill_read_mode = 'live'").await;
        let (live, expected) = bench.median(query, 3).await;
        bench.run("SET tidemill_read_mode = 'fresh'").await;
        assert_eq!(answer, expected, "{what}");
        println!(
            "{what} over {rows} rows: Hybrid {hybrid:.2} ms, Live {live:.0} ms, {:.0} times (budget: 100)",
            live / hybrid
        );
    }
}

/// Refreshes of a thousand changes, beside recomputation, and over a small table.
async fn refreshes(bench: &mut Bench, rows: u64) {
    bench.load("small", SMALL_ROWS).await;
    let query = |table: &str| {
        format!("SELECT g, count(*) AS n, sum(amount) AS total FROM {table} WHERE id >= 0 GROUP BY g")
    };
    let mut times = Vec::new();
    for (table, n_rows) in [("small", SMALL_ROWS), ("fact", rows)] {
        let view = format!("refreshed_{table}");
        bench
            .run(&format!("CREATE MATERIALIZED VIEW {view} WITH (refresh = 'on demand') AS {}", query(table)))
            .await;
        bench.run(&format!("REFRESH MATERIALIZED VIEW {view}")).await;
        let mut taken = Vec::new();
        for round in 0..5 {
            bench.change(table, n_rows, round + 2).await;
            taken.push(timed(bench.run(&format!("REFRESH MATERIALIZED VIEW {view}"))).await.0 * 1e3);
        }
        taken.sort_by(f64::total_cmp);
        times.push(taken[2]);
        let differences = bench.run(&format!("VERIFY MATERIALIZED VIEW {view}")).await;
        assert!(differences.is_empty(), "{differences:?}");
    }
    let all = format!("SELECT count(*), sum(total) FROM ({}) q", query("fact"));
    let (live, _) = bench.median(&all, 3).await;
    println!(
        "refresh of {CHANGED} changes in {rows} rows: {:.1} ms, recomputed by Live {live:.0} ms, {:.0} times (budget: 1000 \
         at ten million)",
        times[1],
        live / times[1]
    );
    ratio(&format!("the same in {rows} and in {SMALL_ROWS} rows"), times[1], times[0], "2.5");
}

/// Point reads by some clients beside a thousand writes a second, with a job whose epochs commit and without.
async fn beside_writers(bench: &mut Bench) {
    bench.run("CREATE TABLE busy (id INT PRIMARY KEY, g INT, amount INT)").await;
    let rows = (0..20_000).map(|id| format!("({id}, {}, 0)", id % 100)).collect::<Vec<_>>();
    bench.run(&format!("INSERT INTO busy VALUES {}", rows.join(", "))).await;
    for clients in [1, 8, 64] {
        let without = reads_a_second(bench, clients).await;
        bench
            .run("CREATE MATERIALIZED VIEW watched AS SELECT g, sum(amount) AS s FROM busy GROUP BY g")
            .await;
        let with = reads_a_second(bench, clients).await;
        bench.run("DROP MATERIALIZED VIEW watched").await;
        println!(
            "{clients} clients beside 1,000 writes/s: {with:.0} reads/s with epochs, {without:.0} without, {:.0} % lost \
             (budget: 20)",
            100.0 * (1.0 - with / without)
        );
    }
}

async fn reads_a_second(bench: &Bench, clients: u64) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let mut session = bench.tidemill.session().unwrap();
        let stop = Arc::clone(&stop);
        tasks.push(spawn(async move {
            session.execute("USE test").await.unwrap();
            let mut tick = tokio::time::interval(Duration::from_millis(4));
            let mut id = writer;
            while !stop.load(Ordering::Relaxed) {
                tick.tick().await;
                id = (id + 4) % 20_000;
                let update = format!("UPDATE busy SET amount = amount + 1 WHERE id = {id}");
                session.execute(&update).await.unwrap();
            }
        }));
    }
    for client in 0..clients {
        let mut session = bench.tidemill.session().unwrap();
        let (stop, reads) = (Arc::clone(&stop), Arc::clone(&reads));
        tasks.push(spawn(async move {
            session.execute("USE test").await.unwrap();
            let mut id = client * 311;
            while !stop.load(Ordering::Relaxed) {
                id = (id + 7919) % 20_000;
                session.execute(&format!("SELECT amount FROM busy WHERE id = {id}")).await.unwrap();
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = reads.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let read = reads.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    read as f64 / 5.0
}

#[allow(clippy::disallowed_methods, reason = "a benchmark owns its tasks")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(work)
}

#[tokio::main]
async fn main() {
    let rows: u64 = std::env::var("VIEWS_BENCH_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let mut bench = Bench::new().await;
    lagging_reads(&mut bench, rows).await;
    refreshes(&mut bench, rows).await;
    beside_writers(&mut bench).await;
    let Bench { tidemill, session, _home } = bench;
    drop(session);
    tidemill.shutdown().await.unwrap();
}
