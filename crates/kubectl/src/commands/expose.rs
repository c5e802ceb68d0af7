//! `kubectl expose`: a service for what is there.
use super::made::made_object;
use super::{Command, Group};
use crate::builder::{self, FILES, Request};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::generate::expose;
use crate::print;
use crate::session::Session;
use crate::write::DRY_RUN;

static COMMON: &[Flag] = &[
    text("field-manager", "kubectl-expose", "Who manages the fields that are written."),
    switch("save-config", "Keep the object in its annotation, for apply."),
];

pub static COMMAND: Command = Command {
    name: "expose",
    group: Group::Beginner,
    about: "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    usage: "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] \
            [--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    flags: &[expose::FLAGS, COMMON, FILES, DRY_RUN, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[
        "pod",
        "service",
        "replicationcontroller",
        "deployment",
        "replicaset",
    ]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    // The selector is the service's.
    let request = Request { selector: String::new(), ..Request::of(&arguments) };
    let infos = builder::infos(&cluster, &request, true).await?;
    let mut failures = Vec::new();
    for info in infos {
        let exposed = match expose::service(&arguments, &info.object) {
            Ok(service) => made_object(session, &arguments, service, "exposed").await.map(drop),
            Err(failure) => Err(failure),
        };
        failures.extend(exposed.err());
    }
    Failure::of_all(failures)
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};

    #[tokio::test]
    async fn a_pod_is_exposed_by_its_labels_and_ports() {
        let world = world();
        assert_eq!(
            told(&world, "run web --image=i --port=80 --labels=app=web").await,
            "pod/web created\n"
        );
        assert_eq!(told(&world, "expose pod web --name=s").await, "service/s exposed\n");
        let service = told(&world, "describe svc s").await;
        assert!(service.contains("Selector:          app=web\n"), "{service}");
        assert!(service.contains("Port:              <unset>  80/TCP\n"), "{service}");
        assert_eq!(told(&world, "create ns x").await, "namespace/x created\n");
        assert_eq!(told(&world, "expose ns x").await, "error: cannot expose a Namespace\n");
    }
}
