//! CNI: runs the plugins that the first configuration of a folder names, one after the other. What a sandbox
//! was attached with is kept, so that it is detached by the same plugins with their own result, whatever has
//! become of the configuration: as upstream's `libcni` does it.
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Answer, Attachment, Network, NetworkError};

/// The interface a pod sees.
const INTERFACE: &str = "eth0";

pub struct Cni {
    configurations: PathBuf,
    plugins: Vec<PathBuf>,
    /// What sandboxes were attached with, by their ids.
    kept: PathBuf,
}

/// A network's plugins, each with its own configuration.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    list: List,
    result: Value,
}

impl Cni {
    /// `configurations` is usually `/etc/cni/net.d`, `plugins` `/opt/cni/bin`; `kept` is a folder of its own.
    pub fn new(configurations: PathBuf, plugins: Vec<PathBuf>, kept: PathBuf) -> Self {
        Cni { configurations, plugins, kept }
    }

    fn keep(&self, sandbox_id: &str, kept: &Kept) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.kept)?;
        let (path, new) = (self.kept.join(sandbox_id), self.kept.join(format!("{sandbox_id}.new")));
        std::fs::write(&new, serde_json::to_vec(kept)?)?;
        std::fs::rename(new, path)
    }

    fn kept(&self, sandbox_id: &str) -> Option<Kept> {
        serde_json::from_slice(&std::fs::read(self.kept.join(sandbox_id)).ok()?).ok()
    }

    async fn undo(
        &self,
        list: &List,
        sandbox: &Attachment,
        result: Option<&Value>,
    ) -> Result<(), NetworkError> {
        let mut outcome = Ok(());
        for plugin in list.plugins.iter().rev() {
            // Every plugin gets its chance to clean up.
            let done = self.run("DEL", list, plugin, sandbox, result).await.map(drop);
            outcome = outcome.and(done);
        }
        outcome
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
                        let _ = self.undo(&list, &sandbox, None).await;
                        return Err(error);
                    }
                }
            }
            let kept = Kept { list, result: result.unwrap_or_default() };
            if let Err(error) = self.keep(&sandbox.sandbox_id, &kept) {
                let _ = self.undo(&kept.list, &sandbox, Some(&kept.result)).await;
                return Err(NetworkError(format!(
                    "failed to keep {}: {error}",
                    self.kept.display()
                )));
            }
            Ok(addresses(&kept.result))
        })
    }

    fn detach(&self, sandbox: Attachment) -> Answer<'_, ()> {
        Box::pin(async move {
            match self.kept(&sandbox.sandbox_id) {
                Some(Kept { list, result }) => {
                    let result = Some(&result).filter(|_| is_told_results(&list.version));
                    self.undo(&list, &sandbox, result).await?;
                }
                None => self.undo(&self.load()?, &sandbox, None).await?,
            }
            let _ = std::fs::remove_file(self.kept.join(&sandbox.sandbox_id));
            Ok(())
        })
    }
}

/// From this version on whoever is to undo something is told what was done.
fn is_told_results(version: &str) -> bool {
    let numbers: Vec<u32> = version.split('.').map_while(|one| one.parse().ok()).collect();
    numbers >= vec![0, 4, 0]
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

    /// A folder with plugins that write down what they are asked.
    fn plugins(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            let said = folder.path().join("said").display().to_string();
            let script = format!(
                "#!/bin/sh\nread -r config\n\
                 echo \"{name} $CNI_COMMAND [$CNI_NETNS] $CNI_CONTAINERID $CNI_IFNAME\" >>{said}\n\
                 echo \"$config\" >>{said}\n\
                 [ -e {said}.fails ] && [ $CNI_COMMAND = ADD ] && [ {name} = second ] &&\n\
                 echo '{{\"code\": 11, \"msg\": \"no room\"}}' && exit 1\n\
                 [ $CNI_COMMAND = ADD ] &&\n\
                 echo '{{\"cniVersion\": \"1.0.0\", \"by\": \"{name}\", \"ips\": [{{\"address\": \"10.7.0.2/24\"}}]}}'\n\
                 exit 0\n"
            );
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn sandbox(namespace_path: PathBuf) -> Attachment {
        Attachment {
            sandbox_id: "s".to_owned(),
            namespace_path,
            name: "p".to_owned(),
            namespace: "d".to_owned(),
            uid: "u".to_owned(),
            annotations: std::collections::BTreeMap::new(),
            ports: Vec::new(),
        }
    }

    /// What plugins were asked since somebody last looked: without the namespace's folder, and of their
    /// configuration what tells one from another.
    fn said(folder: &Path) -> Vec<String> {
        let text = fs::read_to_string(folder.join("said")).unwrap_or_default();
        let _ = fs::remove_file(folder.join("said"));
        let lines: Vec<&str> = text.lines().collect();
        let asked = lines.chunks(2).map(|pair| {
            let config: Value = serde_json::from_str(pair[1]).unwrap();
            let asked = pair[0].replace(&folder.display().to_string(), "");
            format!("{asked} {} {}", config["name"], config["prevResult"]["by"])
        });
        asked.collect()
    }

    #[tokio::test]
    async fn who_was_attached_is_detached_by_the_same_plugins_with_their_result() {
        let folder = plugins(&["first", "second"]);
        let path = |name: &str| folder.path().join(name);
        let list = |name: &str, version: &str| {
            let plugins = json!([{ "type": "first" }, { "type": "second" }]);
            json!({ "cniVersion": version, "name": name, "plugins": plugins }).to_string()
        };
        fs::create_dir(path("net.d")).unwrap();
        fs::write(path("net.d/10-n.conflist"), list("n", "1.0.0")).unwrap();
        fs::write(path("netns"), "").unwrap();
        let open = || Cni::new(path("net.d"), vec![folder.path().to_owned()], path("kept"));
        let addresses = open().attach(sandbox(path("netns"))).await.unwrap();
        assert_eq!(addresses, ["10.7.0.2".parse::<IpAddr>().unwrap()]);
        let begun =
            ["first ADD [/netns] s eth0 \"n\" null", "second ADD [/netns] s eth0 \"n\" \"first\""];
        assert_eq!(said(folder.path()), begun);
        // Another network is configured since, or none, and the process is another.
        fs::remove_file(path("net.d/10-n.conflist")).unwrap();
        open().detach(sandbox(path("gone"))).await.unwrap();
        let ended =
            ["second DEL [] s eth0 \"n\" \"second\"", "first DEL [] s eth0 \"n\" \"second\""];
        assert_eq!(said(folder.path()), ended);
        assert!(open().detach(sandbox(path("gone"))).await.is_err(), "nothing is known of it");

        // Old plugins are told nothing.
        fs::write(path("net.d/10-n.conflist"), list("o", "0.3.1")).unwrap();
        open().attach(sandbox(path("netns"))).await.unwrap();
        said(folder.path());
        open().detach(sandbox(path("netns"))).await.unwrap();
        let ended =
            ["second DEL [/netns] s eth0 \"o\" null", "first DEL [/netns] s eth0 \"o\" null"];
        assert_eq!(said(folder.path()), ended);

        // Half a network is none.
        fs::write(path("said.fails"), "").unwrap();
        let error = open().attach(sandbox(path("netns"))).await.unwrap_err();
        assert_eq!(error.to_string(), "CNI plugin second (ADD) failed: no room");
        let all = said(folder.path());
        let commands: Vec<&str> = all.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(commands, ["ADD", "ADD", "DEL", "DEL"]);
        assert!(open().kept("s").is_none());
    }
}
