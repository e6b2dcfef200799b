//! A MySQL client that tests can read.

use std::net::SocketAddr;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, Row, Value};

/// A connection.
pub struct Client {
    /// The driver's connection.
    pub conn: Conn,
}

/// Connects as root.
///
/// # Errors
/// If the server refuses or is away.
pub async fn connect(address: SocketAddr, database: &str) -> Result<Client, Error> {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some(database))
        .prefer_socket(false);
    Ok(Client { conn: Conn::new(options).await? })
}

impl Client {
    /// Runs a statement.
    ///
    /// # Errors
    /// The server's error.
    pub async fn run(&mut self, statement: &str) -> Result<(), Error> {
        self.conn.query_drop(statement).await
    }

    /// Runs a statement that must work.
    ///
    /// # Panics
    /// With the statement and the error, if it does not.
    pub async fn must(&mut self, statement: &str) {
        if let Err(error) = self.run(statement).await {
            panic!("{statement}: {error}");
        }
    }

    /// The rows of a query as text, sorted: a multiset.
    ///
    /// # Errors
    /// The server's error.
    pub async fn rows(&mut self, query: &str) -> Result<Vec<String>, Error> {
        let rows: Vec<Row> = self.conn.query(query).await?;
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        lines.sort_unstable();
        Ok(lines)
    }

    /// The rows of a query that must work.
    ///
    /// # Panics
    /// With the query and the error, if it does not.
    pub async fn must_rows(&mut self, query: &str) -> Vec<String> {
        match self.rows(query).await {
            Ok(rows) => rows,
            Err(error) => panic!("{query}: {error}"),
        }
    }

    /// The first column of the only row, as text.
    ///
    /// # Panics
    /// If there is not one row.
    pub async fn one(&mut self, query: &str) -> String {
        let rows = self.must_rows(query).await;
        assert_eq!(rows.len(), 1, "{query}: {rows:?}");
        rows[0].split(" | ").next().unwrap_or_default().to_owned()
    }
}

fn line(row: &Row) -> String {
    let values = (0..row.len()).map(|index| match row.as_ref(index) {
        None | Some(Value::NULL) => "NULL".to_owned(),
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(other) => other.as_sql(true),
    });
    values.collect::<Vec<String>>().join(" | ")
}
