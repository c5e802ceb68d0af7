//! What `kubectl set` changes in an object, as functions of the object.
use crate::change;
use crate::failure::{Failure, Outcome};
use api::quantity::Quantity;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The pod's spec of a pod or a workload.
pub fn pod_spec(object: &mut Value) -> Outcome<&mut Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    change::pod_spec(object).ok_or_else(|| {
        Failure::Plain(format!("the object is not a pod or does not have a pod template: {kind}"))
    })
}

/// Whether a container's name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            after.is_empty()
                || (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(after, &rest[at..]))
        }),
    }
}

fn containers<'s>(spec: &'s mut Value, pattern: &str) -> Vec<&'s mut Value> {
    let Some(fields) = spec.as_object_mut() else { return Vec::new() };
    let lists = fields
        .iter_mut()
        .filter(|(name, _)| matches!(name.as_str(), "containers" | "initContainers"));
    let all = lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten());
    all.filter(|one| fits(pattern, one["name"].as_str().unwrap_or_default())).collect()
}

pub fn image(object: &mut Value, images: &[(&str, &str)]) -> Outcome {
    let spec = pod_spec(object)?;
    let mut missing = Vec::new();
    for (name, image) in images {
        let found = match *name {
            "*" => containers(spec, "*"),
            name => {
                let all = containers(spec, "*");
                all.into_iter().filter(|one| one["name"] == name).collect()
            }
        };
        if found.is_empty() {
            missing
                .push(Failure::Plain(format!("error: unable to find container named \"{name}\"")));
        }
        for container in found {
            container["image"] = (*image).into();
        }
    }
    Failure::of_all(missing)
}

/// Variables to be set, and names of those to go.
#[derive(Debug, Default, PartialEq)]
pub struct Env {
    set: Vec<Value>,
    remove: Vec<String>,
}

impl Env {
    pub fn parse(pairs: &[String], stdin: impl Fn() -> Outcome<String>) -> Outcome<Env> {
        let mut env = Env::default();
        let mut add = |pair: &str| -> Outcome {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!("unknown environment variable: {pair}").into());
            };
            if name.is_empty() {
                return Err(format!("\"{name}\" is not a valid key name: a valid environment variable name must not be empty").into());
            }
            env.set.push(json!({ "name": name, "value": value }));
            Ok(())
        };
        let mut removed = Vec::new();
        for pair in pairs {
            match pair.as_str() {
                "-" => {
                    for line in
                        stdin()?.lines().filter(|line| line.contains('=') && !line.starts_with('#'))
                    {
                        add(line)?;
                    }
                }
                pair if !pair.contains('=') && pair.ends_with('-') => {
                    removed.push(pair.trim_end_matches('-').to_owned());
                }
                pair => add(pair)?,
            }
        }
        if let Some(name) =
            removed.iter().find(|name| env.set.iter().any(|one| one["name"] == name.as_str()))
        {
            return Err(format!(
                "can not both modify and remove an environment variable in the same command: {name}"
            )
            .into());
        }
        env.remove = removed;
        Ok(env)
    }

    /// One variable for each key.
    pub fn take_from(&mut self, source: &Value, keys: &[String]) -> Outcome {
        let field = match source["kind"].as_str() {
            Some("ConfigMap") => "configMapKeyRef",
            Some("Secret") => "secretKeyRef",
            _ => return Err("unsupported resource specified in --from".into()),
        };
        for (key, _) in source["data"].as_object().into_iter().flatten() {
            if !keys.is_empty() && !keys.contains(key) {
                continue;
            }
            let name: String = key
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_uppercase() } else { '_' }
                })
                .collect();
            let reference = json!({ "name": source["metadata"]["name"], "key": key });
            self.set.push(json!({ "name": name, "valueFrom": { field: reference } }));
        }
        Ok(())
    }

    pub fn prefix(&mut self, prefix: &str) {
        for one in &mut self.set {
            let name = one["name"].as_str().unwrap_or_default();
            one["name"] = format!("{prefix}{name}").into();
        }
    }
}

pub fn env(object: &mut Value, env: &Env, pattern: &str, overwrite: bool) -> Outcome {
    let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
    let spec = pod_spec(object)?;
    let found = containers(spec, pattern);
    if found.is_empty() {
        eprintln!(
            "Warning: {}/{} does not have any containers matching \"{pattern}\"",
            kind.as_str().unwrap_or_default(),
            name.as_str().unwrap_or_default()
        );
    }
    for container in found {
        let mut all = container["env"].as_array().cloned().unwrap_or_default();
        for one in &env.set {
            let old = all.iter_mut().find(|old| old["name"] == one["name"]);
            match old {
                Some(old) if !overwrite && old != one => {
                    return Err(format!(
                        "'{}' already has a value ({}), and --overwrite is false",
                        one["name"].as_str().unwrap_or_default(),
                        old["value"].as_str().unwrap_or_default()
                    )
                    .into());
                }
                Some(old) => *old = one.clone(),
                None => all.push(one.clone()),
            }
        }
        all.retain(|one| !env.remove.iter().any(|name| one["name"] == name.as_str()));
        match (all.is_empty(), container.as_object_mut()) {
            (true, Some(fields)) => drop(fields.remove("env")),
            _ => container["env"] = all.into(),
        }
    }
    Ok(())
}

