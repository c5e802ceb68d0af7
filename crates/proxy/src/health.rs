//! What others ask the proxy: is it well, what has it counted, has this node endpoints.
use crate::ProxyError;
use crate::counts::Counts;
use api::names::NamespacedName;
use client::pages::{self, Asked, Page};
use client::zpages::{Flags, Zpages};
use client::{Context, Metrics, Registry};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a change may wait until the proxy is not well: upstream's, twice its sync period.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is served beside the metrics, as `/statusz` lists it.
const PATHS: &[&str] = &["/flagz", "/healthz", "/metrics", "/proxyMode"];

#[derive(Default)]
pub struct Health {
    state: Mutex<State>,
    pub registry: Registry,
    pub counts: Counts,
}

#[derive(Default)]
struct State {
    updated: Option<Timestamp>,
    waiting_since: Option<Timestamp>,
    is_eligible: bool,
    /// How many endpoints this node has of services that load balancers ask about.
    services: HashMap<NamespacedName, Checked>,
}

struct Checked {
    port: u16,
    local_endpoints: usize,
    /// Stops when it is dropped.
    serving: Context,
}

impl Health {
    pub fn queued(&self, now: Timestamp) {
        self.state.lock().waiting_since.get_or_insert(now);
    }

    pub fn updated(&self, now: Timestamp) {
        let mut state = self.state.lock();
        (state.updated, state.waiting_since) = (Some(now), None);
    }

    pub fn set_eligible(&self, is_eligible: bool) {
        self.state.lock().is_eligible = is_eligible;
    }

    fn is_well(state: &State, now: Timestamp) -> bool {
        let since = |then: Timestamp| now.duration_since(then).unsigned_abs();
        state.updated.is_some() && state.waiting_since.is_none_or(|then| since(then) < PATIENCE)
    }

    /// `/healthz` is for load balancers: a node that is on its way out is not well. `/livez` is for
    /// whoever would restart the proxy.
    fn page(&self, path: &str, now: Timestamp) -> Page {
        let state = self.state.lock();
        let is_well = Health::is_well(&state, now);
        let is_good = match path {
            "/healthz" => is_well && state.is_eligible,
            "/livez" => is_well,
            _ => return Page::not_found(),
        };
        let updated = state.updated.unwrap_or_default();
        let mut body = serde_json::json!({
            "lastUpdated": updated.to_string(),
            "currentTime": now.to_string(),
            "healthy": is_well,
        });
        if path == "/healthz" {
            body["nodeEligible"] = state.is_eligible.into();
        }
        let counted = match path {
            "/healthz" => "kubeproxy_proxy_healthz_total",
            _ => "kubeproxy_proxy_livez_total",
        };
        self.registry.count(counted, &[("code", if is_good { "200" } else { "503" })]);
        let mut page = Page::new(if is_good { 200 } else { 503 }, pages::JSON, body.to_string());
        page.headers.push(("x-content-type-options", "nosniff".to_owned()));
        page
    }

    fn service_page(&self, key: &NamespacedName, now: Timestamp) -> Page {
        let state = self.state.lock();
        let Some(checked) = state.services.get(key) else { return Page::not_found() };
        let (count, is_well) = (checked.local_endpoints, Health::is_well(&state, now));
        let (namespace, name) = (&key.namespace, &key.name);
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {is_well}\n}}"
        );
        let code = if count > 0 && is_well { 200 } else { 503 };
        let mut page = Page::new(code, pages::JSON, body);
        page.headers.push(("x-content-type-options", "nosniff".to_owned()));
        page.headers.push(("x-load-balancing-endpoint-weight", count.to_string()));
        page
    }

    /// A service's health-check port, if it has one, and its endpoints on this node.
    pub fn set_service(
        self: &Arc<Self>,
        context: &Context,
        key: &NamespacedName,
        port: Option<u16>,
        local_endpoints: usize,
    ) {
        let mut state = self.state.lock();
        match (state.services.get_mut(key), port) {
            (Some(checked), Some(port)) if checked.port == port => {
                checked.local_endpoints = local_endpoints;
                return;
            }
            (None, None) => return,
            _ => {}
        }
        if let Some(checked) = state.services.remove(key) {
            checked.serving.stop();
        }
        let Some(port) = port else { return };
        let serving = context.part();
        state
            .services
            .insert(key.clone(), Checked { port, local_endpoints, serving: serving.clone() });
        drop(state);
        let (health, key) = (self.clone(), key.clone());
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        tokio::spawn(async move {
            match listen(address).await {
                Ok(listener) => {
                    let context = serving.clone();
                    let page = move |_: Asked<'_>| health.service_page(&key, context.now());
                    pages::serve(serving, listener, page).await;
                }
                Err(error) => {
                    tracing::error!(%error, service = %key, "no health check of a service")
                }
            }
        });
    }
}

pub async fn serve(
    context: &Context,
    health: &Arc<Health>,
    healthz: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    flags: Flags,
) -> Result<(), ProxyError> {
    if let Some(address) = healthz {
        let (listener, health, clock) = (listen(address).await?, health.clone(), context.clone());
        let page = move |asked: Asked<'_>| health.page(asked.path, clock.now());
        tokio::spawn(pages::serve(context.clone(), listener, page));
    }
    if let Some(address) = metrics {
        let (listener, health, clock) = (listen(address).await?, health.clone(), context.clone());
        let zpages = Zpages::new("kube-proxy", PATHS, flags, clock.now());
        let page = move |asked: Asked<'_>| match asked.path {
            "/healthz" => Page::ok("ok"),
            "/proxyMode" => Page::ok("nftables"),
            "/metrics" => Page::new(200, pages::METRICS, health.registry.text()),
            path => zpages.page(path, asked.accept, clock.now()).unwrap_or_else(Page::not_found),
        };
        tokio::spawn(pages::serve(context.clone(), listener, page));
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ProxyError> {
    TcpListener::bind(address).await.map_err(|source| ProxyError::Listen { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn who_is_behind_or_on_the_way_out_is_not_well() {
        let health = Health::default();
        let check = |now: i64, healthz: u16, livez: u16| {
            let codes = ["/healthz", "/livez"].map(|path| health.page(path, at(now)).code);
            assert_eq!(codes, [healthz, livez], "at {now}");
        };
        health.set_eligible(true);
        check(0, 503, 503);
        health.updated(at(1));
        check(1000, 200, 200);
        health.queued(at(1000));
        health.queued(at(1050));
        check(1059, 200, 200);
        check(1060, 503, 503);
        health.updated(at(1061));
        check(2000, 200, 200);
        health.set_eligible(false);
        check(2000, 503, 200);
        assert_eq!(health.page("/x", at(0)).code, 404);
        let counted = health.registry.text();
        assert!(counted.contains("kubeproxy_proxy_livez_total{code=\"200\"} 4"), "{counted}");
        assert!(counted.contains("kubeproxy_proxy_healthz_total{code=\"503\"} 3"), "{counted}");
    }
}
