//! Finding a member that answers.
//!
//! One connection per endpoint, opened when first used. Requests go to the member that answered
//! last; when it fails, the next one's turn comes, for everybody.
use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Response, Status};

use super::EtcdOptions;
use crate::error::{Error, Result};
use crate::model::LeaseId;
use crate::proto;
use crate::proto::kv_client::KvClient;
use crate::proto::lease_client::LeaseClient;
use crate::proto::maintenance_client::MaintenanceClient;
use crate::proto::watch_client::WatchClient;

/// Before the next member is tried, once all have failed.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection is tried this often, and one that is silent for as long again counts as gone. A
/// member that was killed is noticed at once; this is for cables that were cut.
const SILENCE: Duration = Duration::from_secs(6);

#[derive(Clone)]
pub struct Client {
    members: Arc<Vec<Member>>,
    current: Arc<AtomicUsize>,
    timeout: Duration,
}

#[derive(Clone)]
pub struct Member(Channel);

impl Member {
    pub fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.0.clone()).max_decoding_message_size(usize::MAX)
    }

    pub fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.0.clone()).max_decoding_message_size(usize::MAX)
    }

    pub fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.0.clone())
    }

    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.0.clone())
    }
}

impl Client {
    pub fn new(options: &EtcdOptions) -> Result<Self> {
        let members: Vec<Member> =
            options.endpoints.iter().map(|url| member(url, options)).collect::<Result<_>>()?;
        if members.is_empty() {
            return Err(Error::Invalid("no etcd endpoint was given".into()));
        }
        let current = Arc::new(AtomicUsize::new(0));
        Ok(Client { members: Arc::new(members), current, timeout: options.timeout })
    }

    /// The member whose turn it is, and its number for [`Client::pass_over`].
    pub fn member(&self) -> (usize, &Member) {
        let turn = self.current.load(Ordering::Relaxed);
        (turn, &self.members[turn % self.members.len()])
    }

    /// Lets the next member have its turn, unless somebody else did already.
    pub fn pass_over(&self, turn: usize) {
        let _ = self.current.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks until a member answers: for what may be asked twice.
    pub async fn read<T, F>(&self, ask: impl Fn(Member) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        self.ask(ask, |_| true).await
    }

    /// Asks once, or again where the first member was certainly not reached.
    pub async fn write<T, F>(&self, ask: impl Fn(Member) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        self.ask(ask, was_not_sent).await
    }

    pub async fn range(&self, request: proto::RangeRequest) -> Result<proto::RangeResponse> {
        self.read(|member| {
            let request = request.clone();
            async move { member.kv().range(request).await }
        })
        .await
    }

    async fn ask<T, F>(&self, ask: impl Fn(Member) -> F, again: fn(&Status) -> bool) -> Result<T>
    where
        F: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut failures = 0;
        loop {
            let (turn, member) = self.member();
            let silence = Status::deadline_exceeded("no answer in time");
            let asked = tokio::time::timeout_at(deadline, ask(member.clone())).await;
            let status = match asked.unwrap_or(Err(silence)) {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            if !is_unavailable(&status) {
                return Err(error_of(&status));
            }
            self.pass_over(turn);
            failures += 1;
            if !again(&status) || Instant::now() + PAUSE >= deadline {
                return Err(error_of(&status));
            }
            if failures % self.members.len() == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn member(url: &str, options: &EtcdOptions) -> Result<Member> {
    let invalid = |e: tonic::transport::Error| Error::Invalid(format!("etcd endpoint {url}: {e}"));
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(invalid)?
        .connect_timeout(Duration::from_secs(2))
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(SILENCE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .tcp_nodelay(true);
    if let Some(tls) = &options.tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        endpoint = endpoint.tls_config(config).map_err(invalid)?;
    }
    Ok(Member(endpoint.connect_lazy()))
}

/// The connection was refused: the request cannot have been executed.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether another member, or the same one later, may do better.
fn is_unavailable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal => true,
        // A member that lost its leader says so in several ways.
        Code::Unknown => !status.message().contains("mvcc:"),
        _ => false,
    }
}

/// etcd tells errors by code and text; clients match the texts, so they are stable.
pub fn error_of(status: &Status) -> Error {
    let text = status.message();
    let none: LeaseId = 0;
    match status.code() {
        Code::OutOfRange if text.contains("compacted") => {
            Error::Compacted { requested: 0, compacted: 0 }
        }
        Code::OutOfRange if text.contains("future revision") => {
            Error::FutureRevision { requested: 0, current: 0 }
        }
        Code::NotFound if text.contains("lease not found") => Error::LeaseNotFound(none),
        Code::FailedPrecondition if text.contains("lease already exists") => {
            Error::LeaseExists(none)
        }
        Code::InvalidArgument if text.contains("too large") => {
            Error::TooLarge { bytes: crate::model::MAX_REQUEST_BYTES }
        }
        Code::ResourceExhausted if text.contains("space exceeded") => {
            Error::NoSpace(text.to_owned())
        }
        Code::InvalidArgument => Error::Invalid(text.to_owned()),
        code => Error::Unavailable(format!("etcd: {text} ({code:?})")),
    }
}
