//! `skiff up` without root: a cluster in a user's own namespaces.
//!
//! ```text
//!  the machine's network                      the user's own network
//!  ┌────────────────────────┐   a socket     ┌──────────────────────────────────────┐
//!  │ outside                │◄──────────────►│ skiff, as root of the namespaces     │
//!  │  binds ports (ports)   │  descriptors   │  pods, services, packet rules: as    │
//!  │  dials out  (uplink)   │                │  ever                                │
//!  └────────────────────────┘                └──────────────────────────────────────┘
//! ```
//! The namespaces are held by a process that stays ([`runtime::rootless`]); whoever comes later enters them.
//! Inside, everything is as it is with root. What a user may not do, nobody does for them: no limits
//! without control groups that were handed over, no users besides root without numbers that were set
//! aside, no ports below the machine's lowest.
//!
//! A socket belongs to the network that it was made in, whoever uses it. So the one outside makes sockets
//! and hands them over: listeners, for what the machine's others are to reach; and it reads what leaves
//! from a link whose other end it was handed, and carries it in connections of its own.
mod holder;
mod inside;
mod map;
mod outside;
pub mod ports;

pub use inside::{begin, listen, publish};

use crate::Command;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The user whose namespaces a process is in.
const USER: &str = "SKIFF_ROOTLESS";

/// What the one inside asks the one outside.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// A listener there.
    Listen(SocketAddr),
    /// To carry what leaves by the link whose other end comes along.
    Carry,
}

/// What came of it; a listener comes along.
#[derive(Serialize, Deserialize)]
enum Reply {
    Done,
    Failed(String),
}

/// Who runs this, unless it is the machine's root.
pub fn user() -> Option<u32> {
    let euid = rustix::process::geteuid();
    match std::env::var(USER).ok().and_then(|text| text.parse().ok()) {
        Some(uid) if euid.is_root() => Some(uid),
        _ => (!euid.is_root()).then(|| euid.as_raw()),
    }
}

/// Whether this process is root of a user's namespaces.
pub fn is_inside() -> bool {
    user().is_some() && rustix::process::geteuid().is_root()
}

/// What a command wants of a user's namespaces.
enum Wish {
    /// To run in them for long.
    Live,
    /// To do something in them.
    Visit,
    /// To end them.
    End,
}

impl Wish {
    fn of(command: &Command) -> Option<Wish> {
        match command {
            Command::Up(options) if options.is_node() => Some(Wish::Live),
            Command::Agent(_) => Some(Wish::Live),
            Command::Node(command) if command.touches_images() => Some(Wish::Visit),
            Command::Reset(options) if options.removes() => Some(Wish::End),
            Command::Reset(_) => Some(Wish::Visit),
            _ => None,
        }
    }
}

/// Has the command done in the user's namespaces, if that is where it must be done. `None`: here.
pub fn elsewhere(command: &Command) -> anyhow::Result<Option<std::process::ExitCode>> {
    if rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    match Wish::of(command) {
        None => Ok(None),
        Some(wish) => outside::run(wish).map(Some),
    }
}

/// The first word of the holder's command line.
pub const HOLD: &str = "rootless-hold";

/// The holder's whole life.
pub fn hold() -> anyhow::Result<()> {
    holder::stay()
}
