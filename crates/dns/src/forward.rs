//! Names that are not the cluster's: asked of the machine's own servers.
use crate::answer::{Answer, Code};
use crate::cache::Cache;
use crate::corefile::{Forwarding, Order};
use crate::wire::{HEADER, Kind, Query, question, word};
use client::Context;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// CoreDNS's: how long one server may take, and how many wait at once.
const PATIENCE: Duration = Duration::from_secs(2);
const AT_ONCE: usize = if cfg!(test) { 100 } else { 1000 };
/// What is read of an answer by UDP.
const DATAGRAM: usize = 4096;
/// How often somebody is asked whether it leads back here, if nobody answers: CoreDNS's `loop` gives up after
/// half a minute, too.
const PROBES: usize = 15;

pub struct Forward {
    pub cache: Mutex<Cache>,
    pub counts: Counts,
    turns: Semaphore,
    context: Context,
    /// A name that nobody but us asks for: if we are asked, our upstream is we ourselves.
    probe: String,
    is_loop: AtomicBool,
    /// How often others were to be asked from then on.
    renewals: AtomicUsize,
    /// Which of several servers is next.
    next: AtomicUsize,
}

/// What others were asked.
#[derive(Default)]
pub struct Counts {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub asked: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Udp,
    Tcp,
}

/// Who is asked, and how long what they say is kept.
#[derive(Debug, Clone)]
pub struct Servers {
    pub forwarding: Option<Forwarding>,
    pub cache: Option<u32>,
}

impl Forward {
    pub fn new(context: &Context) -> Arc<Forward> {
        Arc::new(Forward {
            cache: Mutex::default(),
            counts: Counts::default(),
            turns: Semaphore::new(AT_ONCE),
            context: context.clone(),
            probe: format!("{:x}.skiff-loop", context.number()),
            is_loop: AtomicBool::new(false),
            renewals: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        })
    }

    /// Others are asked from now on: what was said before may not be so, nor lead back here.
    pub fn renew(self: &Arc<Self>, servers: Vec<SocketAddr>) {
        *self.cache.lock() = Cache::default();
        self.is_loop.store(false, Ordering::Relaxed);
        let renewal = self.renewals.fetch_add(1, Ordering::Relaxed) + 1;
        if !servers.is_empty() {
            tokio::spawn(look_for_loop(self.clone(), servers, renewal));
        }
    }

    /// What is remembered of a name.
    pub fn remembered(&self, query: &Query<'_>, way: Way) -> Option<Vec<u8>> {
        self.cache.lock().get(query, limit(query, way), Instant::now())
    }

    /// The whole answer. `packet` is what the query was read from.
    pub async fn resolve(
        &self,
        packet: &[u8],
        query: &Query<'_>,
        way: Way,
        servers: &Servers,
    ) -> Vec<u8> {
        if query.name == self.probe {
            self.is_loop.store(true, Ordering::Relaxed);
            let text = "the DNS servers of this machine lead back here: names outside of the cluster are not resolved; give others with --upstream or --resolv-conf";
            tracing::error!("{text}");
        }
        let limit = limit(query, way);
        if servers.cache.is_some() {
            if let Some(kept) = self.cache.lock().get(query, limit, Instant::now()) {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                return kept;
            }
            self.counts.misses.fetch_add(1, Ordering::Relaxed);
        }
        let code = match &servers.forwarding {
            Some(forwarding) if !forwarding.to.is_empty() => {
                match self.ask(packet, query, way, forwarding).await {
                    // Whoever asks in another's name would have it sent more than it ever asked for.
                    Some(answer) if answer.len() > limit => return query.cut(&answer),
                    Some(answer) => {
                        if let Some(longest) = servers.cache {
                            let now = Instant::now();
                            self.cache.lock().put(query, limit, &answer, longest, now);
                        }
                        return answer;
                    }
                    None => Code::ServerFailure,
                }
            }
            _ => Code::Refused,
        };
        let mut bytes = Vec::new();
        query.write(&Answer::only(code), limit, &mut bytes);
        bytes
    }

