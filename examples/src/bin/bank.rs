//! Bank transfers by concurrent writers, watched by a reader: the total balance never wavers.
//!
//! Four writers move money between ten accounts, retrying on conflicts. Meanwhile a reader asks in each
//! read mode for the sum over a view; whatever snapshot it gets, the sum is that of the beginning.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use tidemill::{Config, Tidemill};

const WRITERS: u32 = 4;
const TRANSFERS: u32 = 40;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tidemill = Tidemill::open(Config::in_memory()).await?;
    tidemill
        .execute("CREATE TABLE account (id INT PRIMARY KEY, branch INT NOT NULL, balance INT NOT NULL)")
        .await?;
    tidemill
        .execute("CREATE MATERIALIZED VIEW branches AS SELECT branch, sum(balance) AS balance FROM account GROUP BY branch")
        .await?;
    let accounts: Vec<String> = (0..10).map(|id| format!("({id}, {}, 100)", id % 3)).collect();
    tidemill.execute(&format!("INSERT INTO account VALUES {}", accounts.join(", "))).await?;
    // From here on every stale snapshot holds the accounts too.
    tidemill.execute("SET tidemill_read_mode = 'wait'").await?;
    tidemill.execute("SELECT * FROM branches").await?;

    let writers = futures::future::try_join_all((0..WRITERS).map(|writer| transfer(&tidemill, writer)));
    let (conflicts, checks) = futures::try_join!(writers, watch(&tidemill))?;
    println!(
        "{} transfers, {} conflicts retried, the total was checked {checks} times and never wavered",
        WRITERS * TRANSFERS,
        conflicts.iter().sum::<u32>()
    );
    tidemill.shutdown().await?;
    Ok(())
}

/// Moves money; returns how often a conflict made it try again.
async fn transfer(tidemill: &Tidemill, writer: u32) -> anyhow::Result<u32> {
    let mut session = tidemill.session()?;
    let mut conflicts = 0;
    for step in 0..TRANSFERS {
        let (from, to) = ((writer * 3 + step) % 10, (writer * 7 + step * 3 + 1) % 10);
        loop {
            session.execute("BEGIN").await?;
            session.execute(&format!("UPDATE account SET balance = balance - 5 WHERE id = {from}")).await?;
            session.execute(&format!("UPDATE account SET balance = balance + 5 WHERE id = {to}")).await?;
            match session.execute("COMMIT").await {
                Ok(_) => break,
                Err(error) if error.mysql_code() == Some(9007) => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(conflicts)
}

/// Sums in every mode, many times.
async fn watch(tidemill: &Tidemill) -> anyhow::Result<u32> {
    let mut session = tidemill.session()?;
    let mut checks = 0;
    for _ in 0..10 {
        for mode in ["fresh", "stale", "wait", "live"] {
            session.execute(&format!("SET tidemill_read_mode = '{mode}'")).await?;
            let total = session.execute("SELECT sum(balance) FROM branches").await?;
            assert_eq!(total.first(), Some("1000"), "the total wavered in mode {mode}");
            checks += 1;
        }
    }
    Ok(checks)
}
