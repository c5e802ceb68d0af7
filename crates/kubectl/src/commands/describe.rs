//! `kubectl describe`: fetches what [`crate::describe`] wants to see, and prints what it says.
use super::{Command, Group};
use crate::builder::{self, ALL_NAMESPACES, FILES, Info, Request, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::describe::{self, Around, Fault, Need, Want};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, switch_on};
use crate::session::Session;
use client::ApiResource;
use jiff::Timestamp;
use serde_json::Value;

static FLAGS: &[Flag] = &[
    switch_on("show-events", "Show events, too; of several objects only if it is said."),
    number("chunk-size", "500", "Objects per page of a list."),
];

pub static COMMAND: Command = Command {
    name: "describe",
    group: Group::Troubleshooting,
    about: "Show details of a specific resource or group of resources",
    usage: "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    flags: &[FLAGS, FILES, SELECTOR, ALL_NAMESPACES],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    offers: Offers::Resources(&[]),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let request = Request { type_is_all: true, ..Request::of(&arguments) };
    if arguments.words.is_empty() && !request.has_files() {
        return Err("You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete \
             list of supported resources."
            .into());
    }
    let cluster = session.cluster(&arguments)?;
    let (infos, mut failures) = builder::infos_and_failures(&cluster, &request, true).await?;
    let with_events = match arguments.given("show-events") {
        true => arguments.is("show-events"),
        false => failures.is_empty() && infos.len() <= 1,
    };
    let describing = Describing { cluster: &cluster, with_events, chunk: request.chunk };
    if let ([typed, prefix], [failure]) = (&arguments.words[..], &failures[..])
        && failure.is_not_found()
    {
        return matching(session, &describing, &request, typed, prefix, failure.clone()).await;
    }
    let mut first = true;
    for info in &infos {
        match describing.describe(info).await {
            Ok(text) => {
                write!(session.out, "{}{text}", if first { "" } else { "\n\n" })?;
                first = false;
            }
            Err(failure) => failures.push(failure),
        }
    }
    if infos.is_empty() && failures.is_empty() {
        match request.all_namespaces {
            true => writeln!(session.err, "No resources found")?,
            false => {
                writeln!(session.err, "No resources found in {} namespace.", cluster.namespace)?
            }
        }
    }
    Failure::of_all(failures)
}

/// There is no object of the name that was typed: all whose names begin so.
async fn matching(
    session: &mut Session,
    describing: &Describing<'_>,
    request: &Request,
    typed: &str,
    prefix: &str,
    not_found: Failure,
) -> Outcome {
    let request = request.clone().with_words(&[typed.to_owned()]);
    let mut infos = builder::infos(describing.cluster, &request, true).await?;
    infos.retain(|info| info.name.starts_with(prefix));
    if infos.is_empty() {
        return Err(not_found);
    }
    for info in &infos {
        writeln!(session.out, "{}", describing.describe(info).await?)?;
    }
    Ok(())
}

/// Whether there is no description for what could not be had.
fn is_fatal(failure: &Failure, need: Need) -> bool {
    let forbidden = matches!(failure, Failure::Server(status) if status.code == 403);
    match need {
        Need::Optional => false,
        Need::UnlessForbidden => !forbidden,
        // A server without the kind has none of its objects.
        Need::Required => !failure.is_not_found(),
    }
}

struct Describing<'a> {
    cluster: &'a Cluster,
    with_events: bool,
    chunk: i64,
}

impl Describing<'_> {
    async fn describe(&self, info: &Info) -> Outcome<String> {
        let object = self.best_version(info).await?;
        let mut around = Around::default();
        for want in describe::wants(&object, self.with_events) {
            match self.fetch(&want).await {
                Ok(objects) => around.add(want, Ok(objects)),
                Err(failure) if is_fatal(&failure, want.need) => return Err(failure),
                Err(failure) => around.add(want, Err(Fault { message: failure.text() })),
            }
        }
        Ok(describe::describe(&object, &around, Timestamp::now()))
    }

    /// An autoscaler is described in the version that says most of it, whichever was typed.
    async fn best_version(&self, info: &Info) -> Outcome<Value> {
        let api = info.api();
        if api.group == "autoscaling" && api.version == "v1" {
            let mapper = self.cluster.mapper().await?;
            if let Some(resource) = mapper.of_kind("autoscaling/v2", &api.kind) {
                return self.cluster.get(&resource.api, &info.namespace, &info.name).await;
            }
        }
        Ok(info.object.clone())
    }

    async fn fetch(&self, want: &Want) -> Outcome<Vec<Value>> {
        let api = self.api(want).await?;
        if let Some(name) = &want.name {
            return Ok(vec![self.cluster.get(&api, &want.namespace, name).await?]);
        }
        let of = collection(&api, &want.namespace, &want.labels, &want.fields)?;
        self.cluster.list(of, self.chunk).await
    }

    async fn api(&self, want: &Want) -> Outcome<ApiResource> {
        let mapper = self.cluster.mapper().await?;
        let (group, version) = want.api_version.split_once('/').unwrap_or(("", want.api_version));
        let is = |api: &ApiResource| {
            api.group == group && api.version == version && api.plural == want.resource
        };
        match mapper.resources.iter().find(|resource| is(&resource.api)) {
            Some(resource) => Ok(resource.api.clone()),
            None => Err("the server could not find the requested resource".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};

    #[tokio::test]
    async fn objects_are_described_by_name_by_prefix_and_all_at_once() {
        let world = world();
        for name in ["web-1", "web-2"] {
            told(&world, &format!("create configmap {name} --from-literal=a=b")).await;
        }
        let one = told(&world, "describe cm web-1").await;
        assert!(one.starts_with("Name:         web-1\nNamespace:    default\n"), "{one}");
        assert!(one.ends_with("Events:  <none>\n"), "{one}");
        let by_prefix = told(&world, "describe cm web").await;
        assert_eq!(by_prefix.matches("Name:  ").count(), 2, "{by_prefix}");
        let all = told(&world, "describe cm").await;
        assert_eq!(all.matches("\n\n\nName:  ").count(), 1, "{all}");
        assert!(!all.contains("Events:"), "{all}");
        assert_eq!(
            told(&world, "describe cm nope").await,
            "Error from server (NotFound): configmaps \"nope\" not found\n"
        );
        assert_eq!(
            told(&world, "describe pods").await,
            "No resources found in default namespace.\n"
        );
    }
}
