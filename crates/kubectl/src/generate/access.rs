//! Roles, bindings, service accounts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Generator, Made, Rim, name, named, put, unique};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, Offer, each, list, text};

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

const VERB: Flag = list("verb", "Verbs that are allowed.");
const RESOURCE: Flag =
    list("resource", "Resources that they are allowed on: RESOURCE[.GROUP][/SUBRESOURCE].");
const RESOURCE_NAME: Flag =
    each("resource-name", "Name of an object that they are allowed on; may be repeated.");

pub static ROLE: Generator = Generator {
    name: "role",
    about: "Create a role with single rule",
    usage: "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] \
            [--dry-run=server|client|none]",
    flags: &[VERB, RESOURCE, RESOURCE_NAME],
    make: role,
    ..Generator::EMPTY
};

pub static CLUSTER_ROLE: Generator = Generator {
    name: "clusterrole",
    about: "Create a cluster role",
    usage: "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
    flags: &[
        VERB,
        RESOURCE,
        RESOURCE_NAME,
        list("non-resource-url", "Path on the server that the verbs are allowed on."),
        list("aggregation-rule", "Labels of cluster roles to combine: KEY=VALUE."),
    ],
    make: cluster_role,
    ..Generator::EMPTY
};

/// Verbs that mean something for resources.
const RESOURCE_VERBS: &[&str] = &[
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
];
const URL_VERBS: &[&str] = &["*", "get", "post", "put", "delete", "patch", "head", "options"];

/// Verbs that only mean something for these.
const SPECIAL: &[(&str, &[(&str, &str)])] = &[
    ("use", &[("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")]),
    ("bind", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    ("escalate", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    (
        "impersonate",
        &[
            ("", "users"),
            ("", "serviceaccounts"),
            ("", "groups"),
            ("authentication.k8s.io", "userextras"),
        ],
    ),
];

/// A resource as it was typed.
struct Resource<'a> {
    name: &'a str,
    group: &'a str,
    part: &'a str,
}

/// What a role allows, as it was typed.
struct Rules<'a> {
    verbs: Vec<String>,
    resources: Vec<Resource<'a>>,
    names: Vec<String>,
}

impl<'a> Rules<'a> {
    fn of(arguments: &'a Arguments) -> Rules<'a> {
        let verbs = unique(arguments.list("verb"));
        let verbs = if verbs.iter().any(|verb| verb == "*") { vec!["*".to_owned()] } else { verbs };
        let mut resources = Vec::new();
        for text in arguments.list("resource") {
            let (resource, part) = text.split_once('/').unwrap_or((text, ""));
            let (name, group) = resource.split_once('.').unwrap_or((resource, ""));
            let resource = Resource { name, group, part };
            // All resources leave no room for others.
            if text == "*" {
                resources = vec![resource];
                break;
            }
            resources.push(resource);
        }
        Rules { verbs, resources, names: unique(arguments.list("resource-name")) }
    }

    fn warnings(&self) -> Vec<String> {
        let odd = self.verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(&verb.as_str()));
        odd.map(|verb| format!("Warning: '{verb}' is not a standard resource verb")).collect()
    }

    fn check(&self, rim: &Rim<'_>) -> Outcome {
        for resource in &self.resources {
            if resource.name.is_empty() {
                return Err("resource must be specified if apiGroup/subresource specified".into());
            }
            if resource.name == "*" {
                return Ok(());
            }
            let found = (rim.resource)(resource.name, resource.group);
            let typed = (resource.name.to_owned(), resource.group.to_owned());
            let (name, group) = found.clone().unwrap_or(typed);
            let mut special = false;
            for verb in &self.verbs {
                let Some((_, allowed)) = SPECIAL.iter().find(|(known, _)| known == verb) else {
                    continue;
                };
                if !allowed.contains(&(group.as_str(), name.as_str())) {
                    return Err(
                        format!("can not perform '{verb}' on '{name}' in group '{group}'").into()
                    );
                }
                special = true;
            }
            if found.is_none() && !special {
                let of_group =
                    if group.is_empty() { String::new() } else { format!(" in group \"{group}\"") };
                // Upstream says so without saying that it is an error.
                let text = format!("the server doesn't have a resource type \"{name}\"{of_group}");
                return Err(Failure::Said { text, code: 1 });
            }
        }
        Ok(())
    }

    /// One rule for each group of the API.
    fn rules(&self, rim: &Rim<'_>) -> Vec<Value> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in &self.resources {
            let found = (rim.resource)(resource.name, resource.group);
            let (name, group) =
                found.unwrap_or_else(|| (resource.name.to_owned(), resource.group.to_owned()));
            let name =
                if resource.part.is_empty() { name } else { format!("{name}/{}", resource.part) };
            let names = groups.entry(group).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let rule = |(group, resources): (String, Vec<String>)| {
            let mut rule =
                json!({"apiGroups": [group], "resources": resources, "verbs": self.verbs});
            put(&mut rule, "resourceNames", self.names.clone());
            rule
        };
        groups.into_iter().map(rule).collect()
    }
}

fn role(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let (name, rules) = (name(arguments)?, Rules::of(arguments));
    if rules.verbs.is_empty() {
        return Err("at least one verb must be specified".into());
    }
    if rules.resources.is_empty() {
        return Err("at least one resource must be specified".into());
    }
    rules.check(rim)?;
    let mut object = named(API_VERSION, "Role", name);
    object["rules"] = rules.rules(rim).into();
    Ok(Made { object, warnings: rules.warnings() })
}

