//! UDP: who sends something gets a pod, and keeps it for as long as the two go on.
//!
//! A session is a client's address and port. It has a socket of its own towards its pod, so that answers find their
//! way back. Whoever sends can say that he is anybody, so a session costs little until its client has shown that he
//! hears answers: it ends sooner, and where there are too many it makes room for others.
use super::Proxy;
use super::endpoint::Working;
use super::exchange;
use crate::table::{Action, Destination, Site, To};
use client::Context;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What sessions may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All together; each has a socket.
    pub sessions: usize,
    /// Those of one address; of IPv6, those of one /64.
    pub per_source: usize,
    /// How long nothing may be said: by a client of whom it is not known that he hears, and by others. These are
    /// what the kernel gives connections that it tracks (`nf_conntrack_udp_timeout`).
    pub doubtful: Duration,
    pub mutual: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            sessions: 4096,
            per_source: 1024,
            doubtful: Duration::from_secs(30),
            mutual: Duration::from_secs(120),
        }
    }
}

/// No datagram is larger.
const LARGEST: usize = 65_535;
/// A pause after something went wrong that may go wrong at once again.
const PAUSE: Duration = Duration::from_millis(100);

/// All sessions of the proxy.
pub struct Sessions {
    pub bounds: Bounds,
    /// Where datagrams come in. Whoever says that he is one of these would have two services answer each other for
    /// ever.
    pub entrances: Mutex<BTreeSet<SocketAddr>>,
    state: Mutex<State>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct State {
    all: HashMap<Key, Arc<Session>>,
    /// In the order in which they began.
    by_source: HashMap<IpAddr, VecDeque<Arc<Session>>>,
    /// The same of all, with some that are no longer doubtful, or no longer at all: those keep nothing open.
    doubtful: VecDeque<Weak<Session>>,
}

/// Where it came to, and from whom.
type Key = (SocketAddr, SocketAddr);

struct Session {
    number: u64,
    key: Key,
    socket: UdpSocket,
    destination: Arc<Destination>,
    pod: SocketAddr,
    last: Mutex<Instant>,
    has_answer: AtomicBool,
    /// Its client has said something after an answer: he hears.
    is_mutual: AtomicBool,
    is_over: AtomicBool,
    over: Notify,
    _working: Working,
}

impl Session {
    fn is_doubtful(&self) -> bool {
        !self.is_mutual.load(Ordering::Relaxed)
    }

    /// It makes room for another.
    fn is_in_the_way(&self) -> bool {
        self.is_doubtful() && !self.is_over()
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.over.notify_one();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// What its client says.
    fn forward(&self, datagram: &[u8]) -> io::Result<usize> {
        *self.last.lock() = Instant::now();
        if self.has_answer.load(Ordering::Relaxed) {
            self.is_mutual.store(true, Ordering::Relaxed);
        }
        match self.socket.try_send(datagram) {
            // Until the runtime has looked at a new socket it takes it to be busy; the kernel knows better.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let same = self.socket.as_fd().try_clone_to_owned()?;
                std::net::UdpSocket::from(same).send(datagram)
            }
            outcome => outcome,
        }
    }
}

/// Where datagrams come in, and where answers go out.
struct Entrance {
    socket: UdpSocket,
    address: SocketAddr,
    /// For answers: they are read one after the other, and never kept.
    buffer: Mutex<Vec<u8>>,
}

/// Takes datagrams until the context stops, which ends their sessions.
pub async fn serve(proxy: Arc<Proxy>, context: Context, socket: UdpSocket, site: Site) {
    let Ok(address) = socket.local_addr() else { return };
    let entrance = Arc::new(Entrance { socket, address, buffer: Mutex::new(vec![0; LARGEST]) });
    proxy.sessions.entrances.lock().insert(address);
    tokio::select! {
        () = listen(&proxy, &context, &entrance, site) => {}
        () = context.stopped() => {}
    }
    proxy.sessions.entrances.lock().remove(&address);
}

async fn listen(proxy: &Arc<Proxy>, context: &Context, entrance: &Arc<Entrance>, site: Site) {
    let mut buffer = vec![0; LARGEST];
    loop {
        let received = entrance.socket.recv_from(&mut buffer).await;
        match received {
            Ok((length, client)) => {
                let datagram = &buffer[..length];
                proxy.sessions.take(proxy, context, entrance, (site, client), datagram);
            }
            Err(_) => drop(context.sleep(PAUSE).await),
        }
    }
}

impl Sessions {
    pub fn new(bounds: Bounds) -> Sessions {
        let (entrances, state) = (Mutex::default(), Mutex::default());
        Sessions { bounds, entrances, state, numbers: AtomicU64::new(0) }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.state.lock().all.len()
    }

