//! One client's connection: login, then commands until it leaves.
//!
//! Every command is answered, also one that we do not know; what breaks the framing of the protocol is
//! answered and ends the connection, because nothing after it could be understood. The session below
//! knows SQL and nothing of packets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sql::ParsedStatement;
use sql::stack::Roomy;
use tokio::io::{AsyncRead, AsyncWrite};
use types::{Error, Result};

use super::column::definition;
use super::errors;
use super::handshake::{self, Login, Method, NONCE_BYTES, capability};
use super::packet::{PacketStream, ReadError};
use super::params::{ParameterType, parse_execute};
use super::reply::{self, ReplyError, RowFormat, Status, status};
use super::wire::{Malformed, Reader, put_lenenc_bytes};
use crate::instance::Instance;
use crate::result::{Column, Done, Outcome};
use crate::session::Session;

/// How long a client may take to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Prepared statements of one connection; MySQL's limit for a server is of this order too.
const STATEMENTS_MAX: usize = 16_382;

/// MySQL's numbers of commands.
mod command {
    pub(super) const QUIT: u8 = 1;
    pub(super) const INIT_DB: u8 = 2;
    pub(super) const QUERY: u8 = 3;
    pub(super) const FIELD_LIST: u8 = 4;
    pub(super) const STATISTICS: u8 = 9;
    pub(super) const PROCESS_INFO: u8 = 10;
    pub(super) const PROCESS_KILL: u8 = 12;
    pub(super) const PING: u8 = 14;
    pub(super) const CHANGE_USER: u8 = 17;
    pub(super) const STMT_PREPARE: u8 = 22;
    pub(super) const STMT_EXECUTE: u8 = 23;
    pub(super) const STMT_SEND_LONG_DATA: u8 = 24;
    pub(super) const STMT_CLOSE: u8 = 25;
    pub(super) const STMT_RESET: u8 = 26;
    pub(super) const SET_OPTION: u8 = 27;
    pub(super) const RESET_CONNECTION: u8 = 31;
}

/// A prepared statement.
struct Prepared {
    statement: ParsedStatement,
    /// Types of the last execution, for those that do not repeat them.
    types: Vec<ParameterType>,
    /// What came by COM_STMT_SEND_LONG_DATA, by parameter.
    long: BTreeMap<u16, Vec<u8>>,
    /// Why sent data was refused; told at execution, as the command itself has no reply.
    long_error: Option<Error>,
}

/// Whether the connection goes on after a command.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Close,
}

/// Why a connection ended.
pub(crate) enum Ended {
    /// The client left, or we told it to.
    Orderly,
    /// The socket failed.
    Io(std::io::Error),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Ended {
        Ended::Io(error)
    }
}

fn malformed(what: Malformed) -> Error {
    Error::mysql(errors::MALFORMED_PACKET, format!("Malformed communication packet: expected {}", what.0))
}

/// A connection with its session.
pub(crate) struct Connection<R, W> {
    stream: PacketStream<R, W>,
    instance: Arc<Instance>,
    session: Session,
    peer: IpAddr,
    capabilities: u32,
    statements: BTreeMap<u32, Prepared>,
    next_statement: u32,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    /// A connection that has not said anything yet.
    pub(crate) fn new(reader: R, writer: W, instance: Arc<Instance>, session: Session, peer: IpAddr) -> Self {
        let stream = PacketStream::new(reader, writer, session.max_allowed_packet());
        let capabilities = capability::OFFERED & !capability::DEPRECATE_EOF;
        let statements = BTreeMap::new();
        Connection { stream, instance, session, peer, capabilities, statements, next_statement: 1 }
    }

    /// Serves the client until it leaves.
    pub(crate) async fn serve(mut self) -> std::result::Result<(), Ended> {
        let login = tokio::time::timeout(LOGIN_TIMEOUT, self.log_in()).await;
        match login {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(()),
            Ok(Err(ended)) => return Err(ended),
            Err(_) => {
                let error = Error::mysql(errors::NET_READ_INTERRUPTED, "Got timeout reading the login");
                self.farewell(&error).await?;
                return Ok(());
            }
        }
        while self.serve_command().await? == Next::Continue {}
        Ok(())
    }

    fn status(&self, more: bool) -> Status {
        let more = if more { status::MORE_RESULTS } else { 0 };
        let in_transaction = if self.session.in_transaction() { status::IN_TRANSACTION } else { 0 };
        let autocommit = if self.session.autocommit() { status::AUTOCOMMIT } else { 0 };
        let flags = more | in_transaction | autocommit;
        Status { flags, n_warnings: self.session.n_warnings() }
    }

