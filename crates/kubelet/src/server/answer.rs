//! How answers of the kubelet leave: as text, as JSON, or piece by piece.
use bytes::Bytes;
use client::pages::Page;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use std::convert::Infallible;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;
pub type Reply = Response<Body>;

pub fn of(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(bytes.into()).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

pub fn text(status: StatusCode, text: impl Into<String>) -> Reply {
    of(status, "text/plain; charset=utf-8", text.into())
}

pub fn json(value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(bytes) => of(StatusCode::OK, "application/json", bytes),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// A page that all components have.
pub fn page(page: Page) -> Reply {
    let status = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = of(status, page.content_type, page.body);
    for (name, value) in page.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            reply.headers_mut().insert(name, value);
        }
    }
    reply
}

/// What is said instead of what was asked for.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    message: String,
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Reply {
        text(refused.status, refused.message)
    }
}

pub fn refuse(status: StatusCode, message: impl Into<String>) -> Refused {
    Refused { status, message: message.into() }
}

pub fn bad_request(message: impl Into<String>) -> Refused {
    refuse(StatusCode::BAD_REQUEST, message)
}

pub fn not_found(message: impl Into<String>) -> Refused {
    refuse(StatusCode::NOT_FOUND, message)
}

pub fn internal(message: impl ToString) -> Refused {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
}
