//! What is to be served, as plain data: the plan makes it, matching and serving read it.
use crate::filters::Filter;
use crate::host::Pattern;
use api::names::NamespacedName;
use api::regexp::Regexp;
use http::{HeaderName, Method, StatusCode};
use rustls::sign::CertifiedKey;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub struct Table {
    pub ports: BTreeMap<Site, Port>,
    /// Where datagrams are taken, and whose they are.
    pub datagrams: BTreeMap<Site, Taker>,
    /// Addresses that one Gateway has for itself: nobody else is served there.
    pub own: BTreeSet<IpAddr>,
}

/// Where clients come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// An address that one Gateway has for itself; `None`: all others.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl Site {
    /// A port of all addresses that nobody has for himself.
    pub const fn shared(port: u16) -> Site {
        Site { address: None, port }
    }
}

/// What a port serves.
#[derive(Default)]
pub struct Port {
    pub tls: Option<Tls>,
    pub hosts: Hosts,
    /// All connections are somebody's who alone reads them (TCPRoute).
    pub taker: Option<Taker>,
}

/// Whoever gets all that comes to a port; nobody yet, if no route is there.
#[derive(Debug, Clone, Default)]
pub struct Taker(pub Option<Arc<Action>>);

/// What is done with a connection before anything is asked on it.
#[derive(Default)]
pub struct Tls {
    pub certificates: Hosted<Certificate>,
    /// Gateways' listeners: a connection to one is not for requests to another.
    pub listeners: Hosted<Arc<Listener>>,
    /// There are rules for names that no listener is for: an Ingress' rules.
    pub is_open: bool,
    /// Connections that are somebody else's to read, by the name that their client is looking for.
    pub passed: Hosted<Passed>,
}

/// A listener of a Gateway that has to do with TLS.
#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    pub host: Pattern,
    pub inside: Inside,
    /// What its clients have to prove.
    pub clients: Option<Arc<Clients>>,
}

/// What is expected inside of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inside {
    Requests,
    /// Whatever it is, it goes to a pod as it is.
    Bytes,
    /// It stays closed.
    Unknown,
}

/// Who may come: those whom one of these authorities knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Clients {
    /// PEM.
    pub authorities: String,
    /// Others may as well (`AllowInsecureFallback`).
    pub is_optional: bool,
}

/// Connections for the hosts of a route that are not another listener's.
#[derive(Debug)]
pub struct Passed {
    pub except: Arc<[Pattern]>,
    pub action: Arc<Action>,
}

impl Tls {
    /// The listener that a connection to this name is for.
    pub fn listener<'s>(&'s self, name: &'s str) -> Option<&'s Arc<Listener>> {
        self.listeners.of(name).next()
    }

    /// Whether connections to a name that no listener is for are taken.
    pub fn takes_others(&self) -> bool {
        self.is_open || self.listeners.is_empty()
    }

    /// Who reads connections to this name.
    pub fn taker<'s>(&'s self, name: &'s str) -> Option<&'s Arc<Action>> {
        let mut all = self.passed.of(name);
        let found = all.find(|one| !one.except.iter().any(|other| other.matches(name)));
        found.map(|one| &one.action)
    }
}

/// What the port proves itself with, and the Secret that it is from.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub secret: NamespacedName,
    pub key: Arc<CertifiedKey>,
}

/// Something for each of some hosts.
pub struct Hosted<T> {
    exact: HashMap<String, Vec<T>>,
    below: HashMap<String, Vec<(Pattern, T)>>,
    any: Vec<T>,
}

impl<T> Default for Hosted<T> {
    fn default() -> Hosted<T> {
        Hosted { exact: HashMap::new(), below: HashMap::new(), any: Vec::new() }
    }
}

impl<T> Hosted<T> {
    pub fn insert(&mut self, pattern: &Pattern, value: T) {
        match pattern {
            Pattern::Any => self.any.push(value),
            Pattern::Exact(name) => self.exact.entry(name.clone()).or_default().push(value),
            Pattern::Below { name, .. } => {
                self.below.entry(name.clone()).or_default().push((pattern.clone(), value));
            }
        }
    }

