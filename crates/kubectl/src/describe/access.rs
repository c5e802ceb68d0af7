//! Accounts, roles, bindings, requests for certificates.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Seen;
use super::common::{format_labels, head, items, labels_and_annotations, text, texts, time};
use super::writer::{Writer, put};

pub fn service_account(w: &mut Writer, account: &Value, _: &Seen<'_>) {
    const TITLE: &str = "Image pull secrets:";
    head(w, account, true);
    labels_and_annotations(w, account);
    let secrets = items(&account["imagePullSecrets"]);
    if secrets.is_empty() {
        put!(w, 0, "{TITLE}\t<none>\n");
    }
    for (i, secret) in secrets.iter().enumerate() {
        let title = if i == 0 { TITLE } else { "                   " };
        put!(w, 0, "{title}\t{}\n", text(&secret["name"]));
    }
}

/// A rule about one resource or one URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    group: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    url: Option<String>,
}

pub fn role(w: &mut Writer, role: &Value, _: &Seen<'_>) {
    head(w, role, false);
    labels_and_annotations(w, role);
    w.write(0, "PolicyRule:\n");
    w.write(1, "Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    w.write(1, "---------\t-----------------\t--------------\t-----\n");
    let list = |value: &Option<String>| format!("[{}]", value.as_deref().unwrap_or_default());
    for (rule, verbs) in compact(items(&role["rules"])) {
        let (urls, names) = (list(&rule.url), list(&rule.name));
        put!(w, 1, "{}\t{urls}\t{names}\t[{}]\n", resource(&rule), verbs.join(" "));
    }
}

/// Rules broken down to single resources and put together again by verbs, in the order that upstream's
/// text of them has (`kubectl/pkg/util/rbac`).
fn compact(rules: &[Value]) -> Vec<(Rule, Vec<String>)> {
    let mut resources: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut urls: Vec<(Rule, Vec<String>)> = Vec::new();
    for rule in rules {
        let verbs = texts(&rule["verbs"]);
        let names = texts(&rule["resourceNames"]);
        let names: Vec<Option<&str>> = match names.is_empty() {
            true => vec![None],
            false => names.into_iter().map(Some).collect(),
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in &verbs {
                    for name in &names {
                        let simple = Rule {
                            group: Some(group.to_owned()),
                            resource: Some(resource.to_owned()),
                            name: name.map(str::to_owned),
                            url: None,
                        };
                        let known = resources.entry(simple).or_default();
                        if !known.iter().any(|known| known == verb) {
                            known.push((*verb).to_owned());
                        }
                    }
                }
            }
        }
        for url in texts(&rule["nonResourceURLs"]) {
            for verb in &verbs {
                let rule =
                    Rule { group: None, resource: None, name: None, url: Some(url.to_owned()) };
                urls.push((rule, vec![(*verb).to_owned()]));
            }
        }
    }
    let mut all = urls;
    all.extend(resources);
    all.sort_by_key(|(rule, verbs)| written(rule, verbs));
    all
}

/// A rule as upstream's generated code writes it; its only use is to be sorted by.
fn written(rule: &Rule, verbs: &[String]) -> String {
    let list = |value: &Option<String>| format!("[{}]", value.as_deref().unwrap_or_default());
    format!(
        "&PolicyRule{{Verbs:[{}],APIGroups:{},Resources:{},ResourceNames:{},NonResourceURLs:{},}}",
        verbs.join(" "),
        list(&rule.group),
        list(&rule.resource),
        list(&rule.name),
        list(&rule.url)
    )
}

/// `deployments.apps/scale`.
fn resource(rule: &Rule) -> String {
    let Some(resource) = &rule.resource else { return String::new() };
    let (resource, part) = match resource.split_once('/') {
        Some((resource, part)) => (resource, format!("/{part}")),
        None => (resource.as_str(), String::new()),
    };
    match rule.group.as_deref() {
        None | Some("") => format!("{resource}{part}"),
        Some(group) => format!("{resource}.{group}{part}"),
    }
}

