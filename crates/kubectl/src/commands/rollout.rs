//! `kubectl rollout`.
mod history;
mod status;

use super::{Command, Group};
use crate::builder::{self, FILES, Info, Request, SELECTOR};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::editing::Editing;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, text};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{self, DryRun};
use jiff::Timestamp;
use serde_json::{Value, json};

pub static COMMAND: Command = Command {
    name: "rollout",
    group: Group::Deploy,
    about: "Manage the rollout of a resource",
    usage: "SUBCOMMAND",
    children: &[&history::HISTORY, &PAUSE, &RESTART, &RESUME, &status::COMMAND, &history::UNDO],
    ..Command::EMPTY
};

static FLAGS: &[Flag] =
    &[text("field-manager", "kubectl-rollout", "Who manages the fields that change.")];

static PAUSE: Command = Command {
    name: "pause",
    about: "Mark the provided resource as paused",
    usage: "RESOURCE",
    flags: &[FLAGS, FILES, SELECTOR, print::FLAGS],
    run: Some(|session, arguments| Box::pin(change(session, arguments, "paused", pause))),
    offers: Offers::Resources(&["deployment"]),
    ..Command::EMPTY
};

static RESUME: Command = Command {
    name: "resume",
    about: "Resume a paused resource",
    usage: "RESOURCE",
    flags: &[FLAGS, FILES, SELECTOR, print::FLAGS],
    run: Some(|session, arguments| Box::pin(change(session, arguments, "resumed", resume))),
    offers: Offers::Resources(&["deployment"]),
    ..Command::EMPTY
};

static RESTART: Command = Command {
    name: "restart",
    about: "Restart a resource",
    usage: "RESOURCE",
    flags: &[FLAGS, FILES, SELECTOR, print::FLAGS],
    run: Some(|session, arguments| Box::pin(change(session, arguments, "restarted", restart))),
    offers: Offers::Resources(&["deployment", "daemonset", "statefulset"]),
    ..Command::EMPTY
};

/// The objects that the words of a rollout command mean.
async fn infos(cluster: &Cluster, arguments: &Arguments) -> Outcome<Vec<Info>> {
    let request = Request { type_is_all: true, ..Request::of(arguments) };
    if request.words.is_empty() && !request.has_files() {
        return Err(Failure::Plain("required resource not specified".to_owned()));
    }
    builder::infos(cluster, &request, true).await
}

async fn change(
    session: &mut Session,
    arguments: Arguments,
    done: &'static str,
    edit: fn(&mut Value) -> Outcome,
) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let infos = infos(&cluster, &arguments).await?;
    if infos.is_empty() {
        writeln!(session.err, "No resources found in {} namespace.", cluster.namespace)?;
        return Ok(());
    }
    let mut editing = Editing {
        cluster: &cluster,
        write: write::options(&arguments, DryRun::None)?,
        dry_run: DryRun::None,
        local: false,
        done,
        unchanged: "",
        telling: Telling::new(&arguments, DryRun::None)?,
    };
    editing.each(session, &infos, edit).await
}

fn is_deployment(object: &Value) -> bool {
    object["kind"] == "Deployment"
}

fn pause(object: &mut Value) -> Outcome {
    match (is_deployment(object), object["spec"]["paused"] == true) {
        (false, _) => Err("pausing is not supported".into()),
        (true, true) => Err("is already paused".into()),
        (true, false) => {
            object["spec"]["paused"] = true.into();
            Ok(())
        }
    }
}

fn resume(object: &mut Value) -> Outcome {
    match (is_deployment(object), object["spec"]["paused"] == true) {
        (false, _) => Err("resuming is not supported".into()),
        (true, false) => Err("is not paused".into()),
        (true, true) => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("paused");
            }
            Ok(())
        }
    }
}

fn restart(object: &mut Value) -> Outcome {
    match object["kind"].as_str() {
        Some("Deployment") if object["spec"]["paused"] == true => {
            return Err("can't restart paused deployment (run rollout resume first)".into());
        }
        Some("Deployment" | "DaemonSet" | "StatefulSet") => {}
        _ => return Err("restarting is not supported".into()),
    }
    let metadata = &mut object["spec"]["template"]["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    let now = api::time::format_timestamp(Timestamp::now());
    metadata["annotations"]["kubectl.kubernetes.io/restartedAt"] = now.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[tokio::test]
    async fn deployments_are_paused_resumed_and_restarted() {
        let world = world();
        let all = client::ApiResource::custom(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            api::kinds::Scope::Namespaced,
        );
        world.put_tree(
            &all,
            json!({ "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": { "name": "web", "namespace": "default" }, "spec": { "template": {} } }),
        );
        for (line, expected) in [
            ("rollout resume deploy/web", "error: deployments.apps \"web\" is not paused\n"),
            ("rollout pause deploy/web", "deployment.apps/web paused\n"),
            ("rollout pause deploy web", "error: deployments.apps \"web\" is already paused\n"),
            (
                "rollout restart deploy/web",
                "error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)\n",
            ),
            ("rollout resume deploy/web", "deployment.apps/web resumed\n"),
            ("rollout restart deploy/web", "deployment.apps/web restarted\n"),
            ("rollout restart", "error: required resource not specified\n"),
        ] {
            assert_eq!(told(&world, line).await, expected, "{line}");
        }
        let web = world.get_tree(&all, "default", "web").unwrap();
        let annotations = &web["spec"]["template"]["metadata"]["annotations"];
        assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string());
    }
}
