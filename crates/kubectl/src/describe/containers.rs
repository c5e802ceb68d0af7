//! Containers of pods and of templates.

use api::quote::Quoted;
use serde_json::Value;

use super::common::{
    int, is_true, items, or, pairs, quantity, shown, text, texts, time, true_false,
};
use super::pod::resource_list;
use super::writer::{Writer, put};

/// `pod` is there to resolve what variables say of it; a template has none.
pub fn describe(
    w: &mut Writer,
    title: &str,
    containers: &Value,
    statuses: &Value,
    pod: Option<&Value>,
    indent: &str,
) {
    let containers = items(containers);
    put!(w, 0, "{indent}{title}:{}\n", if containers.is_empty() { " <none>" } else { "" });
    for container in containers {
        let status = items(statuses).iter().rfind(|status| status["name"] == container["name"]);
        basics(w, container, status, indent);
        command(w, container);
        if let Some(status) = status {
            state(w, "State", &status["state"]);
            if status["lastState"]["terminated"].is_object() {
                state(w, "Last State", &status["lastState"]);
            }
            put!(w, 2, "Ready:\t{}\n", true_false(is_true(&status["ready"])));
            put!(w, 2, "Restart Count:\t{}\n", int(&status["restartCount"]));
        }
        resources(w, &container["resources"], 2);
        for (title, field) in [
            ("Liveness", "livenessProbe"),
            ("Readiness", "readinessProbe"),
            ("Startup", "startupProbe"),
        ] {
            if container[field].is_object() {
                put!(w, 2, "{title}:\t{}\n", probe(&container[field]));
            }
        }
        environment_from(w, container);
        environment(w, container, pod);
        mounts(w, container);
    }
}

fn basics(w: &mut Writer, container: &Value, status: Option<&Value>, indent: &str) {
    let deeper = if indent.is_empty() { "" } else { " " };
    put!(w, 1, "{deeper}{}:\n", text(&container["name"]));
    if let Some(status) = status {
        put!(w, 2, "Container ID:\t{}\n", text(&status["containerID"]));
    }
    put!(w, 2, "Image:\t{}\n", text(&container["image"]));
    if let Some(status) = status {
        put!(w, 2, "Image ID:\t{}\n", text(&status["imageID"]));
    }
    for (title, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
        let ports = ports(&container["ports"], field);
        match ports.contains(',') {
            true => put!(w, 2, "{title}s:\t{ports}\n"),
            false => put!(w, 2, "{title}:\t{}\n", or(&ports, "<none>")),
        }
    }
    let seccomp = &container["securityContext"]["seccompProfile"];
    if seccomp.is_object() {
        put!(w, 2, "SeccompProfile:\t{}\n", text(&seccomp["type"]));
        if text(&seccomp["type"]) == "Localhost" {
            put!(w, 3, "LocalhostProfile:\t{}\n", text(&seccomp["localhostProfile"]));
        }
    }
}

fn ports(ports: &Value, field: &str) -> String {
    let port = |port: &Value| {
        let number = format!("{}/{}", int(&port[field]), text(&port["protocol"]));
        match text(&port["name"]) {
            "" => number,
            name => format!("{number} ({name})"),
        }
    };
    items(ports).iter().map(port).collect::<Vec<_>>().join(", ")
}

fn command(w: &mut Writer, container: &Value) {
    for (title, field) in [("Command", "command"), ("Args", "args")] {
        let words = texts(&container[field]);
        if !words.is_empty() {
            put!(w, 2, "{title}:\n");
        }
        for line in words.into_iter().flat_map(|word| word.split('\n')) {
            put!(w, 3, "{line}\n");
        }
    }
}

fn state(w: &mut Writer, title: &str, state: &Value) {
    let optional = |w: &mut Writer, title: &str, value: &Value| {
        if !text(value).is_empty() {
            put!(w, 3, "{title}:\t{}\n", text(value));
        }
    };
    if state["running"].is_object() {
        put!(w, 2, "{title}:\tRunning\n");
        put!(w, 3, "Started:\t{}\n", time(&state["running"]["startedAt"]));
    } else if state["terminated"].is_object() && !state["waiting"].is_object() {
        let ended = &state["terminated"];
        put!(w, 2, "{title}:\tTerminated\n");
        optional(w, "Reason", &ended["reason"]);
        optional(w, "Message", &ended["message"]);
        put!(w, 3, "Exit Code:\t{}\n", int(&ended["exitCode"]));
        if int(&ended["signal"]) > 0 {
            put!(w, 3, "Signal:\t{}\n", int(&ended["signal"]));
        }
        put!(w, 3, "Started:\t{}\n", time(&ended["startedAt"]));
        put!(w, 3, "Finished:\t{}\n", time(&ended["finishedAt"]));
    } else {
        put!(w, 2, "{title}:\tWaiting\n");
        optional(w, "Reason", &state["waiting"]["reason"]);
    }
}

pub fn resources(w: &mut Writer, resources: &Value, level: usize) {
    for (title, field) in [("Limits", "limits"), ("Requests", "requests")] {
        if !pairs(&resources[field]).is_empty() {
            put!(w, level, "{title}:\n");
        }
        resource_list(w, level + 1, &resources[field]);
    }
}