fn cluster_role(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let (name, rules) = (name(arguments)?, Rules::of(arguments));
    let urls = unique(arguments.list("non-resource-url"));
    let mut object = named(API_VERSION, "ClusterRole", name);
    let aggregated = arguments.list("aggregation-rule");
    if !aggregated.is_empty() {
        if !(urls.is_empty()
            && rules.verbs.is_empty()
            && rules.resources.is_empty()
            && rules.names.is_empty())
        {
            return Err(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or \
                 resourceNames"
                    .into(),
            );
        }
        let mut labels = json!({});
        for pair in aggregated {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("malformed pair, expect string=string: {pair}").into());
            };
            labels[key.trim()] = value.trim().into();
        }
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object["rules"] = Value::Null;
        return Ok(object.into());
    }
    if rules.verbs.is_empty() {
        return Err("at least one verb must be specified".into());
    }
    if rules.resources.is_empty() && urls.is_empty() {
        return Err("one of resource or nonResourceURL must be specified".into());
    }
    let warnings = if rules.resources.is_empty() { Vec::new() } else { rules.warnings() };
    rules.check(rim)?;
    check_urls(&urls, &rules.verbs)?;
    let mut all = rules.rules(rim);
    if !urls.is_empty() {
        all.push(json!({"nonResourceURLs": urls, "verbs": rules.verbs}));
    }
    object["rules"] = all.into();
    Ok(Made { object, warnings })
}

fn check_urls(urls: &[String], verbs: &[String]) -> Outcome {
    if urls.is_empty() {
        return Ok(());
    }
    if let Some(verb) = verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str())) {
        return Err(format!("invalid verb: '{verb}' for nonResourceURL").into());
    }
    for url in urls.iter().filter(|url| *url != "*") {
        if !url.starts_with('/') {
            return Err("nonResourceURL should start with /".into());
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            return Err(
                "nonResourceURL only supports wildcard matches when '*' is at the end".into()
            );
        }
    }
    Ok(())
}

const USER: Flag = each("user", "User to bind; may be repeated.");
const SUBJECT_GROUP: Flag = each("group", "Group to bind; may be repeated.");
const ACCOUNT: Flag =
    each("serviceaccount", "Service account to bind, NAMESPACE:NAME; may be repeated.");

pub static ROLE_BINDING: Generator = Generator {
    name: "rolebinding",
    about: "Create a role binding for a particular role or cluster role",
    usage: "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] \
            [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    flags: &[
        text("clusterrole", "", "Cluster role to bind to."),
        text("role", "", "Role to bind to."),
        USER,
        SUBJECT_GROUP,
        ACCOUNT,
    ],
    refused: "failed to create rolebinding: ",
    make: role_binding,
    ..Generator::EMPTY
};

pub static CLUSTER_ROLE_BINDING: Generator = Generator {
    name: "clusterrolebinding",
    about: "Create a cluster role binding for a particular cluster role",
    usage: "NAME --clusterrole=NAME [--user=username] [--group=groupname] \
            [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    flags: &[
        text("clusterrole", "", "Cluster role to bind to.")
            .required()
            .offers(Offer::Objects("clusterroles")),
        USER,
        SUBJECT_GROUP,
        ACCOUNT,
    ],
    required: &["clusterrole"],
    refused: "failed to create clusterrolebinding: ",
    make: |arguments, _| {
        binding(
            "ClusterRoleBinding",
            name(arguments)?,
            ("ClusterRole", arguments.text("clusterrole")),
            arguments,
        )
    },
    ..Generator::EMPTY
};

fn role_binding(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let name = name(arguments)?;
    let role = match (arguments.text("clusterrole"), arguments.text("role")) {
        ("", role) if !role.is_empty() => ("Role", role),
        (role, "") if !role.is_empty() => ("ClusterRole", role),
        _ => return Err("exactly one of clusterrole or role must be specified".into()),
    };
    binding("RoleBinding", name, role, arguments)
}

fn binding(kind: &str, name: &str, role: (&str, &str), arguments: &Arguments) -> Outcome<Made> {
    let mut subjects = Vec::new();
    for (kind, flag) in [("User", "user"), ("Group", "group")] {
        let of_kind = arguments.list(flag).iter();
        subjects.extend(of_kind.map(|name| json!({"kind": kind, "apiGroup": GROUP, "name": name})));
    }
    for account in arguments.list("serviceaccount") {
        let parts: Vec<&str> = account.split(':').collect();
        match parts[..] {
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                subjects
                    .push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
            }
            _ => return Err("serviceaccount must be <namespace>:<name>".into()),
        }
    }
    let mut object = named(API_VERSION, kind, name);
    object["roleRef"] = json!({"apiGroup": GROUP, "kind": role.0, "name": role.1});
    put(&mut object, "subjects", subjects);
    Ok(object.into())
}

pub static SERVICE_ACCOUNT: Generator = Generator {
    name: "serviceaccount",
    aliases: &["sa"],
    about: "Create a service account with the specified name",
    usage: "NAME [--dry-run=server|client|none]",
    refused: "failed to create serviceaccount: ",
    make: |arguments, _| Ok(named("v1", "ServiceAccount", name(arguments)?).into()),
    ..Generator::EMPTY
};