    async fn send_ok(&mut self, done: &Done, more: bool) -> std::io::Result<()> {
        let payload = reply::ok_payload(0, done, self.status(more));
        self.stream.write(&payload).await
    }

    async fn send_error(&mut self, error: &Error) -> std::io::Result<()> {
        self.instance.metrics.count_error(errors::code(error));
        self.stream.write(&reply::error_payload(error)).await
    }

    /// The last word: the error, then the end of what we send.
    async fn farewell(&mut self, error: &Error) -> std::io::Result<()> {
        self.send_error(error).await?;
        self.stream.close().await
    }

    /// Greets and authenticates; false if the client was sent away.
    async fn log_in(&mut self) -> std::result::Result<bool, Ended> {
        let nonce = handshake::nonce();
        let flags = self.status(false).flags;
        let id = self.session.connection_id();
        let greeting = handshake::greeting(crate::VERSION, id, &nonce, 45, flags);
        self.stream.write(&greeting).await?;
        self.stream.flush().await?;
        let payload = match self.stream.read().await {
            Ok(Some(payload)) => payload,
            Ok(None) => return Ok(false),
            Err(error) => {
                let error = self.read_failed(error)?;
                self.farewell(&error).await?;
                return Ok(false);
            }
        };
        let login = match Login::parse(&payload) {
            Ok(login) => login,
            Err(what) => {
                let text = format!("Bad handshake: expected {}", what.0);
                self.farewell(&Error::mysql(errors::BAD_HANDSHAKE, text)).await?;
                return Ok(false);
            }
        };
        self.capabilities = login.capabilities;
        let entered = self.enter(&login, Some(Method::Native), &nonce).await?;
        match entered {
            Ok(()) => {
                self.send_ok(&Done::default(), false).await?;
                self.stream.flush().await?;
                Ok(true)
            }
            Err(error) => {
                self.farewell(&error).await?;
                Ok(false)
            }
        }
    }

    /// Checks who the client is and enters the database it asks for. `offered` is the method that the
    /// client's response was made for, if it uses that one.
    async fn enter(
        &mut self,
        login: &Login,
        offered: Option<Method>,
        nonce: &[u8; NONCE_BYTES],
    ) -> std::result::Result<Result<()>, Ended> {
        let mut response = login.response.clone();
        let mut method = login.method.unwrap_or(Method::CachingSha2);
        let mut nonce = *nonce;
        if login.method.is_none() || login.method != offered {
            // A response made for another method proves nothing: ask again, for one both know.
            method = login.method.unwrap_or(Method::CachingSha2);
            nonce = handshake::nonce();
            self.stream.write(&handshake::switch_request(method, &nonce)).await?;
            self.stream.flush().await?;
            match self.stream.read().await {
                Ok(Some(payload)) => response = payload,
                Ok(None) => return Err(Ended::Orderly),
                Err(error) => return Ok(Err(self.read_failed(error)?)),
            }
        }
        let password = self.instance.users.password(&login.user, self.peer.is_loopback()).map(str::to_owned);
        let proved = password.as_deref().is_some_and(|text| method.proves(&response, text, &nonce));
        if !proved {
            let using = if response.is_empty() || response == [0] { "NO" } else { "YES" };
            let text =
                format!("Access denied for user '{}'@'{}' (using password: {using})", login.user, self.peer);
            return Ok(Err(Error::mysql(errors::ACCESS_DENIED, text)));
        }
        if method == Method::CachingSha2 && password.is_some_and(|text| !text.is_empty()) {
            // "Fast authentication succeeded".
            self.stream.write(&[1, 3]).await?;
        }
        let found_rows = login.capabilities & capability::FOUND_ROWS != 0;
        self.session.log_in(&login.user, self.peer, found_rows);
        match &login.database {
            Some(database) => Ok(self.session.use_database(database).await),
            None => Ok(Ok(())),
        }
    }

    /// What to tell the client about a failed read; a failed socket cannot be told anything.
    fn read_failed(&self, error: ReadError) -> std::result::Result<Error, Ended> {
        Ok(match error {
            ReadError::Io(error) => return Err(Ended::Io(error)),
            ReadError::Truncated => {
                Error::mysql(errors::NET_READ_ERROR, "Got an error reading communication packets")
            }
            ReadError::OutOfOrder => Error::mysql(errors::PACKETS_OUT_OF_ORDER, "Got packets out of order"),
            ReadError::TooLarge => Error::mysql(
                errors::PACKET_TOO_LARGE,
                format!(
                    "Got a packet bigger than 'max_allowed_packet' ({} bytes)",
                    self.stream.packet_bytes_max
                ),
            ),
        })
    }

