//! `kubectl top`: what nodes and pods use, by the metrics API.
use super::{Command, Group};
use crate::builder::{ALL_NAMESPACES, FIELD_SELECTOR, SELECTOR};
use crate::cluster::{Cluster, collection};
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, switch_on, text};
use crate::pods;
use crate::print::tabs;
use crate::session::Session;
use api::quantity::Quantity;
use client::ApiResource;
use client::source::Raw;
use serde_json::Value;
use std::collections::BTreeMap;

pub static COMMAND: Command = Command {
    name: "top",
    group: Group::Management,
    about: "Display resource (CPU/memory) usage",
    usage: "SUBCOMMAND",
    children: &[&NODE, &POD],
    ..Command::EMPTY
};

static COMMON: &[Flag] = &[
    switch("no-headers", "Without headers."),
    switch("show-swap", "Show swap, too."),
    text("sort-by", "", "cpu or memory."),
    switch_on("use-protocol-buffers", "Taken for compatibility."),
];

static NODE_FLAGS: &[Flag] =
    &[switch("show-capacity", "Percentages of the capacity, not of what pods may have.")];

static NODE: Command = Command {
    name: "node",
    aliases: &["nodes", "no"],
    about: "Display resource (CPU/memory) usage of nodes",
    usage: "[NAME | -l label]",
    flags: &[COMMON, NODE_FLAGS, SELECTOR],
    run: Some(|session, arguments| Box::pin(node(session, arguments))),
    offers: Offers::Name("nodes"),
    ..Command::EMPTY
};

static POD_FLAGS: &[Flag] =
    &[switch("containers", "Show containers."), switch("sum", "Show the sum.")];

static POD: Command = Command {
    name: "pod",
    aliases: &["pods", "po"],
    about: "Display resource (CPU/memory) usage of pods",
    usage: "[NAME | -l label]",
    flags: &[COMMON, POD_FLAGS, SELECTOR, FIELD_SELECTOR, ALL_NAMESPACES],
    run: Some(|session, arguments| Box::pin(pod(session, arguments))),
    offers: Offers::Name("pods"),
    ..Command::EMPTY
};

/// Whose resources are measured.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    milli_cpu: i64,
    memory: i64,
    swap: i64,
}

impl Usage {
    fn of(value: &Value) -> Usage {
        let quantity =
            |name: &str| value[name].as_str().and_then(|text| Quantity::parse(text).ok());
        Usage {
            milli_cpu: quantity("cpu").map_or(0, |quantity| quantity.milli_value()),
            memory: quantity("memory").map_or(0, |quantity| quantity.value()),
            swap: quantity("swap").map_or(0, |quantity| quantity.value()),
        }
    }

    fn add(&mut self, other: Usage) {
        self.milli_cpu += other.milli_cpu;
        self.memory += other.memory;
        self.swap += other.swap;
    }

    fn cells(self, swap: bool) -> Vec<String> {
        let mut cells = vec![format!("{}m", self.milli_cpu), format!("{}Mi", self.memory >> 20)];
        if swap {
            cells.push(format!("{}Mi", self.swap >> 20));
        }
        cells
    }

    fn key(self, sort_by: &str) -> i64 {
        // The most comes first.
        match sort_by {
            "cpu" => -self.milli_cpu,
            "memory" => -self.memory,
            "swap" => -self.swap,
            _ => 0,
        }
    }
}

fn check(arguments: &Arguments) -> Outcome {
    match arguments.text("sort-by") {
        "" | "cpu" | "memory" | "swap" => Ok(()),
        _ => Err("--sort-by accepts only cpu or memory".into()),
    }
}

/// The newest version of the metrics that there is.
async fn version(cluster: &Cluster) -> Outcome<String> {
    let mapper = cluster.mapper().await?;
    let found = mapper.group_versions.iter().find(|version| version.starts_with("metrics.k8s.io/"));
    found.cloned().ok_or_else(|| Failure::Plain("Metrics API not available".to_owned()))
}

