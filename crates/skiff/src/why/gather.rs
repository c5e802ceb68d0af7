//! What an answer is made of, from the API.
use anyhow::{anyhow, bail};
use api::kinds::{Scope, find_kind};
use api::selector::{field, label};
use client::source::{Ask, Call, Collection, Page};
use client::{ApiResource, Source};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An answer that is larger, or comes later, is none.
const LARGEST: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

/// Everything that is looked at, as the API has it.
#[derive(Debug, Default)]
pub struct Facts {
    pub object: Value,
    /// What happened to it that is no good news, the last one last.
    pub warnings: Vec<Value>,
    /// Those that a selector of it selects.
    pub pods: Vec<Value>,
    /// Where a service leads.
    pub slices: Vec<Value>,
    /// The node that it is on.
    pub node: Option<Value>,
    /// What the scheduler said of nodes at its last attempt: reasons, and the nodes of each.
    pub refusals: BTreeMap<String, Vec<String>>,
}

/// What the scheduler of this machine's cluster says of a pod; nothing, if there is none to be asked.
pub async fn refusals(socket: &Path, uid: &str) -> BTreeMap<String, Vec<String>> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        let head =
            format!("GET /debug/pending/{uid} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(LARGEST).read_to_string(&mut answer).await?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let said: Value = serde_json::from_str(body)?;
        anyhow::Ok(serde_json::from_value(said["nodes"].clone())?)
    };
    tokio::time::timeout(PATIENCE, asked).await.ok().and_then(Result::ok).unwrap_or_default()
}

pub async fn gather(
    source: &dyn Source,
    row: &ApiResource,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Facts> {
    let namespace = if row.is_namespaced() { namespace } else { "" };
    let Some(object) = get(source, row.clone(), namespace, name).await? else {
        let place = if namespace.is_empty() { "" } else { " -A" };
        bail!("there is no such {}: `kubectl get {}{place}` lists them", row.kind, row.plural);
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let of_object = field::Selector::equals("involvedObject.uid", uid);
    let mut warnings = list(source, "Event", "", None, Some(of_object)).await?;
    warnings.retain(|event| event["type"] == "Warning");
    warnings.sort_by_key(|event| last_seen(event).to_owned());
    let selector = selector(&row.kind, &object);
    let pods = match &selector {
        Some(selector) => list(source, "Pod", namespace, Some(selector.clone()), None).await?,
        None => Vec::new(),
    };
    let slices = match &*row.kind {
        "Service" => {
            let of_service = [("kubernetes.io/service-name".to_owned(), name.to_owned())].into();
            let of_service = label::Selector::from_set(&of_service);
            list(source, "EndpointSlice", namespace, Some(of_service), None).await?
        }
        _ => Vec::new(),
    };
    let node = match object["spec"]["nodeName"]
        .as_str()
        .and_then(|name| Some((find_kind("v1", "Node")?, name)))
    {
        Some((row, name)) => get(source, row.into(), "", name).await?,
        None => None,
    };
    Ok(Facts { object, warnings, pods, slices, node, refusals: BTreeMap::new() })
}

/// What an object selects pods by.
fn selector(kind: &str, object: &Value) -> Option<label::Selector> {
    let selector = &object["spec"]["selector"];
    match kind {
        "Service" | "ReplicationController" => {
            let labels: BTreeMap<String, String> = serde_json::from_value(selector.clone()).ok()?;
            (!labels.is_empty()).then(|| label::Selector::from_set(&labels))
        }
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => {
            let selector = serde_json::from_value(selector.clone()).ok()?;
            label::Selector::from_label_selector(Some(&selector)).ok()
        }
        _ => None,
    }
}

fn last_seen(event: &Value) -> &str {
    let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
    times.iter().find_map(|time| event[time].as_str()).unwrap_or_default()
}

/// A kind that somebody has defined in the cluster.
pub async fn defined(source: &dyn Source, kind: &str) -> anyhow::Result<Option<ApiResource>> {
    let all = list(source, "CustomResourceDefinition", "", None, None).await?;
    Ok(all.iter().find_map(|definition| named(definition, kind)))
}

/// What a definition defines, if that is what it is called: in one word, or with its group.
fn named(definition: &Value, kind: &str) -> Option<ApiResource> {
    let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let short = names["shortNames"].as_array().into_iter().flatten();
    let mut words =
        [&names["plural"], &names["singular"], &names["kind"], &definition["metadata"]["name"]]
            .into_iter()
            .chain(short)
            .map(|word| text(word).to_lowercase());
    if !words.any(|word| word == kind) {
        return None;
    }
    let versions = || spec["versions"].as_array().into_iter().flatten();
    let served = |version: &&Value| version["served"] == true;
    let version = versions().filter(served).find(|version| version["storage"] == true);
    let version = version.or_else(|| versions().find(served))?;
    let scope = match spec["scope"] == "Cluster" {
        true => Scope::Cluster,
        false => Scope::Namespaced,
    };
    let (plural, kind) = (text(&names["plural"]), text(&names["kind"]));
    Some(ApiResource::custom(&text(&spec["group"]), &text(&version["name"]), &plural, &kind, scope))
}

async fn get(
    source: &dyn Source,
    row: ApiResource,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<Value>> {
    let call = Call {
        resource: row,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: "".into(),
        ask: Ask::Get,
    };
    match source.call(call).await {
        Ok(found) => Ok(Some(found.object().map_err(|status| anyhow!(status.message))?.tree()?)),
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(anyhow!(status.message)),
    }
}

async fn list(
    source: &dyn Source,
    kind: &str,
    namespace: &str,
    labels: Option<label::Selector>,
    fields: Option<field::Selector>,
) -> anyhow::Result<Vec<Value>> {
    let version = match kind {
        "EndpointSlice" => "discovery.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        _ => "v1",
    };
    let Some(row) = find_kind(version, kind) else { return Ok(Vec::new()) };
    let mut of = Collection::all(ApiResource::from(row)).in_namespace(namespace);
    of.labels = labels.unwrap_or(of.labels);
    of.fields = fields.unwrap_or(of.fields);
    let found = source.list(of, Page::default()).await.map_err(|status| anyhow!(status.message))?;
    Ok(found.items.iter().map(|object| object.tree()).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_somebody_defined_has_many_names() {
        let definition = |scope: &str, served: bool| -> Value {
            serde_json::json!({ "metadata": { "name": "boats.example.com" }, "spec": {
                "group": "example.com", "scope": scope,
                "names": { "plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": ["bt"] },
                "versions": [{ "name": "v1", "served": served, "storage": false },
                    { "name": "v2", "served": served, "storage": true }] } })
        };
        let path = |definition: &Value, word: &str| {
            named(definition, word).map(|resource| resource.path("n", "x", ""))
        };
        let (inside, outside) = (definition("Namespaced", true), definition("Cluster", true));
        for word in ["boats", "boat", "bt", "boats.example.com"] {
            let expected = "/apis/example.com/v2/namespaces/n/boats/x";
            assert_eq!(path(&inside, word).as_deref(), Some(expected), "{word}");
        }
        assert_eq!(path(&outside, "boat").as_deref(), Some("/apis/example.com/v2/boats/x"));
        assert_eq!(
            (path(&inside, "ship"), path(&definition("Cluster", false), "boat")),
            (None, None)
        );
    }
}
