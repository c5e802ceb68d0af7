//! The containers and pods that help to look into others, as functions of what is looked into.
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use api::codec::yaml;
use serde_json::{Map, Value, json};

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub container: String,
    pub quiet: bool,
    image: String,
    policy: String,
    env: Vec<Value>,
    command: Vec<String>,
    arguments_only: bool,
    stdin: bool,
    tty: bool,
    target: String,
    profile: String,
    custom: Option<Value>,
}

impl Wanted {
    pub fn of(arguments: &Arguments, command: Vec<String>) -> Outcome<Wanted> {
        let text = |name: &str| arguments.text(name).to_owned();
        let mut env = Vec::new();
        for pair in arguments.list("env") {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Failure::Plain(format!("invalid env: {pair}")))?;
            env.push(json!({ "name": name, "value": value }));
        }
        let profile = text("profile");
        if !["legacy", "general", "baseline", "restricted", "netadmin", "sysadmin"]
            .contains(&profile.as_str())
        {
            return Err(format!("unknown profile: {profile}").into());
        }
        let custom = match arguments.some("custom") {
            None => None,
            Some(path) => {
                let bytes = std::fs::read(path).map_err(|error| {
                    Failure::Plain(format!(
                        "must pass a container spec json file for custom profile: {error}"
                    ))
                })?;
                let value = yaml::decode_untyped(&bytes)
                    .map_err(|error| {
                        Failure::Plain(format!(
                            "{path} does not contain a valid container spec: {error}"
                        ))
                    })?
                    .value;
                let fixed = ["name", "command", "image", "lifecycle", "volumeDevices"];
                if fixed.iter().any(|field| value.get(field).is_some()) {
                    return Err("name, command, image, lifecycle and volume devices are not modifiable via custom \
                                profile"
                        .into());
                }
                Some(value)
            }
        };
        Ok(Wanted {
            container: text("container"),
            quiet: arguments.is("quiet"),
            image: text("image"),
            policy: text("image-pull-policy"),
            env,
            command,
            arguments_only: arguments.is("arguments-only"),
            stdin: arguments.is("stdin"),
            tty: arguments.is("tty"),
            target: text("target"),
            profile,
            custom,
        })
    }

    /// The new container.
    fn container(&self, name: &str) -> Value {
        let mut container =
            json!({ "name": name, "image": self.image, "terminationMessagePolicy": "File" });
        if !self.policy.is_empty() {
            container["imagePullPolicy"] = self.policy.as_str().into();
        }
        if !self.env.is_empty() {
            container["env"] = self.env.clone().into();
        }
        if !self.command.is_empty() {
            let field = if self.arguments_only { "args" } else { "command" };
            container[field] = json!(self.command);
        }
        for (field, value) in [("stdin", self.stdin), ("tty", self.tty)] {
            if value {
                container[field] = true.into();
            }
        }
        self.permit(&mut container);
        for (key, value) in self.custom.iter().filter_map(Value::as_object).flatten() {
            container[key] = value.clone();
        }
        container
    }

    /// What a profile lets a container do.
    fn permit(&self, container: &mut Value) {
        let context = match self.profile.as_str() {
            "general" => json!({ "capabilities": { "add": ["SYS_PTRACE"] } }),
            "netadmin" => json!({ "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } }),
            "sysadmin" => json!({ "privileged": true }),
            "restricted" => json!({ "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] },
                "allowPrivilegeEscalation": false, "seccompProfile": { "type": "RuntimeDefault" } }),
            _ => return,
        };
        container["securityContext"] = context;
    }
}

/// A name that the pod has not yet.
fn fresh_name(wanted: &Wanted, pod: &Value, suffix: &str) -> Outcome<String> {
    let taken = |name: &str| crate::pods::containers(pod).iter().any(|(other, _)| *other == name);
    match wanted.container.as_str() {
        "" => Ok(format!("debugger-{suffix}")),
        name if taken(name) => Err(format!(
            "container \"{name}\" already exists in pod \"{}\"",
            pod["metadata"]["name"].as_str().unwrap_or_default()
        )
        .into()),
        name => Ok(name.to_owned()),
    }
}

pub fn ephemeral(wanted: &Wanted, pod: &Value, suffix: &str) -> Outcome<(Value, String)> {
    let name = fresh_name(wanted, pod, suffix)?;
    let mut container = wanted.container(&name);
    if !wanted.target.is_empty() {
        container["targetContainerName"] = wanted.target.as_str().into();
    }
    Ok((container, name))
}

pub fn node_pod(wanted: &Wanted, node: &Value, suffix: &str) -> (Value, String) {
    let node = node["metadata"]["name"].as_str().unwrap_or_default();
    let name = if wanted.container.is_empty() { "debugger" } else { &wanted.container };
    let mut container = wanted.container(name);
    let mut spec = json!({ "nodeName": node, "restartPolicy": "Never",
        "tolerations": [{ "operator": "Exists" }] });
    if matches!(wanted.profile.as_str(), "general" | "legacy") {
        // The machine itself is looked at, not another container.
        if let Some(fields) = container.as_object_mut() {
            fields.remove("securityContext");
        }
    }
    if matches!(wanted.profile.as_str(), "general" | "legacy" | "netadmin" | "sysadmin") {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            spec[field] = true.into();
        }
    }
    if matches!(wanted.profile.as_str(), "general" | "legacy" | "sysadmin") {
        spec["volumes"] = json!([{ "name": "host-root", "hostPath": { "path": "/" } }]);
        container["volumeMounts"] = json!([{ "name": "host-root", "mountPath": "/host" }]);
    }
    spec["containers"] = json!([container]);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": format!("node-debugger-{node}-{suffix}"),
        "labels": { "app.kubernetes.io/managed-by": "kubectl-debug" } } });
    (pod, name.to_owned())
}

