//! Sockets: questions come in, answers go out.
use crate::answer::{Answer, Code, answer, next_names, pod_of};
use crate::corefile::{Hosts, Pods, Rules, Zone};
use crate::counts::Counts;
use crate::forward::{Forward, Servers, Way};
use crate::wire::{Data, HEADER, Kind, Query, Record, addresses, question, refusal};
use crate::world::World;
use crate::{Clients, Config, DnsError};
use client::Context;
use parking_lot::{Mutex, RwLock};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions that one socket answers before others get their turn.
const BATCH: usize = 64;
/// What a socket holds that nobody has read yet.
const RECEIVE_BUFFER: usize = 4 << 20;
const CONNECTIONS: usize = 1000;
/// Of these one client has so many at most: it cannot keep all others out by leaving them open.
const OF_ONE_CLIENT: usize = 100;
/// How long a client may leave its connection unused: CoreDNS's.
const IDLE: Duration = Duration::from_secs(10);

/// What all sockets share.
pub struct Server {
    pub world: RwLock<World>,
    /// Until then nobody knows that a name is not there.
    pub synced: AtomicBool,
    pub forward: Arc<Forward>,
    pub counts: Counts,
    /// All pods are known, where somebody wants to know.
    pub pods_synced: AtomicBool,
    rules: RwLock<Arc<Rules>>,
    clients: Clients,
    /// Where we listen: who asks itself is asked by itself.
    own: Vec<SocketAddr>,
    /// Which of several records comes first.
    turn: AtomicUsize,
}

/// How far an answer is.
pub enum Reply {
    Done,
    /// Somebody else knows.
    Forward(Servers),
    /// The name stands for this one; it is known for so many seconds.
    Alias(String, u32),
    /// There is no such name, and a client that searches asks for this one at last.
    Search(String, Servers),
    /// It is looked up as this one, and nobody need know.
    Renamed(String),
}

fn limit(query: &Query<'_>, way: Way) -> usize {
    match way {
        Way::Tcp => usize::from(u16::MAX),
        Way::Udp => query.limit(),
    }
}

impl Server {
    pub fn new(context: &Context, config: &Config, rules: Rules) -> Arc<Server> {
        let server = Server {
            world: RwLock::new(World::new(&config.domain)),
            synced: AtomicBool::new(false),
            forward: Forward::new(context),
            counts: Counts::default(),
            pods_synced: AtomicBool::new(false),
            rules: RwLock::new(Arc::new(Rules::usual(0, Vec::new()))),
            clients: config.clients.clone(),
            own: config.listen.clone(),
            turn: AtomicUsize::new(0),
        };
        server.set_rules(rules);
        Arc::new(server)
    }

    /// From now on.
    pub fn set_rules(&self, rules: Rules) {
        let rules = Arc::new(rules);
        if *self.rules.read() == rules {
            return;
        }
        let servers = rules.servers().filter(|one| !self.own.contains(one)).collect();
        *self.rules.write() = rules;
        self.forward.renew(servers);
    }

    fn servers(&self, zone: &Zone, name: &str) -> Servers {
        let mut forwarding = zone.forwarding(name).cloned();
        if let Some(forwarding) = &mut forwarding {
            forwarding.to.retain(|one| !self.own.contains(one));
        }
        Servers { forwarding, cache: zone.cache }
    }

    /// What can be said at once: `out` is the answer, or empty if there is none to give.
    pub fn respond(&self, packet: &[u8], way: Way, client: IpAddr, out: &mut Vec<u8>) -> Reply {
        out.clear();
        let Ok(query) = Query::read(packet) else {
            out.extend(refusal(packet, Code::FormatError).into_iter().flatten());
            return Reply::Done;
        };
        self.counts.asked(query.kind, way, client);
        self.look_up(&query, way, client, out)
    }

