//! A request of another server's groups, passed on in its client's name.
use super::Remote;
use super::remote::put_identity;
use crate::answer::{self, Answer};
use crate::ground::towards::Tls;
use crate::guard::authn::User;
use crate::pass::proxy::{Location, forward};
use crate::server::ApiServer;
use api::status::Status;
use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use std::time::Duration;

/// A question what there is must not take long: everybody asks it first.
const DISCOVERY: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";

/// Streams and watches pass like anything else. Who its client is has been found out, and whether it
/// may ask; both are for the other server to judge again by its own rules.
pub async fn pass(
    api: &ApiServer,
    remote: &Remote,
    user: &User,
    mut request: Request<Incoming>,
) -> Result<Answer, Status> {
    if !remote.is_available {
        return Ok(unavailable());
    }
    let tls = match &remote.tls {
        Ok(tls) => tls.clone(),
        Err(cause) => {
            return Ok(answer::bytes(
                StatusCode::INTERNAL_SERVER_ERROR,
                TEXT,
                format!("{cause}\n"),
            ));
        }
    };
    let addresses = match remote.addresses(api).await {
        Ok(addresses) => addresses,
        Err(cause) => {
            tracing::warn!(name = remote.name, cause, "an APIService leads nowhere");
            return Ok(unavailable());
        }
    };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let is_discovery = request.uri().path().trim_matches('/').split('/').count() == 3;
    put_identity(request.headers_mut(), user);
    let location = Location {
        way: None,
        tls: Some(Tls::Verified(tls)),
        host: remote.host(),
        port: remote.port,
        path,
        addresses,
        seen: None,
        pool: Some(remote.known.pool.clone()),
    };
    let passing = forward(location, request);
    let answer = match is_discovery {
        false => passing.await,
        true => tokio::time::timeout(DISCOVERY, passing).await.unwrap_or_else(|_| {
            Err(Status::service_unavailable(
                "error trying to reach service: context deadline exceeded",
            ))
        }),
    };
    let answer = match answer {
        Ok(answer) => answer,
        // Said as text: no client of the group is to take it for its server's word.
        Err(status) if status.code == 503 => {
            return Ok(answer::bytes(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                format!("{}\n", status.message),
            ));
        }
        Err(status) => return Err(status),
    };
    let leads_away =
        answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION);
    if leads_away {
        // A client would follow with the credentials that it has for us.
        let text = "the backend attempted to redirect this request, which is not permitted\n";
        return Ok(answer::bytes(StatusCode::SERVICE_UNAVAILABLE, TEXT, text));
    }
    Ok(answer)
}

fn unavailable() -> Answer {
    answer::bytes(StatusCode::SERVICE_UNAVAILABLE, TEXT, "service unavailable\n")
}
