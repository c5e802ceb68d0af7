//! Extenders over HTTP, as upstream's scheduler speaks to them (`pkg/scheduler/extender.go`).
use crate::config::{Extender as Settings, ExtenderTls};
use crate::extend::{Extenders, Failed, Filtered, Names, Proposal, Verdicts};
use crate::pod::PodInfo;
use api::names::NamespacedName;
use api::object::Object;
use base64::Engine as _;
use bytes::Bytes;
use client::Informer;
use client::http::tls::{Believed, Files, Pem};
use client::http::{Pool, Settings as Reach};
use futures_util::future::{BoxFuture, join_all};
use http::{Method, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take if the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Scores of extenders go to ten, those of plugins to a hundred.
const SCALE: i64 = 10;
/// An answer that is larger is none.
const LARGEST: usize = 256 << 20;

pub struct Http {
    all: Vec<One>,
    pods: Informer<Object>,
    nodes: Informer<Object>,
}

struct One {
    settings: Settings,
    pool: Pool,
    path: String,
    timeout: Duration,
}

impl Http {
    pub fn new(
        extenders: &[Settings],
        pods: Informer<Object>,
        nodes: Informer<Object>,
    ) -> Result<Http, String> {
        let all = extenders.iter().map(One::new).collect::<Result<_, _>>()?;
        Ok(Http { all, pods, nodes })
    }

    fn interested<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a One> {
        self.all.iter().filter(|one| one.is_interested(pod))
    }

    /// The extender that binds the pod instead of us.
    pub fn binds(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|one| !one.settings.bind_verb.is_empty())
    }

    /// `None`: nobody did, we have to.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> Option<Result<(), String>> {
        for one in self.interested(pod).filter(|one| !one.settings.bind_verb.is_empty()) {
            let args = json!({ "PodName": *pod.key.name, "PodNamespace": *pod.key.namespace,
                "PodUID": pod.uid, "Node": node });
            let answer = one.ask::<Answer>(&one.settings.bind_verb, &args).await;
            match answer.and_then(Answer::checked) {
                Err(_) if one.settings.ignorable => continue,
                outcome => return Some(outcome.map(drop)),
            }
        }
        None
    }

    /// A pod as it is, with what nodes are asked about.
    fn args(&self, one: &One, pod: &PodInfo, nodes: &[Box<str>]) -> Value {
        let whole = |informer: &Informer<Object>, key: &NamespacedName| {
            informer.get(key).map_or(Value::Null, |object| tree(&object))
        };
        let pod = whole(&self.pods, &pod.key);
        if one.settings.node_cache_capable {
            return json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes });
        }
        let items: Vec<Value> =
            nodes.iter().map(|name| whole(&self.nodes, &NamespacedName::new("", name))).collect();
        json!({ "Pod": pod, "Nodes": { "metadata": {}, "items": items }, "NodeNames": null })
    }
}

impl One {
    fn new(settings: &Settings) -> Result<One, String> {
        let prefix = settings.url_prefix.trim_end_matches('/');
        let uri: http::Uri =
            prefix.parse().map_err(|error| format!("{prefix:?} is no URL: {error}"))?;
        let authority = uri.authority().ok_or_else(|| format!("{prefix:?} has no host"))?;
        let scheme = uri.scheme_str().unwrap_or("http");
        let mut reach = Reach::new(Arc::new(tls(settings)?));
        reach.server_name = settings
            .tls_config
            .as_ref()
            .map(|tls| tls.server_name.clone())
            .filter(|name| !name.is_empty());
        let timeout = crate::config::duration(&settings.http_timeout).unwrap_or(TIMEOUT);
        reach.connect_timeout = timeout;
        let pool = Pool::new(&format!("{scheme}://{authority}"), reach)
            .map_err(|error| error.to_string())?;
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(One { settings: settings.clone(), pool, path, timeout })
    }

    fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.settings.managed_resources;
        managed.is_empty()
            || managed
                .iter()
                .any(|it| pod.wishes.requests.scalars.iter().any(|(name, _)| **name == *it.name))
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        verb: &str,
        args: &Value,
    ) -> Result<T, String> {
        let url = format!("{}/{verb}", self.settings.url_prefix.trim_end_matches('/'));
        let exchange = async {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("{}/{verb}", self.path))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Bytes::from(serde_json::to_vec(args).map_err(|error| error.to_string())?))
                .map_err(|error| error.to_string())?;
            let failed = |error: client::http::Error| format!("Post {url:?}: {error}");
            let answer = self.pool.send(request).await.map_err(failed)?;
            let code = answer.status();
            if code != StatusCode::OK {
                let code = code.as_u16();
                return Err(format!("failed {verb} with extender at URL {url}, code {code}"));
            }
            let body = http_body_util::Limited::new(answer.into_body(), LARGEST);
            let bytes = http_body_util::BodyExt::collect(body)
                .await
                .map_err(|error| format!("Post {url:?}: {error}"))?
                .to_bytes();
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())
        };
        let within = tokio::time::timeout(self.timeout, exchange).await;
        within.unwrap_or_else(|_| {
            Err(format!(
                "Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ))
        })
    }

    fn filtered(&self, answer: Answer, asked: &[Box<str>]) -> Filtered {
        let answer = answer.checked()?;
        let fitting: Names = match (answer.node_names, answer.nodes) {
            (Some(names), _) if self.settings.node_cache_capable => {
                if let Some(stranger) = names.iter().find(|name| !asked.contains(*name)) {
                    let url = &self.settings.url_prefix;
                    return Err(format!(
                        "extender {url:?} claims a filtered node {stranger:?} which is not found in the input node list"
                    ));
                }
                names
            }
            (_, Some(nodes)) => {
                let name = |node: &Value| node["metadata"]["name"].as_str().map(Into::into);
                nodes["items"].as_array().into_iter().flatten().filter_map(name).collect()
            }
            _ => Vec::new(),
        };
        let mut failed: Vec<Failed> = Vec::new();
        let unresolvable = answer.failed_and_unresolvable_nodes.unwrap_or_default();
        for (node, reason) in answer.failed_nodes.unwrap_or_default() {
            if !unresolvable.contains_key(&node) {
                failed.push(Failed { node, reason, preemption_helps: true });
            }
        }
        let hopeless = unresolvable.into_iter();
        failed.extend(hopeless.map(|(node, reason)| Failed {
            node,
            reason,
            preemption_helps: false,
        }));
        failed.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(Verdicts { fitting, failed })
    }
}

fn tls(settings: &Settings) -> Result<Files, String> {
    let tls = settings.tls_config.clone().unwrap_or_default();
    let ExtenderTls {
        insecure, cert_file, key_file, ca_file, cert_data, key_data, ca_data, ..
    } = tls;
    let pem = |data: String, file: String| -> Result<Option<Pem>, String> {
        if !data.is_empty() {
            let decoded = base64::engine::general_purpose::STANDARD.decode(data);
            return decoded.map(|data| Some(Pem::Data(data))).map_err(|error| error.to_string());
        }
        Ok((!file.is_empty()).then(|| Pem::File(file.into())))
    };
    let authorities = pem(ca_data, ca_file)?;
    let own = pem(cert_data, cert_file)?.zip(pem(key_data, key_file)?);
    let believed = match authorities {
        _ if insecure => Believed::Anyone,
        Some(authorities) => Believed::Authorities(authorities),
        // Without a word of whom to believe, whoever answers is believed, as upstream has it.
        None if settings.enable_https => Believed::Anyone,
        None => Believed::System,
    };
    Ok(Files::new(believed, own))
}

