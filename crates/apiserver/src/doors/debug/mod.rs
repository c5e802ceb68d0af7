//! `/debug`: what an operator asks a running server about itself. It is served only where it is
//! switched on, and to those whom authorization lets.
mod profile;

use crate::answer::{self, Answer};
use crate::asked::Received;
use crate::call::Query;
use crate::doors::documents::missing;
use crate::server::ApiServer;
use api::status::Status;
use http::{Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// What the process lets be changed while it runs.
#[derive(Clone)]
pub struct Debug {
    /// How much is logged, as `-v` counts it.
    pub set_verbosity: Arc<dyn Fn(u8) + Send + Sync>,
}

/// How long a processor profile takes if nobody says.
const PROFILE: Duration = Duration::from_secs(30);

pub async fn serve(api: &ApiServer, received: &Received, path: &[&str]) -> Result<Answer, Status> {
    let debug = api.debug().ok_or_else(missing)?;
    match (&received.method, path) {
        (&Method::GET, ["pprof"]) => Ok(text("/debug/pprof/\n\ncmdline\nprofile\n")),
        (&Method::GET, ["pprof", "cmdline"]) => {
            Ok(text(std::env::args().collect::<Vec<_>>().join("\0")))
        }
        (&Method::GET, ["pprof", "profile"]) => {
            let seconds = Query::parse(&received.query).number("seconds")?.unwrap_or(0);
            let time = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let time = time.map_or(PROFILE, Duration::from_secs).min(api.request_timeout());
            let profile = profile::take(time).await.map_err(Status::internal_error)?;
            Ok(answer::bytes(StatusCode::OK, "application/octet-stream", profile))
        }
        (&Method::PUT, ["flags", "v"]) => {
            let level = String::from_utf8_lossy(&received.body);
            let level = level.trim().parse::<u8>().map_err(|error| {
                Status::bad_request(format!("failed set klog.logging.verbosity {level}: {error}"))
            })?;
            (debug.set_verbosity)(level);
            Ok(text(format!("successfully set klog.logging.verbosity to {level}")))
        }
        _ => Err(missing()),
    }
}

fn text(text: impl Into<bytes::Bytes>) -> Answer {
    answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", text)
}
