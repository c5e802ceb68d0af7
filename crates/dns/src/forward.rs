//! Names that are not the cluster's: asked of the machine's own servers.
use crate::answer::{Answer, Code};
use crate::cache::Cache;
use crate::wire::{HEADER, Kind, Query, question, word};
use client::Context;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// CoreDNS's: how long one server may take, and how many wait at once.
const PATIENCE: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 1000;

pub struct Forward {
    upstreams: Vec<SocketAddr>,
    pub cache: Mutex<Cache>,
    turns: Semaphore,
    context: Context,
    /// A name that nobody but us asks for: if we are asked, our upstream is we ourselves.
    probe: String,
    is_loop: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Udp,
    Tcp,
}

impl Forward {
    pub fn new(context: &Context, upstreams: Vec<SocketAddr>) -> Arc<Forward> {
        let forward = Arc::new(Forward {
            upstreams,
            cache: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
            context: context.clone(),
            probe: format!("{:x}.skiff-loop", context.number()),
            is_loop: AtomicBool::new(false),
        });
        if !forward.upstreams.is_empty() {
            tokio::spawn(look_for_loop(forward.clone()));
        }
        forward
    }

    /// The whole answer. `packet` is what the query was read from.
    pub async fn resolve(&self, packet: &[u8], query: &Query<'_>, way: Way) -> Vec<u8> {
        if query.name == self.probe {
            self.is_loop.store(true, Ordering::Relaxed);
            let text = "the DNS servers of this machine lead back here: names outside of the cluster are not resolved; give others with --upstream or --resolv-conf";
            tracing::error!("{text}");
        }
        let limit = if way == Way::Tcp { usize::from(u16::MAX) } else { query.limit() };
        if let Some(kept) = self.cache.lock().get(query, limit, Instant::now()) {
            return kept;
        }
        let code = match self.upstreams.is_empty() {
            true => Code::Refused,
            false => match self.ask(packet, query, way).await {
                Some(answer) => {
                    self.cache.lock().put(query, limit, &answer, Instant::now());
                    return answer;
                }
                None => Code::ServerFailure,
            },
        };
        let mut bytes = Vec::new();
        query.write(&Answer::only(code), limit, &mut bytes);
        bytes
    }

    /// The first answer of any server, each asked once, beginning with any of them.
    async fn ask(&self, packet: &[u8], query: &Query<'_>, way: Way) -> Option<Vec<u8>> {
        if self.is_loop.load(Ordering::Relaxed) {
            return None;
        }
        // Who comes when so many wait is told at once that it does not work.
        let _turn = self.turns.try_acquire().ok()?;
        let first = self.context.number() as usize % self.upstreams.len();
        for at in 0..self.upstreams.len() {
            let server = self.upstreams[(first + at) % self.upstreams.len()];
            // Nobody who sees our questions can guess the next one's number, nor its port.
            let id = self.context.number() as u16;
            let mut asked = packet.to_vec();
            asked[..2].copy_from_slice(&id.to_be_bytes());
            let exchange = async {
                match way {
                    Way::Udp => by_udp(server, &asked, query).await,
                    Way::Tcp => by_tcp(server, &asked, query).await,
                }
            };
            match timeout(PATIENCE, exchange).await {
                Ok(Ok(mut answer)) => {
                    answer[..2].copy_from_slice(&query.id.to_be_bytes());
                    return Some(answer);
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "a DNS server does not answer"),
                Err(_) => tracing::debug!(%server, "a DNS server does not answer in time"),
            }
        }
        None
    }
}

/// Asks for the probe, as CoreDNS's `loop` does.
async fn look_for_loop(forward: Arc<Forward>) {
    let packet = question(0, &forward.probe, Kind::Other(13), None);
    if let Ok(query) = Query::read(&packet) {
        forward.ask(&packet, &query, Way::Udp).await;
    }
}

async fn by_udp(server: SocketAddr, asked: &[u8], query: &Query<'_>) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(asked).await?;
    let mut bytes = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if answers(&bytes[..length], asked, query) {
            bytes.truncate(length);
            return Ok(bytes);
        }
    }
}

async fn by_tcp(server: SocketAddr, asked: &[u8], query: &Query<'_>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(asked.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], asked].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    match answers(&bytes, asked, query) {
        true => Ok(bytes),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether it is the answer to this question.
fn answers(bytes: &[u8], asked: &[u8], query: &Query<'_>) -> bool {
    let is_answer = word(bytes, 2).is_ok_and(|flags| flags & 0x8000 != 0);
    let same = bytes.get(..2) == asked.get(..2);
    let question = bytes.get(HEADER..HEADER + query.question.len());
    is_answer && same && question.is_some_and(|one| one.eq_ignore_ascii_case(query.question))
}

/// The servers that a resolver's configuration names.
pub fn name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address =
            words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // A link-local address may name its link, which a socket address cannot.
        let address: IpAddr = address.split('%').next()?.parse().ok()?;
        Some(SocketAddr::new(address, 53))
    };
    resolv_conf.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_from_resolv_conf() {
        let text = "# nameserver 1.1.1.1\nsearch a b\nnameserver 192.0.2.1\n nameserver fd00::1%eth0 x\nnameserver\nnameserver no\n";
        let servers: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[fd00::1]:53"]);
    }

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let asked = question(7, "example.org", Kind::A, None);
        let query = Query::read(&asked).unwrap();
        let mut answer = asked.clone();
        assert!(!answers(&answer, &asked, &query), "a question");
        answer[2] |= 0x80;
        assert!(answers(&answer, &asked, &query));
        for at in [0, 1, 13] {
            let mut forged = answer.clone();
            forged[at] ^= 1;
            assert!(!answers(&forged, &asked, &query), "{at}");
        }
        for length in 0..answer.len() {
            assert!(!answers(&answer[..length], &asked, &query), "{length}");
        }
    }
}