    /// Waits for a command and answers it.
    async fn serve_command(&mut self) -> std::result::Result<Next, Ended> {
        self.stream.restart();
        let idle = self.session.wait_timeout();
        let killed = self.session.killed();
        let stopping = self.instance.stopping();
        let read = tokio::select! {
            read = self.stream.read() => read,
            () = killed.cancelled() => {
                let error = Error::mysql(errors::QUERY_INTERRUPTED, "Connection was killed");
                self.farewell(&error).await?;
                return Ok(Next::Close);
            }
            () = stopping.cancelled() => {
                let error = Error::mysql(errors::SERVER_SHUTDOWN, "Server shutdown in progress");
                self.farewell(&error).await?;
                return Ok(Next::Close);
            }
            () = tokio::time::sleep(idle) => {
                let text = "The client was disconnected by the server because of inactivity";
                self.farewell(&Error::mysql(errors::CLIENT_INACTIVE, text)).await?;
                return Ok(Next::Close);
            }
        };
        let payload = match read {
            Ok(Some(payload)) => payload,
            Ok(None) => return Ok(Next::Close),
            Err(error) => {
                let readable = matches!(error, ReadError::TooLarge);
                let error = self.read_failed(error)?;
                self.send_error(&error).await?;
                self.stream.flush().await?;
                return Ok(if readable { Next::Continue } else { Next::Close });
            }
        };
        let Some((command, body)) = payload.split_first() else {
            self.send_error(&malformed(Malformed("a command"))).await?;
            self.stream.flush().await?;
            return Ok(Next::Continue);
        };
        self.instance.metrics.count_command();
        let next = self.answer(*command, body).await?;
        self.stream.flush().await?;
        if self.session.killed().is_cancelled() {
            return Ok(Next::Close);
        }
        Ok(next)
    }

    async fn answer(&mut self, command: u8, body: &[u8]) -> std::result::Result<Next, Ended> {
        let outcome = match command {
            command::QUIT => return Ok(Next::Close),
            command::QUERY => return self.query(body).await.map(|()| Next::Continue),
            command::STMT_PREPARE => self.prepare(body).await,
            command::STMT_EXECUTE => self.execute(body).await,
            command::STMT_SEND_LONG_DATA => {
                self.send_long_data(body);
                return Ok(Next::Continue);
            }
            command::STMT_CLOSE => {
                if let Ok(id) = Reader::new(body).u32("statement") {
                    self.statements.remove(&id);
                }
                return Ok(Next::Continue);
            }
            command::STMT_RESET => self.reset_statement(body).await,
            command::INIT_DB => self.init_db(body).await,
            command::FIELD_LIST => self.field_list(body).await,
            command::STATISTICS => {
                let text = self.instance.statistics();
                self.stream.write(text.as_bytes()).await.map_err(ReplyError::Io)
            }
            command::PROCESS_INFO => self.process_info().await,
            command::PROCESS_KILL => self.process_kill(body).await,
            command::PING => self.send_ok(&Done::default(), false).await.map_err(ReplyError::Io),
            command::CHANGE_USER => return self.change_user(body).await,
            command::SET_OPTION => self.set_option(body).await,
            command::RESET_CONNECTION => {
                self.statements.clear();
                self.session.reset();
                self.send_ok(&Done::default(), false).await.map_err(ReplyError::Io)
            }
            _ => Err(ReplyError::Statement(Error::mysql(errors::UNKNOWN_COMMAND, "Unknown command"))),
        };
        match outcome {
            Ok(()) => Ok(Next::Continue),
            Err(ReplyError::Io(error)) => Err(Ended::Io(error)),
            Err(ReplyError::Statement(error)) => {
                self.send_error(&error).await?;
                Ok(Next::Continue)
            }
        }
    }

    /// COM_QUERY: one statement, or several if that was agreed; the first error ends them.
    async fn query(&mut self, body: &[u8]) -> std::result::Result<(), Ended> {
        let outcome = self.run_text(body).await;
        match outcome {
            Ok(()) => Ok(()),
            Err(ReplyError::Io(error)) => Err(Ended::Io(error)),
            Err(ReplyError::Statement(error)) => {
                self.session.failed(&error);
                Ok(self.send_error(&error).await?)
            }
        }
    }

