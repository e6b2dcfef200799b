//! An instance in memory with a MySQL server, a driver's connection, and a raw one.

use std::net::SocketAddr;

use mysql_async::{Conn, Error, OptsBuilder, Row, Value, prelude::Queryable};
use tidemill::{Cluster, Config, Tidemill};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Opens an instance in memory that listens on a free port.
pub(crate) async fn open(change: impl FnOnce(&mut Config)) -> (Tidemill, SocketAddr) {
    let mut config = Config::in_memory();
    if tikv_server::suite::is_on_cluster() {
        let cluster = tikv_server::suite::cluster().await;
        config = Config::on_cluster(Cluster::at(cluster.pd_endpoints()));
    }
    config.listen = Some("127.0.0.1:0".parse().unwrap());
    change(&mut config);
    let tidemill = Tidemill::open(config).await.unwrap();
    let address = tidemill.mysql_address().unwrap();
    (tidemill, address)
}

pub(crate) fn options(address: SocketAddr) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("test"))
        .prefer_socket(false)
}

pub(crate) async fn connect(address: SocketAddr) -> Conn {
    Conn::new(options(address)).await.unwrap()
}

/// Rows as text, in their order.
pub(crate) async fn rows(conn: &mut Conn, query: &str) -> Vec<Vec<String>> {
    let rows: Vec<Row> = conn.query(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.into_iter().map(texts).collect()
}

pub(crate) fn texts(row: Row) -> Vec<String> {
    row.unwrap()
        .into_iter()
        .map(|value| match value {
            Value::NULL => "NULL".to_owned(),
            Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => other.as_sql(true).trim_matches('\'').to_owned(),
        })
        .collect()
}

/// The number of the server's error.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Server(error)) => error.code,
        other => panic!("not an error of the server: {other:?}"),
    }
}

/// A connection without a driver.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) sequence: u8,
}

pub(crate) const PROTOCOL_41: u32 = 1 << 9;
pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;

impl Raw {
    /// Connects and reads the greeting.
    pub(crate) async fn greeted(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut raw = Raw { stream, sequence: 0 };
        let greeting = raw.read().await.unwrap();
        assert_eq!(greeting[0], 10, "protocol version");
        raw
    }

    /// Connects and logs in as root without a password.
    pub(crate) async fn logged_in(address: SocketAddr, extra: u32) -> Raw {
        let mut raw = Raw::greeted(address).await;
        let mut login = (PROTOCOL_41 | SECURE_CONNECTION | extra).to_le_bytes().to_vec();
        login.extend_from_slice(&(64_u32 << 20).to_le_bytes());
        login.push(45);
        login.extend_from_slice(&[0; 23]);
        login.extend_from_slice(b"root\0\0");
        raw.write(&login).await;
        let ok = raw.read().await.unwrap();
        assert_eq!(ok[0], 0, "{ok:?}");
        raw
    }

    /// Sends a packet with the next number, in pieces if it is long.
    pub(crate) async fn write(&mut self, payload: &[u8]) {
        const PIECE_BYTES_MAX: usize = 0xff_ff_ff;
        let mut rest = payload;
        loop {
            let (piece, later) = rest.split_at(rest.len().min(PIECE_BYTES_MAX));
            let length = u32::try_from(piece.len()).unwrap().to_le_bytes();
            self.stream.write_all(&[length[0], length[1], length[2], self.sequence]).await.unwrap();
            self.sequence = self.sequence.wrapping_add(1);
            self.stream.write_all(piece).await.unwrap();
            rest = later;
            if piece.len() < PIECE_BYTES_MAX {
                return;
            }
        }
    }

    /// Sends a command.
    pub(crate) async fn command(&mut self, payload: &[u8]) {
        self.sequence = 0;
        self.write(payload).await;
    }

    /// Reads a packet; `None` if the server closed.
    pub(crate) async fn read(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await.ok()?;
        self.sequence = header[3].wrapping_add(1);
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(payload)
    }

    /// Reads an error packet: its number and text.
    pub(crate) async fn error(&mut self) -> (u16, String) {
        let payload = self.read().await.expect("an error packet before the end");
        assert_eq!(payload[0], 0xff, "not an error: {payload:?}");
        let text = String::from_utf8(payload[9..].to_vec()).unwrap();
        (u16::from_le_bytes([payload[1], payload[2]]), text)
    }

    /// Checks that the connection still answers.
    pub(crate) async fn ping(&mut self) {
        self.command(&[14]).await;
        let ok = self.read().await.expect("an answer to a ping");
        assert_eq!(ok[0], 0, "{ok:?}");
    }
}
