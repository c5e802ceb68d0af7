//! One client: TLS or not, HTTP/1.1 or HTTP/2, for as long as it asks.
use super::endpoint::Stream;
use super::exchange::{self, Came};
use super::tls::{self, Rewound, Terms};
use super::{Proxy, passing};
use crate::table::{Clients, Inside, Site};
use client::Context;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(10);
/// How long it may take to say what it wants.
const HEAD: Duration = Duration::from_secs(30);
/// How long it may want nothing.
pub const IDLE: Duration = Duration::from_secs(75);
const LOOK: Duration = Duration::from_secs(5);
/// All headers of a request together.
const LARGEST_HEAD: usize = 64 << 10;
const MOST_STREAMS: u32 = 250;

pub struct Client {
    pub proxy: Arc<Proxy>,
    pub peer: IpAddr,
    pub site: Site,
}

pub async fn serve(client: Client, context: Context, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let table = client.proxy.table();
    let Some(port) = table.ports.get(&client.site) else { return };
    if let Some(taker) = &port.taker {
        let Some(action) = taker.0.clone() else { return };
        drop(table);
        return passing::pass(&client.proxy, &context, Box::new(stream), &action).await;
    }
    if port.tls.is_none() {
        drop(table);
        return http(client, context, Box::new(stream), Tls::default(), "http").await;
    }
    let looked = timeout(HELLO, tls::looked_for(&mut stream)).await;
    let Ok(Ok((name, seen))) = looked else { return };
    // What the port serves may have changed while the client was about to say hello.
    drop(table);
    let table = client.proxy.table();
    let Some(tls) = table.ports.get(&client.site).and_then(|port| port.tls.as_ref()) else {
        return;
    };
    let asked = name.as_deref().unwrap_or_default();
    let listener = tls.listener(asked).cloned();
    let taker = tls.taker(asked).cloned();
    if listener.is_none() && !tls.takes_others() {
        return;
    }
    drop(table);
    let stream = Rewound { seen, at: 0, inner: stream };
    let inside = listener.as_ref().map_or(Inside::Requests, |listener| listener.inside);
    if inside == Inside::Unknown {
        let Some(action) = taker else { return };
        return passing::pass(&client.proxy, &context, Box::new(stream), &action).await;
    }
    let clients = listener.and_then(|listener| listener.clients.clone());
    let terms = Terms { site: client.site, inside, clients: clients.clone() };
    let Ok(config) = client.proxy.config(terms) else { return };
    let accepted = timeout(HELLO, TlsAcceptor::from(config).accept(stream)).await;
    let Ok(Ok(stream)) = accepted else { return };
    let stream: Box<dyn Stream> = Box::new(stream);
    match (inside, taker) {
        (Inside::Bytes, Some(action)) => {
            passing::pass(&client.proxy, &context, stream, &action).await;
        }
        (Inside::Bytes, None) => {}
        _ => http(client, context, stream, Tls { name, clients }, "https").await,
    }
}

/// What is known of a client by its TLS.
#[derive(Default)]
struct Tls {
    name: Option<String>,
    clients: Option<Arc<Clients>>,
}

/// Requests under way, and since when there are none.
struct Activity {
    asked: usize,
    since: Instant,
}

struct Asking(Arc<Mutex<Activity>>);

impl Asking {
    fn begin(activity: &Arc<Mutex<Activity>>) -> Asking {
        activity.lock().asked += 1;
        Asking(activity.clone())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.asked -= 1;
        activity.since = Instant::now();
    }
}

async fn http(
    client: Client,
    context: Context,
    stream: Box<dyn Stream>,
    tls: Tls,
    scheme: &'static str,
) {
    let activity = Arc::new(Mutex::new(Activity { asked: 0, since: Instant::now() }));
    let came = Arc::new(Came { client, name: tls.name, clients: tls.clients, scheme });
    let respond = {
        let activity = activity.clone();
        service_fn(move |request| {
            let (came, asking) = (came.clone(), Asking::begin(&activity));
            async move {
                let answer = exchange::answer(&came, request).await;
                drop(asking);
                Ok::<_, Infallible>(answer)
            }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(LARGEST_HEAD as u32)
        .max_concurrent_streams(MOST_STREAMS)
        .keep_alive_interval(HEAD)
        .keep_alive_timeout(HELLO);
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), respond));
    let mut is_ending = false;
    loop {
        tokio::select! {
            // A client that goes away is no concern of ours.
            _ = serving.as_mut() => return,
            () = context.stopped(), if !is_ending => {
                is_ending = true;
                serving.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(LOOK) => {
                let Activity { asked, since } = *activity.lock();
                let is_idle = asked == 0 && since.elapsed() > IDLE;
                if is_idle && is_ending {
                    return;
                }
                if is_idle {
                    is_ending = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
