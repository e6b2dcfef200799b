//! Where the shell's statements go: a server, or an instance of this process over a data directory.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, Value};

use crate::mysql::errors;
use crate::session::Session;
use crate::{Config, Tidemill};

/// What the shell works on.
#[derive(Clone, Debug)]
pub enum Target {
    /// A data directory that no server has open.
    Directory {
        /// Where it is.
        path: PathBuf,
        /// Whether it is made if it is not there.
        create: bool,
    },
    /// A server.
    Server {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// Who logs in.
        user: String,
        /// The password, if one is needed.
        password: Option<String>,
    },
}

/// An open target.
pub(super) enum Backend {
    Local { tidemill: Box<Tidemill>, session: Box<Session> },
    Remote(Box<Conn>),
}

/// What a statement answers.
pub(super) enum Reply {
    Done { affected_rows: u64, info: String },
    Rows { names: Vec<String>, rows: Vec<Vec<Option<String>>> },
}

/// Why a statement failed, as MySQL says it.
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) state: String,
    pub(super) message: String,
}

impl Backend {
    pub(super) async fn open(target: Target) -> Result<Backend> {
        match target {
            Target::Directory { path, create } => {
                if !create && !store::EmbeddedStore::exists(&path) {
                    let path = path.display();
                    bail!("{path} is not a data directory: --create makes one");
                }
                let tidemill = Tidemill::open(Config::in_directory(path)).await?;
                let session = tidemill.session()?;
                Ok(Backend::Local { tidemill: Box::new(tidemill), session: Box::new(session) })
            }
            Target::Server { host, port, user, password } => {
                let options = OptsBuilder::default()
                    .ip_or_hostname(host.clone())
                    .tcp_port(port)
                    .user(Some(user))
                    .pass(password)
                    .prefer_socket(false);
                let conn =
                    Conn::new(options).await.with_context(|| format!("connecting to {host}:{port}"))?;
                let mut backend = Backend::Remote(Box::new(conn));
                if backend.run("USE test").await.is_err() {
                    // Somebody dropped it: begin without a database.
                    tracing::debug!("there is no database test");
                }
                Ok(backend)
            }
        }
    }

    /// Runs one statement.
    pub(super) async fn run(&mut self, statement: &str) -> std::result::Result<Vec<Reply>, Failure> {
        match self {
            Backend::Local { session, .. } => match session.execute(statement).await {
                Ok(answer) if answer.columns.is_empty() => {
                    Ok(vec![Reply::Done { affected_rows: answer.affected_rows, info: answer.info }])
                }
                Ok(answer) => {
                    let names = answer.columns.into_iter().map(|column| column.name).collect();
                    Ok(vec![Reply::Rows { names, rows: answer.rows }])
                }
                Err(error) => {
                    let code = errors::code(&error);
                    let state = errors::sql_state(code).to_owned();
                    Err(Failure { code, state, message: error.message().to_owned() })
                }
            },
            Backend::Remote(conn) => run_remote(conn, statement).await.map_err(failure),
        }
    }

    pub(super) async fn close(self) -> Result<()> {
        match self {
            Backend::Local { tidemill, session } => {
                drop(session);
                Ok(tidemill.shutdown().await?)
            }
            Backend::Remote(conn) => {
                // The server may have gone meanwhile; there is nothing left to say to it.
                if let Err(error) = conn.disconnect().await {
                    tracing::debug!(%error, "the connection was closed already");
                }
                Ok(())
            }
        }
    }
}

fn failure(error: mysql_async::Error) -> Failure {
    match error {
        mysql_async::Error::Server(error) => {
            Failure { code: error.code, state: error.state, message: error.message }
        }
        // MySQL's client number for a lost connection.
        other => Failure { code: 2013, state: "HY000".to_owned(), message: other.to_string() },
    }
}

async fn run_remote(conn: &mut Conn, statement: &str) -> mysql_async::Result<Vec<Reply>> {
    let mut result = conn.query_iter(statement).await?;
    let mut replies = Vec::new();
    while let Some(columns) = result.columns() {
        let names: Vec<String> = columns.iter().map(|column| column.name_str().into_owned()).collect();
        if names.is_empty() {
            replies.push(Reply::Done {
                affected_rows: result.affected_rows(),
                info: result.info().into_owned(),
            });
            // Moves on to the next result, if there is one.
            let _rows: Vec<Row> = result.collect().await?;
        } else {
            let rows: Vec<Row> = result.collect().await?;
            let row = |row: Row| row.unwrap().into_iter().map(text).collect();
            replies.push(Reply::Rows { names, rows: rows.into_iter().map(row).collect() });
        }
        if result.is_empty() && result.columns().is_none() {
            break;
        }
    }
    Ok(replies)
}

/// A value of the text protocol; bytes that are no text are shown as hex.
fn text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(crate::mysql::text_or_hex(bytes)),
        other => Some(other.as_sql(true)),
    }
}
