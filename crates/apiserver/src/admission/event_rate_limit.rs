//! How many events the server takes: in all, of a namespace, of a user, about one object.
//!
//! Each limit has a bucket for every key it has seen lately: it holds `burst` and fills by `qps`.
use super::chain::Settings;
use super::configuration::typed;
use super::{Attributes, joined, text};
use api::field::{self, Error, Path};
use api::status::Status;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub const KINDS: &[(&str, &str)] = &[("", "Event")];
const TYPES: [&str; 4] = ["Namespace", "Server", "SourceAndObject", "User"];
const DEFAULT_KEYS: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    limits: Vec<Limit>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Limit {
    #[serde(rename = "type")]
    kind: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

/// The limits, each with its buckets.
#[derive(Default)]
pub struct Limits(Vec<(Limit, Mutex<HashMap<String, Bucket>>)>);

struct Bucket {
    level: f64,
    at: Instant,
}

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), String> {
    let limits = match told {
        None => Vec::new(),
        Some(told) => {
            let group = "eventratelimit.admission.k8s.io";
            typed::<Configuration>(told, group, &["v1alpha1"], "Configuration")?.limits
        }
    };
    let errors = faults(&limits);
    if !errors.is_empty() {
        return Err(joined(&errors.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    settings.event_rate_limit = Limits(limits.into_iter().map(|l| (l, Mutex::default())).collect());
    Ok(())
}

fn faults(limits: &[Limit]) -> field::ErrorList {
    let path = Path::new("limits");
    let mut errors = field::ErrorList::new();
    if limits.is_empty() {
        errors.push(Error::invalid(&path, field::BadValue::null(), "must not be empty"));
    }
    for (i, limit) in limits.iter().enumerate() {
        let path = path.index(i);
        if !TYPES.contains(&limit.kind.as_str()) {
            errors.push(Error::not_supported(&path.child("type"), limit.kind.as_str(), TYPES));
        }
        if limit.burst <= 0 {
            let burst = path.child("burst");
            errors.push(Error::invalid(&burst, i64::from(limit.burst), "must be positive"));
        }
        if limit.qps <= 0 {
            errors.push(Error::invalid(
                &path.child("qps"),
                i64::from(limit.qps),
                "must be positive",
            ));
        }
        if limit.kind != "Server" && limit.cache_size < 0 {
            let size = path.child("cacheSize");
            let detail = "must not be negative";
            errors.push(Error::invalid(&size, i64::from(limit.cache_size), detail));
        }
    }
    errors
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let written =
        matches!(attributes.operation, super::Operation::Create | super::Operation::Update);
    if !written || attributes.dry_run() {
        return Ok(());
    }
    let event = attributes.new_object();
    let key = |kind: &str| match kind {
        "Namespace" => attributes.call.namespace.clone(),
        "User" => attributes.user.name.clone(),
        "SourceAndObject" => {
            let (source, about) = (&event["source"], &event["involvedObject"]);
            let parts = [&source["component"], &source["host"]];
            let fields = ["kind", "namespace", "name", "uid", "apiVersion"];
            let parts = parts.into_iter().chain(fields.iter().map(|field| &about[*field]));
            parts.map(text).collect()
        }
        _ => String::new(),
    };
    let limits = &attributes.api.admission().settings.event_rate_limit;
    let reached = limits.take(key, Instant::now());
    match reached.is_empty() {
        true => Ok(()),
        false => Err(Status::overloaded(joined(&reached))),
    }
}

impl Limits {
    /// Takes one from each limit's bucket; says which had none.
    fn take(&self, key: impl Fn(&str) -> String, now: Instant) -> Vec<String> {
        let mut reached = Vec::new();
        for (limit, buckets) in &self.0 {
            let key = key(&limit.kind);
            let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
            make_room(&mut buckets, &key, limit);
            let full = f64::from(limit.burst);
            let bucket = buckets.entry(key.clone()).or_insert(Bucket { level: full, at: now });
            let gained = now.duration_since(bucket.at).as_secs_f64() * f64::from(limit.qps);
            *bucket = Bucket { level: full.min(bucket.level + gained), at: now };
            match bucket.level >= 1.0 {
                true => bucket.level -= 1.0,
                false => {
                    reached.push(format!("limit reached on type {} for key {key}", limit.kind));
                }
            }
        }
        reached
    }
}

/// The key that was quiet for longest is forgotten for a new one.
fn make_room(buckets: &mut HashMap<String, Bucket>, key: &str, limit: &Limit) {
    let most = match usize::try_from(limit.cache_size) {
        Ok(0) | Err(_) => DEFAULT_KEYS,
        Ok(most) => most,
    };
    if buckets.len() < most || buckets.contains_key(key) {
        return;
    }
    let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone());
    oldest.map(|key| buckets.remove(&key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_bucket_fills_with_time() {
        let limit = Limit { kind: "User".into(), qps: 2, burst: 3, cache_size: 1 };
        let limits = Limits(vec![(limit, Mutex::default())]);
        let begun = Instant::now();
        let take = |user: &str, at: u64| {
            limits.take(|_| user.to_owned(), begun + Duration::from_millis(at)).is_empty()
        };
        assert_eq!([0, 0, 0, 0].map(|at| take("a", at)), [true, true, true, false]);
        assert_eq!([400, 600, 700].map(|at| take("a", at)), [false, true, false]);
        // Another key has a bucket of its own, and with room for one the first is forgotten.
        assert!(take("b", 700) && take("a", 700));
    }

    #[test]
    fn limits_are_checked() {
        let told = |document: Value| configure(Some(document), &mut Settings::default());
        let header = |limits: Value| {
            json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
            "kind": "Configuration", "limits": limits})
        };
        assert_eq!(told(header(json!([{"type": "Server", "qps": 1, "burst": 2}]))), Ok(()));
        assert_eq!(
            told(header(json!([{"type": "Server", "qps": 0, "burst": 2}]))),
            Err("limits[0].qps: Invalid value: 0: must be positive".into())
        );
    }
}