    fn look_up(&self, query: &Query<'_>, way: Way, client: IpAddr, out: &mut Vec<u8>) -> Reply {
        let rules = self.rules.read().clone();
        let Some(zone) = rules.zone(&query.name) else {
            query.write(&Answer::only(Code::Refused), limit(query, way), out);
            return Reply::Done;
        };
        if let Some(name) = zone.rewritten(&query.name) {
            return Reply::Renamed(name);
        }
        if let Some(found) =
            zone.templates.iter().find_map(|one| one.answer(&query.name, query.kind))
        {
            if let (
                [Record { data: Data::Cname(target), seconds, name: None }],
                Kind::A | Kind::Aaaa,
            ) = (&found.records[..], query.kind)
            {
                return Reply::Alias(target.clone(), *seconds);
            }
            query.write(&found, limit(query, way), out);
            return Reply::Done;
        }
        if let Some(found) = zone.hosts.as_ref().and_then(|hosts| by_hand(query, hosts)) {
            query.write(&found, limit(query, way), out);
            return Reply::Done;
        }
        let Some(kubernetes) = &zone.kubernetes else {
            return Reply::Forward(self.servers(zone, &query.name));
        };
        let seconds = kubernetes.seconds;
        let world = self.world.read();
        let is_pods = || query.name.ends_with(&format!(".pod.{}", world.domain()));
        // What there is can be told at once; that there is nothing, only when all is known.
        let mut is_known = self.synced.load(Ordering::Relaxed);
        let found = match kubernetes.pods {
            Pods::Disabled if is_pods() => Some(Answer::only(Code::NameError)),
            Pods::Verified
                if pod_of(&query.name, world.domain())
                    .is_some_and(|(namespace, address)| !world.has_pod(namespace, address)) =>
            {
                is_known &= self.pods_synced.load(Ordering::Relaxed);
                Some(Answer::only(Code::NameError))
            }
            _ => answer(query, &world, seconds),
        };
        let found = found.map(|found| match is_known || !found.records.is_empty() {
            true => found,
            false => Answer::only(Code::ServerFailure),
        });
        let Some(mut found) = found else {
            return Reply::Forward(self.servers(zone, &query.name));
        };
        if found.code == Code::NameError
            && let Some(reply) = self.next_of_search(query, &world, zone, way, client, seconds)
        {
            // That there is none, in case that what follows is not there either.
            query.write(&found, limit(query, way), out);
            return reply;
        }
        drop(world);
        // Resolvers in programs' libraries do not follow an alias: its addresses come with it.
        if let ([Record { data: Data::Cname(target), .. }], Kind::A | Kind::Aaaa) =
            (&found.records[..], query.kind)
        {
            return Reply::Alias(target.clone(), seconds);
        }
        // Many clients use the first only.
        if found.records.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let first = turn % found.records.len();
            found.records.rotate_left(first);
        }
        query.write(&found, limit(query, way), out);
        Reply::Done
    }

    /// A pod asks for every name first as if it were one of its own namespace's services, then in the
    /// rest of its search path. What it would find in the end is told at once, where it is known whose
    /// pod it is: nobody else's question means this.
    fn next_of_search(
        &self,
        query: &Query<'_>,
        world: &World,
        zone: &Zone,
        way: Way,
        client: IpAddr,
        seconds: u32,
    ) -> Option<Reply> {
        if !matches!(query.kind, Kind::A | Kind::Aaaa) {
            return None;
        }
        let namespace = (self.clients.0)(client)?;
        let [second, third, last] = next_names(&query.name, &namespace, world.domain())?;
        // The last may be one of the cluster's, written out whole.
        for name in [second, third, last.clone()] {
            let asked = Query { name, ..query.clone() };
            if answer(&asked, world, seconds).is_some_and(|found| found.code == Code::NoError) {
                return Some(Reply::Alias(asked.name, seconds));
            }
        }
        let servers = self.servers(zone, &last);
        // Others are asked only where somebody wants that: a client that goes on searching would wait for
        // their answer each time. What they have said is told in any case.
        let packet = question(query.id, &last, query.kind, query.takes);
        let asked = Query::read(&packet).ok()?;
        let is_kept = || self.forward.remembered(&asked, way).is_some();
        (zone.autopath || is_kept()).then_some(Reply::Search(last, servers))
    }

    /// What others have to be asked for.
    pub async fn ask_others(
        &self,
        packet: &[u8],
        way: Way,
        client: IpAddr,
        reply: Reply,
        out: &mut Vec<u8>,
    ) {
        let Ok(query) = Query::read(packet) else { return };
        let (target, alias, found) = match reply {
            Reply::Done => return,
            Reply::Forward(servers) => {
                *out = self.forward.resolve(packet, &query, way, &servers).await;
                return;
            }
            Reply::Alias(target, seconds) => {
                let said = self.follow(&query, &target, way, client).await;
                (target, Some(seconds), said)
            }
            Reply::Renamed(target) => {
                let said = self.follow(&query, &target, way, client).await;
                (target, None, said)
            }
            Reply::Search(target, servers) => {
                let asked = question(query.id, &target, query.kind, query.takes);
                let Ok(again) = Query::read(&asked) else { return };
                let said = self.forward.resolve(&asked, &again, way, &servers).await;
                if addresses(&said).is_empty() {
                    // It stays as it was: there is no such name.
                    return;
                }
                (target, Some(30), said)
            }
        };
        let name = alias.map(|_| target.clone());
        let mut records: Vec<Record> = alias
            .map(|seconds| Record { name: None, seconds, data: Data::Cname(target) })
            .into_iter()
            .collect();
        records.extend(addresses(&found).into_iter().map(|(seconds, address)| Record {
            name: name.clone(),
            seconds,
            data: Data::Address(address),
        }));
        let code = match (records.is_empty(), found.get(3).map(|flags| flags & 0xf)) {
            (true, Some(3)) => Code::NameError,
            (true, Some(2)) => Code::ServerFailure,
            (true, Some(5)) => Code::Refused,
            _ => Code::NoError,
        };
        query.write(&Answer { records, ..Answer::only(code) }, limit(&query, way), out);
    }

    /// What another name stands for, asked once more: an alias of an alias is followed no further.
    async fn follow(&self, query: &Query<'_>, target: &str, way: Way, client: IpAddr) -> Vec<u8> {
        let asked = question(query.id, target, query.kind, query.takes);
        let mut said = Vec::new();
        let Ok(again) = Query::read(&asked) else { return said };
        if let Reply::Forward(servers) = self.look_up(&again, way, client, &mut said) {
            said = self.forward.resolve(&asked, &again, way, &servers).await;
        }
        said
    }
}