/// Extenders are sent pods and nodes as they are.
fn tree(object: &Object) -> Value {
    serde_json::from_slice(&object.json()).unwrap_or_default()
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Answer {
    nodes: Option<Value>,
    node_names: Option<Names>,
    failed_nodes: Option<HashMap<Box<str>, String>>,
    failed_and_unresolvable_nodes: Option<HashMap<Box<str>, String>>,
    error: String,
}

impl Answer {
    fn checked(self) -> Result<Answer, String> {
        match self.error.is_empty() {
            true => Ok(self),
            false => Err(self.error),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostPriority {
    host: Box<str>,
    score: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Preempted {
    node_name_to_meta_victims: Option<HashMap<Box<str>, Option<MetaVictims>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MetaVictims {
    #[serde(rename = "Pods")]
    pods: Option<Vec<MetaPod>>,
    #[serde(rename = "NumPDBViolations")]
    violations: i64,
}

#[derive(Deserialize)]
struct MetaPod {
    #[serde(rename = "UID")]
    uid: Box<str>,
}

impl Extenders for Http {
    fn filters(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|one| !one.settings.filter_verb.is_empty())
    }

    fn prioritizes(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|one| !one.settings.prioritize_verb.is_empty())
    }

    fn preempts(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|one| !one.settings.preempt_verb.is_empty())
    }

    fn filter<'a>(&'a self, pod: &'a PodInfo, nodes: Names) -> BoxFuture<'a, Filtered> {
        Box::pin(async move {
            let mut all = Verdicts { fitting: nodes, failed: Vec::new() };
            for one in self.interested(pod).filter(|one| !one.settings.filter_verb.is_empty()) {
                if all.fitting.is_empty() {
                    break;
                }
                let args = self.args(one, pod, &all.fitting);
                let answer = one.ask::<Answer>(&one.settings.filter_verb, &args).await;
                match answer.and_then(|answer| one.filtered(answer, &all.fitting)) {
                    Ok(verdicts) => {
                        all.fitting = verdicts.fitting;
                        all.failed.extend(verdicts.failed);
                    }
                    Err(problem) if one.settings.ignorable => {
                        let extender = &one.settings.url_prefix;
                        tracing::info!(extender, problem, "an extender is skipped");
                    }
                    Err(problem) => return Err(problem),
                }
            }
            Ok(all)
        })
    }

    fn prioritize<'a>(
        &'a self,
        pod: &'a PodInfo,
        nodes: Names,
    ) -> BoxFuture<'a, HashMap<Box<str>, i64>> {
        Box::pin(async move {
            let who = self.interested(pod).filter(|one| !one.settings.prioritize_verb.is_empty());
            let answers = join_all(who.map(|one| {
                let args = self.args(one, pod, &nodes);
                async move {
                    let verb = &one.settings.prioritize_verb;
                    (one, one.ask::<Vec<HostPriority>>(verb, &args).await)
                }
            }));
            let mut sums: HashMap<Box<str>, i64> = HashMap::new();
            for (one, answer) in answers.await {
                match answer {
                    Ok(list) => {
                        for HostPriority { host, score } in list {
                            *sums.entry(host).or_default() += score * one.settings.weight * SCALE;
                        }
                    }
                    Err(problem) => {
                        let extender = &one.settings.url_prefix;
                        tracing::debug!(extender, problem, "an extender compares no nodes");
                    }
                }
            }
            sums
        })
    }

    fn preempt<'a>(
        &'a self,
        pod: &'a PodInfo,
        proposals: Vec<Proposal>,
    ) -> BoxFuture<'a, Result<Vec<Proposal>, String>> {
        Box::pin(async move {
            let mut proposals = proposals;
            for one in self.interested(pod).filter(|one| !one.settings.preempt_verb.is_empty()) {
                if proposals.is_empty() {
                    break;
                }
                let args = self.preemption_args(one, pod, &proposals);
                match one.ask::<Preempted>(&one.settings.preempt_verb, &args).await {
                    Ok(answer) => proposals = one.proposed(answer)?,
                    Err(problem) if one.settings.ignorable => {
                        let extender = &one.settings.url_prefix;
                        tracing::info!(extender, problem, "an extender is skipped");
                    }
                    Err(problem) => return Err(problem),
                }
            }
            Ok(proposals)
        })
    }
}

impl Http {
    fn preemption_args(&self, one: &One, pod: &PodInfo, proposals: &[Proposal]) -> Value {
        let whole = |key: &NamespacedName| self.pods.get(key).map_or(Value::Null, |pod| tree(&pod));
        let own = whole(&pod.key);
        let by_uid: HashMap<Box<str>, Value> = match one.settings.node_cache_capable {
            true => HashMap::new(),
            false => {
                let reading = self.pods.read();
                let all = reading.iter().map(|(_, pod)| (pod.uid().into(), tree(pod)));
                all.collect()
            }
        };
        let victims = |proposal: &Proposal| {
            let pods: Vec<Value> = proposal
                .victims
                .iter()
                .map(|uid| match one.settings.node_cache_capable {
                    true => json!({ "UID": uid }),
                    false => by_uid.get(uid).cloned().unwrap_or_default(),
                })
                .collect();
            (
                proposal.node.to_string(),
                json!({ "Pods": pods, "NumPDBViolations": proposal.violations }),
            )
        };
        let map: serde_json::Map<String, Value> = proposals.iter().map(victims).collect();
        match one.settings.node_cache_capable {
            true => json!({ "Pod": own, "NodeNameToVictims": null, "NodeNameToMetaVictims": map }),
            false => json!({ "Pod": own, "NodeNameToVictims": map, "NodeNameToMetaVictims": null }),
        }
    }
}

impl One {
    fn proposed(&self, answer: Preempted) -> Result<Vec<Proposal>, String> {
        let mut all = Vec::new();
        for (node, victims) in answer.node_name_to_meta_victims.unwrap_or_default() {
            let victims = victims.unwrap_or_default();
            let pods = victims.pods.unwrap_or_default();
            if pods.is_empty() {
                if self.settings.ignorable {
                    continue;
                }
                return Err(format!("expected at least one victim pod on node {node:?}"));
            }
            let uids = pods.into_iter().map(|pod| pod.uid).collect();
            all.push(Proposal { node, victims: uids, violations: victims.violations });
        }
        all.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(all)
    }
}
