//! Whether the server behind an APIService is to be had: upstream's checks, reasons and words
//! (`kube-aggregator/pkg/controllers/status/remote`).
use super::{Remote, api_services, discovery, kind, openapi};
use crate::extend::backend::slices_of;
use crate::server::ApiServer;
use crate::state::objects;
use api::status::Status;
use client::Metrics;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One that is well is looked at this often, and one that is not is not looked at less often.
const AGAIN: Duration = Duration::from_secs(30);
/// The first pause after a failure; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(5);
/// Of such a pause, what no news cuts short: a failure that is told differently each time is news.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Why a server is not to be had, or that it is.
#[derive(Debug, Clone, PartialEq)]
struct Finding {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Looks after a server for as long as its APIService says the same of it.
pub fn watch_over(api: &ApiServer, remote: &Arc<Remote>) {
    let (api, first) = (api.clone(), remote.clone());
    tokio::spawn(async move {
        let mut pause = PAUSE;
        loop {
            let now = api.extend().aggregation.current();
            let Some(remote) = now.values().find(|remote| remote.is_checked_as(&first)) else {
                return;
            };
            let remote = remote.clone();
            drop(now);
            let finding = check(&api, &remote).await;
            let is_well = finding.reason == "Passed";
            if let Err(error) = tell(&api, &remote.name, &finding).await {
                tracing::warn!(%error, name = remote.name, "failed to say whether it is available");
            }
            if is_well {
                let found = discovery::fetch(&api, &remote).await;
                remote.known.put_discovery(found);
                openapi::look(&api, &remote).await;
                pause = PAUSE;
            } else {
                remote.known.put_discovery(None);
            }
            let mut wait = AGAIN;
            if !is_well {
                tokio::time::sleep(pause.min(AT_LEAST)).await;
                wait = pause.saturating_sub(AT_LEAST);
                pause = AGAIN.min(pause * 2);
            }
            tokio::select! {
                () = api.stopping() => return,
                () = tokio::time::sleep(wait) => {}
                () = first.nudged() => {}
            }
        }
    });
}

async fn check(api: &ApiServer, remote: &Remote) -> Finding {
    let service = objects::get(api, kind("v1", "Service"), &remote.namespace, &remote.service);
    let slices = match slices_of(api, &remote.namespace, &remote.service).await {
        Ok(slices) => slices,
        Err(status) => return remote.unknown("EndpointsAccessError", &status),
    };
    let service = match service.await {
        Ok(service) => Some(service),
        Err(status) if status.is_not_found() => None,
        Err(status) => return remote.unknown("ServiceAccessError", &status),
    };
    if let Some(finding) = remote.routable(service.as_ref(), &slices) {
        return finding;
    }
    match answers(api, remote).await {
        Ok(()) => finding("True", "Passed", "all checks passed".into()),
        Err(message) => finding("False", "FailedDiscoveryCheck", message),
    }
}

/// Whether it answers where every server does that serves the group.
async fn answers(api: &ApiServer, remote: &Remote) -> Result<(), String> {
    let addresses = remote.addresses(api).await?;
    let path = remote.root();
    let url = addresses.first().map(|address| format!("https://{address}{path}"));
    let url = url.unwrap_or_default();
    let failed = |cause: String| format!("failing or missing response from {url}: {cause}");
    let answer = remote.get_from(addresses, &path, "*/*", "").await;
    let answer = answer.map_err(|cause| failed(format!("Get {url:?}: {cause}")))?;
    match answer.head.status.as_u16() {
        200..=299 => Ok(()),
        code => Err(failed(format!("bad status from {url}: {code}"))),
    }
}

fn finding(status: &'static str, reason: &'static str, message: String) -> Finding {
    Finding { status, reason, message }
}

impl Remote {
    fn unknown(&self, reason: &'static str, status: &Status) -> Finding {
        let (name, place) = (&self.service, &self.namespace);
        let message = format!("service/{name} in {place:?} cannot be checked due to: {status}");
        finding("Unknown", reason, message)
    }

