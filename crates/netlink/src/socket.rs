//! One conversation with the kernel.
//!
//! The kernel works on a request while it is being sent: its answers wait in the socket when
//! `send` returns. Only a dump goes on while it is read.
use crate::message::{ACK, DUMP, Message, messages, number};
use crate::namespace;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::path::Path;

/// Large enough for a transaction of some ten thousand services.
const SEND_BUFFER: usize = 256 << 20;
const RECEIVE_BUFFER: usize = 8 << 20;
/// A part of a dump is never larger.
const DATAGRAM: usize = 64 << 10;

const ERROR: u16 = 2;
const DONE: u16 = 3;

#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    #[error("failed to open a netlink socket: {0}")]
    Open(#[source] std::io::Error),
    #[error("failed to enter the network namespace {path}: {source}")]
    Namespace { path: String, source: std::io::Error },
    #[error("failed to {what}: {source}")]
    Refused { what: String, source: std::io::Error },
    #[error("failed to {what}: the kernel gave no answer")]
    Silent { what: String },
}

impl NetlinkError {
    fn errno(&self) -> Option<Errno> {
        match self {
            NetlinkError::Refused { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }

    /// It is there already.
    pub fn is_existing(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// No route leads there.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.errno(), Some(Errno::NETUNREACH | Errno::HOSTUNREACH))
    }

    /// The kernel finds that it makes no sense.
    pub fn is_invalid(&self) -> bool {
        self.errno() == Some(Errno::INVAL)
    }

    /// The kernel has no such thing.
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(Errno::OPNOTSUPP)
    }

    /// What it was about is not there.
    pub fn is_missing(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::NOENT | Errno::NODEV | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NXIO)
        )
    }
}

/// Which tables a socket is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Route,
    Netfilter,
    /// Those that have a name instead of a number (`generic`).
    Generic,
}

