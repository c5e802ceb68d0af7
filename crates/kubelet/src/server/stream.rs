//! Exec, attach and port-forward: the runtime is asked for a place to stream to, and the client's
//! connection becomes a pipe to there. What goes through it is between the two of them.
use super::answer::{self, Refused, Reply};
use super::route::Asked;
use crate::found::{self, Found, State};
use crate::pod;
use crate::runtime::{RuntimeError, cri};
use crate::worker::Kubelet;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::net::TcpStream;

pub async fn stream(
    kubelet: &Arc<Kubelet>,
    kind: &str,
    (namespace, name, uid): (&str, &str, &str),
    container: &str,
    asked: &Asked<'_>,
    request: Request<Incoming>,
) -> Result<Reply, Refused> {
    let pod = kubelet.named(namespace, name).filter(|pod| uid.is_empty() || pod::uid(pod) == uid);
    let pod = pod.ok_or_else(|| answer::not_found("pod does not exist"))?;
    let found = found::find(&*kubelet.runtime, pod::uid(&pod)).await.map_err(refused)?;
    let url = match kind {
        "portForward" => {
            let sandbox = found.sandbox().ok_or_else(|| {
                answer::internal(format!("failed to find sandboxID for pod {}", pod::shown(&pod)))
            })?;
            let port = ports(asked).map_err(answer::bad_request)?;
            let pod_sandbox_id = sandbox.id.clone();
            let request = cri::PortForwardRequest { pod_sandbox_id, port };
            kubelet.runtime.port_forward(request).await.map_err(refused)?.url
        }
        _ => {
            let streams = Streams::of(asked).map_err(answer::bad_request)?;
            let container_id = running(&found, container)?;
            match kind {
                "exec" => {
                    let request = streams.exec(container_id, asked.all("command"));
                    kubelet.runtime.exec(request).await.map_err(refused)?.url
                }
                _ => {
                    let request = streams.attach(container_id);
                    kubelet.runtime.attach(request).await.map_err(refused)?.url
                }
            }
        }
    };
    pipe(&url, request).await.map_err(|message| {
        answer::internal(format!("failed to reach the runtime's stream: {message}"))
    })
}

pub fn running(found: &Found, container: &str) -> Result<String, Refused> {
    let one = found.latest(container).filter(|one| one.state == State::Running);
    one.map(|one| one.id.clone())
        .ok_or_else(|| answer::internal(format!("container not found ({container:?})")))
}

/// What the runtime refuses, in HTTP's words.
fn refused(error: RuntimeError) -> Refused {
    let status = match error.code.as_str() {
        "NotFound" => StatusCode::NOT_FOUND,
        "ResourceExhausted" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer::refuse(status, error.message)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Streams {
    fn of(asked: &Asked<'_>) -> Result<Streams, String> {
        let on = |name: &str| asked.get(name) == "1";
        let tty = on("tty");
        // A terminal has one output.
        let stderr = on("error") && !tty;
        let streams = Streams { stdin: on("input"), stdout: on("output"), stderr, tty };
        match streams {
            Streams { stdin: false, stdout: false, stderr: false, .. } => {
                Err("you must specify at least 1 of stdin, stdout, stderr".to_owned())
            }
            streams => Ok(streams),
        }
    }

    fn exec(self, container_id: String, cmd: Vec<String>) -> cri::ExecRequest {
        let Streams { stdin, stdout, stderr, tty } = self;
        cri::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }
    }

    fn attach(self, container_id: String) -> cri::AttachRequest {
        let Streams { stdin, stdout, stderr, tty } = self;
        cri::AttachRequest { container_id, stdin, tty, stdout, stderr }
    }
}

/// Over SPDY they are named in the streams, over WebSocket here.
fn ports(asked: &Asked<'_>) -> Result<Vec<i32>, String> {
    let named = asked.all("port");
    let listed = named.iter().flat_map(|list| list.split(','));
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(i32::from(port)),
        _ => Err(format!("invalid port {text:?}")),
    };
    listed.map(port).collect()
}

/// The same request goes to the runtime; once both have switched protocols, bytes go through.
async fn pipe(url: &str, mut request: Request<Incoming>) -> Result<Reply, String> {
    let url: Uri = url.parse().map_err(|_| format!("{url:?} is no address"))?;
    let authority = url.authority().ok_or("it has no address")?.clone();
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80)));
    let stream = stream.await.map_err(|error| error.to_string())?;
    let _ = stream.set_nodelay(true);
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection.with_upgrades());
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut inner = Request::builder().method(request.method()).uri(path);
    for (name, value) in request.headers() {
        // Who asked is none of the runtime's business.
        if name != HOST && name != AUTHORIZATION {
            inner = inner.header(name, value);
        }
    }
    let inner = inner.header(HOST, authority.as_str()).body(Empty::<Bytes>::new());
    let mut answer =
        sender.send_request(inner.map_err(|error| error.to_string())?).await.map_err(failed)?;
    let mut reply = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        let hop = answer.status() != StatusCode::SWITCHING_PROTOCOLS
            && (name == CONNECTION || name == UPGRADE);
        if !hop {
            reply = reply.header(name, value);
        }
    }
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        let body = http_body_util::Full::new(body).boxed_unsync();
        return reply.body(body).map_err(|error| error.to_string());
    }
    let (outside, inside) = (hyper::upgrade::on(&mut request), hyper::upgrade::on(&mut answer));
    tokio::spawn(async move {
        let (Ok(outside), Ok(inside)) = tokio::join!(outside, inside) else { return };
        let (mut outside, mut inside) = (TokioIo::new(outside), TokioIo::new(inside));
        // Either end may go without a word: that is how most streams end.
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    });
    reply.body(Empty::new().boxed_unsync()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Asked<'_> {
        Asked { rest: Vec::new(), query: form_urlencoded::parse(query.as_bytes()).collect() }
    }

    #[test]
    fn streams_are_what_is_asked_for() {
        for (query, expected) in [
            ("input=1&output=1&tty=1&error=1", Some([true, true, false, true])),
            ("output=1&error=1", Some([false, true, true, false])),
            ("tty=1", None),
            ("output=0", None),
        ] {
            let expected =
                expected.map(|[stdin, stdout, stderr, tty]| Streams { stdin, stdout, stderr, tty });
            assert_eq!(Streams::of(&asked(query)).ok(), expected, "{query}");
        }
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!(ports(&asked("port=80&port=81,82")), Ok(vec![80, 81, 82]));
        assert_eq!(ports(&asked("")), Ok(vec![]));
        assert!(ports(&asked("port=0")).is_err());
        assert!(ports(&asked("port=70000")).is_err());
    }
}
