//! `kubectl run`: one pod of an image.
use super::made::store;
use super::{Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, span, switch, switch_on, text};
use crate::generate::pod;
use crate::print::{self, Telling};
use crate::session::Session;
use crate::write::{DRY_RUN, DryRun};

static FLAGS: &[Flag] = &[
    text("field-manager", "kubectl-run", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
    switch("rm", "Delete the pod after it was attached to."),
    switch("quiet", "Say less.").short('q'),
    text("detach-keys", "ctrl-p,ctrl-q", "Keys that end an attachment."),
    span("pod-running-timeout", "1m0s", "How long to wait until the pod runs."),
    text("cascade", "background", "What becomes of what a deleted object owns.").bare("background"),
    switch("force", "Delete at once."),
    number("grace-period", "-1", "Seconds that a deleted pod has."),
    span("timeout", "0s", "How long to wait for a deletion."),
    switch_on("wait", "Wait for a deletion."),
];

pub static COMMAND: Command = Command {
    name: "run",
    group: Group::Beginner,
    about: "Run a particular image on the cluster",
    usage: "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] \
            [--command] -- [COMMAND] [args...]",
    flags: &[pod::FLAGS, FLAGS, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let made = pod::run(&arguments)?;
    let dry_run = DryRun::of(&arguments)?;
    let attach =
        if arguments.given("attach") { arguments.is("attach") } else { arguments.is("stdin") };
    check(&arguments, attach, dry_run)?;
    let mut telling = Telling::new(&arguments, dry_run)?;
    let mut failures = Vec::new();
    let mut stored = vec![store(session, &arguments, made.pod, dry_run).await?];
    if let Some(service) = made.service {
        match store(session, &arguments, service, dry_run).await {
            Ok(service) => stored.push(service),
            Err(failure) => failures.push(failure),
        }
    }
    for object in &stored {
        telling.tell(object, "created", &mut session.out)?;
    }
    Failure::of_all(failures)
}

fn check(arguments: &Arguments, attach: bool, dry_run: DryRun) -> Outcome {
    if !attach && arguments.is("rm") {
        return Err("--rm should only be used for attached containers".into());
    }
    if attach && dry_run != DryRun::None {
        return Err("--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or \
             --tty)"
            .into());
    }
    Ok(())
}