    /// Why its service leads nowhere, if that can be told without asking it.
    fn routable(&self, service: Option<&Value>, slices: &[Value]) -> Option<Finding> {
        let (name, place, port) = (&self.service, &self.namespace, self.port);
        let missing = |reason, message| Some(finding("False", reason, message));
        let Some(service) = service else {
            return missing(
                "ServiceNotFound",
                format!("service/{name} in {place:?} is not present"),
            );
        };
        if service["spec"]["type"].as_str().unwrap_or("ClusterIP") != "ClusterIP" {
            return None;
        }
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let Some(found) = ports.find(|found| found["port"].as_u64() == Some(port.into())) else {
            return missing(
                "ServicePortError",
                format!("service/{name} in {place:?} is not listening on port {port}"),
            );
        };
        let port_name = found["name"].as_str().unwrap_or_default();
        if slices.is_empty() {
            return missing(
                "EndpointsNotFound",
                format!("cannot find endpointslices for service/{name} in {place:?}"),
            );
        }
        if !slices.iter().any(|slice| has_endpoint(slice, port_name)) {
            return missing(
                "MissingEndpoints",
                format!(
                    "endpointslices for service/{name} in {place:?} have no addresses with port \
                     name {port_name:?}"
                ),
            );
        }
        None
    }
}

fn has_endpoint(slice: &Value, port_name: &str) -> bool {
    let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let mut ports = slice["ports"].as_array().into_iter().flatten();
    endpoints.any(|endpoint| endpoint["conditions"]["ready"] != false)
        && ports.any(|port| {
            port["name"].as_str().unwrap_or_default() == port_name && port["port"].is_u64()
        })
}

/// Writes what was found, if that is news.
async fn tell(api: &ApiServer, name: &str, found: &Finding) -> Result<(), Status> {
    let now = Timestamp::now();
    let put = |service: &mut Value| {
        put_condition(service, found.status, found.reason, &found.message, now)
    };
    let mut service = match objects::get(api, api_services(), "", name).await {
        Err(status) if status.is_not_found() => return Ok(()),
        service => service?,
    };
    let was_available = is_available(&service);
    if !put(&mut service) {
        return Ok(());
    }
    tracing::info!(name, status = found.status, found.message, "changing APIService availability");
    let changed = objects::modify(api, api_services(), ("", name), false, |service| {
        put(service);
        Ok(())
    });
    match changed.await {
        Ok(_) if was_available && !is_available(&service) => {
            let labels = [("name", name), ("reason", found.reason)];
            api.extend().counts.count("aggregator_unavailable_apiservice_total", &labels);
            Ok(())
        }
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}

/// Whether an APIService says that its server is to be had.
fn is_available(service: &Value) -> bool {
    let mut conditions = service["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// What is counted of APIServices at this moment: which of them are marked as not to be had
/// (`kube-aggregator/pkg/controllers/status/metrics`).
pub fn metrics(services: &[Value]) -> String {
    const NAME: &str = "aggregator_unavailable_apiservice";
    let mut text = String::new();
    let head = if services.is_empty() { String::new() } else { format!("# TYPE {NAME} gauge\n") };
    text.push_str(&head);
    for service in services {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let unavailable = u8::from(!is_available(service));
        text.push_str(&format!("{NAME}{{name={name:?}}} {unavailable}\n"));
    }
    text
}

/// Puts the one condition that is ours among those of others. Whether that changed anything.
pub fn put_condition(
    service: &mut Value,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    if !service["status"]["conditions"].is_array() {
        service["status"]["conditions"] = json!([]);
    }
    let now = api::time::format(now.as_second());
    let Some(conditions) = service["status"]["conditions"].as_array_mut() else { return false };
    let known = conditions.iter_mut().find(|condition| condition["type"] == "Available");
    let Some(known) = known else {
        conditions.push(json!({ "type": "Available", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": now }));
        return true;
    };
    let before = known.clone();
    if known["status"] != status {
        known["status"] = status.into();
        known["lastTransitionTime"] = now.into();
    }
    known["reason"] = reason.into();
    known["message"] = message.into();
    *known != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> Remote {
        let service = json!({ "metadata": { "name": "v1.e.io", "uid": "1" }, "spec": {
            "group": "e.io", "version": "v1", "insecureSkipTLSVerify": true,
            "service": { "name": "api", "namespace": "ns", "port": 443 } } });
        Remote::read(&service, None, &super::super::Remotes::new()).expect("a service")
    }

    #[test]
    fn a_service_that_leads_nowhere_is_told_apart() {
        let service = |kind: &str, port: u16| json!({ "spec": { "type": kind, "ports": [{ "name": "https", "port": port }] } });
        let slice = |ready: bool, name: &str| {
            json!({ "ports": [{ "name": name, "port": 6443 }],
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": ready } }] })
        };
        let check = |service: Option<&Value>, slices: &[Value], expected: Option<(&str, &str)>| {
            let found = remote().routable(service, slices);
            let found = found.as_ref().map(|found| (found.reason, &*found.message));
            assert_eq!(found, expected);
        };
        let good = service("ClusterIP", 443);
        let ready = slice(true, "https");
        check(Some(&good), std::slice::from_ref(&ready), None);
        check(None, &[], Some(("ServiceNotFound", "service/api in \"ns\" is not present")));
        check(
            Some(&service("ClusterIP", 80)),
            &[ready],
            Some(("ServicePortError", "service/api in \"ns\" is not listening on port 443")),
        );
        check(
            Some(&good),
            &[],
            Some(("EndpointsNotFound", "cannot find endpointslices for service/api in \"ns\"")),
        );
        let none =
            "endpointslices for service/api in \"ns\" have no addresses with port name \"https\"";
        check(Some(&good), &[slice(false, "https")], Some(("MissingEndpoints", none)));
        check(Some(&good), &[slice(true, "http")], Some(("MissingEndpoints", none)));
        check(Some(&service("ExternalName", 1)), &[], None);
    }

    #[test]
    fn who_is_not_to_be_had_is_counted() {
        let service = |name: &str, status: &str| {
            json!({ "metadata": { "name": name }, "status": {
                "conditions": [{ "type": "Available", "status": status }] } })
        };
        assert_eq!(metrics(&[]), "");
        assert_eq!(
            metrics(&[service("v1.", "True"), service("v1.a", "Unknown"), json!({})]),
            "# TYPE aggregator_unavailable_apiservice gauge\n\
             aggregator_unavailable_apiservice{name=\"v1.\"} 0\n\
             aggregator_unavailable_apiservice{name=\"v1.a\"} 1\n\
             aggregator_unavailable_apiservice{name=\"\"} 1\n"
        );
    }

    #[test]
    fn the_conditions_of_others_stay() {
        let mut service = json!({ "status": { "conditions": [
            { "type": "StatusUpdated", "status": "True", "reason": "E2E" }] } });
        let now = Timestamp::UNIX_EPOCH;
        assert!(put_condition(&mut service, "True", "Passed", "all checks passed", now));
        let later = Timestamp::from_second(60).expect("a time");
        assert!(!put_condition(&mut service, "True", "Passed", "all checks passed", later));
        assert!(put_condition(&mut service, "True", "Passed", "again", later));
        let conditions = &service["status"]["conditions"];
        assert_eq!(conditions[0]["reason"], "E2E");
        assert_eq!(conditions[1]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(put_condition(&mut service, "False", "Why", "because", later));
        assert_eq!(
            service["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:01:00Z"
        );
    }
}