    /// What is said of this host, that of the most particular pattern first.
    pub fn of<'s>(&'s self, host: &'s str) -> impl Iterator<Item = &'s T> {
        let below = parents(host).filter_map(|name| self.below.get(name)).flatten();
        let below = below.filter(move |(pattern, _)| pattern.matches(host)).map(|(_, one)| one);
        self.exact.get(host).into_iter().flatten().chain(below).chain(&self.any)
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty() && self.any.is_empty()
    }

    /// What is said of exactly these hosts.
    pub fn at<'s>(&'s self, pattern: &Pattern) -> impl Iterator<Item = &'s T> {
        let (mut exact, mut below, mut any) = (None, None, None);
        match pattern {
            Pattern::Any => any = Some(&self.any),
            Pattern::Exact(name) => exact = self.exact.get(name),
            Pattern::Below { name, .. } => below = self.below.get(name),
        }
        let below = below.into_iter().flatten().map(|(_, one)| one);
        exact.into_iter().chain(any).flatten().chain(below)
    }
}

/// The names that a host is below, the nearest first.
pub fn parents(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |name| name.split_once('.').map(|(_, rest)| rest)).skip(1)
}

/// Rules by host: 50,000 of them are found as quickly as one.
#[derive(Default)]
pub struct Hosts {
    pub exact: HashMap<String, Paths>,
    pub below: HashMap<String, Paths>,
    pub any: Paths,
}

/// Rules of one host by path, in each place the first one first.
#[derive(Default)]
pub struct Paths {
    pub exact: HashMap<String, Vec<Arc<Rule>>>,
    pub expressions: Vec<(Regexp, Arc<Rule>)>,
    /// Without the slash at the end: `/` is empty.
    pub prefixes: HashMap<String, Vec<Arc<Rule>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMatch {
    Exact(String),
    Prefix(String),
    Expression(String),
}

/// One way for a request to be answered.
pub struct Rule {
    pub host: Pattern,
    /// Hosts that are for other listeners of the same Gateway.
    pub except: Arc<[Pattern]>,
    /// It is for those who have proved this.
    pub clients: Option<Arc<Clients>>,
    pub path: PathMatch,
    pub method: Option<Method>,
    pub headers: Vec<(HeaderName, TextMatch)>,
    pub query: Vec<(String, TextMatch)>,
    pub origin: Origin,
    pub action: Arc<Action>,
}

pub enum TextMatch {
    Exact(String),
    Expression(Regexp),
}

/// Where a rule comes from: of two that say as much, that of the older object counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// What an Ingress wants for requests that none of its rules is about.
    pub is_default: bool,
    /// In seconds.
    pub created: i64,
    pub key: NamespacedName,
    /// Its place in the object.
    pub place: (usize, usize),
}

impl Rule {
    /// Of two rules with the same host and path the lesser one is asked first.
    fn rank(&self) -> impl Ord + '_ {
        let said = (self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len()));
        (self.origin.is_default, said, &self.origin)
    }
}

/// What becomes of a request.
#[derive(Debug, Default, PartialEq)]
pub struct Action {
    pub filters: Vec<Filter>,
    pub backends: Vec<Backend>,
    /// For all of it, and for one attempt.
    pub request_timeout: Option<Duration>,
    pub backend_timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Backend {
    pub weight: u32,
    pub to: To,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum To {
    Service(Arc<Destination>),
    /// There is nobody, and clients are told so by this code.
    Nobody(StatusCode),
}

/// A service's port, and how to speak to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    pub service: NamespacedName,
    pub port: u16,
    pub protocol: Protocol,
    pub tls: Option<Arc<Verified>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Http1,
    /// HTTP/2 from the first byte.
    Http2,
    /// Whatever a client and a pod say to each other.
    Bytes,
    /// The same, by UDP.
    Datagrams,
}

/// How a pod proves who it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Verified {
    /// The name that is asked for and must be proved.
    pub name: String,
    /// In the place of the name: one of these must be in the certificate.
    pub alternatives: Vec<Alternative>,
    /// PEM; none: what the machine believes.
    pub authorities: Option<String>,
    /// Whom we prove to be, if we are asked.
    pub identity: Option<Identity>,
}

/// What a certificate may be for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alternative {
    Host(String),
    /// `spiffe://…`, for one.
    Uri(String),
}

/// A certificate of our own, and the Secret that it is from.
#[derive(Clone)]
pub struct Identity {
    pub secret: NamespacedName,
    pub key: Arc<CertifiedKey>,
}

