//! HTTP/1.1.
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use testkit::client::Endpoint;

use super::super::load::Call;
use super::wire::Wire;

const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END: &[u8] = b"\r\n";

pub struct Http1 {
    wire: Wire,
    /// The headers that every request has.
    headers: String,
}

impl Http1 {
    pub fn begin(wire: Wire, endpoint: &Arc<Endpoint>) -> Result<Http1> {
        let authority = endpoint.server.authority().context("the server has no address")?;
        let mut headers =
            format!("host: {authority}\r\ncontent-type: application/json\r\nuser-agent: bench\r\n");
        if let Some(authorization) = &endpoint.authorization {
            headers.push_str(&format!("authorization: {}\r\n", authorization.to_str()?));
        }
        Ok(Http1 { wire, headers })
    }

    pub async fn drain(&mut self, call: &Call) -> Result<usize> {
        let accept = call.accept.to_str()?;
        let head = format!(
            "{} {} HTTP/1.1\r\n{}accept: {accept}\r\ncontent-length: {}\r\n\r\n",
            call.method,
            call.path,
            self.headers,
            call.body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(&call.body);
        self.wire.send(&request).await?;
        let (code, length) = self.head().await?;
        if !(200..300).contains(&code) {
            self.wire.at_least(length.unwrap_or_default()).await?;
            let text = String::from_utf8_lossy(self.wire.unused());
            bail!("{} {}: {code}: {text}", call.method, call.path);
        }
        match length {
            Some(length) => self.wire.skip(length).await.map(|()| length),
            None => self.chunks().await,
        }
    }

    /// The answer's code and its body's length, unless that comes in chunks.
    async fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let end = self.wire.until(HEAD_END).await?;
        let head = std::str::from_utf8(&self.wire.unused()[..end])?;
        let mut lines = head.split("\r\n");
        let code = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
        let length = lines.filter_map(|line| line.split_once(':'));
        let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = length.map(|(_, value)| value.trim().parse()).next().transpose()?;
        let code = code.parse()?;
        self.wire.used(end + HEAD_END.len());
        Ok((code, length))
    }

    async fn chunks(&mut self) -> Result<usize> {
        let mut total = 0;
        loop {
            let end = self.wire.until(LINE_END).await?;
            let line = std::str::from_utf8(&self.wire.unused()[..end])?;
            let size = usize::from_str_radix(line.trim(), 16)?;
            // What follows a chunk, and the last one, is an empty line.
            self.wire.skip(end + LINE_END.len() + size + LINE_END.len()).await?;
            total += size;
            if size == 0 {
                return Ok(total);
            }
        }
    }
}
