//! Which requests are approved without anybody looking: those of nodes, if they may.
use super::signer::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, kubelet_client, kubelet_serving};
use super::{Asked, has, is_over, parse, usages, with_condition};
use crate::action::{Action, tree};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::ApiResource;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use rcgen::SanType;
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-approving-controller",
    account: "certificate-controller",
    workers: 1,
    watch: |on: &Watching| on.objects::<CertificateSigningRequest>(),
    reconcile,
};

/// Upstream leaves these to whoever runs a cluster. Here nodes would wait for ever, so where it is asked
/// for, a node gets what it serves with, and what its kube-proxy is known by.
pub const OF_NODES: Controller = Controller {
    name: "node-certificates-approving-controller",
    account: "node-certificates-approver",
    workers: 1,
    watch: |on: &Watching| {
        on.objects::<CertificateSigningRequest>();
        // A node may ask before its Node has told its addresses.
        on.each::<Node>(|world, _| {
            let requests = world.informer::<CertificateSigningRequest>();
            let read = requests.read();
            let is_open = |one: &CertificateSigningRequest| {
                one.spec.signer_name == KUBELET_SERVING && !is_over(one)
            };
            read.iter().filter(|(_, one)| is_open(one)).map(|(key, _)| key.clone()).collect()
        });
    },
    reconcile: reconcile_of_nodes,
};

const REASON: (&str, &str) = ("Approved", "AutoApproved");

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some((request, asked)) = open(key, world, KUBELET_CLIENT) else { return Vec::new() };
    if kubelet_client(&asked, &usages(&request)).is_err() {
        return Vec::new();
    }
    let is_own = request.spec.username.as_deref() == Some(&asked.subject.common_name);
    // What it may by itself is asked first, then what it may for others.
    let own = is_own.then_some((
        "selfnodeclient",
        "Auto approving self kubelet client certificate after SubjectAccessReview.",
    ));
    let other =
        ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");
    ask(request, own.into_iter().chain([other]).collect(), now)
}

/// Asks for one right after the other; the first that is there is the reason.
fn ask(
    request: CertificateSigningRequest,
    mut rights: Vec<(&'static str, &'static str)>,
    now: Timestamp,
) -> Vec<Action> {
    if rights.is_empty() {
        return Vec::new();
    }
    let (part, message) = rights.remove(0);
    let spec = &request.spec;
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": { "group": "certificates.k8s.io", "version": "*",
                "resource": "certificatesigningrequests", "subresource": part, "verb": "create" } } });
    let then =
        Box::new(move |answer: serde_json::Value| match answer["status"]["allowed"] == true {
            true => vec![approve(&request, message, now)],
            false => ask(request, rights, now),
        });
    vec![Action::Ask { resource: ApiResource::of::<SubjectAccessReview>(), object: review, then }]
}

fn approve(request: &CertificateSigningRequest, message: &str, now: Timestamp) -> Action {
    let told = with_condition(request, REASON, message.to_owned(), now);
    Action::Update {
        resource: ApiResource::of::<CertificateSigningRequest>(),
        part: "approval",
        object: tree(&told),
    }
}

fn reconcile_of_nodes(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    if !world.settings.approve_of_nodes {
        return Vec::new();
    }
    if let Some((request, asked)) = open(key, world, KUBELET_SERVING) {
        let may = kubelet_serving(&asked, &usages(&request)).is_ok()
            && is_own_server(&request, &asked, world);
        let text = "Auto approving kubelet serving certificate for the addresses of its own Node.";
        return if may { vec![approve(&request, text, now)] } else { Vec::new() };
    }
    if let Some((request, asked)) = open(key, world, CLIENT) {
        let text = match asked.subject.common_name.as_str() {
            INGRESS => "Auto approving the certificate of a node's ingress.",
            _ => "Auto approving the certificate of a node's kube-proxy.",
        };
        let may = is_user_of_node(&request, &asked);
        return if may { vec![approve(&request, text, now)] } else { Vec::new() };
    }
    Vec::new()
}

const PROXY: &str = "system:kube-proxy";
/// As whom nodes serve what comes from outside.
const INGRESS: &str = "skiff:ingress";

/// Whether a node asks for the certificate of kube-proxy, as which it may read what every node needs to
/// know of the others, and nothing else; or for that of its ingress, which may read Secrets of TLS.
fn is_user_of_node(request: &CertificateSigningRequest, asked: &Asked) -> bool {
    let user = request.spec.username.as_deref().unwrap_or_default();
    let mut groups = request.spec.groups.iter().flatten();
    user.starts_with("system:node:")
        && groups.any(|group| group == "system:nodes")
        && [PROXY, INGRESS].contains(&asked.subject.common_name.as_str())
        && asked.subject.organizations.is_empty()
        && asked.params.params.subject_alt_names.is_empty()
        && usages(request) == ["digital signature", "client auth"]
}