/// A pod's copy, the container to attach to, and whether that is new.
pub fn copy(
    wanted: &Wanted,
    arguments: &Arguments,
    pod: &Value,
    suffix: &str,
) -> Outcome<(Value, String, bool)> {
    let mut spec = pod["spec"].clone();
    let Some(fields) = spec.as_object_mut() else { return Err("the pod has no spec".into()) };
    fields.remove("ephemeralContainers");
    if !arguments.is("same-node") {
        fields.remove("nodeName");
    }
    let legacy = wanted.profile == "legacy";
    if arguments.given("share-processes") {
        spec["shareProcessNamespace"] = arguments.is("share-processes").into();
    } else if !legacy {
        spec["shareProcessNamespace"] = true.into();
    }
    let images: Map<String, Value> = arguments
        .list("set-image")
        .iter()
        .flat_map(|pairs| pairs.split(','))
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, image)| (name.to_owned(), image.into()))
        .collect();
    let containers = spec["containers"].as_array_mut().ok_or("the pod has no containers")?;
    for container in containers.iter_mut() {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        if let Some(image) = images.get(&name).or(images.get("*")) {
            container["image"] = image.clone();
        }
        for (probe, flag) in [
            ("livenessProbe", "keep-liveness"),
            ("readinessProbe", "keep-readiness"),
            ("startupProbe", "keep-startup"),
        ] {
            if let (false, false, Some(fields)) =
                (legacy, arguments.is(flag), container.as_object_mut())
            {
                fields.remove(probe);
            }
        }
    }
    let (name, is_new) = debugged(wanted, containers, suffix)?;
    if !legacy
        && !arguments.is("keep-init-containers")
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove("initContainers");
    }
    let mut copy = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": arguments.text("copy-to"), "namespace": pod["metadata"]["namespace"] } });
    for (field, keeps) in [
        ("labels", !legacy && arguments.is("keep-labels")),
        ("annotations", legacy || arguments.is("keep-annotations")),
    ] {
        if keeps && pod["metadata"][field].is_object() {
            copy["metadata"][field] = pod["metadata"][field].clone();
        }
    }
    Ok((copy, name, is_new))
}

