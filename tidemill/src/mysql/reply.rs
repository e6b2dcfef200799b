//! Replies: OK, EOF, ERR and result sets, in the form that was agreed with the client.

use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite};
use types::{Error, Result};

use super::column::{WireColumn, definition};
use super::errors;
use super::handshake::capability;
use super::packet::PacketStream;
use super::rows::BatchRows;
use super::wire::{put_lenenc, put_lenenc_bytes};
use crate::result::{Done, Rows};
use tidb::Zone;

/// Flags of the server's status.
pub(crate) mod status {
    pub(crate) const IN_TRANSACTION: u16 = 1;
    pub(crate) const AUTOCOMMIT: u16 = 2;
    pub(crate) const MORE_RESULTS: u16 = 8;
}

/// What every reply says about the session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    pub(crate) flags: u16,
    pub(crate) n_warnings: u16,
}

/// Which of the two forms rows take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFormat {
    Text,
    Binary,
}

/// Why a reply could not be sent: the socket is gone, or the result ended in an error.
pub(crate) enum ReplyError {
    Io(std::io::Error),
    Statement(Error),
}

impl From<std::io::Error> for ReplyError {
    fn from(error: std::io::Error) -> ReplyError {
        ReplyError::Io(error)
    }
}

impl From<Error> for ReplyError {
    fn from(error: Error) -> ReplyError {
        ReplyError::Statement(error)
    }
}

/// The OK packet; as the end of rows its first byte is 0xfe.
pub(crate) fn ok_payload(header: u8, done: &Done, status: Status) -> Vec<u8> {
    let mut out = vec![header];
    put_lenenc(&mut out, done.affected_rows);
    put_lenenc(&mut out, 0);
    out.extend_from_slice(&status.flags.to_le_bytes());
    out.extend_from_slice(&status.n_warnings.to_le_bytes());
    if !done.info.is_empty() {
        // With its length, whatever the manual says: real servers and clients do so.
        put_lenenc_bytes(&mut out, done.info.as_bytes());
    }
    out
}

/// The end of rows or of definitions, as agreed.
pub(crate) fn eof_payload(capabilities: u32, status: Status) -> Vec<u8> {
    if capabilities & capability::DEPRECATE_EOF != 0 {
        return ok_payload(0xfe, &Done::default(), status);
    }
    let mut out = vec![0xfe];
    out.extend_from_slice(&status.n_warnings.to_le_bytes());
    out.extend_from_slice(&status.flags.to_le_bytes());
    out
}

/// The error packet.
pub(crate) fn error_payload(error: &Error) -> Vec<u8> {
    let code = errors::code(error);
    let mut out = vec![0xff];
    out.extend_from_slice(&code.to_le_bytes());
    out.push(b'#');
    out.extend_from_slice(errors::sql_state(code).as_bytes());
    // MySQL's messages have at most 512 bytes; a cut must not split a character.
    let message = error.message();
    let end = (0..=message.len().min(2048)).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
    out.extend_from_slice(&message.as_bytes()[..end]);
    out
}

/// Sends rows as they come; an error of the result is returned for the caller to send in their place.
pub(crate) async fn send_rows<R, W>(
    stream: &mut PacketStream<R, W>,
    capabilities: u32,
    status: Status,
    format: RowFormat,
    zone: Zone,
    mut rows: Rows,
) -> std::result::Result<u64, ReplyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // The first batch is computed before anything is sent: an error then is the whole reply.
    let mut next = rows.batches.next().await.transpose()?;
    let mut header = Vec::new();
    put_lenenc(&mut header, rows.columns.len() as u64);
    stream.write(&header).await?;
    for column in &rows.columns {
        stream.write(&definition(column)).await?;
    }
    if capabilities & capability::DEPRECATE_EOF == 0 {
        stream.write(&eof_payload(capabilities, status)).await?;
    }
    let columns: Vec<WireColumn> = rows.columns.iter().map(WireColumn::of).collect();
    let mut n_rows = 0;
    let mut payload = Vec::new();
    while let Some(batch) = next {
        let mut batch_rows = BatchRows::new(&batch, &columns, zone)?;
        for row in 0..batch.num_rows() {
            payload.clear();
            match format {
                RowFormat::Text => batch_rows.text(row, &mut payload)?,
                RowFormat::Binary => batch_rows.binary(row, &mut payload)?,
            }
            stream.write(&payload).await?;
        }
        n_rows += batch.num_rows() as u64;
        next = rows.batches.next().await.transpose()?;
    }
    stream.write(&eof_payload(capabilities, status)).await?;
    Ok(n_rows)
}

/// Checks text that a client sent.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let bad = &bytes[error.valid_up_to()..];
        let shown: String = bad.iter().take(6).map(|byte| format!("\\x{byte:02X}")).collect();
        Error::mysql(errors::INVALID_CHARACTERS, format!("Invalid utf8mb4 character string: '{shown}'"))
    })
}
