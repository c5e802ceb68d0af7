//! What another OCI runtime is told of limits and filters: the documents of the runtime
//! specification, from the same decisions that ours are made of.
use serde_json::{Map, Value, json};

use crate::cgroup::{self, DeviceRule, Resources};
use crate::seccomp::{Action, Comparison, Profile};

/// `linux.resources`. What v2 alone understands is said on v2 alone.
pub fn resources(resources: &Resources, rules: &[DeviceRule]) -> Value {
    let object = |fields: Vec<(&str, Option<Value>)>| -> Option<Value> {
        let fields: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        (!fields.is_empty()).then_some(Value::Object(fields))
    };
    let unified = cgroup::is_unified();
    let cpu = object(vec![
        ("shares", resources.cpu_shares.map(Value::from)),
        ("quota", resources.cpu_quota.map(Value::from)),
        ("period", resources.cpu_period.map(Value::from)),
        ("cpus", resources.cpus.clone().map(Value::from)),
        ("mems", resources.memory_nodes.clone().map(Value::from)),
    ]);
    let memory = object(vec![
        ("limit", resources.memory.map(Value::from)),
        ("swap", resources.memory_and_swap.filter(|_| unified).map(Value::from)),
    ]);
    let hugepages: Vec<Value> = resources
        .hugepages
        .iter()
        .map(|(size, bytes)| json!({ "pageSize": size, "limit": bytes }))
        .collect();
    let devices: Vec<Value> = [json!({ "allow": false, "access": "rwm" })]
        .into_iter()
        .chain(rules.iter().map(device))
        .collect();
    object(vec![
        ("cpu", cpu),
        ("memory", memory),
        ("pids", resources.pids.map(|limit| json!({ "limit": limit }))),
        ("hugepageLimits", (!hugepages.is_empty() && unified).then(|| json!(hugepages))),
        ("unified", (unified && !resources.unified.is_empty()).then(|| json!(resources.unified))),
        ("devices", (!rules.is_empty()).then(|| json!(devices))),
    ])
    .unwrap_or_else(|| json!({}))
}

fn device(rule: &DeviceRule) -> Value {
    let mut value = json!({ "allow": true, "type": rule.kind.to_string(), "access": rule.access });
    for (name, number) in [("major", rule.major), ("minor", rule.minor)] {
        if let Some(number) = number {
            value[name] = json!(number);
        }
    }
    value
}

/// `linux.seccomp`.
pub fn seccomp(profile: &Profile) -> Value {
    let (default, errno) = action(profile.default);
    let mut document = json!({
        "defaultAction": default,
        "architectures": ARCHITECTURES,
        "syscalls": profile.rules.iter().map(|rule| {
            let (name, errno) = action(rule.action);
            let arguments: Vec<Value> = rule.arguments.iter().map(argument).collect();
            let mut calls = json!({ "names": rule.names, "action": name, "args": arguments });
            if let Some(errno) = errno {
                calls["errnoRet"] = json!(errno);
            }
            calls
        }).collect::<Vec<_>>(),
    });
    if let Some(errno) = errno {
        document["defaultErrnoRet"] = json!(errno);
    }
    document
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_X86_64"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_AARCH64"];

fn action(action: Action) -> (&'static str, Option<u16>) {
    match action {
        Action::Allow => ("SCMP_ACT_ALLOW", None),
        Action::Errno(errno) => ("SCMP_ACT_ERRNO", Some(errno)),
        Action::Log => ("SCMP_ACT_LOG", None),
        Action::Trap => ("SCMP_ACT_TRAP", None),
        Action::KillThread => ("SCMP_ACT_KILL_THREAD", None),
        Action::KillProcess => ("SCMP_ACT_KILL_PROCESS", None),
        Action::Trace(errno) => ("SCMP_ACT_TRACE", Some(errno)),
    }
}

fn argument((index, comparison): &(u32, Comparison)) -> Value {
    let (op, value, second) = match *comparison {
        Comparison::Equal(value) => ("SCMP_CMP_EQ", value, 0),
        Comparison::NotEqual(value) => ("SCMP_CMP_NE", value, 0),
        Comparison::Less(value) => ("SCMP_CMP_LT", value, 0),
        Comparison::LessOrEqual(value) => ("SCMP_CMP_LE", value, 0),
        Comparison::Greater(value) => ("SCMP_CMP_GT", value, 0),
        Comparison::GreaterOrEqual(value) => ("SCMP_CMP_GE", value, 0),
        Comparison::Masked(mask, value) => ("SCMP_CMP_MASKED_EQ", mask, value),
    };
    json!({ "index": index, "value": value, "valueTwo": second, "op": op })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_devices_are_said_in_the_specification_s_words() {
        let limits = Resources {
            cpu_shares: Some(512),
            memory: Some(1 << 20),
            pids: Some(7),
            ..Resources::default()
        };
        let rule = DeviceRule { kind: 'c', major: Some(1), minor: None, access: "rw".to_owned() };
        let expected = json!({
            "cpu": { "shares": 512 },
            "memory": { "limit": 1 << 20 },
            "pids": { "limit": 7 },
            "devices": [
                { "allow": false, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "access": "rw" },
            ],
        });
        assert_eq!(resources(&limits, &[rule]), expected);
        assert_eq!(resources(&Resources::default(), &[]), json!({}));
    }

    #[test]
    fn a_profile_that_was_read_is_written_as_it_was() {
        let text = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": 38,
            "architectures": ARCHITECTURES,
            "syscalls": [{
                "names": ["clone"],
                "action": "SCMP_ACT_ALLOW",
                "args": [{ "index": 0, "value": 2, "valueTwo": 3, "op": "SCMP_CMP_MASKED_EQ" }],
            }],
        });
        let profile = crate::seccomp::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(seccomp(&profile), text);
    }
}