impl Identity {
    fn compared(&self) -> (&NamespacedName, Vec<&[u8]>) {
        (&self.secret, self.key.cert.iter().map(AsRef::as_ref).collect())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Identity").field(&self.secret).finish()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for Identity {}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Identity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Identity) -> Ordering {
        self.compared().cmp(&other.compared())
    }
}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.compared().hash(state);
    }
}

impl Hosts {
    pub fn insert(&mut self, rule: Rule) -> Result<(), api::regexp::Error> {
        let paths = match &rule.host {
            Pattern::Any => &mut self.any,
            Pattern::Exact(name) => self.exact.entry(name.clone()).or_default(),
            Pattern::Below { name, .. } => self.below.entry(name.clone()).or_default(),
        };
        let rule = Arc::new(rule);
        match &rule.path {
            PathMatch::Exact(path) => {
                paths.exact.entry(path.clone()).or_default().push(rule.clone());
            }
            PathMatch::Prefix(path) => {
                let path = path.trim_end_matches('/').to_owned();
                paths.prefixes.entry(path).or_default().push(rule.clone());
            }
            PathMatch::Expression(text) => {
                let whole = Regexp::compile(&format!("^(?:{text})$"))?;
                paths.expressions.push((whole, rule.clone()));
            }
        }
        Ok(())
    }

    /// Puts rules into the order in which they are asked.
    pub fn sort(&mut self) {
        let all = self.exact.values_mut().chain(self.below.values_mut()).chain([&mut self.any]);
        for paths in all {
            for rules in paths.exact.values_mut().chain(paths.prefixes.values_mut()) {
                rules.sort_by(|one, two| one.rank().cmp(&two.rank()));
            }
            // The longest expression says most, as far as that can be told.
            let rank = |(_, rule): &(Regexp, Arc<Rule>)| match &rule.path {
                PathMatch::Expression(text) => Reverse(text.len()),
                _ => Reverse(0),
            };
            paths.expressions.sort_by(|one, two| {
                rank(one).cmp(&rank(two)).then_with(|| one.1.rank().cmp(&two.1.rank()))
            });
        }
    }

    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let all = self.exact.values().chain(self.below.values()).chain([&self.any]);
        all.flat_map(|paths| {
            let by_path = paths.exact.values().chain(paths.prefixes.values()).flatten();
            by_path.chain(paths.expressions.iter().map(|(_, rule)| rule))
        })
    }
}

impl Table {
    /// What a connection to this address is for.
    pub fn site(&self, address: IpAddr, port: u16) -> Site {
        let address = address.to_canonical();
        Site { address: Some(address).filter(|address| self.own.contains(address)), port }
    }

    /// Ports that connections are taken at.
    pub fn open(&self) -> BTreeSet<u16> {
        self.ports.keys().map(|site| site.port).collect()
    }

    /// Every service that something leads to.
    pub fn destinations(&self) -> BTreeSet<Arc<Destination>> {
        let mut found = BTreeSet::new();
        let of_port = |port: &Port| -> Vec<Arc<Action>> {
            let passed = port.tls.iter().flat_map(|tls| tls.passed.all());
            let passed = passed.map(|one| one.action.clone());
            let taken = port.taker.iter().filter_map(|taker| taker.0.clone());
            let asked = port.hosts.rules().map(|rule| rule.action.clone());
            asked.chain(passed).chain(taken).collect()
        };
        let takers = self.datagrams.values().filter_map(|taker| taker.0.clone()).collect();
        for actions in self.ports.values().map(of_port).chain([takers]) {
            for action in actions {
                let backends = action.backends.iter().map(|backend| &backend.to);
                let per_backend = action.backends.iter().flat_map(|backend| &backend.filters);
                let mirrored = action.filters.iter().chain(per_backend).filter_map(Filter::mirrors);
                for to in backends.chain(mirrored) {
                    if let To::Service(destination) = to {
                        found.insert(destination.clone());
                    }
                }
            }
        }
        found
    }
}

impl<T> Hosted<T> {
    pub fn all(&self) -> impl Iterator<Item = &T> {
        let below = self.below.values().flatten().map(|(_, one)| one);
        self.exact.values().flatten().chain(below).chain(&self.any)
    }
}
