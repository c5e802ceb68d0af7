//! What a path is answered with, from what is known: discovery, and what nodes and pods use.
use crate::usage::Usage;
use crate::world::World;
use api::selector::{field, label};
use api::status::Status;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const GROUP: &str = "metrics.k8s.io";
/// The same answers, whichever is asked for; the first is preferred.
pub const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What is told of a node or pod beside what it uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// Empty for nodes.
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Where a pod runs; a node's own name.
    pub node: String,
}

/// Who there is to tell of.
pub trait Directory {
    fn nodes(&self) -> Vec<About>;
    /// Pods that run; of all namespaces, if it is empty.
    fn pods(&self, namespace: &str) -> Vec<About>;
}

/// The answer to a `GET`, as a tree.
pub fn answer(
    world: &World,
    directory: &dyn Directory,
    path: &str,
    query: &str,
    now: jiff::Timestamp,
) -> Result<Value, Status> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((version, rest)) = (match parts[..] {
        ["apis"] => return Ok(groups()),
        ["apis", GROUP] => return Ok(group()),
        ["apis", GROUP, version, ref rest @ ..] => Some((version, rest)),
        _ => None,
    }) else {
        return Err(nowhere(path));
    };
    if !VERSIONS.contains(&version) {
        return Err(nowhere(path));
    }
    let wanted = Wanted::read(query)?;
    let told = Told { world, version, now };
    match *rest {
        [] => Ok(resources(version)),
        ["nodes"] => {
            let all = directory.nodes().into_iter().filter(|about| wanted.selects(about));
            Ok(told.list("NodeMetricsList", all.filter_map(|about| told.node(&about)).collect()))
        }
        ["nodes", name] => {
            let found = directory.nodes().into_iter().find(|about| about.name == name);
            found.and_then(|about| told.node(&about)).ok_or_else(|| none_of("nodes", name))
        }
        ["pods"] => Ok(told.pods(directory.pods(""), &wanted)),
        ["namespaces", namespace, "pods"] => Ok(told.pods(directory.pods(namespace), &wanted)),
        ["namespaces", namespace, "pods", name] => {
            let found = directory.pods(namespace).into_iter().find(|about| about.name == name);
            let missing = || none_of("pods", &format!("{namespace}/{name}"));
            found.and_then(|about| told.pod(&about)).ok_or_else(missing)
        }
        _ => Err(nowhere(path)),
    }
}

fn nowhere(path: &str) -> Status {
    Status::not_found(api::group::GroupResource::new(GROUP, ""), path)
}

fn none_of(plural: &str, name: &str) -> Status {
    Status::not_found(api::group::GroupResource::new(GROUP, plural), name)
}

/// What a list is restricted to.
struct Wanted {
    labels: label::Selector,
    fields: field::Selector,
}

impl Wanted {
    fn read(query: &str) -> Result<Wanted, Status> {
        let parameter = |wanted: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut found = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
            let value = found.next().unwrap_or_default().replace('+', " ");
            percent_decode_str(&value).decode_utf8_lossy().into_owned()
        };
        let labels = label::Selector::parse(&parameter("labelSelector"));
        let fields = field::Selector::parse(&parameter("fieldSelector"));
        Ok(Wanted {
            labels: labels.map_err(|error| Status::bad_request(error.to_string()))?,
            fields: fields.map_err(|error| Status::bad_request(error.to_string()))?,
        })
    }

    fn selects(&self, about: &About) -> bool {
        let field = |name: &str| match name {
            "metadata.name" => Some(&about.name),
            "metadata.namespace" => Some(&about.namespace),
            _ => None,
        };
        self.labels.matches(&about.labels) && self.fields.matches(field)
    }
}

struct Told<'a> {
    world: &'a World,
    version: &'a str,
    now: jiff::Timestamp,
}

impl Told<'_> {
    fn list(&self, kind: &str, items: Vec<Value>) -> Value {
        json!({ "kind": kind, "apiVersion": self.api_version(), "metadata": {}, "items": items })
    }

    fn api_version(&self) -> String {
        format!("{GROUP}/{}", self.version)
    }

    fn pods(&self, all: Vec<About>, wanted: &Wanted) -> Value {
        let selected = all.iter().filter(|about| wanted.selects(about));
        self.list("PodMetricsList", selected.filter_map(|about| self.pod(about)).collect())
    }

    fn node(&self, about: &About) -> Option<Value> {
        let usage = self.world.node(&about.name)?;
        let mut told = self.begin("NodeMetrics", about, &usage);
        told["usage"] = usage.resources();
        Some(told)
    }

    fn pod(&self, about: &About) -> Option<Value> {
        let containers = self.world.pod(&about.node, &about.namespace, &about.name)?;
        // All are of one look; the shortest window is true of each.
        let windows = containers.values();
        let usage = windows.min_by(|a, b| a.window_seconds.total_cmp(&b.window_seconds))?;
        let mut told = self.begin("PodMetrics", about, usage);
        let container =
            |(name, usage): (&String, &Usage)| json!({ "name": name, "usage": usage.resources() });
        told["containers"] = containers.iter().map(container).collect();
        Some(told)
    }

    fn begin(&self, kind: &str, about: &About, usage: &Usage) -> Value {
        let mut metadata = json!({
            "name": about.name,
            "creationTimestamp": api::time::format(self.now.as_second()),
        });
        if !about.namespace.is_empty() {
            metadata["namespace"] = about.namespace.clone().into();
        }
        if !about.labels.is_empty() {
            metadata["labels"] = json!(about.labels);
        }
        json!({
            "kind": kind,
            "apiVersion": self.api_version(),
            "metadata": metadata,
            "timestamp": api::time::format(usage.at.as_second()),
            "window": usage.window(),
        })
    }
}