pub fn list_env(object: &Value, pattern: &str) -> String {
    let mut object = object.clone();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    let Ok(spec) = pod_spec(&mut object) else { return out };
    for container in containers(spec, pattern) {
        let shown = container["name"].as_str().unwrap_or_default();
        let _ = writeln!(out, "# {kind} {name}, container {shown}");
        for one in container["env"].as_array().into_iter().flatten() {
            let name = one["name"].as_str().unwrap_or_default();
            let from = &one["valueFrom"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let _ = match from.as_object().and_then(|from| from.iter().next()) {
                None => writeln!(out, "{name}={}", text(&one["value"])),
                Some((kind, at)) => {
                    let shown = match kind.as_str() {
                        "configMapKeyRef" => {
                            format!("configmap {}, key {}", text(&at["name"]), text(&at["key"]))
                        }
                        "secretKeyRef" => {
                            format!("secret {}, key {}", text(&at["name"]), text(&at["key"]))
                        }
                        "fieldRef" => format!("field path {}", text(&at["fieldPath"])),
                        _ => format!("resource field {}", text(&at["resource"])),
                    };
                    writeln!(out, "# {name} from {shown}")
                }
            };
        }
    }
    out
}

/// `cpu=100m,memory=1Gi`
pub fn quantities(text: &str) -> Outcome<Map<String, Value>> {
    let mut found = Map::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(
                format!("Invalid argument syntax {pair}, expected <resource>=<value>").into()
            );
        };
        Quantity::parse(value).map_err(|error| Failure::Plain(error.to_string()))?;
        found.insert(name.to_owned(), value.into());
    }
    Ok(found)
}

pub fn resources(
    object: &mut Value,
    limits: &Map<String, Value>,
    requests: &Map<String, Value>,
    pattern: &str,
) -> Outcome {
    let spec = pod_spec(object)?;
    let found = containers(spec, pattern);
    if found.is_empty() {
        return Err(format!("unable to find container named {pattern}").into());
    }
    for container in found {
        for (field, given) in [("limits", limits), ("requests", requests)] {
            for (name, value) in given {
                // Zero takes the entry away.
                let is_zero = value
                    .as_str()
                    .and_then(|text| Quantity::parse(text).ok())
                    .is_some_and(|quantity| quantity.is_zero());
                match is_zero {
                    true => {
                        if let Some(all) = container["resources"][field].as_object_mut() {
                            all.remove(name);
                        }
                    }
                    false => container["resources"][field][name] = value.clone(),
                }
            }
        }
    }
    Ok(())
}

pub type Subject = Value;

/// Those that are not there yet are added.
pub fn subjects(object: &mut Value, more: &[Subject]) {
    let mut all = object["subjects"].as_array().cloned().unwrap_or_default();
    for subject in more {
        let is_same = |other: &Value| {
            ["kind", "name", "namespace"].iter().all(|field| other[*field] == subject[*field])
        };
        if !all.iter().any(is_same) {
            all.push(subject.clone());
        }
    }
    object["subjects"] = all.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Value {
        json!({ "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "template": { "spec": {
            "containers": [{ "name": "a", "image": "x", "env": [{ "name": "K", "value": "v" }] },
                { "name": "b", "image": "y" }],
            "initContainers": [{ "name": "i", "image": "z" }] } } } })
    }

    #[test]
    fn images_are_set_by_container() {
        let mut object = web();
        image(&mut object, &[("a", "new"), ("i", "init")]).unwrap();
        let spec = &object["spec"]["template"]["spec"];
        assert_eq!(spec["containers"][0]["image"], "new");
        assert_eq!(spec["initContainers"][0]["image"], "init");
        let wrong = image(&mut object, &[("c", "x")]).unwrap_err();
        assert_eq!(wrong.message(), "error: unable to find container named \"c\"");
        image(&mut object, &[("*", "all")]).unwrap();
        assert_eq!(object["spec"]["template"]["spec"]["containers"][1]["image"], "all");
    }

    #[test]
    fn variables_come_and_go() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let read = |text: &str| Env::parse(&words(text), || Ok("P=q\n".to_owned()));
        let mut object = web();
        env(&mut object, &read("K=w L=m -").unwrap(), "a", true).unwrap();
        let listed = list_env(&object, "a");
        assert_eq!(listed, "# Deployment web, container a\nK=w\nL=m\nP=q\n");
        env(&mut object, &read("K- L- P-").unwrap(), "*", true).unwrap();
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0].get("env"), None);
        assert!(read("K=a K-").is_err());
        assert!(env(&mut web(), &read("K=other").unwrap(), "*", false).is_err());
    }

    #[test]
    fn resources_and_subjects_are_merged() {
        let mut object = web();
        let limits = quantities("cpu=1,memory=2Gi").unwrap();
        resources(&mut object, &limits, &Map::new(), "b").unwrap();
        assert_eq!(
            object["spec"]["template"]["spec"]["containers"][1]["resources"],
            json!({ "limits": { "cpu": "1", "memory": "2Gi" } })
        );
        let mut binding =
            json!({ "kind": "RoleBinding", "subjects": [{ "kind": "User", "name": "a" }] });
        subjects(
            &mut binding,
            &[json!({ "kind": "User", "name": "a" }), json!({ "kind": "Group", "name": "g" })],
        );
        assert_eq!(binding["subjects"].as_array().unwrap().len(), 2);
    }
}