/// What somebody wrote down; `None`: others may know.
fn by_hand(query: &Query<'_>, hosts: &Hosts) -> Option<Answer> {
    let Some(addresses) = hosts.addresses.get(&query.name) else {
        return (!hosts.falls_through).then(|| Answer::only(Code::NameError));
    };
    let fits = |address: &&IpAddr| match query.kind {
        Kind::A => address.is_ipv4(),
        Kind::Aaaa => address.is_ipv6(),
        _ => false,
    };
    let record = |address: &IpAddr| Record {
        name: None,
        seconds: hosts.seconds,
        data: Data::Address(*address),
    };
    let records = addresses.iter().filter(fits).map(record).collect();
    Some(Answer { records, ..Answer::only(Code::NoError) })
}

/// Sockets of one address: some for UDP, between which the kernel spreads clients, and one for TCP.
pub struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
}

impl Sockets {
    /// With port 0 a free one is taken, the same for all.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Sockets, DnsError> {
        let failed = |source| DnsError::Listen { address, source };
        let mut tries = 0;
        loop {
            let bound = || -> io::Result<Sockets> {
                let first = udp(address)?;
                let address = first.local_addr()?;
                let mut all = vec![first];
                for _ in 1..count {
                    all.push(udp(address)?);
                }
                let tcp = std::net::TcpListener::bind(address)?;
                tcp.set_nonblocking(true)?;
                Ok(Sockets { udp: all, tcp: TcpListener::from_std(tcp)? })
            };
            match bound() {
                // A port that is free for the one may be taken for the other.
                Err(_) if address.port() == 0 && tries < 10 => tries += 1,
                other => return other.map_err(failed),
            }
        }
    }

    #[cfg(test)]
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    pub fn serve(self, context: &Context, server: &Arc<Server>) {
        for socket in self.udp {
            let (context, server) = (context.clone(), server.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = serve_udp(server, Arc::new(socket)) => {}
                    () = context.stopped() => {}
                }
            });
        }
        tokio::spawn(serve_tcp(context.clone(), server.clone(), self.tcp));
    }
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // The limit will do where it cannot be exceeded.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
    net::bind(&socket, &address)?;
    UdpSocket::from_std(socket.into())
}