/// Changes a container of the copy, or adds one.
fn debugged(wanted: &Wanted, containers: &mut Vec<Value>, suffix: &str) -> Outcome<(String, bool)> {
    let old = containers.iter_mut().find(|one| one["name"] == wanted.container.as_str());
    if let Some(container) = old {
        if !wanted.image.is_empty() {
            container["image"] = wanted.image.as_str().into();
        }
        if !wanted.command.is_empty() {
            if let (false, Some(fields)) = (wanted.arguments_only, container.as_object_mut()) {
                fields.remove("args");
            }
            let field = if wanted.arguments_only { "args" } else { "command" };
            container[field] = json!(wanted.command);
        }
        container["stdin"] = wanted.stdin.into();
        container["tty"] = wanted.tty.into();
        wanted.permit(container);
        return Ok((wanted.container.clone(), false));
    }
    // Images alone may have been changed.
    if wanted.image.is_empty() {
        return Ok((String::new(), false));
    }
    let name = match wanted.container.as_str() {
        "" => format!("debugger-{suffix}"),
        name => name.to_owned(),
    };
    containers.push(wanted.container(&name));
    Ok((name, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Wanted, Arguments) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let arguments = Arguments::parse("kubectl debug", super::super::COMMAND.flags, &words)
            .expect("flags are good");
        let command = arguments.dash.map_or(Vec::new(), |dash| arguments.words[dash..].to_vec());
        (Wanted::of(&arguments, command).expect("they make sense"), arguments)
    }

    fn pod() -> Value {
        json!({ "metadata": { "name": "web", "namespace": "d", "labels": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [
                { "name": "app", "image": "i", "livenessProbe": {}, "command": ["x"], "args": ["y"] }] } })
    }

    #[test]
    fn a_container_joins_a_pod() {
        let (wanted, _) = read("web --image=busybox -it --target=app --env=K=v -- sh -c x");
        let (container, name) = ephemeral(&wanted, &pod(), "abcde").unwrap();
        assert_eq!(name, "debugger-abcde");
        assert_eq!(
            container,
            json!({ "name": "debugger-abcde", "image": "busybox", "terminationMessagePolicy": "File", "stdin": true,
                "tty": true, "targetContainerName": "app", "command": ["sh", "-c", "x"],
                "env": [{ "name": "K", "value": "v" }],
                "securityContext": { "capabilities": { "add": ["SYS_PTRACE"] } } })
        );
        let (taken, _) = read("web --image=busybox -c app");
        assert!(ephemeral(&taken, &pod(), "x").is_err());
    }

    #[test]
    fn a_copy_is_changed() {
        let (wanted, arguments) = read("web --copy-to=web2 -c app --set-image=app=new -- sh");
        let (copy, container, is_new) = copy(&wanted, &arguments, &pod(), "x").unwrap();
        assert_eq!((container.as_str(), is_new), ("app", false));
        assert_eq!(copy["metadata"], json!({ "name": "web2", "namespace": "d" }));
        let app = &copy["spec"]["containers"][0];
        assert_eq!((&app["image"], &app["command"]), (&json!("new"), &json!(["sh"])));
        assert!(app.get("livenessProbe").is_none() && app.get("args").is_none());
        assert!(
            copy["spec"].get("nodeName").is_none() && copy["spec"]["shareProcessNamespace"] == true
        );
    }

    #[test]
    fn a_pod_looks_at_its_node() {
        let (wanted, _) = read("node/n --image=busybox");
        let (pod, container) = node_pod(&wanted, &json!({ "metadata": { "name": "n" } }), "abcde");
        assert_eq!(
            (pod["metadata"]["name"].as_str(), &*container),
            (Some("node-debugger-n-abcde"), "debugger")
        );
        assert_eq!(pod["spec"]["hostPID"], true);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], "/host");
        assert!(pod["spec"]["containers"][0].get("securityContext").is_none());
    }
}
