//! MySQL's protocol as far as a client needs it that sends texts: greeting, queries, answers.
//!
//! Anybody is let in, and nothing is encrypted: a client that asks for encryption must give up by itself.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::listen::Connection;

const PROTOCOL_41: u32 = 1 << 9;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const CONNECT_WITH_DB: u32 = 1 << 3;
const CAPABILITIES: u32 = 1 | CONNECT_WITH_DB | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
const UTF8MB4: u8 = 45;
const VAR_STRING: u8 = 253;

const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;

/// What a query is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// Columns and rows of text.
    Rows(Vec<String>, Vec<Vec<Option<String>>>),
    /// It is refused, with a number.
    Error(u16, String),
}

/// A connection.
pub(crate) struct Client {
    stream: Connection,
    sequence: u8,
}

impl Client {
    pub(crate) fn new(stream: Connection) -> Client {
        Client { stream, sequence: 0 }
    }

    /// Greets, and lets anybody in.
    pub(crate) async fn greet(&mut self) -> io::Result<()> {
        let [low0, low1, high0, high1] = CAPABILITIES.to_le_bytes();
        let mut greeting = vec![10];
        greeting.extend_from_slice(b"8.0.11-TiDB-v8.5.0-stand-in\0");
        greeting.extend_from_slice(&1_u32.to_le_bytes());
        greeting.extend_from_slice(b"saltsalt\0");
        greeting.extend_from_slice(&[low0, low1, UTF8MB4, 2, 0, high0, high1, 21]);
        greeting.extend_from_slice(&[0; 10]);
        greeting.extend_from_slice(b"saltsaltsalt\0mysql_native_password\0");
        self.write(&greeting).await?;
        self.read().await?;
        self.write(&OK).await
    }

    /// The next query; `None` when the client leaves.
    pub(crate) async fn query(&mut self) -> io::Result<Option<String>> {
        loop {
            self.sequence = 0;
            let packet = self.read().await?;
            match packet.split_first() {
                Some((&COM_QUERY, text)) => return Ok(Some(String::from_utf8_lossy(text).into_owned())),
                Some((&COM_QUIT, _)) | None => return Ok(None),
                // PING, INIT_DB, RESET_CONNECTION.
                Some((2 | 14 | 31, _)) => self.write(&OK).await?,
                Some(_) => self.answer(Answer::Error(1047, "unknown command".to_owned())).await?,
            }
        }
    }

    pub(crate) async fn answer(&mut self, answer: Answer) -> io::Result<()> {
        match answer {
            Answer::Done => self.write(&OK).await,
            Answer::Error(code, text) => {
                let mut packet = vec![0xff];
                packet.extend_from_slice(&code.to_le_bytes());
                packet.extend_from_slice(b"#HY000");
                packet.extend_from_slice(text.as_bytes());
                self.write(&packet).await
            }
            Answer::Rows(columns, rows) => {
                self.write(&[u8::try_from(columns.len()).unwrap_or(250)]).await?;
                for column in &columns {
                    self.write(&column_packet(column)).await?;
                }
                self.write(&EOF).await?;
                for row in &rows {
                    let mut packet = Vec::new();
                    for cell in row {
                        match cell {
                            Some(text) => put_text(&mut packet, text),
                            None => packet.push(0xfb),
                        }
                    }
                    self.write(&packet).await?;
                }
                self.write(&EOF).await
            }
        }
    }

    async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let [a, b, c, _] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut packet = vec![a, b, c, self.sequence];
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&packet).await?;
        self.stream.flush().await
    }

    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await?;
        self.sequence = header[3].wrapping_add(1);
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok(payload)
    }
}

const OK: [u8; 7] = [0, 0, 0, 2, 0, 0, 0];
const EOF: [u8; 5] = [0xfe, 0, 0, 2, 0];

fn column_packet(name: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    for text in ["def", "", "", "", name, name] {
        put_text(&mut packet, text);
    }
    packet.extend_from_slice(&[12, UTF8MB4, 0]);
    packet.extend_from_slice(&1024_u32.to_le_bytes());
    packet.extend_from_slice(&[VAR_STRING, 0, 0, 0, 0, 0]);
    packet
}

/// A text with its length in front: short ones only.
fn put_text(packet: &mut Vec<u8>, text: &str) {
    let text = text.get(..250).unwrap_or(text);
    packet.push(u8::try_from(text.len()).unwrap_or(0));
    packet.extend_from_slice(&text.as_bytes()[..text.len().min(250)]);
}
