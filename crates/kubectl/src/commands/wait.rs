//! `kubectl wait`: for a condition, a value, an object's coming or its end.
use super::{Command, Group};
use crate::builder::{self, ALL, ALL_NAMESPACES, FIELD_SELECTOR, Request, SELECTOR, Target};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, MANIFESTS, each, span, switch, switch_on};
use crate::mapper::Resource;
use crate::print::jsonpath::{Template, shown};
use crate::print::{self, Telling};
use crate::session::Session;
use crate::watching;
use crate::write::DryRun;
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::Instant;

static FLAGS: &[Flag] = &[
    each("filename", "File, folder or URL with objects; may be repeated.")
        .short('f')
        .offers(MANIFESTS),
    each(
        "for",
        "create, delete, condition=NAME[=VALUE] or jsonpath='{PATH}'[=VALUE]; may be repeated.",
    ),
    switch("local", "Taken for compatibility."),
    switch_on("recursive", "Look into folders below those of -f.").short('R'),
    span("timeout", "30s", "How long to wait; 0: look once, negative: a week."),
];

pub static COMMAND: Command = Command {
    name: "wait",
    group: Group::Advanced,
    about: "Wait for a specific condition on one or many resources",
    usage: "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) \
            [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]]",
    flags: &[FLAGS, SELECTOR, FIELD_SELECTOR, ALL_NAMESPACES, ALL, print::FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

/// What is waited for.
#[derive(Debug)]
enum For {
    Create,
    Delete,
    Condition {
        name: String,
        value: String,
    },
    /// With no value: that there is anything.
    Path {
        path: Template,
        value: Option<String>,
    },
}

impl For {
    fn parse(text: &str) -> Outcome<For> {
        match text.to_lowercase().as_str() {
            "create" => return Ok(For::Create),
            "delete" => return Ok(For::Delete),
            _ => {}
        }
        if let Some(condition) = text.strip_prefix("condition=") {
            let (name, value) = condition.split_once('=').unwrap_or((condition, "true"));
            return Ok(For::Condition { name: name.to_owned(), value: value.to_owned() });
        }
        if let Some(path) = text.strip_prefix("jsonpath=") {
            return For::path(path);
        }
        Err(format!("unrecognized condition: {text:?}").into())
    }

    /// `{.status.phase}=Running`: the path is in braces, or ends where a `=` is that belongs to no filter.
    fn path(text: &str) -> Outcome<For> {
        // Quotes around the path may have come through a file.
        let text = match text.strip_prefix('\'').and_then(|rest| rest.rsplit_once('\'')) {
            Some((path, rest)) => &format!("{path}{rest}"),
            None => text,
        };
        let end = match text.starts_with('{') {
            true => text.rfind('}').map_or(text.len(), |end| end + 1),
            false => text.find('=').unwrap_or(text.len()),
        };
        let (path, rest) = text.split_at(end);
        let value = match rest.strip_prefix('=') {
            None if rest.is_empty() => None,
            None => {
                return Err(format!(
                    "jsonpath wait format must be --for=jsonpath='{{}}'=value: {text}"
                )
                .into());
            }
            Some("") => {
                return Err("jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3"
                    .into());
            }
            Some(value) => Some(value.trim_matches(['"', '\'']).to_owned()),
        };
        if path.trim().is_empty() || path == "{}" {
            return Err("jsonpath expression cannot be empty".into());
        }
        Ok(For::Path { path: Template::relaxed(path)?, value })
    }

    /// Whether an object is as it shall be.
    fn is_met(&self, object: Option<&Value>) -> Outcome<bool> {
        let Some(object) = object else { return Ok(matches!(self, For::Delete)) };
        match self {
            For::Create => Ok(true),
            For::Delete => Ok(false),
            For::Condition { name, value } => Ok(has_condition(object, name, value)),
            For::Path { path, value } => {
                let values = path.values(object).unwrap_or_default();
                match (&values[..], value) {
                    ([], _) => Ok(false),
                    (_, None) => Ok(true),
                    ([found], Some(value)) => {
                        if found.is_object() || found.is_array() {
                            return Err(
                                "jsonpath leads to a nested object or list which is not supported"
                                    .into(),
                            );
                        }
                        Ok(shown(found).trim() == value.trim())
                    }
                    (many, Some(_)) => Err(format!(
                        "given jsonpath expression matches more than one value: {}",
                        many.len()
                    )
                    .into()),
                }
            }
        }
    }

    fn waits_for_coming(&self) -> bool {
        matches!(self, For::Create)
    }
}

/// Names and values of conditions are compared whatever their case; one that was seen before the
/// object's newest change does not count.
fn has_condition(object: &Value, name: &str, value: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    for condition in conditions {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        if !text("type").eq_ignore_ascii_case(name) {
            continue;
        }
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        let seen = condition["observedGeneration"]
            .as_i64()
            .or(object["status"]["observedGeneration"].as_i64());
        if seen.is_some_and(|seen| seen < generation) {
            return false;
        }
        return text("status").eq_ignore_ascii_case(value);
    }
    false
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.given("for") {
        return Err("unrecognized condition: []".into());
    }
    let wanted: Outcome<Vec<For>> =
        arguments.list("for").iter().map(|text| For::parse(text)).collect();
    let wanted = wanted?;
    let cluster = session.cluster(&arguments)?;
    let mut telling = Telling::new(&arguments, DryRun::None)?;
    let end = Instant::now() + patience(arguments.text("timeout"))?;
    let request = Request::of(&arguments);
    let mut failures = Vec::new();
    for one in &wanted {
        let objects = subjects(&cluster, &request, one, end, &mut failures).await?;
        if objects.is_empty() && failures.is_empty() && !matches!(one, For::Delete) {
            return Err("no matching resources found".into());
        }
        for subject in objects {
            match wait_for(&cluster, &subject, one, end).await {
                Ok(object) => telling.tell(&object, "condition met", &mut session.out)?,
                Err(failure) => failures.push(failure),
            }
        }
    }
    Failure::of_all(failures)
}

/// What waits take: zero looks once, negative is a week.
fn patience(text: &str) -> Outcome<Duration> {
    let span = api::duration::Duration::parse(text).unwrap_or_default();
    Ok(match span.nanos {
        0 => Duration::from_millis(500),
        nanos => u64::try_from(nanos).map_or(watching::FOREVER, Duration::from_nanos),
    })
}

struct Subject {
    resource: Resource,
    namespace: String,
    name: String,
    object: Value,
}

async fn subjects(
    cluster: &Cluster,
    request: &Request,
    wanted: &For,
    end: Instant,
    failures: &mut Vec<Failure>,
) -> Outcome<Vec<Subject>> {
    let mut found = Vec::new();
    for target in builder::targets(cluster, request).await? {
        let (resource, namespace, name) = match target {
            Target::Named { resource, namespace, name } => (*resource, namespace, name),
            Target::File(info) => {
                (info.resource.clone(), info.namespace.clone(), info.name.clone())
            }
            target @ Target::All { .. } => {
                let objects = loop {
                    let objects = builder::fetch(cluster, request, target.clone(), true).await?;
                    if !objects.is_empty() || !wanted.waits_for_coming() || Instant::now() >= end {
                        break objects;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                };
                found.extend(objects.into_iter().map(|info| Subject {
                    resource: info.resource,
                    namespace: info.namespace,
                    name: info.name,
                    object: info.object,
                }));
                continue;
            }
        };
        let object = match cluster.get(&resource.api, &namespace, &name).await {
            Ok(object) => object,
            // It may come yet, or is gone as it shall be.
            Err(failure) if failure.is_not_found() && matches!(wanted, For::Create) => {
                nameless(&resource, &namespace, &name)
            }
            Err(failure) if failure.is_not_found() && matches!(wanted, For::Delete) => continue,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        found.push(Subject { resource, namespace, name, object });
    }
    Ok(found)
}

fn nameless(resource: &Resource, namespace: &str, name: &str) -> Value {
    serde_json::json!({ "kind": resource.api.kind, "apiVersion": resource.api.api_version(),
        "metadata": { "name": name, "namespace": namespace } })
}

async fn wait_for(
    cluster: &Cluster,
    subject: &Subject,
    wanted: &For,
    end: Instant,
) -> Outcome<Value> {
    let Subject { resource, namespace, name, object } = subject;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let mut look = |now: Option<&Value>| {
        // Another object of its name is not the one that was to be deleted.
        let now = now.filter(|now| {
            !(matches!(wanted, For::Delete) && !uid.is_empty() && now["metadata"]["uid"] != *uid)
        });
        Ok(match wanted.is_met(now)? {
            true => ControlFlow::Break(now.cloned().unwrap_or_else(|| object.clone())),
            false => ControlFlow::Continue(()),
        })
    };
    let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(500));
    let waited = watching::until(cluster, &resource.api, namespace, name, left, &mut look).await?;
    waited.ok_or_else(|| match wanted {
        For::Create => Failure::Plain("timed out waiting for the condition".to_owned()),
        _ => Failure::Plain(format!(
            "timed out waiting for the condition on {}/{name}",
            resource.api.plural
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[test]
    fn objects_are_as_they_shall_be() {
        let pod = json!({ "metadata": { "generation": 2 }, "status": { "phase": "Running", "n": 3,
            "conditions": [{ "type": "Ready", "status": "True" },
                { "type": "Old", "status": "True", "observedGeneration": 1 }] } });
        for (text, is) in [
            ("condition=Ready", true),
            ("condition=ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Old", false),
            ("condition=Other", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath='{.status.phase}'=Pending", false),
            ("jsonpath=.status.n=3", true),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.nothing}", false),
            ("jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True", true),
            ("delete", false),
            ("create", true),
        ] {
            let wanted = For::parse(text).unwrap();
            assert_eq!(wanted.is_met(Some(&pod)).unwrap(), is, "{text}");
        }
        assert!(For::parse("x").is_err() && For::parse("jsonpath={.a}=").is_err());
    }

    #[tokio::test]
    async fn waiting_ends_when_it_is_so_or_too_late() {
        let world = world();
        let pods =
            client::ApiResource::custom("", "v1", "pods", "Pod", api::kinds::Scope::Namespaced);
        world.put_tree(&pods, json!({ "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": "a", "namespace": "default" }, "status": { "phase": "Running" } }));
        assert_eq!(
            told(&world, "wait --for=jsonpath={.status.phase}=Running pod/a").await,
            "pod/a condition met\n"
        );
        assert_eq!(
            told(&world, "wait --for=condition=Ready po --all --timeout=1ms").await,
            "error: timed out waiting for the condition on pods/a\n"
        );
        assert_eq!(told(&world, "wait --for=delete pod/b").await, "");
        assert_eq!(
            told(&world, "wait --for=condition=Ready pod/b").await,
            "Error from server (NotFound): pods \"b\" not found\n"
        );
        assert_eq!(told(&world, "wait po").await, "error: unrecognized condition: []\n");
    }
}
