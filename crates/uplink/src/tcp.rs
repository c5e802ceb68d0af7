//! One connection: towards the link a small stack of its own, which is the far end to whoever began it;
//! towards the machine's network a connection of this process.
use super::packet::Key;
use super::{Link, MTU};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// What is on its way in each direction.
const WINDOW: usize = 64 << 10;
/// For as long the far end may be silent to a first word.
const PATIENCE: Duration = Duration::from_secs(30);
/// For as long nothing need be said once both have begun.
const QUIET: Duration = Duration::from_secs(2 * 60 * 60);

/// The link, as the stack sees it: one packet that has come, and wherever answers go.
struct Port {
    link: Arc<Link>,
    arrived: Option<Vec<u8>>,
}

struct Arrived(Vec<u8>);
struct Leaving<'a>(&'a Link);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let filled = fill(&mut packet);
        self.0.write(&packet);
        filled
    }
}

impl Device for Port {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        let packet = self.arrived.take()?;
        Some((Arrived(packet), Leaving(&self.link)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&self.link))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

/// The far end, towards the link.
struct Stack {
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Stack {
    fn new(link: Arc<Link>, key: &Key) -> Stack {
        let mut port = Port { link, arrived: None };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = fastrand::u64(..);
        let mut interface = Interface::new(config, &mut port, Instant::now());
        interface.update_ip_addrs(|addresses| {
            // There is room for the first one.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(*key.to.ip()), 0));
        });
        let buffer = || SocketBuffer::new(vec![0; WINDOW]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(Socket::new(buffer(), buffer()));
        Stack { port, interface, sockets, handle }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes a packet if there is one, and sends whatever is due.
    fn turn(&mut self, packet: Option<Vec<u8>>) {
        self.port.arrived = packet;
        self.interface.poll(Instant::now(), &mut self.port, &mut self.sockets);
    }

    fn next_turn(&mut self) -> Duration {
        let delay = self.interface.poll_delay(Instant::now(), &self.sockets);
        delay.map_or(QUIET, |delay| Duration::from_micros(delay.total_micros()))
    }
}

pub async fn carry(
    link: Arc<Link>,
    key: Key,
    to: SocketAddr,
    mut packets: mpsc::Receiver<Vec<u8>>,
) {
    let mut stack = Stack::new(link, &key);
    let Some(first) = packets.recv().await else { return };
    let stream = match tokio::time::timeout(PATIENCE, TcpStream::connect(to)).await {
        Ok(Ok(stream)) => stream,
        // Nobody listens there, and so nobody does here: the stack says so itself.
        _ => return stack.turn(Some(first)),
    };
    let _ = stream.set_nodelay(true);
    let here = IpListenEndpoint { addr: Some(IpAddress::Ipv4(*key.to.ip())), port: key.to.port() };
    if stack.socket().listen(here).is_err() {
        return;
    }
    stack.socket().set_nagle_enabled(false);
    stack.turn(Some(first));
    pass(&mut stack, &stream, &mut packets).await;
}

/// Passes on what each says to the other, until both have said everything or one is gone.
async fn pass(stack: &mut Stack, stream: &TcpStream, packets: &mut mpsc::Receiver<Vec<u8>>) {
    let (mut far_is_done, mut near_is_done) = (false, false);
    loop {
        let mut blocked = Blocked::default();
        if to_stream(stack.socket(), stream, &mut blocked).is_err()
            || to_stack(stack.socket(), stream, &mut far_is_done, &mut blocked).is_err()
        {
            stack.socket().abort();
        }
        if far_is_done {
            stack.socket().close();
        }
        let socket = stack.socket();
        let has_ended = matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
        );
        if has_ended && !socket.can_recv() && !near_is_done {
            near_is_done = true;
            let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
        }
        stack.turn(None);
        if matches!(stack.socket().state(), State::Closed | State::TimeWait) {
            return;
        }
        let reads = stack.socket().can_send() && !far_is_done;
        let wait = stack.next_turn();
        tokio::select! {
            packet = packets.recv() => match packet {
                Some(packet) => stack.turn(Some(packet)),
                None => return,
            },
            // What is ready is found out by trying.
            _ = stream.readable(), if reads && blocked.read => {}
            _ = stream.writable(), if blocked.write => {}
            () = tokio::time::sleep(wait) => stack.turn(None),
        }
    }
}

/// What could not go on, and must be waited for.
#[derive(Default)]
struct Blocked {
    read: bool,
    write: bool,
}

fn to_stream(socket: &mut Socket<'_>, stream: &TcpStream, blocked: &mut Blocked) -> io::Result<()> {
    while socket.can_recv() {
        let written = socket.recv(|bytes| match stream.try_write(bytes) {
            Ok(count) => (count, Ok(count)),
            Err(error) => (0, Err(error)),
        });
        match written {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                blocked.write = true;
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

fn to_stack(
    socket: &mut Socket<'_>,
    stream: &TcpStream,
    is_done: &mut bool,
    blocked: &mut Blocked,
) -> io::Result<()> {
    while socket.can_send() && !*is_done {
        let read = socket.send(|room| match stream.try_read(room) {
            Ok(count) => (count, Ok(count)),
            Err(error) => (0, Err(error)),
        });
        match read {
            Ok(Ok(0)) => *is_done = true,
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                blocked.read = true;
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
