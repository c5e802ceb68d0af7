//! Objects that a component needs beside itself: accounts, roles, bindings.
use client::source::{Ask, Call, Patch, Write};
use client::{ApiResource, Client, Status};
use serde_json::{Value, json};

/// Who the cluster's DNS is, and what it may read: as upstream's installers have it.
pub const DNS: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "coredns", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "system:coredns" },
      "rules": [
        { "apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
          "verbs": ["list", "watch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "system:coredns" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "system:coredns" },
      "subjects": [{ "kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system" }] }
]"#;

/// Who tells what nodes and pods use, what it may read, and who may read what it tells: as upstream's
/// manifests have it.
pub const METRICS: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "metrics-server", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "system:metrics-server" },
      "rules": [
        { "apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "system:metrics-server" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "system:metrics-server" },
      "subjects": [{ "kind": "ServiceAccount", "name": "metrics-server",
        "namespace": "kube-system" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "system:aggregated-metrics-reader", "labels": {
        "rbac.authorization.k8s.io/aggregate-to-admin": "true",
        "rbac.authorization.k8s.io/aggregate-to-edit": "true",
        "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
      "rules": [{ "apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"],
        "verbs": ["get", "list", "watch"] }] }
]"#;

/// Who gives load balancers their addresses, and what for.
pub const SERVICE_LB: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "servicelb", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:servicelb" },
      "rules": [
        { "apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
          "resourceNames": ["servicelb"], "verbs": ["get", "update"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
          "verbs": ["list", "watch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:servicelb" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:servicelb" },
      "subjects": [{ "kind": "ServiceAccount", "name": "servicelb", "namespace": "kube-system" }] }
]"#;

/// Who serves what comes from outside, on every server, and what it may read; and what it says in statuses.
/// It may read Secrets, so nobody but a server has its rights: a node that joined may be somebody else's soon.
pub const INGRESS: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "ingress", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:ingress" },
      "rules": [
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["gateway.networking.k8s.io"],
          "resources": ["gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes",
            "tlsroutes", "tcproutes", "udproutes", "referencegrants", "backendtlspolicies"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
          "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["services", "secrets", "configmaps", "nodes", "namespaces"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
          "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:ingress" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:ingress" },
      "subjects": [{ "kind": "ServiceAccount", "name": "ingress", "namespace": "kube-system" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:ingress-status" },
      "rules": [
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch"] },
        { "apiGroups": ["gateway.networking.k8s.io"],
          "resources": ["gatewayclasses/status", "gateways/status", "listenersets/status",
            "httproutes/status", "grpcroutes/status", "tlsroutes/status", "tcproutes/status",
            "udproutes/status", "backendtlspolicies/status"],
          "verbs": ["patch"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
          "resourceNames": ["ingress"], "verbs": ["get", "update"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:ingress-status" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:ingress-status" },
      "subjects": [{ "kind": "ServiceAccount", "name": "ingress", "namespace": "kube-system" }] }
]"#;

/// Who says of what other servers published whether it is ready. Those slices are in this namespace; a role can
/// name no slices by what they begin with, so it is all of them there.
pub const STAND_INS: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "stand-ins", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:stand-ins" },
      "rules": [
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
          "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:stand-ins" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:stand-ins" },
      "subjects": [{ "kind": "ServiceAccount", "name": "stand-ins", "namespace": "kube-system" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
      "metadata": { "name": "skiff:stand-ins", "namespace": "kube-system" },
      "rules": [
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
          "resourceNames": ["stand-ins"], "verbs": ["get", "update"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
      "metadata": { "name": "skiff:stand-ins", "namespace": "kube-system" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "skiff:stand-ins" },
      "subjects": [{ "kind": "ServiceAccount", "name": "stand-ins", "namespace": "kube-system" }] }
]"#;

/// What the packet rules of policies are made of, for those who make those of services.
pub const NETWORK_POLICY: &str = r#"[
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:network-policy" },
      "rules": [
        { "apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"] },
        { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
          "verbs": ["list", "watch"] },
        { "apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies",
            "adminnetworkpolicies", "baselineadminnetworkpolicies"],
          "verbs": ["list", "watch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:network-policy" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:network-policy" },
      "subjects": [{ "kind": "User", "name": "system:kube-proxy",
        "apiGroup": "rbac.authorization.k8s.io" }] }
]"#;

/// What is written down for all nodes: rules of names, and the addresses of load balancers.
pub const NODE_SETTINGS: &str = r#"[
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
      "metadata": { "name": "skiff:node-settings", "namespace": "kube-system" },
      "rules": [{ "apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["coredns", "servicelb"], "verbs": ["get", "list", "watch"] }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
      "metadata": { "name": "skiff:node-settings", "namespace": "kube-system" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "skiff:node-settings" },
      "subjects": [
        { "kind": "User", "name": "system:kube-proxy", "apiGroup": "rbac.authorization.k8s.io" },
        { "kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system" } ] }
]"#;

/// What those may do who join with a token, and nodes: get their certificates without anybody looking.
pub const AGENTS: &str = r#"[
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:node-bootstrapper" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "system:node-bootstrapper" },
      "subjects": [{ "kind": "Group", "name": "system:bootstrappers:skiff:default-node-token",
        "apiGroup": "rbac.authorization.k8s.io" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:node-autoapprove-bootstrap" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient" },
      "subjects": [{ "kind": "Group", "name": "system:bootstrappers:skiff:default-node-token",
        "apiGroup": "rbac.authorization.k8s.io" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:node-autoapprove-certificate-rotation" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient" },
      "subjects": [{ "kind": "Group", "name": "system:nodes",
        "apiGroup": "rbac.authorization.k8s.io" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:node-certificates-approver" },
      "rules": [
        { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
          "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["certificates.k8s.io"],
          "resources": ["certificatesigningrequests/approval"], "verbs": ["update"] },
        { "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
          "resourceNames": ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client"],
          "verbs": ["approve"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:node-certificates-approver" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:node-certificates-approver" },
      "subjects": [{ "kind": "ServiceAccount", "name": "node-certificates-approver",
        "namespace": "kube-system" }] }
]"#;

/// What the cluster says of itself to everybody, for those who come with a token and do not know its CA yet.
/// It is signed with every token by a control loop.
pub fn cluster_info(server: &str, authority: &str) -> Vec<Value> {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{ "name": "", "cluster": {
            "server": server, "certificate-authority-data": authority } }],
        "contexts": [], "users": [], "current-context": "", "preferences": {},
    });
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "cluster-info", "namespace": "kube-public" },
            "data": { "kubeconfig": api::codec::yaml::encode(&kubeconfig) } }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role",
            "metadata": { "name": "skiff:cluster-info", "namespace": "kube-public" },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": ["cluster-info"], "verbs": ["get"] }] }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": { "name": "skiff:cluster-info", "namespace": "kube-public" },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "skiff:cluster-info" },
            "subjects": [{ "kind": "User", "name": "system:anonymous", "apiGroup": rbac }] }),
    ]
}

/// It is there, whoever made it.
pub fn made<T>(outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code != 409 => Err(status),
        _ => Ok(()),
    }
}

/// Makes each of them as it is to be.
pub async fn install(client: &Client, objects: &str) -> anyhow::Result<()> {
    apply(client, serde_json::from_str(objects)?).await
}

pub async fn apply(client: &Client, objects: Vec<Value>) -> anyhow::Result<()> {
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let row = api::kinds::find_kind(&version, &kind);
        let row = row.ok_or_else(|| anyhow::anyhow!("{version} has no {kind}"))?;
        let call = Call {
            resource: ApiResource::from(row),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
            subresource: "".into(),
            ask: Ask::Patch(
                Patch::Apply(object),
                Write { force: true, ..Write::managed_by("skiff") },
            ),
        };
        let outcome = client.source().call(call).await;
        outcome.map_err(|status| anyhow::anyhow!("failed to make a {kind}: {}", status.message))?;
    }
    Ok(())
}
