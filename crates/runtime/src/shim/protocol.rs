//! What daemon and shim say to each other: a length, then JSON; descriptors travel with the length.
//!
//! A connection carries one request. Most end with one answer; `Exec` is answered twice (started,
//! exited), `Watch` for as long as it stays open, `Attach` turns into a stream of [`Chunk`]s.
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::spec::{ContainerSpec, Exit, ProcessSpec, Started};

#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Answered when the sandbox's namespaces stand.
    Hello,
    Start {
        id: String,
        spec: Box<ContainerSpec>,
    },
    /// Its standard streams come along as descriptors, unless it has a terminal.
    Exec {
        id: String,
        process: Box<ProcessSpec>,
        cgroup: Vec<std::path::PathBuf>,
    },
    /// A signal for the container's first process, or for all of them.
    Kill {
        id: String,
        signal: i32,
        all: bool,
    },
    ReopenLog {
        id: String,
    },
    Attach {
        id: String,
        stdin: bool,
    },
    Resize {
        id: String,
        width: u16,
        height: u16,
    },
    /// Other limits, for a container of another OCI runtime.
    Update {
        id: String,
        resources: serde_json::Value,
    },
    /// Every start and exit from now on.
    Watch,
    List,
    /// Kills everything and ends the shim.
    Shutdown,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Failed(String),
    Started(Started),
    Exited { id: String, exit: Exit },
    Running(Vec<(String, Started)>),
}

/// What the child that becomes a container tells the shim. Silence and a closed channel mean that
/// the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The terminal's controlling end comes along.
    Terminal,
    Identity(super::spec::Identity),
    /// Who says so goes on in the place of the process that was started. Which process that is, the
    /// kernel tells.
    Successor,
    Failed(String),
}

/// Longest message taken: an environment may hold a megabyte, JSON doubles some of it.
const LIMIT: usize = 16 << 20;
/// Most descriptors with one message.
const DESCRIPTORS: usize = 3;

pub fn send<T: Serialize>(
    stream: &UnixStream,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    (&mut &*stream).write_all(&body)
}

/// The next message; none when the other side has closed.
pub fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let (received, descriptors) = receive_with_descriptors(stream, &mut length)?;
    if received == 0 {
        return Ok(None);
    }
    (&mut &*stream).read_exact(&mut length[received..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut body = vec![0; length];
    (&mut &*stream).read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, descriptors)))
}

/// Messages of one who may stop in the middle of any: what has come of one is kept until the rest is
/// there, and nobody waits.
pub struct Inbox {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    sender: i32,
}

pub enum Received<T> {
    /// With the descriptors that came along, and who sent it, as the kernel says.
    Message(T, Vec<OwnedFd>, i32),
    NothingYet,
    Closed,
}

/// Longest message in an inbox: an identity with every group there can be.
const INBOX_LIMIT: usize = 1 << 20;

impl Inbox {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_passcred(&stream, true)?;
        Ok(Inbox { stream, bytes: Vec::new(), descriptors: Vec::new(), sender: 0 })
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Received<T>> {
        loop {
            if let Some(message) = self.take()? {
                let descriptors = std::mem::take(&mut self.descriptors);
                return Ok(Received::Message(message, descriptors, self.sender));
            }
            match self.fill() {
                Ok(0) => return Ok(Received::Closed),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Received::NothingYet),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The first message, if it is whole.
    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > INBOX_LIMIT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.bytes.drain(..length + 4);
        Ok(Some(message))
    }

    /// What the first message lacks. No more is read at a time: descriptors and the sender come with the
    /// bytes that they were sent with, and would be taken for another message's.
    fn missing(&self) -> usize {
        let length = self.bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length));
        let whole = length.map_or(4, |length| (length as usize).min(INBOX_LIMIT) + 4);
        whole.saturating_sub(self.bytes.len())
    }

    fn fill(&mut self) -> Result<usize, rustix::io::Errno> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 4096];
        let wanted = self.missing().min(bytes.len());
        let received = recvmsg(
            self.stream.as_fd(),
            &mut [IoSliceMut::new(&mut bytes[..wanted])],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )?;
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(rights) => self.descriptors.extend(rights),
                RecvAncillaryMessage::ScmCredentials(sender) => {
                    self.sender = sender.pid.as_raw_nonzero().get();
                }
                _ => {}
            }
        }
        self.bytes.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes)
    }
}

/// Some bytes, and the descriptors that came along.
pub fn receive_with_descriptors(
    stream: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream.as_fd(),
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// One piece of an attached stream: which stream, how long, the bytes.
pub mod chunk {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    /// Stream and length.
    pub const HEADER: usize = 5;

    pub fn header(stream: u8, length: usize) -> [u8; HEADER] {
        let [a, b, c, d] = (length as u32).to_le_bytes();
        [stream, a, b, c, d]
    }

    pub fn parse(header: [u8; HEADER]) -> (u8, usize) {
        let [stream, a, b, c, d] = header;
        (stream, u32::from_le_bytes([a, b, c, d]) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under load several reports are there before the shim looks: the terminal of an exec was lost then.
    #[test]
    fn descriptors_come_with_their_own_message_however_many_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&theirs, &Report::Successor, &[]).unwrap();
        send(&theirs, &Report::Terminal, &[file.as_fd()]).unwrap();
        send(&theirs, &Report::Failed("x".repeat(10_000)), &[]).unwrap();
        drop(theirs);
        let mut inbox = Inbox::new(ours).unwrap();
        let mut said = Vec::new();
        loop {
            match inbox.receive().unwrap() {
                Received::Message(Report::Failed(text), handles, _) => {
                    said.push(format!("failed {} {}", text.len(), handles.len()));
                }
                Received::Message(report, handles, _) => {
                    said.push(format!("{report:?} {}", handles.len()));
                }
                Received::NothingYet => panic!("all was sent"),
                Received::Closed => break,
            }
        }
        assert_eq!(said, ["Successor 0", "Terminal 1", "failed 10000 0"]);
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let mut inbox = Inbox::new(ours).unwrap();
        assert!(inbox.receive::<Report>().is_err());
    }
}