    /// How many there have been.
    #[cfg(test)]
    pub fn begun(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// A datagram to whom its session has, or to somebody new. What cannot be sent is lost, as datagrams are.
    fn take(
        &self,
        proxy: &Arc<Proxy>,
        context: &Context,
        entrance: &Arc<Entrance>,
        (site, client): (Site, SocketAddr),
        datagram: &[u8],
    ) {
        if self.entrances.lock().contains(&client) {
            return;
        }
        let table = proxy.table();
        let Some(action) = table.datagrams.get(&site).and_then(|taker| taker.0.as_ref()) else {
            return;
        };
        let key = (entrance.address, client);
        let known = self.state.lock().all.get(&key).cloned();
        let known = known.filter(|session| {
            let goes_on = !session.is_over() && is_for(proxy, action, session);
            if !goes_on {
                self.remove(session);
            }
            goes_on
        });
        if let Some(session) = known {
            let outcome = session.forward(datagram);
            if is_refused(&outcome) {
                self.remove(&session);
            }
            return;
        }
        let Some(session) = self.begin(proxy, action, key) else { return };
        let _ = session.forward(datagram);
        tokio::spawn(answer(proxy.clone(), context.clone(), entrance.clone(), session));
    }

    fn begin(&self, proxy: &Arc<Proxy>, action: &Action, key: Key) -> Option<Arc<Session>> {
        let To::Service(destination) = &exchange::choose(&action.backends)?.to else { return None };
        let endpoint = proxy.upstream(destination)?.choose(&[])?;
        self.make_room(source(key.1.ip()))?;
        let session = Arc::new(Session {
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            key,
            socket: connected(endpoint.address).ok()?,
            destination: destination.clone(),
            pod: endpoint.address,
            last: Mutex::new(Instant::now()),
            has_answer: AtomicBool::new(false),
            is_mutual: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            _working: endpoint.begin(),
        });
        let mut state = self.state.lock();
        state.all.insert(key, session.clone());
        state.by_source.entry(source(key.1.ip())).or_default().push_back(session.clone());
        state.doubtful.push_back(Arc::downgrade(&session));
        if state.doubtful.len() > 2 * self.bounds.sessions {
            state.doubtful.retain(|one| one.upgrade().is_some_and(|one| one.is_in_the_way()));
        }
        Some(session)
    }

    /// Nothing, if there is no room for one more of this source.
    fn make_room(&self, source: IpAddr) -> Option<()> {
        let of_source = {
            let state = self.state.lock();
            let mine =
                state.by_source.get(&source).filter(|all| all.len() >= self.bounds.per_source);
            mine.map(|all| all.iter().find(|one| one.is_in_the_way()).cloned())
        };
        if let Some(oldest) = of_source {
            self.remove(&oldest?);
        }
        let oldest = {
            let mut state = self.state.lock();
            if state.all.len() < self.bounds.sessions {
                return Some(());
            }
            loop {
                let first = state.doubtful.pop_front()?.upgrade();
                if let Some(first) = first.filter(|one| one.is_in_the_way()) {
                    break first;
                }
            }
        };
        self.remove(&oldest);
        Some(())
    }

    fn remove(&self, session: &Arc<Session>) {
        session.end();
        let mut state = self.state.lock();
        if state.all.get(&session.key).is_some_and(|one| one.number == session.number) {
            state.all.remove(&session.key);
        }
        let source = source(session.key.1.ip());
        if let Some(all) = state.by_source.get_mut(&source) {
            all.retain(|one| one.number != session.number);
            if all.is_empty() {
                state.by_source.remove(&source);
            }
        }
    }
}

/// Whom one machine may be: of IPv6, anybody of its network.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

fn connected(pod: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match pod {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(pod)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// The route still leads to the session's pod, which is still there.
fn is_for(proxy: &Proxy, action: &Action, session: &Session) -> bool {
    let mut backends = action.backends.iter().filter(|backend| backend.weight > 0);
    let leads_there = backends.any(|backend| match &backend.to {
        To::Service(destination) => *destination == session.destination,
        To::Nobody(_) => false,
    });
    let upstream = || proxy.upstream(&session.destination);
    leads_there && upstream().is_some_and(|upstream| upstream.has(session.pod))
}

/// Nobody listens at the pod's port.
fn is_refused<T>(outcome: &io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sends a session's answers to its client until it is over.
async fn answer(
    proxy: Arc<Proxy>,
    context: Context,
    entrance: Arc<Entrance>,
    session: Arc<Session>,
) {
    let bounds = proxy.sessions.bounds;
    loop {
        let patience = if session.is_doubtful() { bounds.doubtful } else { bounds.mutual };
        let until = *session.last.lock() + patience;
        tokio::select! {
            ready = session.socket.readable() => {
                if ready.is_err() || is_refused(&hand_back(&entrance, &session)) {
                    break;
                }
            }
            () = tokio::time::sleep_until(until) => {
                let patience = if session.is_doubtful() { bounds.doubtful } else { bounds.mutual };
                if session.last.lock().elapsed() >= patience {
                    break;
                }
            }
            () = session.over.notified() => break,
            () = context.stopped() => break,
        }
    }
    proxy.sessions.remove(&session);
}

fn hand_back(entrance: &Entrance, session: &Session) -> io::Result<()> {
    let mut buffer = entrance.buffer.lock();
    let length = session.socket.try_recv(&mut buffer)?;
    *session.last.lock() = Instant::now();
    session.has_answer.store(true, Ordering::Relaxed);
    // A client who does not take it has lost it.
    let _ = entrance.socket.try_send_to(&buffer[..length], session.key.1);
    Ok(())
}
