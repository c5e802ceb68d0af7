//! CNI: runs the plugins that the first configuration of a folder names, one after the other.
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Answer, Attachment, Network, NetworkError};

/// The interface a pod sees.
const INTERFACE: &str = "eth0";

pub struct Cni {
    configurations: PathBuf,
    plugins: Vec<PathBuf>,
}

/// A network's plugins, each with its own configuration.
struct List {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

impl Cni {
    /// `configurations` is usually `/etc/cni/net.d`, `plugins` `/opt/cni/bin`.
    pub fn new(configurations: PathBuf, plugins: Vec<PathBuf>) -> Self {
        Cni { configurations, plugins }
    }

    /// Read anew each time: whoever manages the folder tells nobody.
    fn load(&self) -> Result<List, NetworkError> {
        let none = || {
            NetworkError(format!("no network config found in {}", self.configurations.display()))
        };
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.configurations)
            .map_err(|_| none())?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let extension = path.extension().and_then(|extension| extension.to_str());
                matches!(extension, Some("conflist" | "conf" | "json"))
            })
            .collect();
        files.sort();
        let path = files.first().ok_or_else(none)?;
        let text = std::fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
        let config: Value = serde_json::from_str(&text).map_err(|error| wrong(path, &error))?;
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let plugins = match config["plugins"].as_array() {
            Some(plugins) => plugins.clone(),
            None => vec![config.clone()],
        };
        Ok(List { name: text("name"), version: text("cniVersion"), plugins })
    }

    async fn run(
        &self,
        command: &str,
        list: &List,
        plugin: &Value,
        sandbox: &Attachment,
        previous: Option<&Value>,
    ) -> Result<Value, NetworkError> {
        let kind = plugin["type"].as_str().unwrap_or_default();
        let program = self.plugins.iter().map(|folder| folder.join(kind)).find(|p| p.is_file());
        let program = program
            .filter(|_| !kind.is_empty() && !kind.contains('/'))
            .ok_or_else(|| NetworkError(format!("no CNI plugin {kind:?}")))?;
        let mut config = plugin.clone();
        config["name"] = json!(list.name);
        config["cniVersion"] = json!(list.version);
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        if plugin["capabilities"]["portMappings"].as_bool() == Some(true) {
            let ports: Vec<_> = sandbox.ports.iter().filter(|port| port.host_port > 0).collect();
            config["runtimeConfig"]["portMappings"] = json!(ports);
        }
        if plugin["capabilities"]["bandwidth"].as_bool() == Some(true) {
            let limits = bandwidth(&sandbox.annotations);
            if limits != json!({}) {
                config["runtimeConfig"]["bandwidth"] = limits;
            }
        }
        let path = std::env::join_paths(&self.plugins).unwrap_or_default();
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            sandbox.namespace, sandbox.name, sandbox.sandbox_id, sandbox.uid
        );
        let failed = |error: &dyn std::fmt::Display| {
            NetworkError(format!("CNI plugin {kind} ({command}) failed: {error}"))
        };
        // None means that there is nothing left of it but what a plugin itself remembers.
        let namespace = Some(&sandbox.namespace_path).filter(|path| path.exists());
        let mut child = tokio::process::Command::new(&program)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &sandbox.sandbox_id)
            .env("CNI_NETNS", namespace.map_or(Path::new(""), PathBuf::as_path))
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_ARGS", arguments)
            .env("CNI_PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(config.to_string().as_bytes()).await.map_err(|error| failed(&error))?;
        }
        let output = child.wait_with_output().await.map_err(|error| failed(&error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said: Value = serde_json::from_str(&text).unwrap_or_default();
            let message = said["msg"].as_str().map(str::to_owned);
            let message = message
                .unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned());
            return Err(failed(&message));
        }
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }
}

impl Network for Cni {
    fn ready(&self) -> Result<(), NetworkError> {
        self.load().map(drop)
    }

    fn attach(&self, sandbox: Attachment) -> Answer<'_, Vec<IpAddr>> {
        Box::pin(async move {
            let list = self.load()?;
            let mut result: Option<Value> = None;
            for plugin in &list.plugins {
                let answer = self.run("ADD", &list, plugin, &sandbox, result.as_ref()).await;
                match answer {
                    Ok(answer) => result = Some(answer),
                    Err(error) => {
                        // Half a network is none: addresses and links go back.
                        let _ = self.detach(sandbox.clone()).await;
                        return Err(error);
                    }
                }
            }
            Ok(addresses(&result.unwrap_or_default()))
        })
    }

    fn detach(&self, sandbox: Attachment) -> Answer<'_, ()> {
        Box::pin(async move {
            let list = self.load()?;
            let mut outcome = Ok(());
            for plugin in list.plugins.iter().rev() {
                // Every plugin gets its chance to clean up.
                let done = self.run("DEL", &list, plugin, &sandbox, None).await.map(drop);
                outcome = outcome.and(done);
            }
            outcome
        })
    }
}

/// What the pod's annotations say, as the bandwidth plugin reads it; what is no number it never sees.
fn bandwidth(annotations: &std::collections::BTreeMap<String, String>) -> Value {
    let mut limits = json!({});
    for way in ["ingress", "egress"] {
        let text = annotations.get(&format!("kubernetes.io/{way}-bandwidth"));
        if let Some(rate) = text.and_then(|text| amount(text)) {
            limits[format!("{way}Rate")] = json!(rate);
            // As upstream's runtimes have it: the largest that the plugin takes.
            limits[format!("{way}Burst")] = json!(i32::MAX);
        }
    }
    limits
}

/// A whole number of a thousand, a million and so on: `10M`.
fn amount(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let power = ["", "k", "M", "G", "T", "P"].iter().position(|one| *one == suffix)?;
    number.parse::<u64>().ok()?.checked_mul(1000_u64.checked_pow(power as u32)?)
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().cloned().unwrap_or_default();
    ips.iter().filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok()).collect()
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> NetworkError {
    NetworkError(format!("{} is not a network configuration: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn limits_are_told_as_the_bandwidth_plugin_reads_them() {
        let given = |text: &str| {
            let name = "kubernetes.io/egress-bandwidth".to_owned();
            bandwidth(&std::collections::BTreeMap::from([(name, text.to_owned())]))
        };
        assert_eq!(given("10M"), json!({ "egressRate": 10_000_000, "egressBurst": i32::MAX }));
        for text in ["", "fast", "1.5M", "99999999P"] {
            assert_eq!(given(text), json!({}), "{text}");
        }
    }

    /// A plugin that writes down what it is asked.
    #[tokio::test]
    async fn a_namespace_that_is_gone_is_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let list = json!({ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "fake" }] });
        fs::write(path("10-n.conflist"), list.to_string()).unwrap();
        let said = path("said").display().to_string();
        let script =
            format!("#!/bin/sh\ncat >/dev/null\necho \"$CNI_COMMAND [$CNI_NETNS]\" >>{said}\n");
        fs::write(path("fake"), script).unwrap();
        fs::set_permissions(path("fake"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(path("netns"), "").unwrap();
        let cni = Cni::new(folder.path().to_owned(), vec![folder.path().to_owned()]);
        for name in ["netns", "gone"] {
            let attachment = Attachment {
                sandbox_id: "s".to_owned(),
                namespace_path: path(name),
                name: "p".to_owned(),
                namespace: "d".to_owned(),
                uid: "u".to_owned(),
                annotations: std::collections::BTreeMap::new(),
                ports: Vec::new(),
            };
            cni.detach(attachment).await.unwrap();
        }
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(said, format!("DEL [{}]\nDEL []\n", path("netns").display()));
    }
}
