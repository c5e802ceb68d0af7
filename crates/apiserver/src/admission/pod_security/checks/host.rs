//! What of the node itself a pod may share or reach.
use super::{Verdict, containers, named, one_or_more, quoted, setters, shown, violation};
use crate::admission::{items, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub fn namespaces(pod: &Value) -> Verdict {
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let shared: Vec<String> = fields
        .iter()
        .filter(|field| pod["spec"][**field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| violation("host namespaces", shared.join(", ")))
}

pub fn ports(pod: &Value) -> Verdict {
    let taken = |container: &Value| -> Vec<i64> {
        let ports = items(&container["ports"]).iter();
        ports.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0).collect()
    };
    let bad = named(pod, |container| !taken(container).is_empty());
    // As text, which is how they are sorted.
    let all: BTreeSet<String> =
        containers(pod).flat_map(taken).map(|port| port.to_string()).collect();
    let uses = one_or_more("uses", "use", bad.len());
    let word = one_or_more("hostPort", "hostPorts", all.len());
    let all: Vec<String> = all.into_iter().collect();
    let detail = || format!("{} {uses} {word} {}", shown(&bad), all.join(", "));
    (!bad.is_empty()).then(|| violation("hostPort", detail()))
}

pub fn probes(pod: &Value) -> Verdict {
    let hosts = |container: &Value| -> Vec<String> {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|p| &container[p]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let handlers = probes.into_iter().chain(hooks);
        let hosts = handlers.flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|kind| text(&handler[kind]["host"]).to_owned())
        });
        hosts.filter(|host| !host.is_empty()).collect()
    };
    let bad: BTreeSet<&str> =
        named(pod, |container| !hosts(container).is_empty()).into_iter().collect();
    let bad: Vec<&str> = bad.into_iter().collect();
    let all: BTreeSet<String> = containers(pod).flat_map(hosts).collect();
    let uses = one_or_more("uses", "use", bad.len());
    let word = one_or_more("probe or lifecycle host", "probe or lifecycle hosts", all.len());
    let detail = || format!("{} {uses} {word} {}", shown(&bad), quoted(&all));
    (!bad.is_empty()).then(|| violation("probe or lifecycle host", detail()))
}

/// Windows' word for a container that is none.
pub fn process(pod: &Value) -> Verdict {
    let set = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let bad = named(pod, |container| set(&container["securityContext"]));
    let who = setters(set(&pod["spec"]["securityContext"]), &bad)?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(violation("hostProcess", detail))
}
