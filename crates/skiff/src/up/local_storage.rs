//! Local storage: the component, and the class that claims get volumes of when they name none.
use super::addons::made;
use super::components::{Cluster, account, administrator};
use client::source::Collection;
use client::{ApiResource, Client, Context, Status};
use controllers::{Settings, Sources, local_storage};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;
use std::time::Duration;

pub const NAME: &str = "local-storage";

/// Who makes volumes, and what it may do. It may make pods in `kube-system`, which may do anything: nobody but a
/// server has its rights, and nodes have none of them.
pub const RIGHTS: &str = r#"[
    { "apiVersion": "v1", "kind": "ServiceAccount",
      "metadata": { "name": "local-storage", "namespace": "kube-system" } },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
      "metadata": { "name": "skiff:local-storage" },
      "rules": [
        { "apiGroups": [""], "resources": ["persistentvolumes"],
          "verbs": ["list", "watch", "get", "create", "update", "delete"] },
        { "apiGroups": [""], "resources": ["persistentvolumeclaims"],
          "verbs": ["list", "watch", "get", "update"] },
        { "apiGroups": [""], "resources": ["persistentvolumeclaims/status"], "verbs": ["update"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] },
        { "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"],
          "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
      "metadata": { "name": "skiff:local-storage" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "skiff:local-storage" },
      "subjects": [{ "kind": "ServiceAccount", "name": "local-storage", "namespace": "kube-system" }] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
      "metadata": { "name": "skiff:local-storage", "namespace": "kube-system" },
      "rules": [
        { "apiGroups": [""], "resources": ["pods"],
          "verbs": ["list", "watch", "get", "create", "delete"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
          "resourceNames": ["local-storage"], "verbs": ["get", "update"] } ] },
    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
      "metadata": { "name": "skiff:local-storage", "namespace": "kube-system" },
      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "skiff:local-storage" },
      "subjects": [{ "kind": "ServiceAccount", "name": "local-storage", "namespace": "kube-system" }] }
]"#;

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    let source = cluster.source(NAME, &account(NAME))?;
    let admin = Client::new(cluster.source("skiff", &administrator())?).managed_by("skiff");
    let asking = source.clone();
    let work = move |context: Context| async move {
        let (sources, rows) = (Sources::one(source), local_storage::ROWS.to_vec());
        controllers::run(&context, &sources, rows, Settings::default(), NAME).await;
    };
    let working = cluster.leading.work(&cluster.context, asking, NAME, work);
    let (worked, ()) = tokio::join!(working, install(&cluster, &admin));
    worked
}

const RETRY: Duration = Duration::from_secs(1);

/// The class is there from the first boot on.
async fn install(cluster: &Cluster, admin: &Client) {
    loop {
        match make_class(cluster, admin).await {
            Ok(()) => return,
            Err(status) => {
                tracing::warn!(error = status.message, "failed to make a class of volumes")
            }
        }
        if !cluster.context.sleep(RETRY).await {
            return;
        }
    }
}

pub const CLASS: &str = "local";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// It is made, and the default one, where there is no class at all. Whatever becomes of it later is its owner's affair.
async fn make_class(cluster: &Cluster, admin: &Client) -> Result<(), Status> {
    let all = admin.list(Collection::all(ApiResource::of::<StorageClass>())).await?;
    if !all.items.is_empty() {
        return Ok(());
    }
    let data = &cluster.machine.data_dir;
    let folder = std::path::absolute(data).unwrap_or_else(|_| data.clone()).join("volumes");
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": CLASS, "annotations": { IS_DEFAULT: "true" } },
        "provisioner": local_storage::PROVISIONER,
        "parameters": { local_storage::PATH: folder },
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    });
    // Another server may be faster.
    made(admin.create_in(ApiResource::of::<StorageClass>(), "", class).await)
}
