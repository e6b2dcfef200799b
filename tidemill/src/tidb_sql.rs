//! The connection to TiDB through which views become tables of it.
//!
//! A statement has a connection of its own: they are few, and a connection that lay idle may be gone. Nothing
//! that is logged, shown or answered has the password in it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, SslOpts, Value};
use runtime::TidbSql;
use types::{Error, Result};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a statement may take: DDL waits in TiDB for other DDL.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Statements and answers are short.
const PACKET_BYTES_MAX: usize = 64 << 20;

/// Where a TiDB is and who asks it: `mysql://user:password@host:port/`.
#[derive(Clone, PartialEq, Eq)]
pub struct TidbUrl(String);

impl TidbUrl {
    /// Takes any text; [`crate::Config::validate`] says whether it is an address.
    #[must_use]
    pub fn new(text: impl Into<String>) -> TidbUrl {
        TidbUrl(text.into())
    }

    fn options(&self) -> Result<Opts> {
        // What is wrong with it could repeat the password.
        let bad = || Error::invalid("setting tidb is no address: mysql://user:password@host:port/");
        if !self.0.starts_with("mysql://") {
            return Err(bad());
        }
        let options = Opts::from_url(&self.0).map_err(|_| bad())?;
        if options.ip_or_hostname().is_empty() { Err(bad()) } else { Ok(options) }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        self.options().map(drop)
    }
}

impl fmt::Debug for TidbUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TidbUrl(…)")
    }
}

impl<'de> serde::Deserialize<'de> for TidbUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<TidbUrl, D::Error> {
        // An error here would show the line of the file.
        String::deserialize(deserializer).map(TidbUrl)
    }
}

/// SQL over connections to TiDB.
pub(crate) struct TidbConnection {
    options: Opts,
    /// `host:port`, for messages.
    address: String,
}

impl fmt::Debug for TidbConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TidbConnection({})", self.address)
    }
}

impl TidbConnection {
    /// A connection to an address; `ca` signs TiDB's certificate, where the address asks for encryption.
    ///
    /// # Errors
    /// `Invalid` if the address is none.
    pub(crate) fn new(url: &TidbUrl, ca: Option<PathBuf>) -> Result<TidbConnection> {
        let options = url.options()?;
        let address = format!("{}:{}", options.ip_or_hostname(), options.tcp_port());
        let ssl = options.ssl_opts().cloned().map(|ssl: SslOpts| match ca {
            Some(ca) => ssl.with_root_certs(vec![ca.into()]),
            None => ssl,
        });
        let options = OptsBuilder::from_opts(options)
            .ssl_opts(ssl)
            .db_name(None::<String>)
            .prefer_socket(false)
            // Known beforehand, nothing needs to be asked when a connection begins.
            .max_allowed_packet(Some(PACKET_BYTES_MAX))
            .wait_timeout(Some(28_800));
        Ok(TidbConnection { options: options.into(), address })
    }

    async fn connect(&self) -> Result<Conn> {
        let connecting = tokio::time::timeout(CONNECT_WITHIN, Conn::new(self.options.clone())).await;
        match connecting {
            Ok(connected) => connected.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.away("it does not answer")),
        }
    }

    fn away(&self, why: impl fmt::Display) -> Error {
        Error::unavailable(format!("TiDB at {} cannot be reached: {why}", self.address)).with_mysql_code(1105)
    }

    /// What TiDB refuses is the statement's fault; anything else leaves open what became of it.
    fn failed(&self, error: &mysql_async::Error) -> Error {
        match error {
            mysql_async::Error::Server(refused) => {
                let text = format!("TiDB refused it ({}): {}", refused.code, refused.message);
                Error::mysql(refused.code, text)
            }
            other => self.away(other),
        }
    }

    async fn within<T>(&self, work: impl Future<Output = mysql_async::Result<T>>) -> Result<T> {
        match tokio::time::timeout(ANSWER_WITHIN, work).await {
            Ok(done) => done.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.away("it does not answer")),
        }
    }
}

#[async_trait]
impl TidbSql for TidbConnection {
    async fn execute(&self, statement: &str) -> Result<()> {
        let mut connection = self.connect().await?;
        self.within(connection.query_drop(statement)).await?;
        // It is done whatever becomes of the connection.
        drop(tokio::time::timeout(CONNECT_WITHIN, connection.disconnect()).await);
        Ok(())
    }

    async fn variable(&self, name: &str) -> Result<Option<String>> {
        let mut connection = self.connect().await?;
        let query = format!("SHOW GLOBAL VARIABLES LIKE '{name}'");
        let row: Option<(String, Value)> = self.within(connection.query_first(query)).await?;
        drop(tokio::time::timeout(CONNECT_WITHIN, connection.disconnect()).await);
        Ok(row.and_then(|(_, value)| match value {
            Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Value::NULL => None,
            other => Some(other.as_sql(true)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_complete_or_refused_without_its_password() {
        for good in ["mysql://root@127.0.0.1:4000/", "mysql://a:secret@tidb:4000/?require_ssl=true"] {
            let url = TidbUrl::new(good);
            url.validate().unwrap();
            assert!(!format!("{url:?}").contains("secret"));
        }
        for bad in ["", "127.0.0.1:4000", "http://a:secret@b/", "mysql://a:secret@b:x/"] {
            let error = TidbUrl::new(bad).validate().unwrap_err();
            assert!(!error.message().contains("secret"), "{error}");
        }
        let connection = TidbConnection::new(&TidbUrl::new("mysql://a:secret@b:1/"), None).unwrap();
        assert_eq!(format!("{connection:?}"), "TidbConnection(b:1)");
        assert!(!connection.away("gone").message().contains("secret"));
    }
}
