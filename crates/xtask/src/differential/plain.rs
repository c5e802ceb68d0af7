//! Objects without what chance, time and place made of them.
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Names that chance gave, and what stands for them.
#[derive(Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// A name that the server made of another, or one that ends in a time, stands for all such.
    pub fn learn(&mut self, object: &Value) {
        // Of what a template's hash is made, is each one's own.
        let labels = &object["metadata"]["labels"];
        let of_daemons = object["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        let revision = labels["controller-revision-hash"].as_str().filter(|_| of_daemons);
        if let Some(hash) = labels["pod-template-hash"].as_str().or(revision) {
            self.0.insert(hash.to_owned(), "HASH".to_owned());
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (name, generated) = (text("name"), text("generateName"));
        let of_cron = object["metadata"]["ownerReferences"][0]["kind"] == "CronJob";
        let is_made = name.strip_prefix(generated).is_some_and(|rest| rest.len() == 5);
        let plain = match (generated, of_cron) {
            ("", false) => return,
            (_, false) if !is_made => return,
            ("", true) => name.rsplit_once('-').map_or(name, |(head, _)| head).to_owned() + "-*",
            (generated, _) => format!("{generated}*"),
        };
        let plain = self
            .0
            .iter()
            .filter(|(_, plain)| *plain == "HASH")
            .fold(plain, |plain, (hash, _)| plain.replace(hash.as_str(), "HASH"));
        self.0.insert(name.to_owned(), plain);
    }

    /// Longer names first: one may hold another.
    pub fn plain(&self, text: &str) -> String {
        let mut known: Vec<_> =
            self.0.iter().filter(|(name, _)| text.contains(name.as_str())).collect();
        known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut text = text.to_owned();
        for (name, plain) in known {
            text = text.replace(name.as_str(), plain);
        }
        text
    }
}

/// Fields that say nothing that could be compared.
const DROPPED: &[&str] = &[
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "hostIP",
    "hostIPs",
    "nodeName",
    "zone",
    "topology.kubernetes.io/zone",
    "authentication.kubernetes.io/credential-id",
    "selfLink",
    "containerID",
    "deletionTimestamp",
];

/// Fields whose value is each cluster's own, if it is a number or an address.
const OWN: &[&str] =
    &["nodePort", "healthCheckNodePort", "clusterIP", "podIP", "ip", "ca.crt", "token"];

pub fn plain(value: &Value, names: &Names) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !DROPPED.contains(&name.as_str()));
            let fields = kept.map(|(name, value)| {
                let value = match value {
                    Value::Number(_) if OWN.contains(&name.as_str()) => Value::from("a number"),
                    Value::String(text) if OWN.contains(&name.as_str()) && text != "None" => {
                        Value::from("own")
                    }
                    value => plain(value, names),
                };
                (names.plain(name), value)
            });
            let is_none =
                |(name, value): &(String, Value)| name == "annotations" && *value == json!({});
            Value::Object(fields.filter(|field| !is_none(field)).collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| plain(item, names)).collect();
            // Where order says nothing, it is that of the text.
            let is_unordered = items.iter().all(|item| {
                item["type"].is_string() || item["addresses"].is_array() || item["ip"].is_string()
            });
            if is_unordered {
                items.sort_by_key(Value::to_string);
            }
            Value::Array(items)
        }
        Value::String(text) => Value::from(plain_text(text, names)),
        value => value.clone(),
    }
}

pub fn plain_text(text: &str, names: &Names) -> String {
    let text = names.plain(text);
    let words = text.split_inclusive([' ', ',', ';', '"', '/']);
    words.map(plain_word).collect()
}

/// Times, addresses, names of nodes and uids.
fn plain_word(word: &str) -> String {
    let core = word.trim_end_matches([' ', ',', ';', '"', '/', ':', '.']);
    let tail = &word[core.len()..];
    let digits = core.chars().filter(char::is_ascii_digit).count();
    let is_time =
        core.len() >= 19 && core.as_bytes()[4] == b'-' && core.contains('T') && digits >= 14;
    let is_uid = core.len() == 36 && core.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let is_address = core.parse::<std::net::Ipv4Addr>().is_ok();
    let is_node = core.strip_prefix("hollow-").is_some_and(|n| n.parse::<u32>().is_ok());
    let is_token = core.starts_with("kube-api-access-");
    let plain = match (is_time, is_uid, is_address, is_node) {
        _ if is_token => "kube-api-access-*",
        (true, ..) => "TIME",
        (_, true, ..) => "UID",
        (_, _, true, _) => "ADDRESS",
        (_, _, _, true) => "NODE",
        _ => core,
    };
    format!("{plain}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chance_time_and_place_made_is_gone() {
        let mut names = Names::default();
        names.learn(&json!({ "metadata": { "name": "web-5d-abcde", "generateName": "web-5d-" } }));
        names.learn(&json!({ "metadata": { "name": "cron-29000000",
            "ownerReferences": [{ "kind": "CronJob" }] } }));
        let object = json!({ "metadata": { "name": "web-5d-abcde", "uid": "x" }, "spec": {
            "nodeName": "hollow-3", "nodePort": 30123 }, "status": { "podIP": "10.128.0.3",
            "startTime": "2026-01-01T12:00:00Z",
            "message": "pod web-5d-abcde of cron-29000000 on hollow-7 at 10.0.0.1" } });
        assert_eq!(
            plain(&object, &names),
            json!({ "metadata": { "name": "web-5d-*" }, "spec": { "nodePort": "a number" },
                "status": { "podIP": "own", "startTime": "TIME",
                    "message": "pod web-5d-* of cron-* on NODE at ADDRESS" } })
        );
    }
}
