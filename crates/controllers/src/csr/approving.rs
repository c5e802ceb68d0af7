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
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use rcgen::SanType;
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-approving-controller",
    account: "certificate-controller",
    workers: 1,
    watch: |on: &Watching| {
        on.objects::<CertificateSigningRequest>();
        // A node that is there no more makes room for another of its name.
        on.each::<Node>(|world, _| open_for(world, KUBELET_CLIENT));
    },
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
        on.each::<Node>(|world, _| open_for(world, KUBELET_SERVING));
        on.reads::<Service>();
        on.reads::<EndpointSlice>();
    },
    reconcile: reconcile_of_nodes,
};

fn open_for(world: &World, signer: &str) -> Vec<NamespacedName> {
    let requests = world.informer::<CertificateSigningRequest>();
    let read = requests.read();
    let is_open = |one: &CertificateSigningRequest| one.spec.signer_name == signer && !is_over(one);
    read.iter().filter(|(_, one)| is_open(one)).map(|(key, _)| key.clone()).collect()
}

const REASON: (&str, &str) = ("Approved", "AutoApproved");

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some((request, asked)) = open(key, world, KUBELET_CLIENT) else { return Vec::new() };
    if kubelet_client(&asked, &usages(&request)).is_err() {
        return Vec::new();
    }
    let is_own = request.spec.username.as_deref() == Some(&asked.subject.common_name);
    // Upstream lets whoever has a token be any node; here it waits until nobody else is that one.
    let node = asked.subject.common_name.strip_prefix("system:node:").unwrap_or_default();
    let lives = world.find::<Node>("", node).is_some_and(|node| is_ready(&node));
    if world.settings.approve_of_nodes && !is_own && lives {
        return Vec::new();
    }
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
        let text = "Auto approving the certificate of a node's kube-proxy.";
        let may = is_proxy_of_node(&request, &asked);
        return if may { vec![approve(&request, text, now)] } else { Vec::new() };
    }
    Vec::new()
}

/// Whether a node asks for the certificate of kube-proxy, as which it may read what every node needs to
/// know of the others, and nothing else.
fn is_proxy_of_node(request: &CertificateSigningRequest, asked: &Asked) -> bool {
    let user = request.spec.username.as_deref().unwrap_or_default();
    let mut groups = request.spec.groups.iter().flatten();
    user.starts_with("system:node:")
        && groups.any(|group| group == "system:nodes")
        && asked.subject.common_name == "system:kube-proxy"
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
    let Some(node_name) = user.strip_prefix("system:node:") else { return false };
    let Some(node) = world.find::<Node>("", node_name) else { return false };
    let known: Vec<&str> = addresses(&node).collect();
    let is_known = |name: &SanType| match name {
        SanType::DnsName(name) => known.contains(&name.as_str()),
        SanType::IpAddress(address) => known.contains(&address.to_string().as_str()),
        _ => false,
    };
    let is_own = |name: &SanType| is_known(name) && !is_of_others(name, node_name, world);
    asked.subject.common_name == user && asked.params.params.subject_alt_names.iter().all(is_own)
}

/// Whether a name is not for a node to have, although its Node has it: what is written there the node writes
/// itself. With a certificate for the API server, a service or another node it could stand in the place of those.
fn is_of_others(name: &SanType, node: &str, world: &World) -> bool {
    let others = || world.all::<Node>().into_iter().filter(|other| is_another(other, node));
    match name {
        SanType::DnsName(name) => {
            let name = name.as_str().to_ascii_lowercase();
            let is_a_servers = ["localhost", "kubernetes", "kubernetes.default"].contains(&&*name);
            let is_a_services = name.ends_with(".svc") || name.contains(".svc.");
            let is_a_nodes = |other: &Node| {
                other.metadata.name.as_deref() == Some(&name)
                    || addresses(other).any(|it| it == name)
            };
            // Labels of a pattern would be others' too.
            is_a_servers
                || is_a_services
                || name.contains('*')
                || others().any(|it| is_a_nodes(&it))
        }
        SanType::IpAddress(address) => {
            let text = address.to_string();
            let is_nobodys =
                address.is_loopback() || address.is_unspecified() || address.is_multicast();
            let is_a_services = |service: &Service| {
                let mut of = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
                of.any(|it| *it == text)
            };
            let is_a_servers = |slice: &EndpointSlice| {
                slice.metadata.name.as_deref() == Some("kubernetes")
                    && slice.endpoints.iter().flatten().any(|it| it.addresses.contains(&text))
            };
            is_nobodys
                || world.settings.servers.contains(address)
                || world.in_namespace::<EndpointSlice>("default").iter().any(|it| is_a_servers(it))
                || world.all::<Service>().iter().any(|it| is_a_services(it))
                || others().any(|other| addresses(&other).any(|it| it == text))
        }
        _ => true,
    }
}

