//! What is between an archive, which is made and read by threads that block, and a stream, which does not:
//! a few pieces, and then one side waits for the other.
use bytes::Bytes;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{mpsc, watch};

/// How many pieces wait: each is as long as a message of the stream, or as what an archive writes at once.
const PIECES: usize = 16;
/// How much is gathered before it goes on its way.
const PIECE: usize = 64 << 10;

/// From a thread to a stream.
pub fn to_container() -> (ToContainer, Sent) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (ToContainer { sender, gathered: Vec::new() }, Sent { receiver, piece: Bytes::new() })
}

pub struct ToContainer {
    sender: mpsc::Sender<Bytes>,
    gathered: Vec<u8>,
}

impl Write for ToContainer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.gathered));
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

pub struct Sent {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl AsyncRead for Sent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.piece.is_empty() {
            match ready!(self.receiver.poll_recv(context)) {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.piece.len().min(buffer.remaining());
        buffer.put_slice(&self.piece.split_to(length));
        Poll::Ready(Ok(()))
    }
}

/// From a stream to a thread.
pub fn from_container() -> (Writer, Reader) {
    let (sender, receiver) = sync_channel(PIECES);
    let (waits, waiting) = watch::channel(None);
    let reader = Reader { receiver, piece: Bytes::new(), ended: false, read: 0, waits };
    (Writer { sender, written: 0, pieces: 0, waiting }, reader)
}

pub struct Writer {
    sender: SyncSender<Bytes>,
    written: u64,
    pieces: u64,
    /// How many pieces the thread has read that waits for more; none while it is busy.
    waiting: watch::Receiver<Option<u64>>,
}

impl Writer {
    /// How many bytes have come.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether the thread has read everything and waits for more; false once it reads no more.
    pub async fn is_awaited(&mut self) -> bool {
        let pieces = self.pieces;
        self.waiting.wait_for(|read| *read == Some(pieces)).await.is_ok()
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.sender.send(Bytes::copy_from_slice(bytes));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.written += bytes.len() as u64;
        self.pieces += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Reader {
    receiver: Receiver<Bytes>,
    piece: Bytes,
    ended: bool,
    read: u64,
    waits: watch::Sender<Option<u64>>,
}

impl Reader {
    /// Whether somebody wanted to read more than there was.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = match self.receiver.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.waits.send_replace(Some(self.read));
                    self.receiver.recv().map_err(|_| ())
                }
                next => next.map_err(|_| ()),
            };
            match next {
                Ok(piece) => {
                    self.piece = piece;
                    self.read += 1;
                    self.waits.send_replace(None);
                }
                Err(()) => {
                    self.ended = true;
                    return Ok(0);
                }
            }
        }
        let length = self.piece.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn a_thread_s_bytes_are_a_stream_s_and_wait_for_it() {
        let (mut writer, mut reader) = to_container();
        let all: Vec<u8> = (0..PIECE * PIECES * 3).map(|at| at as u8).collect();
        let sent = all.clone();
        let thread = std::thread::spawn(move || {
            sent.chunks(1000).try_for_each(|piece| writer.write_all(piece))?;
            writer.flush()
        });
        let mut first = [0; 10];
        reader.read_exact(&mut first).await.unwrap();
        assert!(reader.receiver.len() <= PIECES, "the rest waits");
        let mut heard = first.to_vec();
        reader.read_to_end(&mut heard).await.unwrap();
        thread.join().unwrap().unwrap();
        assert!(heard == all);
    }

    #[tokio::test]
    async fn who_is_not_heard_is_told() {
        let (mut writer, reader) = to_container();
        drop(reader);
        let thread = std::thread::spawn(move || writer.write_all(&vec![0; PIECE]));
        assert_eq!(thread.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (mut writer, reader) = from_container();
        drop(reader);
        assert!(writer.write_all(b"x").is_err() && !writer.is_awaited().await);
    }

    #[tokio::test]
    async fn a_stream_s_bytes_are_a_thread_s() {
        let (mut writer, mut reader) = from_container();
        let thread = std::thread::spawn(move || {
            let mut heard = Vec::new();
            reader.read_to_end(&mut heard).map(|_| (heard, reader.ended()))
        });
        for piece in [&b"ab"[..], b"", b"c"] {
            writer.write_all(piece).unwrap();
        }
        assert!(writer.written() == 3 && writer.is_awaited().await);
        drop(writer);
        assert_eq!(thread.join().unwrap().unwrap(), (b"abc".to_vec(), true));
    }
}
