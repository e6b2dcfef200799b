//! Packets on a byte stream: the frame of MySQL's protocol, both ways.
//!
//! A payload travels in pieces of at most 16 MiB - 1, each with a length and a sequence number; a piece
//! of full length is followed by another. A payload beyond the limit is read to its end and thrown away,
//! so that the client can be told (error 1153) and may go on. Buffers grow with what arrives, never with
//! what a header promises.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest payload of one piece.
const PIECE_BYTES_MAX: usize = 0xff_ffff;
/// What is collected before it is written to the socket.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// How much of a piece is read at once, so that memory follows what really arrives.
const READ_STEP_BYTES: usize = 256 << 10;

/// Why no packet could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The stream ended inside a packet.
    Truncated,
    /// The sequence number is not the next one.
    OutOfOrder,
    /// The payload is larger than allowed; it was read to its end.
    TooLarge,
    /// The socket failed.
    Io(std::io::Error),
}

/// Both halves of a connection with the sequence number they share.
pub(crate) struct PacketStream<R, W> {
    reader: R,
    writer: W,
    sequence: u8,
    /// Bytes not yet written to the socket.
    out: Vec<u8>,
    /// The largest payload that is accepted.
    pub(crate) packet_bytes_max: usize,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> PacketStream<R, W> {
    pub(crate) fn new(reader: R, writer: W, packet_bytes_max: usize) -> PacketStream<R, W> {
        PacketStream { reader, writer, sequence: 0, out: Vec::new(), packet_bytes_max }
    }

    /// Begins a new exchange: the next packet, in either direction, has number 0.
    pub(crate) fn restart(&mut self) {
        self.sequence = 0;
    }

    /// Reads the next payload; `None` if the peer closed between packets.
    pub(crate) async fn read(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let mut payload = Vec::new();
        let mut length_total = 0_usize;
        loop {
            let Some(length) = self.read_header(length_total == 0).await? else { return Ok(None) };
            length_total = length_total.saturating_add(length);
            if length_total > self.packet_bytes_max {
                payload = Vec::new();
                self.discard(length).await?;
            } else {
                self.read_piece(&mut payload, length).await?;
            }
            if length < PIECE_BYTES_MAX {
                break;
            }
        }
        if length_total > self.packet_bytes_max {
            return Err(ReadError::TooLarge);
        }
        Ok(Some(payload))
    }

    async fn read_header(&mut self, first: bool) -> Result<Option<usize>, ReadError> {
        let mut header = [0_u8; 4];
        let mut filled = 0;
        while filled < header.len() {
            let count = self.reader.read(&mut header[filled..]).await.map_err(ReadError::Io)?;
            if count == 0 {
                return if filled == 0 && first { Ok(None) } else { Err(ReadError::Truncated) };
            }
            filled += count;
        }
        if header[3] != self.sequence {
            return Err(ReadError::OutOfOrder);
        }
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        Ok(Some(length as usize))
    }

    async fn read_piece(&mut self, payload: &mut Vec<u8>, length: usize) -> Result<(), ReadError> {
        let mut left = length;
        while left > 0 {
            let step = left.min(READ_STEP_BYTES);
            let count =
                (&mut self.reader).take(step as u64).read_to_end(payload).await.map_err(ReadError::Io)?;
            if count == 0 {
                return Err(ReadError::Truncated);
            }
            left -= count;
        }
        Ok(())
    }

    async fn discard(&mut self, length: usize) -> Result<(), ReadError> {
        let mut piece = (&mut self.reader).take(length as u64);
        let count = tokio::io::copy(&mut piece, &mut tokio::io::sink()).await.map_err(ReadError::Io)?;
        if count < length as u64 { Err(ReadError::Truncated) } else { Ok(()) }
    }

    /// Writes a payload, in pieces if it is large; it leaves when enough has gathered, or at `flush`.
    pub(crate) async fn write(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let mut rest = payload;
        loop {
            let (piece, tail) = rest.split_at(rest.len().min(PIECE_BYTES_MAX));
            let length = u32::try_from(piece.len()).expect("a piece is below 16 MiB").to_le_bytes();
            self.out.extend_from_slice(&[length[0], length[1], length[2], self.sequence]);
            self.sequence = self.sequence.wrapping_add(1);
            self.out.extend_from_slice(piece);
            if self.out.len() >= WRITE_BUFFER_BYTES {
                self.writer.write_all(&self.out).await?;
                self.out.clear();
            }
            rest = tail;
            if piece.len() < PIECE_BYTES_MAX {
                return Ok(());
            }
        }
    }

    /// Sends what has gathered.
    pub(crate) async fn flush(&mut self) -> std::io::Result<()> {
        self.writer.write_all(&self.out).await?;
        self.out.clear();
        if self.out.capacity() > 4 * WRITE_BUFFER_BYTES {
            self.out.shrink_to(WRITE_BUFFER_BYTES);
        }
        self.writer.flush().await
    }

    /// Sends what has gathered and closes the sending half.
    pub(crate) async fn close(&mut self) -> std::io::Result<()> {
        self.flush().await?;
        self.writer.shutdown().await
    }
}

#[cfg(test)]
mod tests;
