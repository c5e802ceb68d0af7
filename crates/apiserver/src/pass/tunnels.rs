//! A node opens the way to itself; requests for its kubelet go through it. It is open for as long as what the
//! node has shown proves that it is that node: then it has to be opened again, with what proves it still.
use crate::answer::{self, Answer};
use crate::guard::authn::{Peer, User};
use crate::guard::authz::{self, Attributes, node};
use crate::server::ApiServer;
use api::status::Status;
use client::tunnel::PROTOCOL;
use http::{HeaderValue, Method, Request, StatusCode, Version, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use std::time::Duration;

/// For how long a way is open whose node has shown no certificate.
const UNCERTIFIED: Duration = Duration::from_secs(60 * 60);

/// Nobody opens a way to a node but the node itself.
pub fn open(
    api: &ApiServer,
    peer: &Peer,
    user: &User,
    wanted: &Attributes,
    mut request: Request<Incoming>,
) -> Result<Answer, Status> {
    let Some(node) = node::identity(user).filter(|name| !name.is_empty()) else {
        return Err(authz::refusal(user, wanted, "a tunnel is opened by a node, to itself"));
    };
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    // A stream of HTTP/2 becomes nothing else.
    let can = request.method() == Method::GET && request.version() == Version::HTTP_11;
    if !can || upgrade != Some(PROTOCOL) {
        let text = format!("ask for it with GET and Upgrade: {PROTOCOL}, over HTTP/1.1");
        return Err(Status::bad_request(text));
    }
    let (api, node) = (api.clone(), node.to_owned());
    let proved = peer.left(Timestamp::now()).unwrap_or(UNCERTIFIED);
    let opening = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(stream) = opening.await {
            tokio::select! {
                () = api.tunnels().hold(&node, stream) => {}
                () = tokio::time::sleep(proved) => {}
                () = api.stopping() => {}
            }
        }
    });
    let mut answer = Answer::new(answer::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(answer)
}
