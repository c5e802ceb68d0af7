//! The namespace that a benchmark makes for itself, and what it puts there.
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use testkit::client::Connection;
use testkit::client::{Endpoint, JSON};

/// How long a cluster's own controller has to remove the emptied namespace.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server may need longer for a collection than it gives itself, and goes on when asked again.
const TRIES: usize = 5;

pub struct Place {
    pub namespace: String,
    /// Where the namespace's config maps are.
    pub collection: String,
    /// And its pods.
    pub pods: String,
}

impl Place {
    pub async fn make(endpoint: &Arc<Endpoint>) -> Result<Place> {
        let namespace = format!("bench-{}", std::process::id());
        let body =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let mut connection = Connection::open(endpoint).await?;
        connection.call(Method::POST, "/api/v1/namespaces", body.to_string().into()).await?;
        // Where no controller makes it, pods need somebody to act as.
        let account = json!({ "metadata": { "name": "default" } }).to_string();
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        connection.ask(Method::POST, &accounts, JSON, account.into()).await?;
        Ok(Place::of(&namespace))
    }

    /// The namespace that another process has made.
    pub fn of(namespace: &str) -> Place {
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        Place { namespace: namespace.to_owned(), collection, pods }
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.collection)
    }

    /// Removes everything. Nothing else lives in the namespace, so it may be finalized here where
    /// no controller does it.
    pub async fn remove(&self, endpoint: &Arc<Endpoint>) -> Result<()> {
        let mut connection = Connection::open(endpoint).await?;
        for collection in [&self.collection, &self.pods] {
            let mut tries = TRIES;
            while let Err(error) = connection.call(Method::DELETE, collection, Bytes::new()).await {
                tries -= 1;
                anyhow::ensure!(tries > 0, error);
                connection = Connection::open(endpoint).await?;
            }
        }
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        connection.call(Method::DELETE, &path, Bytes::new()).await?;
        let begun = Instant::now();
        while let Ok(found) = connection.call(Method::GET, &path, Bytes::new()).await {
            if begun.elapsed() > PATIENCE {
                let mut namespace: Value = serde_json::from_slice(&found)?;
                namespace["spec"]["finalizers"] = json!([]);
                let finalize = format!("{path}/finalize");
                connection.call(Method::PUT, &finalize, namespace.to_string().into()).await?;
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// A config map with a kilobyte of data; `mark` is part of it.
pub fn config_map(name: &str, mark: &str) -> Bytes {
    let filler = "0123456789abcdef".repeat(64);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "data": { "mark": mark, "filler": filler },
    })
    .to_string()
    .into()
}
