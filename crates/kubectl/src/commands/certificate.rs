//! `kubectl certificate`: requests for certificates are approved or denied.
use super::{Command, Group};
use crate::builder::{self, FILES, Request};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::DryRun;
use client::source::Write;
use jiff::Timestamp;
use serde_json::{Value, json};

pub static COMMAND: Command = Command {
    name: "certificate",
    group: Group::Management,
    about: "Modify certificate resources",
    usage: "SUBCOMMAND",
    children: &[&APPROVE, &DENY],
    ..Command::EMPTY
};

static FLAGS: &[Flag] = &[switch("force", "Say it again where it was said already.")];

static APPROVE: Command = Command {
    name: "approve",
    about: "Approve a certificate signing request",
    usage: "(-f FILENAME | NAME)",
    flags: &[FLAGS, FILES, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments, &APPROVED))),
    ..Command::EMPTY
};

static DENY: Command = Command {
    name: "deny",
    about: "Deny a certificate signing request",
    usage: "(-f FILENAME | NAME)",
    flags: &[FLAGS, FILES, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments, &DENIED))),
    ..Command::EMPTY
};

/// A verdict and the one that excludes it.
struct Verdict {
    condition: &'static str,
    other: &'static str,
    reason: &'static str,
    message: &'static str,
    done: &'static str,
}

static APPROVED: Verdict = Verdict {
    condition: "Approved",
    other: "Denied",
    reason: "KubectlApprove",
    message: "This CSR was approved by kubectl certificate approve.",
    done: "approved",
};

static DENIED: Verdict = Verdict {
    condition: "Denied",
    other: "Approved",
    reason: "KubectlDeny",
    message: "This CSR was denied by kubectl certificate deny.",
    done: "denied",
};

/// How often somebody may be faster.
const TRIES: u32 = 10;

async fn run(session: &mut Session, arguments: Arguments, verdict: &'static Verdict) -> Outcome {
    let mut request = Request::of(&arguments);
    if request.words.is_empty() && !request.has_files() {
        return Err("one or more CSRs must be specified as <name> or -f <filename>".into());
    }
    if !request.words.is_empty() && !request.words.iter().any(|word| word.contains('/')) {
        request.words.insert(0, "certificatesigningrequests.certificates.k8s.io".to_owned());
    }
    let cluster = session.cluster(&arguments)?;
    let mut telling = Telling::new(&arguments, DryRun::None)?;
    let infos = builder::infos(&cluster, &request, true).await?;
    if infos.is_empty() {
        writeln!(session.out, "No resources found")?;
    }
    for info in infos {
        let object = decide(&cluster, &info, verdict, arguments.is("force")).await?;
        telling.tell(&object, verdict.done, &mut session.out)?;
    }
    Ok(())
}

async fn decide(
    cluster: &Cluster,
    info: &builder::Info,
    verdict: &Verdict,
    force: bool,
) -> Outcome<Value> {
    let mut current = info.object.clone();
    for attempt in 1.. {
        let now = api::time::format_timestamp(Timestamp::now());
        let Some(wanted) = with_condition(&current, verdict, force, &now)? else {
            return Ok(current);
        };
        let place = ("", &*info.name, "approval");
        match cluster.update(info.api(), place, &wanted, &Write::default()).await {
            Err(failure) if failure.is_conflict() && attempt < TRIES => {
                current = cluster.get(info.api(), "", &info.name).await?;
            }
            outcome => return outcome,
        }
    }
    unreachable!("the last attempt returns")
}

/// None if it has been said already.
fn with_condition(
    object: &Value,
    verdict: &Verdict,
    force: bool,
    now: &str,
) -> Outcome<Option<Value>> {
    let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if all.iter().any(|one| one["type"] == verdict.other) {
        return Err(Failure::Plain(format!(
            "certificate signing request \"{name}\" is already {}",
            verdict.other
        )));
    }
    if all.iter().any(|one| one["type"] == verdict.condition) && !force {
        return Ok(None);
    }
    all.retain(|one| one["type"] != verdict.condition);
    all.push(json!({ "type": verdict.condition, "status": "True", "reason": verdict.reason,
        "message": verdict.message, "lastUpdateTime": now }));
    let mut object = object.clone();
    object["status"]["conditions"] = all.into();
    Ok(Some(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_decided_once() {
        let request = json!({ "metadata": { "name": "r" } });
        let approved = with_condition(&request, &APPROVED, false, "now").unwrap().unwrap();
        assert_eq!(approved["status"]["conditions"][0]["type"], "Approved");
        assert_eq!(with_condition(&approved, &APPROVED, false, "now").unwrap(), None);
        assert_eq!(
            with_condition(&approved, &DENIED, false, "now").unwrap_err().message(),
            "error: certificate signing request \"r\" is already Approved"
        );
    }
}
