//! One client: TLS or not, HTTP/1.1 or HTTP/2, for as long as it asks.
use super::endpoint::Stream;
use super::exchange::{self, Came};
use super::tls::{self, Rewound};
use super::{Proxy, upstream};
use crate::table::{Action, To};
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
    pub port: u16,
}

pub async fn serve(
    client: Client,
    context: Context,
    mut stream: TcpStream,
    config: Arc<rustls::ServerConfig>,
) {
    let _ = stream.set_nodelay(true);
    let table = client.proxy.table();
    let Some(port) = table.ports.get(&client.port) else { return };
    let Some(tls) = &port.tls else {
        return http(client, context, Box::new(stream), None, "http").await;
    };
    let mut seen = Vec::new();
    if !tls.passed.is_empty() {
        let looked = timeout(HELLO, tls::looked_for(&mut stream)).await;
        let Ok(Ok((name, first))) = looked else { return };
        seen = first;
        let action = name.and_then(|name| tls.passed.of(&name).next().cloned());
        if let Some(action) = action {
            drop(table);
            return pass(&client, &context, Rewound { seen, at: 0, inner: stream }, &action).await;
        }
    }
    drop(table);
    let stream = Rewound { seen, at: 0, inner: stream };
    let accepted = timeout(HELLO, TlsAcceptor::from(config).accept(stream)).await;
    let Ok(Ok(stream)) = accepted else { return };
    let name = stream.get_ref().1.server_name().map(str::to_ascii_lowercase);
    http(client, context, Box::new(stream), name, "https").await;
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
    name: Option<String>,
    scheme: &'static str,
) {
    let activity = Arc::new(Mutex::new(Activity { asked: 0, since: Instant::now() }));
    let came = Arc::new(Came { client, name, scheme });
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

/// A connection that its client and a pod alone can read.
async fn pass(client: &Client, context: &Context, mut stream: Rewound, action: &Action) {
    let Some(To::Service(destination)) = exchange::choose(&action.backends).map(|one| &one.to)
    else {
        return;
    };
    let Some(upstream) = client.proxy.upstream(destination) else { return };
    let Some((mut there, _working)) = dial(&upstream).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut stream, &mut there) => {}
        () = context.stopped() => {}
    }
}

async fn dial(
    upstream: &upstream::Upstream,
) -> Option<(Box<dyn Stream>, super::endpoint::Working)> {
    let mut tried = Vec::new();
    while let Some(endpoint) = upstream.choose(&tried).filter(|_| tried.len() < exchange::ATTEMPTS)
    {
        let working = endpoint.begin();
        match endpoint.dial().await {
            Ok(stream) => return Some((stream, working)),
            Err(error) => tracing::debug!(address = %endpoint.address, %error, "not reached"),
        }
        tried.push(endpoint.address);
    }
    None
}