/// A node that is not there has no use for its addresses: a machine may have got them since.
fn is_another(other: &Node, node: &str) -> bool {
    other.metadata.name.as_deref() != Some(node) && is_ready(other)
}

fn is_ready(node: &Node) -> bool {
    let mut all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.any(|one| one.type_ == "Ready" && one.status == "True")
}

fn addresses(node: &Node) -> impl Iterator<Item = &str> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.map(|one| one.address.as_str())
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
    fn a_nodes_proxy_is_kube_proxy_and_nobody_else() {
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

    const READY: &str = r#" status.conditions=[{"type":"Ready","status":"True"}]"#;

    /// A node may write of its Node what it likes.
    #[test]
    fn no_node_gets_a_certificate_for_what_is_others() {
        let check = |name: &str, expected: bool| {
            let subject = ("system:nodes", "system:node:n");
            let request = request_line("r", KUBELET_SERVING, subject, &[name], SERVER_USAGES);
            let text = format!(
                r#"{request} spec.username=system:node:n
                node n status.addresses=[{{"type":"InternalIP","address":"{name}"}}]
                node alive{READY} status.addresses=[{{"type":"InternalIP","address":"192.0.2.1"}},{{"type":"ExternalDNS","address":"alive.example"}}]
                node gone status.addresses=[{{"type":"InternalIP","address":"192.0.2.2"}}]
                service web spec.clusterIPs=["10.96.0.7"]
                endpointslice kubernetes endpoints=[{{"addresses":["192.0.2.3"]}}]"#
            );
            crate::testing::in_world(&OF_NODES, &text, |world, _| {
                let actions =
                    (OF_NODES.reconcile)(&crate::testing::key_of("r"), world, Timestamp::now());
                assert_eq!(!actions.is_empty(), expected, "{name}");
            });
        };
        for own in ["192.0.2.9", "192.0.2.2", "2001:db8::9", "n", "n.example", "kubernetes.example"]
        {
            check(own, true);
        }
        for others in [
            "192.0.2.1",
            "192.0.2.3",
            "203.0.113.1",
            "10.96.0.7",
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "alive",
            "ALIVE",
            "alive.example",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "web.default.svc",
            "web.default.svc.cluster.local",
            "*.example",
        ] {
            check(others, false);
        }
    }

    #[test]
    fn a_token_makes_nobody_a_node_that_lives() {
        let line = |user: &str| {
            let subject = ("system:nodes", "system:node:n");
            request_line("r", KUBELET_CLIENT, subject, &[], CLIENT_USAGES)
                + &format!(" spec.username={user}\n")
        };
        let check = |text: String, expect| check_row(&CONTROLLER, &text, &["r"], expect);
        check(line("system:bootstrap:a") + "node n" + READY, expect![[""]]);
        check(
            line("system:bootstrap:a") + "node n\nnode m" + READY,
            expect![[r#"
                ask subjectaccessreviews.authorization.k8s.io nodeclient
            "#]],
        );
        check(
            line("system:node:n") + "node n" + READY,
            expect![[r#"
                ask subjectaccessreviews.authorization.k8s.io selfnodeclient
            "#]],
        );
    }
}
