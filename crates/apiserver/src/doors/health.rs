//! `/healthz`, `/livez` and `/readyz`: one row per check.
use crate::answer::{self, Answer};
use crate::asked::Received;
use crate::server::ApiServer;
use api::status::Status;
use http::StatusCode;
use std::fmt::Write;
use std::time::Duration;

/// A store that has not answered by then is not healthy.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is checked, by upstream's names.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Check {
    Ping,
    Log,
    Store,
    Shutdown,
    Kms,
    Objects,
}

const ROWS: &[(&str, Check)] =
    &[("ping", Check::Ping), ("log", Check::Log), ("etcd", Check::Store)];
/// What only readiness looks at.
const READY_ROWS: &[(&str, Check)] =
    &[("etcd-readiness", Check::Store), ("shutdown", Check::Shutdown)];

/// What is looked at where keys are held by plugins; a restart would not bring one back.
const KMS_ROW: (&str, Check) = ("kms-providers", Check::Kms);

/// Whether every object can be read. That is for people to mend: neither a restart nor another server
/// would help, so that only the one endpoint says it that decides about neither.
const OBJECTS_ROW: (&str, Check) = ("stored-objects", Check::Objects);

/// Answers `endpoint` (`healthz`, `livez`, `readyz`), or one check of it.
pub async fn serve(
    api: &ApiServer,
    endpoint: &str,
    only: Option<&str>,
    received: &Received,
) -> Result<Answer, Status> {
    let kms = Some(&KMS_ROW).filter(|_| endpoint != "livez" && api.encryption().is_checked());
    let rows = ROWS.iter().chain(kms);
    let rows = rows.chain(READY_ROWS.iter().filter(|_| endpoint == "readyz"));
    let rows = rows.chain(Some(&OBJECTS_ROW).filter(|_| endpoint == "healthz"));
    if let Some(name) = only {
        let Some((_, check)) = rows.into_iter().find(|(known, _)| *known == name) else {
            return Err(crate::doors::documents::missing());
        };
        return Ok(match check.run(api).await {
            Ok(()) => text(StatusCode::OK, "ok".into()),
            Err(cause) => failed(format!("internal server error: {cause}\n")),
        });
    }
    let parameters: Vec<(String, String)> =
        form_urlencoded::parse(received.query.as_bytes()).into_owned().collect();
    let has = |name: &str| parameters.iter().any(|(known, _)| known == name);
    let excluded =
        |name: &str| parameters.iter().any(|(key, value)| key == "exclude" && value == name);
    let mut report = String::new();
    let mut healthy = true;
    for (name, check) in rows {
        // Writing to a String cannot fail.
        let _ = match (excluded(name), check.run(api).await) {
            (true, _) => writeln!(report, "[+]{name} excluded: ok"),
            (false, Ok(())) => writeln!(report, "[+]{name} ok"),
            (false, Err(cause)) => {
                tracing::warn!(check = name, cause, "a health check failed");
                healthy = false;
                writeln!(report, "[-]{name} failed: reason withheld")
            }
        };
    }
    if !healthy {
        let _ = writeln!(report, "{endpoint} check failed");
        return Ok(failed(report));
    }
    if has("verbose") {
        let _ = writeln!(report, "{endpoint} check passed");
        return Ok(text(StatusCode::OK, report));
    }
    Ok(text(StatusCode::OK, "ok".into()))
}

fn text(code: StatusCode, body: String) -> Answer {
    answer::bytes(code, "text/plain; charset=utf-8", body)
}

fn failed(body: String) -> Answer {
    text(StatusCode::INTERNAL_SERVER_ERROR, body)
}

impl Check {
    async fn run(self, api: &ApiServer) -> Result<(), String> {
        match self {
            Check::Ping | Check::Log => Ok(()),
            Check::Shutdown if api.is_stopping() => Err("process is shutting down".into()),
            Check::Shutdown => Ok(()),
            Check::Objects => match &*api.unreadable().remaining(api.store()).await {
                [] => Ok(()),
                keys => Err(format!("cannot be read: {}", keys.join(", "))),
            },
            Check::Kms => api.encryption().check().await,
            Check::Store => match tokio::time::timeout(PATIENCE, api.store().revision()).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("the store does not answer".into()),
            },
        }
    }
}
