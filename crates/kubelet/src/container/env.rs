//! A container's environment: services of its namespace, whole ConfigMaps and Secrets, and its own
//! variables, which may refer to those before them.
use super::env_file;
use super::expand::expand;
use super::resources;
use crate::admission::Amounts;
use crate::pod;
use crate::volumes::Places;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, Secret, Service,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a pod refers to; who asks for what is not there is told so.
pub trait References: Send + Sync {
    fn config_map(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<ConfigMap>>;
    fn secret(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<Secret>>;
    fn services(&self, namespace: &str) -> Vec<std::sync::Arc<Service>>;
}

/// What is known of where the pod runs.
pub struct Place<'a> {
    pub node_name: &'a str,
    /// The node's; the first is what it is known by.
    pub host_ips: &'a [IpAddr],
    pub pod_ips: &'a [String],
    /// What the node has to give to pods: limits that are not set.
    pub allocatable: Amounts,
}

type Variables = Vec<(String, String)>;

/// Every variable once; the later of two of a name counts. Errors are `CreateContainerConfigError`s.
pub fn environment(
    pod: &Pod,
    container: &Container,
    place: &Place<'_>,
    references: &dyn References,
    volumes: &Places,
) -> Result<Variables, String> {
    let namespace = pod::namespace(pod);
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut set = |all: &mut BTreeMap<String, String>, name: String, value: String| {
        if all.insert(name.clone(), value).is_none() {
            order.push(name);
        }
    };
    let links = pod::spec(pod).enable_service_links.unwrap_or(true);
    let services = service_variables(references, namespace, links);
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(from) = &source.config_map_ref {
            match references.config_map(namespace, &from.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        set(&mut all, format!("{prefix}{key}"), value.clone());
                    }
                }
                None if from.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", from.name)),
            }
        }
        if let Some(from) = &source.secret_ref {
            match references.secret(namespace, &from.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let value = String::from_utf8_lossy(&value.0).into_owned();
                        set(&mut all, format!("{prefix}{key}"), value);
                    }
                }
                None if from.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", from.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(text), _) if !text.is_empty() => {
                let known = |name: &str| {
                    let linked =
                        || services.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
                    all.get(name).cloned().or_else(linked)
                };
                Some(expand(text, known))
            }
            (_, Some(source)) => from(pod, container, source, place, references, volumes)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut all, variable.name.clone(), value);
        }
    }
    // A service's variables are there unless the container says otherwise.
    for (name, value) in services {
        if !all.contains_key(&name) {
            set(&mut all, name, value);
        }
    }
    let made = order.into_iter().filter_map(|name| {
        let value = all.remove(&name)?;
        Some((name, value))
    });
    Ok(made.collect())
}

