//! Orders and payments in two tables, written by transactions that touch both: payments never run ahead.
//!
//! Each order is paid in the same transaction or in a later one. A view that joins both sides and one
//! that finds payments without an order are read while writers write: no snapshot, in whatever mode,
//! shows a payment whose order is not there.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use tidemill::{Config, Tidemill};

const ORDERS: u32 = 60;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tidemill = Tidemill::open(Config::in_memory()).await?;
    tidemill.execute("CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(8,2) NOT NULL)").await?;
    tidemill
        .execute(
            "CREATE TABLE payments (id INT PRIMARY KEY, order_id INT NOT NULL, paid DECIMAL(8,2) NOT NULL)",
        )
        .await?;
    tidemill
        .execute(
            "CREATE MATERIALIZED VIEW ahead AS SELECT p.id FROM payments p \
             WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = p.order_id)",
        )
        .await?;
    tidemill
        .execute(
            "CREATE MATERIALIZED VIEW open_orders AS SELECT o.id, o.amount, p.paid FROM orders o \
             LEFT JOIN payments p ON p.order_id = o.id WHERE p.id IS NULL",
        )
        .await?;

    let ((), checks) = futures::try_join!(write(&tidemill), watch(&tidemill))?;
    let open = tidemill.execute("SELECT count(*), sum(amount) FROM open_orders").await?;
    println!("{checks} snapshots checked; open at the end:\n{open}");
    assert_eq!(open.texts(), [["20", "200.00"]]);
    tidemill.shutdown().await?;
    Ok(())
}

async fn write(tidemill: &Tidemill) -> anyhow::Result<()> {
    let mut session = tidemill.session()?;
    for id in 0..ORDERS {
        session.execute("BEGIN").await?;
        session.execute(&format!("INSERT INTO orders VALUES ({id}, 10.00)")).await?;
        if id % 3 == 0 {
            session.execute(&format!("INSERT INTO payments VALUES ({id}, {id}, 10.00)")).await?;
        }
        session.execute("COMMIT").await?;
        if id % 3 == 1 {
            session.execute(&format!("INSERT INTO payments VALUES ({id}, {id}, 10.00)")).await?;
        }
    }
    Ok(())
}

async fn watch(tidemill: &Tidemill) -> anyhow::Result<u32> {
    let mut session = tidemill.session()?;
    let mut checks = 0;
    for _ in 0..10 {
        for mode in ["fresh", "stale", "wait", "live"] {
            session.execute(&format!("SET tidemill_read_mode = '{mode}'")).await?;
            let ahead = session.execute("SELECT count(*) FROM ahead").await?;
            assert_eq!(ahead.first(), Some("0"), "a payment ran ahead of its order in mode {mode}");
            checks += 1;
        }
    }
    Ok(checks)
}