fn probe(probe: &Value) -> String {
    let number = |name: &str| int(&probe[name]);
    let times = format!(
        "delay={}s timeout={}s period={}s successThreshold={} failureThreshold={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    );
    if probe["exec"].is_object() {
        return format!("exec [{}] {times}", texts(&probe["exec"]["command"]).join(" "));
    }
    if probe["httpGet"].is_object() {
        return format!("http-get {} {times}", url(&probe["httpGet"]));
    }
    if probe["tcpSocket"].is_object() {
        let socket = &probe["tcpSocket"];
        return format!("tcp-socket {}:{} {times}", text(&socket["host"]), shown(&socket["port"]));
    }
    if probe["grpc"].is_object() {
        let grpc = &probe["grpc"];
        return format!("grpc <pod>:{} {} {times}", int(&grpc["port"]), text(&grpc["service"]));
    }
    format!("unknown {times}")
}

fn url(get: &Value) -> String {
    let (host, port, path) = (text(&get["host"]), shown(&get["port"]), text(&get["path"]));
    let host =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let scheme = match text(&get["scheme"]) {
        "" => String::new(),
        scheme => format!("{}:", scheme.to_lowercase()),
    };
    let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
    format!("{scheme}//{host}{slash}{}", escaped_path(path))
}

/// A path as Go writes it in a URL.
fn escaped_path(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'='
            | b'@' | b'!' | b'\'' | b'(' | b')' | b'*' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn environment_from(w: &mut Writer, container: &Value) {
    let sources = items(&container["envFrom"]);
    if sources.is_empty() {
        return;
    }
    w.write(2, "Environment Variables from:\n");
    for source in sources {
        let (from, reference) = match source["configMapRef"].is_object() {
            true => ("ConfigMap", &source["configMapRef"]),
            false if source["secretRef"].is_object() => ("Secret", &source["secretRef"]),
            false => ("", &Value::Null),
        };
        let (name, optional) = (text(&reference["name"]), is_true(&reference["optional"]));
        let prefix = match text(&source["prefix"]) {
            "" => String::new(),
            prefix => format!(" with prefix '{prefix}'"),
        };
        put!(w, 3, "{name}\t{from}{prefix}\tOptional: {optional}\n");
    }
}

fn environment(w: &mut Writer, container: &Value, pod: Option<&Value>) {
    let variables = items(&container["env"]);
    put!(w, 2, "Environment:{}\n", if variables.is_empty() { "\t<none>" } else { "" });
    for variable in variables {
        let (name, from) = (text(&variable["name"]), &variable["valueFrom"]);
        if from.is_null() {
            for (i, line) in text(&variable["value"]).split('\n').enumerate() {
                match i {
                    0 => put!(w, 3, "{name}:\t{line}\n"),
                    _ => put!(w, 3, "\t{line}\n"),
                }
            }
        } else if from["fieldRef"].is_object() {
            let reference = &from["fieldRef"];
            let path = text(&reference["fieldPath"]);
            let value = pod.map(|pod| field(pod, path)).unwrap_or_default();
            put!(w, 3, "{name}:\t{value} ({}:{path})\n", text(&reference["apiVersion"]));
        } else if from["resourceFieldRef"].is_object() {
            let resource = text(&from["resourceFieldRef"]["resource"]);
            let value = match resource_field(container, &from["resourceFieldRef"]) {
                Some(0) if matches!(resource, "limits.cpu" | "limits.memory") => {
                    "node allocatable".to_owned()
                }
                Some(value) => value.to_string(),
                None => String::new(),
            };
            put!(w, 3, "{name}:\t{value} ({resource})\n");
        } else {
            for (field, of) in [("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")]
            {
                let reference = &from[field];
                if reference.is_object() {
                    let (key, holder) = (text(&reference["key"]), text(&reference["name"]));
                    let optional = is_true(&reference["optional"]);
                    put!(
                        w,
                        3,
                        "{name}:\t<set to the key '{key}' {of} '{holder}'>\tOptional: {optional}\n"
                    );
                    break;
                }
            }
        }
    }
}

/// What a pod's field says. Upstream's describer knows no fields but these two: its scheme converts no
/// other names of fields of pods.
fn field<'p>(pod: &'p Value, path: &str) -> &'p str {
    match path {
        "metadata.name" => text(&pod["metadata"]["name"]),
        "metadata.namespace" => text(&pod["metadata"]["namespace"]),
        _ => "",
    }
}

/// An amount in parts of the divisor, rounded up.
fn resource_field(container: &Value, reference: &Value) -> Option<i64> {
    let (part, resource) = text(&reference["resource"]).split_once('.')?;
    if !matches!(part, "limits" | "requests") {
        return None;
    }
    let amount = quantity(&container["resources"][part][resource]);
    let mut divisor = quantity(&reference["divisor"]);
    if divisor.is_zero() {
        divisor = quantity(&Value::from("1"));
    }
    let (amount, divisor) = match resource {
        "cpu" => (amount.milli_value(), divisor.milli_value()),
        _ => (amount.value(), divisor.value()),
    };
    (divisor > 0).then(|| (amount + divisor - 1) / divisor)
}

fn mounts(w: &mut Writer, container: &Value) {
    let mut mounts: Vec<&Value> = items(&container["volumeMounts"]).iter().collect();
    let none = if mounts.is_empty() { "\t<none>" } else { "" };
    put!(w, 2, "Mounts:{none}\n");
    mounts.sort_by_key(|mount| text(&mount["mountPath"]));
    for mount in mounts {
        let mut flags = String::from(if is_true(&mount["readOnly"]) { "ro" } else { "rw" });
        if !text(&mount["subPath"]).is_empty() {
            flags.push_str(&format!(",path={}", Quoted(text(&mount["subPath"]))));
        }
        put!(w, 3, "{} from {} ({flags})\n", text(&mount["mountPath"]), text(&mount["name"]));
    }
    let mut devices: Vec<&Value> = items(&container["volumeDevices"]).iter().collect();
    if devices.is_empty() {
        return;
    }
    put!(w, 2, "Devices:{none}\n");
    devices.sort_by_key(|device| text(&device["devicePath"]));
    for device in devices {
        put!(w, 3, "{} from {}\n", text(&device["devicePath"]), text(&device["name"]));
    }
}