pub fn binding(w: &mut Writer, binding: &Value, _: &Seen<'_>) {
    head(w, binding, false);
    labels_and_annotations(w, binding);
    w.write(0, "Role:\n");
    put!(w, 1, "Kind:\t{}\n", text(&binding["roleRef"]["kind"]));
    put!(w, 1, "Name:\t{}\n", text(&binding["roleRef"]["name"]));
    w.write(0, "Subjects:\n");
    w.write(1, "Kind\tName\tNamespace\n");
    w.write(1, "----\t----\t---------\n");
    for subject in items(&binding["subjects"]) {
        let (kind, name) = (text(&subject["kind"]), text(&subject["name"]));
        put!(w, 1, "{kind}\t{name}\t{}\n", text(&subject["namespace"]));
    }
}

pub fn signing_request(w: &mut Writer, csr: &Value, _: &Seen<'_>) {
    let (spec, metadata) = (&csr["spec"], &csr["metadata"]);
    head(w, csr, false);
    put!(w, 0, "Labels:\t{}\n", format_labels(&metadata["labels"]));
    put!(w, 0, "Annotations:\t{}\n", format_labels(&metadata["annotations"]));
    put!(w, 0, "CreationTimestamp:\t{}\n", time(&metadata["creationTimestamp"]));
    put!(w, 0, "Requesting User:\t{}\n", text(&spec["username"]));
    super::common::optional(w, 0, "Signer", &spec["signerName"]);
    if let Some(seconds) = spec["expirationSeconds"].as_i64() {
        put!(
            w,
            0,
            "Requested Duration:\t{}\n",
            api::duration::Duration::from_secs(seconds).human()
        );
    }
    put!(w, 0, "Status:\t{}\n", status(csr));
    subject(w, text(&spec["request"]));
}

fn status(csr: &Value) -> String {
    let conditions = items(&csr["status"]["conditions"]);
    let has = |kind: &str| conditions.iter().any(|condition| text(&condition["type"]) == kind);
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(&csr["status"]["certificate"]).is_empty() {
        status.push_str(",Issued");
    }
    status
}

fn subject(w: &mut Writer, request: &str) {
    let request = match api::x509::request_in(request) {
        Ok(request) => request,
        Err(fault) => return put!(w, 0, "Error parsing CSR: {fault}\n"),
    };
    let subject = &request.subject;
    // The last numbers of X.520's names of attributes.
    let of = |number: u64| {
        let is = |oid: &[u64]| oid == [2, 5, 4, number];
        let values =
            subject.attributes.iter().filter(|(oid, _)| is(oid)).map(|(_, value)| value.as_str());
        values.collect::<Vec<_>>()
    };
    w.write(0, "Subject:\n");
    put!(w, 0, "\tCommon Name:\t{}\n", of(3).last().copied().unwrap_or_default());
    put!(w, 0, "\tSerial Number:\t{}\n", of(5).last().copied().unwrap_or_default());
    for (title, number) in [
        ("Organization", 10),
        ("Organizational Unit", 11),
        ("Country", 6),
        ("Locality", 7),
        ("Province", 8),
        ("StreetAddress", 9),
        ("PostalCode", 17),
    ] {
        let values = of(number);
        if !values.is_empty() {
            put!(w, 0, "\t{title}:\t{}\n", values.join("\n\t\t"));
        }
    }
    alternative_names(w, &request);
}

fn alternative_names(w: &mut Writer, request: &api::x509::Request) {
    let names = request.alternative_names();
    let addresses: Vec<String> = names.addresses.iter().map(ToString::to_string).collect();
    let parts = [
        ("DNS Names", names.dns_names),
        ("Email Addresses", names.emails),
        ("URIs", names.uris),
        ("IP Addresses", addresses),
    ];
    if parts.iter().any(|(_, values)| !values.is_empty()) {
        w.write(0, "Subject Alternative Names:\n");
    }
    for (title, values) in parts {
        if !values.is_empty() {
            put!(w, 0, "\t{title}:\t{}\n", values.join("\n\t\t"));
        }
    }
}
