//! What a command has besides its arguments: where its words go, what was set, and connections, made
//! when they are first needed.
use crate::failure::{Failure, Level, Outcome, While, log_line};
use crate::settings::{Settings, io_text};
use futures_util::future::BoxFuture;
use runtime::cri::v1::VersionRequest;
use runtime::cri::{Client, Cri as _};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tonic::Status;

pub struct Session {
    pub out: Box<dyn Write + Send>,
    pub err: Box<dyn Write + Send>,
    pub settings: Settings,
    pub default_endpoint: String,
    runtime: Option<Client>,
    image: Option<Client>,
}

impl Session {
    /// Standard output and error.
    pub fn terminal(endpoint: &str) -> Session {
        Session::new(Box::new(std::io::stdout()), Box::new(std::io::stderr()), endpoint)
    }

    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, endpoint: &str) -> Session {
        Session {
            out,
            err,
            settings: Settings::default(),
            default_endpoint: endpoint.to_owned(),
            runtime: None,
            image: None,
        }
    }

    /// The runtime: it answers, and speaks CRI v1.
    pub async fn runtime(&mut self) -> Outcome<Client> {
        if let Some(client) = &self.runtime {
            return Ok(client.clone());
        }
        let endpoint = self.settings.runtime_endpoint.clone();
        let client = self.connect(&endpoint, "runtime").await?;
        Ok(self.runtime.insert(client).clone())
    }

    /// Whoever has the images; mostly the runtime.
    pub async fn image(&mut self) -> Outcome<Client> {
        if self.settings.image_endpoint == self.settings.runtime_endpoint {
            return self.runtime().await;
        }
        if let Some(client) = &self.image {
            return Ok(client.clone());
        }
        let endpoint = self.settings.image_endpoint.clone();
        let client = self.connect(&endpoint, "image").await?;
        Ok(self.image.insert(client).clone())
    }

    async fn connect(&mut self, endpoint: &str, what: &str) -> Outcome<Client> {
        let path = socket(endpoint)?;
        let mut delay = Duration::from_millis(500);
        let mut left = self.settings.retries;
        loop {
            let failure = match self.reach(path, what).await {
                Ok(client) => return Ok(client),
                Err(failure) => failure,
            };
            if left == 0 {
                return Err(failure).during(|| {
                    format!(
                        "validate service connection: validate CRI v1 {what} API for endpoint {}",
                        api::quote::Quoted(endpoint)
                    )
                });
            }
            left -= left.signum();
            self.debug(|| format!("{endpoint} does not answer, trying again in {delay:?}"))?;
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
    }

    async fn reach(&self, path: &Path, what: &str) -> Outcome<Client> {
        // gRPC's own errors hide why: a connection is tried first.
        let dialed = tokio::net::UnixStream::connect(path);
        dialed.await.map_err(|error| {
            Status::unavailable(format!(
                "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {}\"",
                path.display(),
                match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
                    _ => io_text(&error),
                }
            ))
        })?;
        let client = Client::new(path).map_err(|error| error.to_string())?;
        match what {
            "image" => {
                self.within(client.image_fs_info(Default::default())).await?;
            }
            _ => {
                let request = VersionRequest { version: "v1".to_owned() };
                self.within(client.version(request)).await?;
            }
        }
        Ok(client)
    }

    /// Waits for an answer no longer than was said.
    pub fn within<'c, T: 'c>(&self, call: impl Call<T> + 'c) -> BoxFuture<'c, Outcome<T>> {
        wait(Some(self.settings.timeout), call)
    }

    /// The same for a call that may take some time of its own.
    pub fn within_more<'c, T: 'c>(
        &self,
        more: Duration,
        call: impl Call<T> + 'c,
    ) -> BoxFuture<'c, Outcome<T>> {
        wait(self.settings.timeout.checked_add(more), call)
    }

    pub fn log(&mut self, level: Level, text: &str) -> Outcome {
        Ok(writeln!(self.err, "{}", log_line(level, text))?)
    }

    pub fn debug(&mut self, text: impl FnOnce() -> String) -> Outcome {
        match self.settings.debug {
            true => self.log(Level::Debug, &text()),
            false => Ok(()),
        }
    }

    pub fn flush(&mut self) -> Outcome {
        self.out.flush()?;
        Ok(self.err.flush()?)
    }
}

/// A question to a runtime under way.
pub trait Call<T>: Future<Output = Result<T, Status>> + Send {}
impl<T, F: Future<Output = Result<T, Status>> + Send> Call<T> for F {}

/// Waits for an answer, for so long at most. Calls are large: each has a place of its own.
pub fn wait<'c, T: 'c>(
    limit: Option<Duration>,
    call: impl Call<T> + 'c,
) -> BoxFuture<'c, Outcome<T>> {
    let call = Box::pin(call);
    Box::pin(async move {
        let Some(limit) = limit else { return Ok(call.await?) };
        match tokio::time::timeout(limit, call).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(Status::deadline_exceeded("context deadline exceeded").into()),
        }
    })
}

/// The path of a socket that was named `unix:///PATH`, or plainly.
fn socket(endpoint: &str) -> Outcome<&Path> {
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some((scheme, _)) => {
            let text = format!("only unix sockets are spoken to, not {scheme}: {endpoint}");
            return Err(Failure::Said(text));
        }
        None => endpoint,
    };
    match path.is_empty() {
        true => Err("--runtime-endpoint is not set".into()),
        false => Ok(Path::new(path)),
    }
}
