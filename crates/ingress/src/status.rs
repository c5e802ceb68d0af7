//! What people read in objects' statuses; one writes for all nodes.
use crate::live::Config;
use crate::plan::{Kind, Status, plan};
use crate::world::Seen;
use client::source::Patch;
use client::{Client, Context, Source};
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// After what was refused, and between two looks at changes that come together.
const RETRY: Duration = Duration::from_secs(1);
const GATHER: Duration = Duration::from_millis(100);

/// Writes until the context stops; whoever calls it sees to it that nobody else does.
pub async fn run(context: Context, source: Arc<dyn Source>, config: Config) {
    let client = Client::new(source.clone()).managed_by("skiff-ingress");
    let seen = Seen::new(&context, source);
    let changes = seen.changes();
    let places = config.places();
    let mut is_done = true;
    loop {
        let again = async {
            match is_done {
                true => drop(changes.next().await),
                false => tokio::time::sleep(RETRY).await,
            }
        };
        tokio::select! {
            () = again => {}
            () = context.stopped() => return,
        }
        tokio::select! {
            () = seen.synced() => {}
            () = context.stopped() => return,
        }
        is_done = true;
        let now = context.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for status in plan(&seen.world(), &places, &now).statuses {
            is_done &= write(&client, &status).await;
        }
        if !context.sleep(GATHER).await {
            return;
        }
    }
}

/// Whether the object says now what it should.
async fn write(client: &Client, wanted: &Status) -> bool {
    let patch = Patch::Merge(json!({ "status": wanted.status }));
    let (namespace, name) = (&wanted.key.namespace, &wanted.key.name);
    let outcome = match wanted.kind {
        Kind::Ingress => client.patch_status::<Ingress>(namespace, name, patch).await,
        kind => {
            let kind = crate::world::resource(kind.name());
            client.patch_in(kind, namespace, name, "status", patch).await
        }
    };
    match outcome {
        Ok(_) => true,
        // It is gone: whoever tells of objects says so soon.
        Err(status) if status.code == 404 => true,
        Err(status) => {
            tracing::warn!(object = %wanted.key, kind = ?wanted.kind, error = status.message, "failed to write a status");
            false
        }
    }
}
