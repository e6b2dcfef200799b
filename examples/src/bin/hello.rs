//! Hello: a table, a view over it, and a view that is right at once after every commit.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use tidemill::{Config, Tidemill};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tidemill = Tidemill::open(Config::in_memory()).await?;
    tidemill
        .execute("CREATE TABLE sales (id INT PRIMARY KEY, shop VARCHAR(20), amount DECIMAL(8,2))")
        .await?;
    tidemill
        .execute("INSERT INTO sales VALUES (1, 'Bern', 12.50), (2, 'Basel', 8.00), (3, 'Bern', 1.25)")
        .await?;
    tidemill
        .execute(
            "CREATE MATERIALIZED VIEW by_shop AS \
             SELECT shop, count(*) AS sales, sum(amount) AS amount FROM sales GROUP BY shop",
        )
        .await?;
    tidemill.execute("UPDATE sales SET shop = 'Basel' WHERE id = 3").await?;

    let answer = tidemill.execute("SELECT * FROM by_shop ORDER BY shop").await?;
    println!("{answer}");
    assert_eq!(answer.texts(), [["Basel", "2", "9.25"], ["Bern", "1", "12.50"]]);
    tidemill.shutdown().await?;
    Ok(())
}