    /// The first answer of any server, each asked once.
    async fn ask(
        &self,
        packet: &[u8],
        query: &Query<'_>,
        way: Way,
        forwarding: &Forwarding,
    ) -> Option<Vec<u8>> {
        if self.is_loop.load(Ordering::Relaxed) {
            return None;
        }
        // Who comes when so many wait is told at once that it does not work.
        let Ok(_turn) = self.turns.try_acquire() else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let servers = &forwarding.to;
        let first = match forwarding.policy {
            Order::Random => self.context.number() as usize % servers.len(),
            Order::Turns => self.next.fetch_add(1, Ordering::Relaxed) % servers.len(),
            Order::First => 0,
        };
        let way = if forwarding.by_tcp { Way::Tcp } else { way };
        for at in 0..servers.len() {
            let server = servers[(first + at) % servers.len()];
            self.counts.asked.fetch_add(1, Ordering::Relaxed);
            match timeout(PATIENCE, self.exchange(server, packet, query, way)).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "a DNS server does not answer"),
                Err(_) => tracing::debug!(%server, "a DNS server does not answer in time"),
            }
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// One server's answer, as if it had been asked what we were asked.
    async fn exchange(
        &self,
        server: SocketAddr,
        packet: &[u8],
        query: &Query<'_>,
        way: Way,
    ) -> io::Result<Vec<u8>> {
        // Nobody who sees our questions can guess the next one's number, nor its port, nor how its
        // letters are written.
        let id = self.context.number() as u16;
        let mut asked = packet.to_vec();
        asked[..2].copy_from_slice(&id.to_be_bytes());
        let mut answer = match way {
            Way::Udp => {
                let plain = asked.clone();
                scramble(&mut asked, query, self.context.number());
                match by_udp(server, &asked, query).await? {
                    Said::Same(answer) => answer,
                    // A server that writes letters as it likes is asked where nobody can forge.
                    Said::Otherwise => by_tcp(server, &plain, query).await?,
                }
            }
            Way::Tcp => by_tcp(server, &asked, query).await?,
        };
        answer[..2].copy_from_slice(&query.id.to_be_bytes());
        answer[HEADER..HEADER + query.question.len()].copy_from_slice(query.question);
        Ok(answer)
    }
}

fn limit(query: &Query<'_>, way: Way) -> usize {
    if way == Way::Tcp { usize::from(u16::MAX) } else { query.limit() }
}

/// Writes letters of the question's name large or small as chance has it: whoever answers repeats them,
/// and whoever forges an answer must guess them.
fn scramble(asked: &mut [u8], query: &Query<'_>, chance: u64) {
    // Behind the name are its type and class.
    let end = HEADER + query.question.len().saturating_sub(4);
    let Some(name) = asked.get_mut(HEADER..end) else { return };
    let letters = name.iter_mut().filter(|byte| byte.is_ascii_alphabetic());
    for (at, letter) in letters.enumerate() {
        if chance.rotate_right(at as u32) & 1 == 1 {
            *letter ^= 0x20;
        }
    }
}

/// How a server repeats the question.
enum Said {
    Same(Vec<u8>),
    Otherwise,
}

/// Asks for the probe, as CoreDNS's `loop` does, and again while nobody answers: the first may be lost, or
/// come before there is a way to the server.
async fn look_for_loop(forward: Arc<Forward>, mut servers: Vec<SocketAddr>, renewal: usize) {
    let packet = question(0, &forward.probe, Kind::Other(13), None);
    let Ok(query) = Query::read(&packet) else { return };
    for _ in 0..PROBES {
        let mut silent = Vec::new();
        for server in servers {
            if forward.renewals.load(Ordering::Relaxed) != renewal {
                // Others are asked by now.
                return;
            }
            let begun = Instant::now();
            let asked =
                timeout(PATIENCE, forward.exchange(server, &packet, &query, Way::Udp)).await;
            if forward.is_loop.load(Ordering::Relaxed) {
                return;
            }
            if !matches!(asked, Ok(Ok(_))) {
                silent.push(server);
                // One that refuses does so at once.
                let rest = PATIENCE.saturating_sub(begun.elapsed());
                if !forward.context.sleep(rest).await {
                    return;
                }
            }
        }
        if silent.is_empty() {
            return;
        }
        servers = silent;
    }
}

async fn by_udp(server: SocketAddr, asked: &[u8], query: &Query<'_>) -> io::Result<Said> {
    let any: IpAddr = match server.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(asked).await?;
    // What is longer than any client takes is cut in any case.
    let mut bytes = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if answers(&bytes[..length], asked, query) {
            bytes.truncate(length);
            let question = HEADER..HEADER + query.question.len();
            return Ok(match bytes.get(question.clone()) == asked.get(question) {
                true => Said::Same(bytes),
                false => Said::Otherwise,
            });
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
    fn letters_are_written_as_chance_has_it() {
        let asked = question(7, "www.example.org", Kind::A, Some(1232));
        let query = Query::read(&asked).unwrap();
        let written = |chance| {
            let mut copy = asked.clone();
            scramble(&mut copy, &query, chance);
            assert_eq!(copy.to_ascii_lowercase(), asked.to_ascii_lowercase());
            assert_eq!(copy[28..], asked[28..], "nothing but the name");
            String::from_utf8_lossy(&copy[12..28])
                .replace(|letter: char| !letter.is_ascii_alphabetic(), ".")
        };
        assert_eq!(written(0), ".www.example.org");
        assert_eq!(written(u64::MAX), ".WWW.EXAMPLE.ORG");
        assert_eq!(written(0b1010), ".wWw.Example.org");
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
