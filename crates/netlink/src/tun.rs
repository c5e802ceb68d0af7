//! Links whose other end is a program (`linux/if_tun.h`): what the kernel sends there is read, and what is
//! written has come from there. Each read and each write is one IP packet.
use crate::NetlinkError;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl;
use std::io;
use std::os::fd::OwnedFd;

const TUNSETIFF: ioctl::Opcode = 0x4004_54ca;

const IFF_TUN: i16 = 1;
/// Packets as they are, with nothing before them.
const IFF_NO_PI: i16 = 0x1000;
/// `struct ifreq`: a name of sixteen bytes, then what is asked.
const REQUEST: usize = 40;
const NAME: usize = 16;

/// Makes a link in the caller's network, which is there for as long as somebody has the descriptor.
pub fn open(name: &str) -> Result<OwnedFd, NetlinkError> {
    let failed = |source: io::Error| NetlinkError::Refused {
        what: format!("make the link {name} by /dev/net/tun"),
        source,
    };
    let mut request = [0u8; REQUEST];
    if name.len() >= NAME {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[NAME..NAME + 2].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let link = rustix::fs::open("/dev/net/tun", flags, Mode::empty());
    let link = link.map_err(|error| failed(error.into()))?;
    set(&link, request).map_err(|error| failed(error.into()))?;
    Ok(link)
}

#[allow(unsafe_code)]
fn set(link: &OwnedFd, mut request: [u8; REQUEST]) -> rustix::io::Result<()> {
    // SAFETY: for this operation the kernel reads and writes a `struct ifreq`, and the buffer is as long.
    unsafe {
        let operation = ioctl::Updater::<TUNSETIFF, [u8; REQUEST]>::new(&mut request);
        ioctl::ioctl(link, operation)
    }
}