    async fn run_text(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let body = super::literals::binary_as_hex(body);
        let text = reply::utf8(&body)?;
        let statements = self.session.parse(text)?;
        if statements.is_empty() {
            return Err(Error::mysql(errors::EMPTY_QUERY, "Query was empty").into());
        }
        if statements.len() > 1 && self.capabilities & capability::MULTI_STATEMENTS == 0 {
            let text = "You have an error in your SQL syntax; several statements in one text are not enabled";
            return Err(Error::mysql(errors::PARSE_ERROR, text).into());
        }
        let n_statements = statements.len();
        for (at, statement) in statements.iter().enumerate() {
            if statement.n_parameters > 0 {
                let text = "You have an error in your SQL syntax; '?' outside of a prepared statement";
                return Err(Error::mysql(errors::PARSE_ERROR, text).into());
            }
            let outcome = Roomy::new(self.session.run(statement, &[])).await?;
            self.send_outcome(outcome, RowFormat::Text, at + 1 < n_statements).await?;
        }
        Ok(())
    }

    async fn send_outcome(
        &mut self,
        outcome: Outcome,
        format: RowFormat,
        more: bool,
    ) -> std::result::Result<(), ReplyError> {
        match outcome {
            Outcome::Done(done) => Ok(self.send_ok(&done, more).await?),
            Outcome::Rows(rows) => {
                let (status, zone) = (self.status(more), self.session.zone());
                reply::send_rows(&mut self.stream, self.capabilities, status, format, zone, rows).await?;
                Ok(())
            }
        }
    }

    async fn prepare(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let body = super::literals::binary_as_hex(body);
        let text = reply::utf8(&body)?;
        let mut statements = self.session.parse(text)?;
        let statement = match (statements.pop(), statements.is_empty()) {
            (Some(statement), true) => statement,
            (None, _) => return Err(Error::mysql(errors::EMPTY_QUERY, "Query was empty").into()),
            (Some(_), false) => {
                let text = "You have an error in your SQL syntax; a prepared statement is a single one";
                return Err(Error::mysql(errors::PARSE_ERROR, text).into());
            }
        };
        if self.statements.len() >= STATEMENTS_MAX {
            let text = format!("Can't create more than {STATEMENTS_MAX} prepared statements");
            return Err(Error::mysql(errors::TOO_MANY_STATEMENTS, text).into());
        }
        let columns = self.session.describe(&statement).await?;
        let n_parameters = u16::try_from(statement.n_parameters)
            .map_err(|_| Error::mysql(1390, "Prepared statement contains too many placeholders"))?;
        let n_columns = u16::try_from(columns.len()).map_err(|_| Error::mysql(1117, "Too many columns"))?;
        let id = self.next_statement;
        self.next_statement = self.next_statement.wrapping_add(1);
        let mut header = vec![0];
        header.extend_from_slice(&id.to_le_bytes());
        header.extend_from_slice(&n_columns.to_le_bytes());
        header.extend_from_slice(&n_parameters.to_le_bytes());
        header.push(0);
        header.extend_from_slice(&self.session.n_warnings().to_le_bytes());
        self.stream.write(&header).await?;
        let parameter = Column::expression("?", arrow::datatypes::DataType::Utf8);
        let parameters = vec![parameter; usize::from(n_parameters)];
        self.send_definitions(&parameters).await?;
        self.send_definitions(&columns).await?;
        let prepared = Prepared { statement, types: Vec::new(), long: BTreeMap::new(), long_error: None };
        self.statements.insert(id, prepared);
        Ok(())
    }

    async fn send_definitions(&mut self, columns: &[Column]) -> std::result::Result<(), ReplyError> {
        for column in columns {
            self.stream.write(&definition(column)).await?;
        }
        if !columns.is_empty() && self.capabilities & capability::DEPRECATE_EOF == 0 {
            self.send_eof().await?;
        }
        Ok(())
    }

    async fn send_eof(&mut self) -> std::result::Result<(), ReplyError> {
        let payload = reply::eof_payload(self.capabilities, self.status(false));
        Ok(self.stream.write(&payload).await?)
    }

    async fn execute(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let mut reader = Reader::new(body);
        let id = reader.u32("statement").map_err(malformed)?;
        let prepared = self.statements.get_mut(&id).ok_or_else(|| unknown_statement(id, "EXECUTE"))?;
        let long = std::mem::take(&mut prepared.long);
        if let Some(error) = prepared.long_error.take() {
            return Err(error.into());
        }
        let n_parameters = prepared.statement.n_parameters;
        let execute =
            parse_execute(reader.rest(), n_parameters, &prepared.types, &long).map_err(malformed)?;
        prepared.types = execute.types;
        let statement = prepared.statement.clone();
        let outcome = Roomy::new(self.session.run(&statement, &execute.parameters)).await;
        let sent = match outcome {
            Ok(outcome) => self.send_outcome(outcome, RowFormat::Binary, false).await,
            Err(error) => Err(error.into()),
        };
        if let Err(ReplyError::Statement(error)) = &sent {
            self.session.failed(error);
        }
        sent
    }

