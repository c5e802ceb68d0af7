//! `kubectl autoscale`: an autoscaler for what can be scaled.
use super::made::made_object;
use super::{Command, Group};
use crate::builder::{self, FILES, Request};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::generate::autoscale;
use crate::print;
use crate::session::Session;
use crate::write::{DRY_RUN, DryRun};

static COMMON: &[Flag] = &[
    text("field-manager", "kubectl-autoscale", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
];

pub static COMMAND: Command = Command {
    name: "autoscale",
    group: Group::Deploy,
    about: "Auto-scale a deployment, replica set, stateful set, or replication controller",
    usage: "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    flags: &[autoscale::FLAGS, COMMON, FILES, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[
        "deployment",
        "replicaset",
        "replicationcontroller",
        "statefulset",
    ]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    autoscale::check(&arguments)?;
    if arguments.given("cpu-percent") {
        writeln!(
            session.err,
            "Flag --cpu-percent has been deprecated, Use --cpu with percentage or resource quantity format (e.g., '70%' \
             for utilization or '500m' for milliCPU)."
        )?;
    }
    let cluster = session.cluster(&arguments)?;
    let infos = builder::infos(&cluster, &Request::of(&arguments), true).await?;
    if infos.is_empty() {
        return Err("no objects passed to autoscale".into());
    }
    // What is only tried is said to be created, as upstream says.
    let done = if DryRun::of(&arguments)? == DryRun::Client { "created" } else { "autoscaled" };
    for info in infos {
        if !info.resource.subresources.iter().any(|part| part == "scale") {
            return Err(Failure::Plain(format!(
                "cannot autoscale a {}: could not find scale subresource for {}/{}, Resource={} in discovery information",
                info.api().kind,
                info.api().group,
                info.api().version,
                info.api().plural
            )));
        }
        let autoscaler = autoscale::autoscaler(&arguments, &info.object)?;
        made_object(session, &arguments, autoscaler, done).await?;
    }
    Ok(())
}
