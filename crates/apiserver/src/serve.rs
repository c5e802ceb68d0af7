//! One request, start to finish.
use crate::answer::{self, Answer};
use crate::request::{self, Target};
use crate::resources::ApiServer;
use crate::{documents, verbs};
use api::codec::object::Encoding;
use api::content::{self, Accepted};
use api::status::Status;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

/// What one request may carry: upstream's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A request whose body has been read.
pub struct Received {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Serves a request; a failure becomes a `Status` in the encoding the client reads.
pub async fn serve(api: ApiServer, request: Request<Incoming>) -> Answer {
    let accept =
        request.headers().get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let fallback =
        content::negotiate(accept, &content::PLAIN).map_or(Encoding::Json, |a| a.encoding);
    match serve_request(&api, request).await {
        Ok(answer) => answer,
        Err(status) => answer::failure(&status, fallback),
    }
}

async fn serve_request(api: &ApiServer, request: Request<Incoming>) -> Result<Answer, Status> {
    let received = receive(request).await?;
    match request::parse(&received.method, &received.path, &received.query)? {
        Target::Document => documents::serve(api, &received),
        Target::Call(call) => {
            let (answer, warnings) = verbs::run(api, &call, &received).await?;
            Ok(with_warnings(answer, &warnings))
        }
    }
}

async fn receive(request: Request<Incoming>) -> Result<Received, Status> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Status::request_entity_too_large(format!("limit is {MAX_BODY}"))
        } else {
            Status::bad_request(format!("unable to read the body: {error}"))
        }
    })?;
    Ok(Received {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}

/// RFC 7234 warnings, as kubectl prints them.
fn with_warnings(mut answer: Answer, warnings: &[String]) -> Answer {
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    answer
}

/// The encoding and form the client wants of an object or list.
pub fn accepted(received: &Received) -> Result<Accepted, Status> {
    content::negotiate(received.header(header::ACCEPT), &content::OBJECTS)
}