async fn metrics(cluster: &Cluster, path: String, selector: &str) -> Outcome<Vec<Value>> {
    let raw = Raw::get(path).with("labelSelector", selector);
    let bytes = cluster.raw(raw).await?.bytes().await?;
    let answer: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::Plain(format!("unable to decode an answer: {error}")))?;
    Ok(match answer["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![answer],
    })
}

async fn node(session: &mut Session, arguments: Arguments) -> Outcome {
    check(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let version = version(&cluster).await?;
    let name = arguments.words.first().map(String::as_str).unwrap_or_default();
    let path = format!(
        "/apis/{version}/nodes{}",
        if name.is_empty() { String::new() } else { format!("/{name}") }
    );
    let measured = metrics(&cluster, path, arguments.text("selector")).await?;
    let nodes = ApiResource::custom("", "v1", "nodes", "Node", api::kinds::Scope::Cluster);
    let nodes = match name {
        "" => cluster.list(collection(&nodes, "", arguments.text("selector"), "")?, 500).await?,
        name => vec![cluster.get(&nodes, "", name).await?],
    };
    if measured.is_empty() {
        return Err("metrics not available yet".into());
    }
    let field = if arguments.is("show-capacity") { "capacity" } else { "allocatable" };
    let mut available: BTreeMap<&str, Usage> = BTreeMap::new();
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        available.insert(name, Usage::of(&node["status"][field]));
    }
    let rows = node_rows(&measured, available, &arguments);
    Ok(session.out.write_all(tabs::aligned(&rows).as_bytes())?)
}