fn version(name: &str) -> Value {
    json!({ "groupVersion": format!("{GROUP}/{name}"), "version": name })
}

fn group() -> Value {
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": VERSIONS.map(version), "preferredVersion": version(VERSIONS[0]),
    })
}

fn groups() -> Value {
    let mut one = group();
    if let Some(fields) = one.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [one] })
}

fn resources(version: &str) -> Value {
    let row = |name: &str, kind: &str, namespaced: bool| {
        json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind,
            "verbs": ["get", "list"] })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"),
        "resources": [row("nodes", "NodeMetrics", false), row("pods", "PodMetrics", true)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use expect_test::{Expect, expect};
    use jiff::Timestamp;

    struct Two;

    fn about(namespace: &str, name: &str, label: &str) -> About {
        let labels = [("app".to_owned(), label.to_owned())].into();
        About { namespace: namespace.into(), name: name.into(), labels, node: "n1".into() }
    }

    impl Directory for Two {
        fn nodes(&self) -> Vec<About> {
            vec![about("", "n1", "x"), about("", "unseen", "x")]
        }

        fn pods(&self, namespace: &str) -> Vec<About> {
            let all = [about("a", "web", "web"), about("b", "db", "db")];
            all.into_iter().filter(|p| namespace.is_empty() || p.namespace == namespace).collect()
        }
    }

    fn check(ask: &str, expected: Expect) {
        let world = World::default();
        for (second, cpu) in [(100, 1.0), (115, 2.5)] {
            let page = format!(
                "node_cpu_usage_seconds_total {cpu}\nnode_memory_working_set_bytes 2048\n\
                 container_cpu_usage_seconds_total{{container=\"c\",namespace=\"a\",pod=\"web\"}} {cpu}\n\
                 container_memory_working_set_bytes{{container=\"c\",namespace=\"a\",pod=\"web\"}} 1024\n\
                 container_cpu_usage_seconds_total{{container=\"c\",namespace=\"b\",pod=\"db\"}} {cpu}\n\
                 container_memory_working_set_bytes{{container=\"c\",namespace=\"b\",pod=\"db\"}} 0\n"
            );
            let now = Timestamp::from_second(second).expect("a moment");
            world.saw("n1", Sample::read(&page, now));
        }
        let (path, query) = ask.split_once('?').unwrap_or((ask, ""));
        let now = Timestamp::from_second(120).expect("a moment");
        let said = match answer(&world, &Two, path, query, now) {
            Err(status) => format!("{} {}", status.code, status.message),
            Ok(tree) => match tree["items"].as_array() {
                None => tree.to_string(),
                Some(items) => {
                    let name = |item: &Value| {
                        let usage = match &item["containers"] {
                            Value::Null => &item["usage"],
                            containers => &containers[0]["usage"],
                        };
                        format!("{} {} {usage}", item["metadata"]["name"], item["window"])
                    };
                    items.iter().map(name).collect::<Vec<_>>().join("\n")
                }
            },
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn nodes_and_pods_are_told_as_far_as_they_are_known() {
        check(
            "/apis/metrics.k8s.io/v1/nodes",
            expect![[r#""n1" "15s" {"cpu":"100000000n","memory":"2Ki"}"#]],
        );
        check(
            "/apis/metrics.k8s.io/v1beta1/pods",
            expect![[r#"
                "web" "15s" {"cpu":"100000000n","memory":"1Ki"}
                "db" "15s" {"cpu":"100000000n","memory":"0"}"#]],
        );
        check(
            "/apis/metrics.k8s.io/v1/pods?labelSelector=app%3Ddb",
            expect![[r#""db" "15s" {"cpu":"100000000n","memory":"0"}"#]],
        );
        check(
            "/apis/metrics.k8s.io/v1/pods?fieldSelector=metadata.name%3Dweb",
            expect![[r#""web" "15s" {"cpu":"100000000n","memory":"1Ki"}"#]],
        );
        check(
            "/apis/metrics.k8s.io/v1/namespaces/a/pods/web",
            expect![[
                r#"{"apiVersion":"metrics.k8s.io/v1","containers":[{"name":"c","usage":{"cpu":"100000000n","memory":"1Ki"}}],"kind":"PodMetrics","metadata":{"creationTimestamp":"1970-01-01T00:02:00Z","labels":{"app":"web"},"name":"web","namespace":"a"},"timestamp":"1970-01-01T00:01:55Z","window":"15s"}"#
            ]],
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        check(
            "/apis/metrics.k8s.io/v1/nodes/unseen",
            expect![[r#"404 nodes.metrics.k8s.io "unseen" not found"#]],
        );
        check(
            "/apis/metrics.k8s.io/v1/namespaces/a/pods/db",
            expect![[r#"404 pods.metrics.k8s.io "a/db" not found"#]],
        );
        check(
            "/apis/metrics.k8s.io/v2",
            expect![[r#"404 .metrics.k8s.io "/apis/metrics.k8s.io/v2" not found"#]],
        );
    }
}