/// A request for this signer that nobody has decided about.
fn open(
    key: &NamespacedName,
    world: &World,
    signer: &str,
) -> Option<(CertificateSigningRequest, Asked)> {
    let request = world.get::<CertificateSigningRequest>(key)?;
    if request.spec.signer_name != signer || is_over(&request) || has(&request, "Approved") {
        return None;
    }
    let asked = parse(&request)?;
    Some(((*request).clone(), asked))
}

/// Whether a node asks for itself, and for no name or address that its Node does not have.
fn is_own_server(request: &CertificateSigningRequest, asked: &Asked, world: &World) -> bool {
    let user = request.spec.username.as_deref().unwrap_or_default();
    let Some(node) = user.strip_prefix("system:node:") else { return false };
    let Some(node) = world.find::<Node>("", node) else { return false };
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let known: Vec<&str> = addresses.into_iter().flatten().map(|it| it.address.as_str()).collect();
    let is_known = |name: &SanType| match name {
        SanType::DnsName(name) => known.contains(&name.as_str()),
        SanType::IpAddress(address) => known.contains(&address.to_string().as_str()),
        _ => false,
    };
    asked.subject.common_name == user && asked.params.params.subject_alt_names.iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, request_line};
    use expect_test::expect;

    const CLIENT_USAGES: &str = "digital signature,client auth";
    const SERVER_USAGES: &str = "digital signature,server auth";

    #[test]
    fn a_nodes_request_is_held_against_what_its_maker_may() {
        let line = |user: &str, usages: &str| {
            request_line("r", KUBELET_CLIENT, ("system:nodes", "system:node:n"), &[], usages)
                + &format!(" spec.username={user}")
        };
        let check = |line: String, expect| check_row(&CONTROLLER, &line, &["r"], expect);
        check(
            line("system:bootstrap:a", CLIENT_USAGES),
            expect![[r#"
            ask subjectaccessreviews.authorization.k8s.io nodeclient
        "#]],
        );
        check(
            line("system:node:n", CLIENT_USAGES),
            expect![[r#"
            ask subjectaccessreviews.authorization.k8s.io selfnodeclient
        "#]],
        );
        // What the signer would refuse is left to whoever looks.
        check(line("system:node:n", SERVER_USAGES), expect![[""]]);
    }

    #[test]
    fn a_nodes_proxy_is_kube_proxy_and_its_ingress_is_nobody_else() {
        let line = |user: &str, subject: &str, usages: &str| {
            request_line("r", CLIENT, ("", subject), &[], usages)
                + &format!(r#" spec.username={user} spec.groups=["system:nodes"]"#)
        };
        let check = |line: String, expect| check_row(&OF_NODES, &line, &["r"], expect);
        check(
            line("system:node:n", "system:kube-proxy", CLIENT_USAGES),
            expect![[r#"
            update certificatesigningrequests.certificates.k8s.io/approval r
        "#]],
        );
        check(
            line("system:node:n", "skiff:ingress", CLIENT_USAGES),
            expect![[r#"
            update certificatesigningrequests.certificates.k8s.io/approval r
        "#]],
        );
        check(line("jane", "skiff:ingress", CLIENT_USAGES), expect![[""]]);
        check(line("jane", "system:kube-proxy", CLIENT_USAGES), expect![[""]]);
        check(line("system:node:n", "system:kube-scheduler", CLIENT_USAGES), expect![[""]]);
        check(line("system:node:n", "system:kube-proxy", "client auth"), expect![[""]]);
    }

    #[test]
    fn a_servers_certificate_is_for_its_own_nodes_addresses() {
        let world = |user: &str, name: &str| {
            let subject = ("system:nodes", "system:node:n");
            request_line("r", KUBELET_SERVING, subject, &[name], SERVER_USAGES)
                + &format!(" spec.username={user}\nnode n")
                + r#" status.addresses=[{"type":"Hostname","address":"n.example"}]"#
        };
        let check = |world: String, expect| check_row(&OF_NODES, &world, &["r"], expect);
        check(
            world("system:node:n", "n.example"),
            expect![[r#"
            update certificatesigningrequests.certificates.k8s.io/approval r
        "#]],
        );
        check(world("system:node:n", "other.example"), expect![[""]]);
        check(world("system:node:m", "n.example"), expect![[""]]);
    }
}