fn node_rows(
    measured: &[Value],
    mut available: BTreeMap<&str, Usage>,
    arguments: &Arguments,
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    if !arguments.is("no-headers") {
        rows.push(row(&["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]));
    }
    let mut all: Vec<(&str, Usage)> = measured
        .iter()
        .map(|one| (one["metadata"]["name"].as_str().unwrap_or_default(), Usage::of(&one["usage"])))
        .collect();
    all.sort_by_key(|(name, usage)| (usage.key(arguments.text("sort-by")), name.to_string()));
    for (name, usage) in all {
        let of = available.remove(name).unwrap_or_default();
        let part = |is: i64, of: i64| match of {
            0 => "0%".to_owned(),
            of => format!("{}%", (is as f64 / of as f64 * 100.0) as i64),
        };
        let cells = usage.cells(false);
        rows.push(vec![
            name.to_owned(),
            cells[0].clone(),
            part(usage.milli_cpu, of.milli_cpu),
            cells[1].clone(),
            part(usage.memory, of.memory),
            String::new(),
        ]);
    }
    // Those that say nothing are told as well.
    for name in available.keys() {
        rows.push(row(&[name, "<unknown>", "<unknown>", "<unknown>", "<unknown>"]));
    }
    padded(rows)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Every cell of these tables is padded, the last one too.
fn padded(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let width = rows
        .iter()
        .map(|row| row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |at| at + 1))
        .max();
    for row in &mut rows {
        row.truncate(width.unwrap_or(0));
        row.resize(width.unwrap_or(0) + 1, String::new());
    }
    rows
}

async fn pod(session: &mut Session, arguments: Arguments) -> Outcome {
    check(&arguments)?;
    let cluster = session.cluster(&arguments)?;
    let version = version(&cluster).await?;
    let name = arguments.words.first().map(String::as_str).unwrap_or_default();
    let all = arguments.is("all-namespaces");
    let folder = if all { String::new() } else { format!("/namespaces/{}", cluster.namespace) };
    let one = if name.is_empty() { String::new() } else { format!("/{name}") };
    let selector = arguments.text("selector");
    let path = format!("/apis/{version}{folder}/pods{one}");
    let mut measured = metrics(&cluster, path, selector).await?;
    if let Some(fields) = arguments.some("field-selector") {
        let namespace = if all { "" } else { &cluster.namespace };
        let chosen =
            cluster.list(collection(&pods::resource(), namespace, selector, fields)?, 500).await?;
        measured.retain(|one| {
            chosen.iter().any(|pod| {
                pod["metadata"]["name"] == one["metadata"]["name"]
                    && pod["metadata"]["namespace"] == one["metadata"]["namespace"]
            })
        });
    }
    if measured.is_empty() {
        match all {
            true => writeln!(session.err, "No resources found")?,
            false => {
                writeln!(session.err, "No resources found in {} namespace.", cluster.namespace)?
            }
        }
        return Ok(());
    }
    let rows = pod_rows(&measured, &arguments);
    Ok(session.out.write_all(tabs::aligned(&rows).as_bytes())?)
}

fn pod_rows(measured: &[Value], arguments: &Arguments) -> Vec<Vec<String>> {
    let (all, containers) = (arguments.is("all-namespaces"), arguments.is("containers"));
    let (swap, sort_by) = (arguments.is("show-swap"), arguments.text("sort-by"));
    let mut rows = Vec::new();
    let mut lead = Vec::new();
    if all {
        lead.push("NAMESPACE");
    }
    if containers {
        lead.push("POD");
    }
    if !arguments.is("no-headers") {
        let mut headers = lead.clone();
        headers.extend(["NAME", "CPU(cores)", "MEMORY(bytes)"]);
        if swap {
            headers.push("SWAP(bytes)");
        }
        rows.push(row(&headers));
    }
    let of_pod = |pod: &Value| {
        let mut sum = Usage::default();
        for container in pod["containers"].as_array().into_iter().flatten() {
            sum.add(Usage::of(&container["usage"]));
        }
        sum
    };
    let text =
        |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mut pods: Vec<&Value> = measured.iter().collect();
    pods.sort_by_key(|pod| {
        let namespace =
            if all && sort_by.is_empty() { text(pod, "namespace") } else { String::new() };
        (of_pod(pod).key(sort_by), namespace, text(pod, "name"))
    });
    let mut total = Usage::default();
    for pod in pods {
        total.add(of_pod(pod));
        let mut begin = Vec::new();
        if all {
            begin.push(text(pod, "namespace"));
        }
        begin.push(text(pod, "name"));
        if !containers {
            begin.extend(of_pod(pod).cells(swap));
            rows.push(begin);
            continue;
        }
        let mut inside: Vec<&Value> = pod["containers"].as_array().into_iter().flatten().collect();
        inside.sort_by_key(|one| {
            let name = one["name"].as_str().unwrap_or_default().to_owned();
            (Usage::of(&one["usage"]).key(sort_by), name)
        });
        for container in inside {
            let mut line = begin.clone();
            line.push(container["name"].as_str().unwrap_or_default().to_owned());
            line.extend(Usage::of(&container["usage"]).cells(swap));
            rows.push(line);
        }
    }
    if arguments.is("sum") {
        let empty = vec![String::new(); lead.len() + 1];
        let mut line = empty.clone();
        line.extend(row(&["________", "________"]));
        rows.push(line);
        let mut line = empty;
        line.extend(total.cells(swap));
        rows.push(line);
    }
    padded(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_and_nodes_are_measured() {
        let pod = |name: &str, cpu: &str, memory: &str| {
            json!({ "metadata": { "name": name, "namespace": "d" }, "containers": [
                { "name": "c", "usage": { "cpu": cpu, "memory": memory } }] })
        };
        let pods = [pod("b", "5m", "10Mi"), pod("a", "1", "1Gi")];
        let read = |line: &str, command: &'static Command| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Arguments::parse("kubectl top", command.flags, &words).unwrap()
        };
        assert_eq!(
            tabs::aligned(&pod_rows(&pods, &read("--sum", &POD))),
            "NAME   CPU(cores)   MEMORY(bytes)   \na      1000m        1024Mi          \nb      5m           10Mi            \n       \
             ________     ________        \n       1005m        1034Mi          \n"
        );
        let node =
            json!({ "metadata": { "name": "n" }, "usage": { "cpu": "500m", "memory": "512Mi" } });
        let allocatable = Usage { milli_cpu: 2000, memory: 1 << 30, swap: 0 };
        let rows = node_rows(
            &[node],
            BTreeMap::from([("n", allocatable), ("m", allocatable)]),
            &read("", &NODE),
        );
        assert_eq!(
            tabs::aligned(&rows),
            "NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)   \nn      500m         25%         512Mi           50%         \nm      \
             <unknown>    <unknown>   <unknown>       <unknown>   \n"
        );
    }
}
