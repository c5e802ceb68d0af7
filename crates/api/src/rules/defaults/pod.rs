//! Defaults of pods and what they are made of.
use super::{Fill, Rows, empty};
use serde_json::{Map, Value, json};

pub const ROWS: Rows = &[
    ("core/v1.Pod", pod),
    ("core/v1.PodSpec", spec),
    ("core/v1.PodStatus", status),
    ("core/v1.Container", container),
    ("core/v1.EphemeralContainer", container),
    ("core/v1.Volume", volume),
    ("core/v1.Probe", probe),
    ("core/v1.HTTPGetAction", |get| {
        get.fill("path", "/");
        get.fill("scheme", "HTTP");
    }),
    ("core/v1.ObjectFieldSelector", |selector| selector.fill("apiVersion", "v1")),
    ("core/v1.SecretVolumeSource", mode),
    ("core/v1.ConfigMapVolumeSource", mode),
    ("core/v1.DownwardAPIVolumeSource", mode),
    ("core/v1.ProjectedVolumeSource", mode),
    ("core/v1.ServiceAccountTokenProjection", |token| token.fill("expirationSeconds", 3600)),
    ("core/v1.HostPathVolumeSource", |path| path.fill("type", "")),
];

/// What only pods get, and templates of pods do not.
fn pod(pod: &mut Map<String, Value>) {
    let spec = pod.inside("spec");
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), 1.into());
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in spec.each(list) {
            requests_from_limits(container.inside("resources"));
            if host_network {
                container.each("ports").for_each(host_port);
            }
        }
    }
    spec.fill("enableServiceLinks", true);
}

fn requests_from_limits(resources: &mut Map<String, Value>) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let requests = resources.inside("requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
    if requests.is_empty() {
        resources.remove("requests");
    }
}

fn host_port(port: &mut Map<String, Value>) {
    if let Some(number) = port.get("containerPort").cloned() {
        port.fill("hostPort", number);
    }
}

fn spec(spec: &mut Map<String, Value>) {
    let (new, old) = (spec.text("serviceAccountName"), spec.text("serviceAccount"));
    let account = if new.is_empty() { old } else { new }.to_owned();
    if !account.is_empty() {
        spec.insert("serviceAccountName".into(), account.clone().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    spec.fill("dnsPolicy", "ClusterFirst");
    spec.fill("restartPolicy", "Always");
    spec.fill("securityContext", empty());
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill("schedulerName", "default-scheduler");
}

/// The address and the list of addresses agree; the address wins.
fn status(status: &mut Map<String, Value>) {
    let first = status.get("podIPs").and_then(|ips| ips[0]["ip"].as_str()).unwrap_or_default();
    let (ip, first) = (status.text("podIP").to_owned(), first.to_owned());
    if ip.is_empty() && !first.is_empty() {
        status.insert("podIP".into(), first.into());
    } else if ip != first {
        status.insert("podIPs".into(), json!([{ "ip": ip }]));
    }
}

fn container(container: &mut Map<String, Value>) {
    if container.get("lifecycle").is_some_and(|hooks| hooks.as_object().is_some_and(only_stops)) {
        container.remove("lifecycle");
    }
    let policy = pull_policy(container.text("image"));
    container.fill("imagePullPolicy", policy);
    container.fill("terminationMessagePath", "/dev/termination-log");
    container.fill("terminationMessagePolicy", "File");
}

/// Nothing but a signal, which is a feature that is off.
fn only_stops(hooks: &Map<String, Value>) -> bool {
    hooks.len() == 1 && hooks.contains_key("stopSignal")
}

/// What an image's tag says about how often it changes.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(name, digest)| (name, digest));
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    let untagged = tag.is_empty() && digest.is_empty() && is_reference(name);
    if tag == "latest" || untagged { "Always" } else { "IfNotPresent" }
}

/// Roughly what an image may be called; anything else has no tag.
fn is_reference(name: &str) -> bool {
    let path =
        name.split_once('/').filter(|(host, _)| host.contains(['.', ':'])).map_or(name, |p| p.1);
    let part = |part: &str| {
        let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let sound = |b: u8| alnum(b) || matches!(b, b'.' | b'_' | b'-');
        let ends = [part.bytes().next(), part.bytes().last()];
        part.bytes().all(sound) && ends.into_iter().all(|end| end.is_some_and(alnum))
    };
    path.len() <= 255 && path.split('/').all(part)
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|field| field == "name") {
        volume.insert("emptyDir".into(), empty());
    }
    if let Some(image) = volume.given("image") {
        let policy = pull_policy(image.text("reference"));
        image.fill("pullPolicy", policy);
    }
}

fn probe(probe: &mut Map<String, Value>) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        probe.fill(field, value);
    }
}

fn mode(source: &mut Map<String, Value>) {
    source.fill("defaultMode", 0o644);
}
