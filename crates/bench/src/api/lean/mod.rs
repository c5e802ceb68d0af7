//! A client that does as little as a client can: one request at a time, nothing kept of the answer but
//! its length.
//!
//! Client and server share the machine here, and what the client takes is taken from the server: a
//! client that costs as much as a fast server would show half of it. A server's real clients have
//! processors of their own.
//!
//! [`wire`] is the connection and what was read from it; [`http1`] and [`http2`] are the two
//! languages, as one of them is agreed on.
mod http1;
mod http2;
mod wire;

use std::sync::Arc;

use anyhow::Result;
use testkit::client::Endpoint;

use self::http1::Http1;
use self::http2::Http2;
use self::wire::Wire;
use super::load::Call;

pub enum Lean {
    Http1(Http1),
    Http2(Http2),
}

impl Lean {
    /// Speaks what the endpoint's TLS settings offer.
    pub async fn open(endpoint: &Arc<Endpoint>) -> Result<Lean> {
        let wire = Wire::open(endpoint).await?;
        Ok(match wire.is_http2() {
            true => Lean::Http2(Http2::begin(wire, endpoint).await?),
            false => Lean::Http1(Http1::begin(wire, endpoint)?),
        })
    }

    /// Sends a request, which must succeed, and reads its answer to the end; returns the number of
    /// bytes in its body.
    pub async fn drain(&mut self, call: &Call) -> Result<usize> {
        match self {
            Lean::Http1(client) => client.drain(call).await,
            Lean::Http2(client) => client.drain(call).await,
        }
    }
}