#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// In the network namespace of the calling thread.
    pub fn open(family: Family) -> Result<Socket, NetlinkError> {
        let protocol = match family {
            // NETLINK_ROUTE is number 0, the default.
            Family::Route => None,
            Family::Netfilter => Some(netlink::NETFILTER),
            Family::Generic => Some(netlink::GENERIC),
        };
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            let (domain, kind) = (AddressFamily::NETLINK, SocketType::RAW);
            let descriptor = net::socket_with(domain, kind, flags, protocol)?;
            // Without the right to exceed the limit, the limit has to do.
            let _ = net::sockopt::set_socket_send_buffer_size_force(&descriptor, SEND_BUFFER);
            let _ = net::sockopt::set_socket_recv_buffer_size_force(&descriptor, RECEIVE_BUFFER);
            Ok::<_, Errno>(Socket { descriptor, sequence: 0 })
        };
        open().map_err(|error| NetlinkError::Open(error.into()))
    }

    /// In the namespace at a path.
    pub fn open_in(family: Family, path: &Path) -> Result<Socket, NetlinkError> {
        namespace::within(path, move || Socket::open(family))?
    }

    /// One request that changes something.
    pub fn request(&mut self, what: &str, message: Message) -> Result<(), NetlinkError> {
        self.requests(what, &[message])
    }

    /// Requests that are sent at once; the first that is refused counts. Only the last is
    /// acknowledged, for ten thousand acknowledgements do not fit into a socket.
    pub fn requests(&mut self, what: &str, all: &[Message]) -> Result<(), NetlinkError> {
        let acknowledged = all.len().saturating_sub(1);
        self.exchange(what, all, acknowledged)
    }

    /// As `requests`, where it is another than the last that is acknowledged.
    pub(crate) fn exchange(
        &mut self,
        what: &str,
        all: &[Message],
        acknowledged: usize,
    ) -> Result<(), NetlinkError> {
        if all.is_empty() {
            return Ok(());
        }
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(all.iter().map(Message::len).sum());
        for (at, message) in all.iter().enumerate() {
            let flags = if at == acknowledged { ACK } else { 0 };
            message.write(&mut bytes, flags, first.wrapping_add(at as u32));
        }
        self.sequence = first.wrapping_add(all.len() as u32);
        let last = first.wrapping_add(acknowledged as u32);
        self.send(what, &bytes)?;
        let (mut outcome, mut answered) = (Ok(()), false);
        self.receive(what, RecvFlags::DONTWAIT, |kind, sequence, body| {
            let error = if kind == ERROR { number(body, 0).unwrap_or(0) as i32 } else { 0 };
            answered |= kind == ERROR && (sequence == last || error != 0);
            if error != 0 && outcome.is_ok() {
                outcome = Err(refused(what, Errno::from_raw_os_error(-error)));
            }
            true
        })?;
        match answered {
            true => outcome,
            false => Err(NetlinkError::Silent { what: what.to_owned() }),
        }
    }

    /// Everything that a request asks for: each answer's body.
    pub fn dump(&mut self, what: &str, message: Message) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let (mut bytes, sequence) = (Vec::new(), self.sequence);
        message.write(&mut bytes, DUMP, sequence);
        self.send(what, &bytes)?;
        let (mut answers, mut outcome) = (Vec::new(), Ok(()));
        self.receive(what, RecvFlags::empty(), |kind, of, body| {
            match kind {
                // An answer to something earlier.
                _ if of != sequence => {}
                DONE => return false,
                ERROR => {
                    let error = number(body, 0).unwrap_or(0) as i32;
                    outcome = Err(refused(what, Errno::from_raw_os_error(-error)));
                    return false;
                }
                _ => answers.push(body.to_vec()),
            }
            true
        })?;
        outcome.map(|()| answers)
    }

    /// The one answer to a question: its body.
    pub fn get(&mut self, what: &str, message: Message) -> Result<Vec<u8>, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let (mut bytes, sequence) = (Vec::new(), self.sequence);
        message.write(&mut bytes, 0, sequence);
        self.send(what, &bytes)?;
        let mut outcome = Err(NetlinkError::Silent { what: what.to_owned() });
        self.receive(what, RecvFlags::empty(), |kind, of, body| {
            if of != sequence {
                return true;
            }
            outcome = match kind {
                ERROR => {
                    let error = number(body, 0).unwrap_or(0) as i32;
                    Err(refused(what, Errno::from_raw_os_error(-error)))
                }
                _ => Ok(body.to_vec()),
            };
            false
        })?;
        outcome
    }

    /// One datagram that nobody asked for, once there is one: its messages' kinds and bodies.
    pub(crate) fn hear(
        &mut self,
        what: &str,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), NetlinkError> {
        let mut buffer = vec![0; DATAGRAM];
        loop {
            match net::recv(&self.descriptor, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    messages(&buffer[..length]).for_each(|one| each(one.kind, one.body));
                    return Ok(());
                }
                // More came than there is room for: what is left counts.
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(error) => return Err(refused(what, error)),
            }
        }
    }

    fn send(&self, what: &str, bytes: &[u8]) -> Result<(), NetlinkError> {
        // What an earlier conversation left unread would be taken for this one's.
        let mut old = vec![0; DATAGRAM];
        while net::recv(&self.descriptor, &mut old[..], RecvFlags::DONTWAIT).is_ok() {}
        match net::send(self.descriptor.as_fd(), bytes, SendFlags::empty()) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(what, error)),
        }
    }

    /// Until `each` says false, or nothing more is there.
    fn receive(
        &self,
        what: &str,
        flags: RecvFlags,
        mut each: impl FnMut(u16, u32, &[u8]) -> bool,
    ) -> Result<(), NetlinkError> {
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let length = match net::recv(&self.descriptor, &mut buffer[..], flags) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(refused(what, error)),
            };
            for message in messages(&buffer[..length]) {
                if !each(message.kind, message.sequence, message.body) {
                    return Ok(());
                }
            }
        }
    }
}

fn refused(what: &str, error: Errno) -> NetlinkError {
    NetlinkError::Refused { what: what.to_owned(), source: error.into() }
}
