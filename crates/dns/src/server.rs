//! Sockets: questions come in, answers go out.
use crate::answer::{Answer, Code, answer};
use crate::forward::{Forward, Way};
use crate::wire::{Data, HEADER, Kind, Query, Record, addresses, question, refusal};
use crate::world::World;
use crate::{Config, DnsError};
use client::{Context, Registry};
use parking_lot::RwLock;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions that one socket answers before others get their turn.
const BATCH: usize = 64;
/// What a socket holds that nobody has read yet.
const RECEIVE_BUFFER: usize = 4 << 20;
const CONNECTIONS: usize = 1000;
/// How long a client may leave its connection unused: CoreDNS's.
const IDLE: Duration = Duration::from_secs(10);

/// What all sockets share.
pub struct Server {
    pub world: RwLock<World>,
    /// Until then nobody knows that a name is not there.
    pub synced: AtomicBool,
    pub forward: Arc<Forward>,
    pub counts: Counts,
    seconds: u32,
    /// Which of several records comes first.
    turn: AtomicUsize,
}

/// How far an answer is.
enum Reply {
    Done,
    /// Somebody else knows.
    Forward,
    /// The name stands for this one.
    Alias(String),
}

fn limit(query: &Query<'_>, way: Way) -> usize {
    match way {
        Way::Tcp => usize::from(u16::MAX),
        Way::Udp => query.limit(),
    }
}

/// Answers by their code, and all by their way.
#[derive(Default)]
pub struct Counts {
    codes: [AtomicU64; 16],
    ways: [AtomicU64; 2],
}

impl Server {
    pub fn new(context: &Context, config: &Config) -> Arc<Server> {
        // Who asks itself is asked by itself.
        let upstreams = config.upstreams.iter().filter(|one| !config.listen.contains(one));
        Arc::new(Server {
            world: RwLock::new(World::new(&config.domain)),
            synced: AtomicBool::new(false),
            forward: Forward::new(context, upstreams.copied().collect()),
            counts: Counts::default(),
            seconds: config.seconds,
            turn: AtomicUsize::new(0),
        })
    }

    /// What can be said at once: `out` is the answer, or empty if there is none to give.
    fn respond(&self, packet: &[u8], way: Way, out: &mut Vec<u8>) -> Reply {
        out.clear();
        let Ok(query) = Query::read(packet) else {
            out.extend(refusal(packet, Code::FormatError).into_iter().flatten());
            return Reply::Done;
        };
        let found = {
            let world = self.world.read();
            let found = answer(&query, &world, self.seconds);
            // What there is can be told at once; that there is nothing, only when all is known.
            let is_known = self.synced.load(Ordering::Relaxed);
            found.map(|found| match is_known || !found.records.is_empty() {
                true => found,
                false => Answer::only(Code::ServerFailure),
            })
        };
        let Some(mut found) = found else { return Reply::Forward };
        // Resolvers in programs' libraries do not follow an alias: its addresses come with it.
        if let ([Record { data: Data::Cname(target), .. }], Kind::A | Kind::Aaaa) =
            (&found.records[..], query.kind)
        {
            return Reply::Alias(target.clone());
        }
        // Many clients use the first only.
        if found.records.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let first = turn % found.records.len();
            found.records.rotate_left(first);
        }
        query.write(&found, limit(&query, way), out);
        Reply::Done
    }

    /// What others have to be asked for.
    async fn ask_others(&self, packet: &[u8], way: Way, reply: Reply, out: &mut Vec<u8>) {
        let Ok(query) = Query::read(packet) else { return };
        let target = match reply {
            Reply::Done => return,
            Reply::Forward => {
                *out = self.forward.resolve(packet, &query, way).await;
                return;
            }
            Reply::Alias(target) => target,
        };
        let alias = Data::Cname(target.clone());
        let mut records = vec![Record { name: None, seconds: self.seconds, data: alias }];
        let asked = question(query.id, &target, query.kind, None);
        let mut said = Vec::new();
        // An alias of an alias is followed no further.
        if let (Reply::Forward, Ok(query)) =
            (self.respond(&asked, way, &mut said), Query::read(&asked))
        {
            said = self.forward.resolve(&asked, &query, way).await;
        }
        records.extend(addresses(&said).into_iter().map(|(seconds, address)| Record {
            name: Some(target.clone()),
            seconds,
            data: Data::Address(address),
        }));
        let answer = Answer { records, ..Answer::only(Code::NoError) };
        query.write(&answer, limit(&query, way), out);
    }

    fn count(&self, way: Way, answer: &[u8]) {
        if let Some(flags) = answer.get(3) {
            self.counts.codes[usize::from(flags & 0xf)].fetch_add(1, Ordering::Relaxed);
            self.counts.ways[way as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// CoreDNS's names.
    pub fn metrics(&self) -> String {
        let registry = Registry::default();
        for (way, name) in self.counts.ways.iter().zip(["udp", "tcp"]) {
            let count = way.load(Ordering::Relaxed) as f64;
            registry.add("coredns_dns_requests_total", &[("proto", name)], count);
        }
        let names = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
        for (count, name) in self.counts.codes.iter().zip(names) {
            let count = count.load(Ordering::Relaxed) as f64;
            registry.add("coredns_dns_responses_total", &[("rcode", name)], count);
        }
        use client::Metrics;
        let entries = self.forward.cache.lock().len() as f64;
        registry.set("coredns_cache_entries", &[], entries);
        registry.text()
    }
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
            let reply = server.respond(packet, Way::Udp, &mut out);
            if let Reply::Done = reply {
                server.count(Way::Udp, &out);
                // A full buffer loses the answer, as the way there may too.
                if !out.is_empty() {
                    let _ = socket.try_send_to(&out, client);
                }
                continue;
            }
            let (server, socket, packet) = (server.clone(), socket.clone(), packet.to_vec());
            tokio::spawn(async move {
                let mut out = Vec::new();
                server.ask_others(&packet, Way::Udp, reply, &mut out).await;
                server.count(Way::Udp, &out);
                let _ = socket.send_to(&out, client).await;
            });
        }
        tokio::task::yield_now().await;
    }
}

async fn serve_tcp(context: Context, server: Arc<Server>, listener: TcpListener) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.stopped() => return,
        };
        let Ok((stream, _)) = accepted else {
            // No descriptors are left: somebody has to end first.
            if !context.sleep(Duration::from_millis(100)).await {
                return;
            }
            continue;
        };
        let Ok(turn) = turns.clone().try_acquire_owned() else { continue };
        let (context, server) = (context.clone(), server.clone());
        tokio::spawn(async move {
            let _turn = turn;
            tokio::select! {
                // A client that goes away is no concern of ours.
                _ = converse(server, stream) => {}
                () = context.stopped() => {}
            }
        });
    }
}

/// One question after the other, each with its length before it.
async fn converse(server: Arc<Server>, mut stream: TcpStream) -> io::Result<()> {
    let mut out = Vec::new();
    loop {
        let read = async {
            let length = stream.read_u16().await?;
            let mut packet = vec![0; usize::from(length)];
            stream.read_exact(&mut packet).await?;
            io::Result::Ok(packet)
        };
        let packet = timeout(IDLE, read).await??;
        let reply = server.respond(&packet, Way::Tcp, &mut out);
        server.ask_others(&packet, Way::Tcp, reply, &mut out).await;
        server.count(Way::Tcp, &out);
        if out.len() < HEADER {
            return Ok(());
        }
        let length = (out.len() as u16).to_be_bytes();
        timeout(IDLE, stream.write_all(&[&length[..], &out].concat())).await??;
    }
}
