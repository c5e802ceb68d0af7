//! A proxy with rules of one's own, clients and pods.
use crate::host::{Depth, Pattern};
use crate::live::Bind;
use crate::serve::datagrams::Bounds;
use crate::serve::{Listeners, Proxy, Wanted};
use crate::table::{
    Action, Backend, Clients, Destination, Origin, PathMatch, Port, Protocol, Rule, Site, Table,
    Taker, Tls, To, Verified,
};
use api::names::NamespacedName;
use client::Context;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

pub use super::backend_servers as backend;

/// What the proxy believes its port to be; the kernel gives another.
pub const PORT: u16 = 80;

pub struct Stage {
    pub proxy: Arc<Proxy>,
    listeners: Listeners,
    pub port: Port,
    /// Who gets what comes by UDP.
    pub datagrams: Option<Action>,
    services: HashMap<String, (Arc<Destination>, Vec<SocketAddr>)>,
}

impl Stage {
    pub fn new() -> Stage {
        Stage::bounded(Bounds::default())
    }

    pub fn bounded(bounds: Bounds) -> Stage {
        let proxy = Proxy::bounded(&Context::new(), bounds).expect("a certificate");
        let connections = |_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let datagrams = |_| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        let bind = Bind { connections: Arc::new(connections), datagrams: Arc::new(datagrams) };
        let listeners = Listeners::new(proxy.clone(), bind);
        let (port, services) = (Port::default(), HashMap::new());
        Stage { proxy, listeners, port, datagrams: None, services }
    }

    pub fn service(&mut self, name: &str, pods: &[SocketAddr]) -> &mut Stage {
        self.speaking(name, pods, Protocol::Http1)
    }

    pub fn speaking(&mut self, name: &str, pods: &[SocketAddr], protocol: Protocol) -> &mut Stage {
        self.proving(name, pods, protocol, None)
    }

    /// A service whose pods have to prove something.
    pub fn proving(
        &mut self,
        name: &str,
        pods: &[SocketAddr],
        protocol: Protocol,
        tls: Option<Verified>,
    ) -> &mut Stage {
        let service = NamespacedName::new("default", name);
        let tls = tls.map(Arc::new);
        let destination = Arc::new(Destination { service, port: 80, protocol, tls });
        self.services.insert(name.to_owned(), (destination, pods.to_vec()));
        self
    }

    pub fn backend(&self, service: &str) -> Backend {
        let (destination, _) = &self.services[service];
        Backend { weight: 1, to: To::Service(destination.clone()), filters: Vec::new() }
    }

    pub fn destination(&self, service: &str) -> Arc<Destination> {
        self.services[service].0.clone()
    }

    pub fn rule(&mut self, host: &str, path: &str, service: &str) -> &mut Stage {
        let backends = vec![self.backend(service)];
        self.action(host, path, Action { backends, ..Action::default() })
    }

    pub fn action(&mut self, host: &str, path: &str, action: Action) -> &mut Stage {
        self.action_for(host, path, action, None)
    }

    /// For clients who have proved something.
    pub fn action_for(
        &mut self,
        host: &str,
        path: &str,
        action: Action,
        clients: Option<Arc<Clients>>,
    ) -> &mut Stage {
        let rule = Rule {
            host: Pattern::parse(host, Depth::One),
            except: Arc::default(),
            clients,
            path: PathMatch::Prefix(path.to_owned()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
            origin: Origin {
                is_default: false,
                created: 0,
                key: NamespacedName::new("default", "rule"),
                place: (0, 0),
            },
            action: Arc::new(action),
        };
        self.port.hosts.insert(rule).expect("a rule");
        self
    }

    pub fn tls(&mut self) -> &mut Tls {
        self.port.tls.get_or_insert_default()
    }

    /// Serves what has been said.
    pub fn open(&mut self) {
        let mut port = std::mem::take(&mut self.port);
        port.hosts.sort();
        let site = Site::shared(PORT);
        let mut table = Table { ports: [(site, port)].into(), ..Table::default() };
        let taker = self.datagrams.take().map(|action| Taker(Some(Arc::new(action))));
        table.datagrams.extend(taker.map(|taker| (site, taker)));
        let wanted = Wanted::of(&table, &["127.0.0.1".parse().expect("an address")]);
        self.proxy.set_table(table);
        self.set_addresses();
        let refused = self.listeners.settle(&wanted);
        assert!(refused.is_empty(), "{refused:?}");
    }

    pub fn set_addresses(&self) {
        self.proxy.set_addresses(|to| {
            let known = self.services.values().find(|(known, _)| **known == *to);
            known.map(|(_, pods)| pods.clone())
        });
    }

    pub fn address(&self) -> SocketAddr {
        self.listeners.address(PORT).expect("it is open")
    }

    pub fn address_of_datagrams(&self) -> SocketAddr {
        self.listeners.address_of_datagrams(PORT).expect("it is open")
    }

    pub async fn close(self) {
        self.listeners.drain().await;
    }
}

/// A pod that says what it was asked.
pub async fn pod() -> SocketAddr {
    backend::describing().await
}

/// An address that nobody listens at.
pub async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}

/// Sends this and reads until the end; shown are the status line and the body.
pub async fn raw(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = Vec::new();
    // A reset after the answer is an end too.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    format!("{}\n{body}", head.lines().next().unwrap_or_default())
}

/// As much as ends with an empty line.
pub async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Asks on a connection of its own: head and body of the answer. The request's last empty line is added if
/// it is missing.
pub async fn ask(stage: &Stage, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(stage.address()).await.expect("a connection");
    let (first, rest) = request.split_once("\r\n").expect("a line");
    let rest = if rest.contains("\r\n\r\n") { rest.to_owned() } else { format!("{rest}\r\n") };
    let request = format!("{first}\r\nConnection: close\r\n{rest}");
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

/// Code and body.
pub async fn get(stage: &Stage, host: &str, path: &str) -> (u16, String) {
    let (head, body) = ask(stage, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n")).await;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, body)
}