/// `None`: what is optional is not there.
fn from(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    place: &Place<'_>,
    references: &dyn References,
    volumes: &Places,
) -> Result<Option<String>, String> {
    let namespace = pod::namespace(pod);
    if let Some(field) = &source.field_ref {
        return field_value(pod, field, place).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        let other = selector.container_name.as_deref().filter(|name| !name.is_empty());
        let other = other.and_then(|name| pod::container(pod, name)).map(|(_, one)| one);
        let value = resources::field(pod, other.as_ref().unwrap_or(container), selector, place);
        return value.map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = references.config_map(namespace, &key.name) else {
            return if optional {
                Ok(None)
            } else {
                Err(format!("configmap \"{}\" not found", key.name))
            };
        };
        let value = map.data.as_ref().and_then(|data| data.get(&key.key)).cloned();
        return match value {
            None if !optional => {
                Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", key.key, key.name))
            }
            value => Ok(value),
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = references.secret(namespace, &key.name) else {
            return if optional {
                Ok(None)
            } else {
                Err(format!("secret \"{}\" not found", key.name))
            };
        };
        let value = secret.data.as_ref().and_then(|data| data.get(&key.key));
        return match value {
            None if !optional => {
                Err(format!("couldn't find key {} in Secret {namespace}/{}", key.key, key.name))
            }
            value => Ok(value.map(|value| String::from_utf8_lossy(&value.0).into_owned())),
        };
    }
    if let Some(key) = &source.file_key_ref {
        let volume = volumes.get(&key.volume_name).ok_or_else(|| {
            format!("cannot find the volume {:?} referenced by FileKeyRef", key.volume_name)
        })?;
        let value = env_file::read(volume, &key.path, &key.key).map_err(|why| {
            tracing::debug!(pod = pod::name(pod), "failed to parse {}: {why}", key.path);
            "couldn't parse env file".to_owned()
        })?;
        return match value {
            None if key.optional != Some(true) => Err(format!(
                "environment variable key {:?} not found in file {:?}",
                key.key,
                volume.join(&key.path).display().to_string()
            )),
            value => Ok(value),
        };
    }
    Ok(Some(String::new()))
}

/// A field of the pod, as variables and downward volumes show it.
pub fn field_value(
    pod: &Pod,
    field: &ObjectFieldSelector,
    place: &Place<'_>,
) -> Result<String, String> {
    let path = field.field_path.as_str();
    let pairs = |map: &Option<BTreeMap<String, String>>| {
        let lines =
            map.iter().flatten().map(|(key, value)| format!("{key}={}", serde_json::json!(value)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let metadata = &pod.metadata;
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.annotations" => &metadata.annotations,
            "metadata.labels" => &metadata.labels,
            _ => return Err(format!("fieldPath \"{path}\" does not support subscript")),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let service_account = pod::spec(pod).service_account_name.as_deref();
    Ok(match path {
        "metadata.name" => text(metadata.name.as_deref()),
        "metadata.namespace" => text(metadata.namespace.as_deref()),
        "metadata.uid" => text(metadata.uid.as_deref()),
        "metadata.annotations" => pairs(&metadata.annotations),
        "metadata.labels" => pairs(&metadata.labels),
        "spec.nodeName" => place.node_name.to_owned(),
        "spec.serviceAccountName" => text(service_account),
        "status.hostIP" => place.host_ips.first().map(ToString::to_string).unwrap_or_default(),
        "status.hostIPs" => {
            let all: Vec<String> = place.host_ips.iter().map(ToString::to_string).collect();
            all.join(",")
        }
        "status.podIP" => text(place.pod_ips.first().map(String::as_str)),
        "status.podIPs" => place.pod_ips.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// `WEB_SERVICE_HOST` and its kin, for the services of the pod's namespace, and always for the API.
fn service_variables(references: &dyn References, namespace: &str, links: bool) -> Variables {
    let mut services = references.services("default");
    services.retain(|service| service.metadata.name.as_deref() == Some("kubernetes"));
    if links {
        let own = references.services(namespace).into_iter();
        services.extend(own.filter(|service| {
            namespace != "default" || service.metadata.name.as_deref() != Some("kubernetes")
        }));
    }
    let mut made = Vec::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let ip = spec.cluster_ip.as_deref().unwrap_or_default();
        if ip.is_empty() || ip == "None" {
            continue;
        }
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let name = name.to_uppercase().replace('-', "_");
        made.push((format!("{name}_SERVICE_HOST"), ip.to_owned()));
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        for (i, port) in spec.ports.iter().flatten().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
            if i == 0 {
                made.push((format!("{name}_SERVICE_PORT"), port.port.to_string()));
                made.push((format!("{name}_PORT"), url.clone()));
            }
            if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                let port_name = port_name.to_uppercase().replace('-', "_");
                made.push((format!("{name}_SERVICE_PORT_{port_name}"), port.port.to_string()));
            }
            let prefix = format!("{name}_PORT_{}_{protocol}", port.port);
            made.push((prefix.clone(), url));
            made.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
            made.push((format!("{prefix}_PORT"), port.port.to_string()));
            made.push((format!("{prefix}_ADDR"), ip.to_owned()));
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};
    use std::sync::Arc;

    struct Some1;

    impl References for Some1 {
        fn config_map(&self, _: &str, name: &str) -> Option<Arc<ConfigMap>> {
            let map = json!({ "data": { "color": "red", "size": "L" } });
            (name == "cm").then(|| Arc::new(serde_json::from_value(map).unwrap()))
        }

        fn secret(&self, _: &str, name: &str) -> Option<Arc<Secret>> {
            let secret = json!({ "data": { "key": "c2VjcmV0" } });
            (name == "s").then(|| Arc::new(serde_json::from_value(secret).unwrap()))
        }

        fn services(&self, namespace: &str) -> Vec<Arc<Service>> {
            let name = if namespace == "default" { "kubernetes" } else { "my-db" };
            let service = json!({ "metadata": { "name": name }, "spec": {
                "clusterIP": "10.0.0.1", "ports": [{ "name": "https", "port": 443 }] } });
            vec![Arc::new(serde_json::from_value(service).unwrap())]
        }
    }

    fn check(container: Value, links: bool, expected: Expect) {
        let mut container = container;
        container["name"] = "c".into();
        let container: Container = serde_json::from_value(container).unwrap();
        let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "u", "labels": { "a": "b" } },
            "spec": { "containers": [], "enableServiceLinks": links } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let ips = ["10.0.0.9".to_owned()];
        let place = Place {
            node_name: "n",
            host_ips: &["10.1.1.1".parse().unwrap()],
            pod_ips: &ips,
            allocatable: [("cpu", 2000), ("memory", 1 << 30)]
                .map(|(name, amount)| (name.to_owned(), amount))
                .into(),
        };
        let text = match environment(&pod, &container, &place, &Some1, &Places::new()) {
            Ok(all) => all
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("\n"),
            Err(error) => error,
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn variables_come_from_everywhere_and_refer_to_those_before() {
        check(
            json!({
                "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "cm" } }, { "secretRef": { "name": "s" } }],
                "env": [
                    { "name": "A", "value": "1" },
                    { "name": "B", "value": "$(A)-$(P_color)-$(NO)-$(KUBERNETES_SERVICE_HOST)" },
                    { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                    { "name": "L", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a']" } } },
                    { "name": "M", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } },
                    { "name": "K", "valueFrom": { "secretKeyRef": { "name": "s", "key": "key" } } },
                    { "name": "O", "valueFrom": { "secretKeyRef": { "name": "none", "key": "key", "optional": true } } },
                ]
            }),
            false,
            expect![[r#"
                P_color=red
                P_size=L
                key=secret
                A=1
                B=1-red-$(NO)-10.0.0.1
                IP=10.0.0.9
                L=b
                M=1024
                K=secret
                KUBERNETES_SERVICE_HOST=10.0.0.1
                KUBERNETES_SERVICE_PORT=443
                KUBERNETES_PORT=tcp://10.0.0.1:443
                KUBERNETES_SERVICE_PORT_HTTPS=443
                KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443
                KUBERNETES_PORT_443_TCP_PROTO=tcp
                KUBERNETES_PORT_443_TCP_PORT=443
                KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1"#]],
        );
    }

    #[test]
    fn what_is_missing_is_told() {
        let missing = |source: Value| json!({ "env": [{ "name": "A", "valueFrom": source }] });
        check(
            missing(json!({ "configMapKeyRef": { "name": "x", "key": "k" } })),
            false,
            expect![[r#"configmap "x" not found"#]],
        );
        check(
            missing(json!({ "configMapKeyRef": { "name": "cm", "key": "k" } })),
            false,
            expect!["couldn't find key k in ConfigMap ns/cm"],
        );
        check(
            json!({ "envFrom": [{ "secretRef": { "name": "x" } }] }),
            false,
            expect![[r#"secret "x" not found"#]],
        );
    }
}
