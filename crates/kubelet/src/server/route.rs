//! Which page a path is, and at which doors it may be asked for.
use super::answer::{self, Refused, Reply};
use super::{
    Door, Shared, checkpoint, configz, files, logs, metrics, pods, query as journal, stats, stream,
};
use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use std::borrow::Cow;

/// What is served, as `/statusz` lists it.
pub const PATHS: &[&str] = &[
    "/allocatedPods",
    "/attach",
    "/checkpoint",
    "/configz",
    "/containerLogs",
    "/exec",
    "/flagz",
    "/healthz",
    "/logs",
    "/metrics",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
];

/// A request's path and parameters.
pub struct Asked<'a> {
    pub rest: Vec<&'a str>,
    pub query: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Asked<'_> {
    pub fn get(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub fn all(&self, name: &str) -> Vec<String> {
        let named = self.query.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.to_string()).collect()
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "1" | "true" | "True" | "t" | "T" | "TRUE")
    }
}

pub async fn route(
    shared: &Shared,
    door: Door,
    request: Request<Incoming>,
) -> Result<Reply, Refused> {
    let (path, query) =
        (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let mut parts = path.trim_start_matches('/').split('/');
    let page = parts.next().unwrap_or_default();
    let asked = Asked {
        rest: parts.filter(|part| !part.is_empty()).collect(),
        query: form_urlencoded::parse(query.as_bytes()).collect(),
    };
    let kubelet = &shared.kubelet;
    shared.kubelet.counters.request(request.method(), page);
    if door == Door::Health && page != "healthz" {
        return Err(answer::not_found("404 page not found"));
    }
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    let need_get = || match reads {
        true => Ok(()),
        false => Err(answer::refuse(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")),
    };
    match (page, asked.rest.as_slice()) {
        ("healthz", _) => return Ok(answer::text(StatusCode::OK, "ok")),
        ("pods", []) => {
            need_get()?;
            return Ok(pods::wanted(kubelet));
        }
        ("allocatedPods", []) => {
            need_get()?;
            return Ok(pods::allocated(kubelet));
        }
        ("stats", ["summary"]) => {
            need_get()?;
            return stats::summary(kubelet, asked.flag("only_cpu_and_memory")).await;
        }
        ("metrics", rest) => {
            need_get()?;
            return metrics::page(kubelet, rest).await;
        }
        _ if door != Door::Secure => return Err(answer::not_found("404 page not found")),
        _ => {}
    }
    const DEBUGGING: [&str; 7] =
        ["runningpods", "containerLogs", "exec", "attach", "portForward", "run", "logs"];
    if DEBUGGING.contains(&page) && !shared.config.debugging_handlers {
        let text = "Debug endpoints are disabled.";
        return Err(answer::refuse(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    match (page, asked.rest.as_slice()) {
        ("runningpods", []) => {
            need_get()?;
            pods::running(kubelet).await
        }
        ("containerLogs", [namespace, pod, container]) => {
            need_get()?;
            logs::logs(kubelet, namespace, pod, container, &asked).await
        }
        ("exec" | "attach", [namespace, pod, container]) => {
            stream::stream(kubelet, page, (namespace, pod, ""), container, &asked, request).await
        }
        ("exec" | "attach", [namespace, pod, uid, container]) => {
            stream::stream(kubelet, page, (namespace, pod, uid), container, &asked, request).await
        }
        ("portForward", [namespace, pod]) => {
            stream::stream(kubelet, page, (namespace, pod, ""), "", &asked, request).await
        }
        ("portForward", [namespace, pod, uid]) => {
            stream::stream(kubelet, page, (namespace, pod, uid), "", &asked, request).await
        }
        ("run", [namespace, pod, container]) if request.method() == Method::POST => {
            pods::run(kubelet, namespace, pod, "", container, &asked).await
        }
        ("run", [namespace, pod, uid, container]) if request.method() == Method::POST => {
            pods::run(kubelet, namespace, pod, uid, container, &asked).await
        }
        ("checkpoint", [namespace, pod, container]) if request.method() == Method::POST => {
            checkpoint::checkpoint(kubelet, namespace, pod, container, &asked).await
        }
        ("statusz" | "flagz", []) if shared.config.debugging_handlers => {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let now = kubelet.context.now();
            let page = shared.zpages.page(&path, accept.unwrap_or_default(), now);
            page.map(answer::page).ok_or_else(|| answer::not_found("404: Page Not Found"))
        }
        ("configz", []) if shared.config.debugging_handlers => {
            Ok(configz::page(&kubelet.config, &shared.config))
        }
        ("logs", _) if shared.config.system_log_handler => {
            need_get()?;
            let rest = path.trim_start_matches("/logs");
            if shared.config.system_log_query
                && let Some(answer) = journal::page(&asked, rest).await
            {
                return answer;
            }
            files::page(rest).await
        }
        ("logs", _) => {
            Err(answer::refuse(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled."))
        }
        _ => Err(answer::not_found("404: Page Not Found")),
    }
}
