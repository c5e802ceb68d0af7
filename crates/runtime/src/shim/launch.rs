//! A child on its way to its program. It is in reach of the container that it becomes part of, which
//! can stop it at any moment: so nobody waits for it. Whoever launched it looks after it now and then,
//! and gives up when its time is over.
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::protocol::{Inbox, Received, Report};
use super::spec::{Identity, Started};
use super::sys;

pub struct Launch {
    inbox: Inbox,
    /// The process, or who went on in its place.
    pid: i32,
    identity: Option<Identity>,
    terminal: Option<OwnedFd>,
    deadline: Instant,
    patience: Duration,
}

pub struct Launched {
    pub started: Started,
    pub terminal: Option<OwnedFd>,
}

impl Launch {
    pub fn new(inbox: Inbox, pid: i32, patience: Duration) -> Self {
        Launch {
            inbox,
            pid,
            identity: None,
            terminal: None,
            deadline: Instant::now() + patience,
            patience,
        }
    }

    /// Where it reports.
    pub fn channel(&self) -> &UnixStream {
        self.inbox.stream()
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes in what it has reported: none if it is still at it. One that failed is killed.
    pub fn advance(&mut self, now: Instant) -> Option<io::Result<Launched>> {
        let outcome = self.read(now)?;
        if outcome.is_err() {
            self.kill();
        }
        Some(outcome)
    }

    fn read(&mut self, now: Instant) -> Option<io::Result<Launched>> {
        loop {
            match self.inbox.receive() {
                Ok(Received::Message(report, mut handles, sender)) => match report {
                    Report::Terminal => self.terminal = handles.pop(),
                    Report::Identity(found) => self.identity = Some(found),
                    Report::Successor if sys::is_child(sender) => self.pid = sender,
                    Report::Successor => {
                        return Some(Err(io::Error::other("a stranger reported on the channel")));
                    }
                    Report::Failed(reason) => return Some(Err(io::Error::other(reason))),
                },
                Ok(Received::Closed) => return Some(self.end()),
                Ok(Received::NothingYet) if now < self.deadline => return None,
                Ok(Received::NothingYet) => {
                    let text = format!("it is not running after {:?}", self.patience);
                    return Some(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The channel is closed: the program runs, or the process is gone.
    fn end(&mut self) -> io::Result<Launched> {
        let died = || io::Error::other("the process died while it was set up");
        let identity = self.identity.take().ok_or_else(died)?;
        let started = Started { pid: self.pid, at: crate::service::now(), identity };
        Ok(Launched { started, terminal: self.terminal.take() })
    }

    /// It is our child and nobody has asked for it, so its number is still its own.
    pub fn kill(&self) {
        let _ = sys::kill(self.pid, libc::SIGKILL);
    }
}