async fn serve_udp(server: Arc<Server>, socket: Arc<UdpSocket>) {
    let (mut packet, mut out) = ([0; 4096], Vec::with_capacity(4096));
    loop {
        // Errors of the socket are about datagrams that were sent: nobody listens there any more.
        let _ = socket.readable().await;
        for _ in 0..BATCH {
            let (length, client) = match socket.try_recv_from(&mut packet) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => continue,
            };
            let packet = &packet[..length];
            let (begun, from) = (Instant::now(), client.ip().to_canonical());
            let reply = server.respond(packet, Way::Udp, from, &mut out);
            if let Reply::Done = reply {
                server.counts.answered(&out, begun.elapsed());
                // A full buffer loses the answer, as the way there may too.
                if !out.is_empty() {
                    let _ = socket.try_send_to(&out, client);
                }
                continue;
            }
            let (server, socket, packet) = (server.clone(), socket.clone(), packet.to_vec());
            let mut out = std::mem::take(&mut out);
            tokio::spawn(async move {
                server.ask_others(&packet, Way::Udp, from, reply, &mut out).await;
                server.counts.answered(&out, begun.elapsed());
                let _ = socket.send_to(&out, client).await;
            });
        }
        tokio::task::yield_now().await;
    }
}

async fn serve_tcp(context: Context, server: Arc<Server>, listener: TcpListener) {
    let (turns, shares) = (Arc::new(Semaphore::new(CONNECTIONS)), Shares::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.stopped() => return,
        };
        let Ok((stream, client)) = accepted else {
            // No descriptors are left: somebody has to end first.
            if !context.sleep(Duration::from_millis(100)).await {
                return;
            }
            continue;
        };
        let Ok(turn) = turns.clone().try_acquire_owned() else { continue };
        let client = client.ip().to_canonical();
        let Some(share) = Share::of(&shares, client) else { continue };
        let (context, server) = (context.clone(), server.clone());
        tokio::spawn(async move {
            let _held = (turn, share);
            tokio::select! {
                // A client that goes away is no concern of ours.
                _ = converse(server, stream, client) => {}
                () = context.stopped() => {}
            }
        });
    }
}

/// How many connections each client has.
type Shares = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// One of a client's connections, until it is dropped.
struct Share {
    shares: Shares,
    client: IpAddr,
}

impl Share {
    /// `None`: the client has as many as one may.
    fn of(shares: &Shares, client: IpAddr) -> Option<Share> {
        let mut all = shares.lock();
        let count = all.entry(client).or_default();
        if *count >= OF_ONE_CLIENT {
            return None;
        }
        *count += 1;
        Some(Share { shares: shares.clone(), client })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.shares.lock();
        let left = all.get(&self.client).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(all.remove(&self.client)),
            left => drop(all.insert(self.client, left)),
        }
    }
}

/// One question after the other, each with its length before it.
pub async fn converse(
    server: Arc<Server>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    client: IpAddr,
) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        let read = async {
            let length = stream.read_u16().await?;
            let mut packet = vec![0; usize::from(length)];
            stream.read_exact(&mut packet).await?;
            io::Result::Ok(packet)
        };
        let packet = timeout(IDLE, read).await??;
        let begun = Instant::now();
        let reply = server.respond(&packet, Way::Tcp, client, &mut out);
        server.ask_others(&packet, Way::Tcp, client, reply, &mut out).await;
        server.counts.answered(&out, begun.elapsed());
        if out.len() < HEADER {
            return Ok(());
        }
        let length = (out.len() as u16).to_be_bytes();
        timeout(IDLE, stream.write_all(&[&length[..], &out].concat())).await??;
    }
}