    fn send_long_data(&mut self, body: &[u8]) {
        let mut reader = Reader::new(body);
        let (Ok(id), Ok(index)) = (reader.u32("statement"), reader.u16("parameter")) else { return };
        let limit = self.stream.packet_bytes_max;
        let Some(prepared) = self.statements.get_mut(&id) else { return };
        if usize::from(index) >= prepared.statement.n_parameters {
            prepared.long_error =
                Some(Error::mysql(1210, "Incorrect arguments to mysqld_stmt_send_long_data"));
            return;
        }
        let data = reader.rest();
        let length_all: usize = prepared.long.values().map(Vec::len).sum();
        if length_all + data.len() > limit {
            let text = "Parameter of prepared statement which is set through mysql_send_long_data() is longer \
                        than 'max_allowed_packet' bytes";
            prepared.long.clear();
            prepared.long_error = Some(Error::mysql(errors::PACKET_TOO_LARGE, text));
            return;
        }
        prepared.long.entry(index).or_default().extend_from_slice(data);
    }

    async fn reset_statement(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let id = Reader::new(body).u32("statement").map_err(malformed)?;
        let prepared = self.statements.get_mut(&id).ok_or_else(|| unknown_statement(id, "RESET"))?;
        prepared.long.clear();
        prepared.long_error = None;
        Ok(self.send_ok(&Done::default(), false).await?)
    }

    async fn init_db(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        self.session.use_database(reply::utf8(body)?).await?;
        Ok(self.send_ok(&Done::default(), false).await?)
    }

    async fn field_list(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let mut reader = Reader::new(body);
        let table = reply::utf8(reader.zero_bytes("table name").map_err(malformed)?)?;
        let pattern = reply::utf8(reader.rest())?;
        let columns = self.session.field_list(table, pattern).await?;
        for (column, default) in &columns {
            let mut payload = definition(column);
            match default {
                Some(text) => put_lenenc_bytes(&mut payload, text.as_bytes()),
                None => payload.push(0xfb),
            }
            self.stream.write(&payload).await?;
        }
        self.send_eof().await
    }

    async fn process_info(&mut self) -> std::result::Result<(), ReplyError> {
        let rows = self.session.process_list();
        self.send_outcome(Outcome::Rows(rows), RowFormat::Text, false).await
    }

    async fn process_kill(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        let id = Reader::new(body).u32("connection").map_err(malformed)?;
        self.instance.sessions.kill(u64::from(id), crate::sessions::Kill::Connection)?;
        Ok(self.send_ok(&Done::default(), false).await?)
    }

    async fn set_option(&mut self, body: &[u8]) -> std::result::Result<(), ReplyError> {
        match Reader::new(body).u16("option").map_err(malformed)? {
            0 => self.capabilities |= capability::MULTI_STATEMENTS,
            1 => self.capabilities &= !capability::MULTI_STATEMENTS,
            _ => return Err(Error::mysql(errors::UNKNOWN_COMMAND, "Unknown option").into()),
        }
        self.send_eof().await
    }

    /// COM_CHANGE_USER: a new login on the same connection; a failed one ends it.
    async fn change_user(&mut self, body: &[u8]) -> std::result::Result<Next, Ended> {
        let login = match Login::parse_change(body, self.capabilities) {
            Ok(login) => login,
            Err(what) => {
                self.farewell(&malformed(what)).await?;
                return Ok(Next::Close);
            }
        };
        self.statements.clear();
        self.session.reset();
        let nonce = handshake::nonce();
        // The client does not know this nonce yet, so it is always asked again.
        match self.enter(&login, None, &nonce).await? {
            Ok(()) => {
                self.send_ok(&Done::default(), false).await?;
                Ok(Next::Continue)
            }
            Err(error) => {
                self.farewell(&error).await?;
                Ok(Next::Close)
            }
        }
    }
}

fn unknown_statement(id: u32, doing: &str) -> Error {
    let text = format!("Unknown prepared statement handler ({id}) given to {doing}");
    Error::mysql(errors::UNKNOWN_STATEMENT, text)
}
