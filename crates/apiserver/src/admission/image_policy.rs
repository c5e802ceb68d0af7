//! Images are what a webhook outside of the cluster says they may be.
//!
//! Its answers are kept for a while. When it cannot be asked, the configuration says whether pods
//! are let in; nobody is told less than that in the audit log.
use super::chain::Settings;
use super::configuration::Fault;
use super::{Attributes, Operation, items};
use crate::ground::kubeconfig::{Client, Kubeconfig};
use crate::ground::remembered::Remembered;
use api::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";

pub struct Webhook {
    client: Client,
    default_allow: bool,
    allow_ttl: Duration,
    deny_ttl: Duration,
    backoff: Duration,
    answers: Remembered<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    kube_config_file: String,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    retry_backoff: i64,
    default_allow: bool,
}

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), Fault> {
    let Some(mut told) = told else { return Err("no config specified".to_owned().into()) };
    let told: Told =
        serde_json::from_value(told["imagePolicy"].take()).map_err(|error| error.to_string())?;
    let (second, minutes) = (Duration::from_secs(1), |n: u64| Duration::from_secs(60 * n));
    let millisecond = Duration::from_millis(1);
    let backoff = time(
        told.retry_backoff,
        millisecond,
        Duration::from_nanos(1)..=minutes(5),
        500 * millisecond,
    )?;
    let allow_ttl = time(told.allow_ttl, second, second..=minutes(30), minutes(5))?;
    let deny_ttl = time(told.deny_ttl, second, second..=minutes(30), 30 * second)?;
    let client = Kubeconfig::read(Path::new(&told.kube_config_file)).and_then(|c| c.client());
    settings.image_policy = Some(Webhook {
        client: client.map_err(|error| error.to_string())?,
        default_allow: told.default_allow,
        allow_ttl,
        deny_ttl,
        backoff,
        answers: Remembered::default(),
    });
    Ok(())
}

/// A number of units within bounds; zero is the default, and -1 none at all.
fn time(
    number: i64,
    unit: Duration,
    bounds: std::ops::RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, String> {
    let given = match number {
        -1 => return Ok(Duration::ZERO),
        0 => return Ok(default),
        number => u32::try_from(number).ok().and_then(|number| unit.checked_mul(number)),
    };
    given.filter(|given| bounds.contains(given)).ok_or_else(|| {
        let (least, most) = (bounds.start(), bounds.end());
        format!("valid value is between {least:?} and {most:?}, got {number}")
    })
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let pod = attributes.new_object();
    let lists: &[&str] = match (attributes.operation, attributes.part()) {
        (Operation::Create | Operation::Update, "") => &["containers", "initContainers"],
        (Operation::Update, "ephemeralcontainers") => &["ephemeralContainers"],
        _ => return Ok(()),
    };
    let Some(webhook) = &attributes.api.admission().settings.image_policy else { return Ok(()) };
    let containers = lists.iter().flat_map(|list| items(&pod["spec"][*list]));
    let containers: Vec<Value> = containers.map(|c| json!({ "image": c["image"] })).collect();
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotations: serde_json::Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(".image-policy.k8s.io/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let spec = json!({
        "containers": containers, "annotations": annotations,
        "namespace": attributes.call.namespace,
    });
    let status = match webhook.ask(spec).await {
        Ok(status) => status,
        Err(_) if webhook.default_allow => {
            attributes.annotate(&format!("{PREFIX}failed-open"), "true");
            if let Some(pod) = attributes.object.as_deref_mut() {
                let key = "alpha.image-policy.k8s.io/failed-open";
                pod["metadata"]["annotations"][key] = "true".into();
            }
            return Ok(());
        }
        Err(cause) => return Err(attributes.forbidden(cause)),
    };
    for (key, value) in status["auditAnnotations"].as_object().into_iter().flatten() {
        attributes.annotate(&format!("{PREFIX}{key}"), value.as_str().unwrap_or_default());
    }
    if status["allowed"] == true {
        return Ok(());
    }
    Err(attributes.forbidden(match status["reason"].as_str().unwrap_or_default() {
        "" => "one or more images rejected by webhook backend".to_owned(),
        reason => format!("image policy webhook backend denied one or more images: {reason}"),
    }))
}

impl Webhook {
    /// The webhook's answer, perhaps one that it gave before.
    async fn ask(&self, spec: Value) -> Result<Value, String> {
        let key = spec.to_string();
        if let Some(status) = self.answers.get(&key) {
            return Ok(status);
        }
        let review = json!({
            "apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "spec": spec,
        });
        let mut review = self.client.review(&review, self.backoff).await?;
        let status = review["status"].take();
        let ttl = if status["allowed"] == true { self.allow_ttl } else { self.deny_ttl };
        self.answers.put(key, status.clone(), ttl);
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    /// A webhook that fails once, then refuses images that are called bad.
    async fn backend(asked: Arc<AtomicUsize>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let asked = asked.clone();
                let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                    async move {
                        use http_body_util::BodyExt;
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let mut review: Value = serde_json::from_slice(&body).unwrap();
                        let bad = review["spec"]["containers"][0]["image"] == "bad";
                        review["status"] = json!({"allowed": !bad, "reason": "it is bad"});
                        let code = if first { 500 } else { 200 };
                        let answer = http::Response::builder().status(code);
                        let body = Full::new(bytes::Bytes::from(review.to_string()));
                        Ok::<_, std::convert::Infallible>(answer.body(body).unwrap())
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), serve).await;
            }
        });
        format!("http://{address}/review")
    }

    #[tokio::test]
    async fn a_passing_fault_is_asked_again_and_an_answer_is_kept() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = backend(asked.clone()).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: k, cluster: {{server: \"{server}\"}}}}], users: [], contexts: [{{name: c, context: {{cluster: k, user: \"\"}}}}]}}"
        );
        std::fs::write(&file, text).unwrap();
        let mut settings = Settings::default();
        let told = json!({"imagePolicy": {"kubeConfigFile": file, "retryBackoff": 1}});
        configure(Some(told), &mut settings).unwrap();
        let webhook = settings.image_policy.unwrap();
        let spec = |image: &str| json!({"containers": [{"image": image}]});
        assert_eq!(webhook.ask(spec("good")).await.unwrap()["allowed"], true);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(webhook.ask(spec("bad")).await.unwrap()["allowed"], false);
        assert_eq!(webhook.ask(spec("bad")).await.unwrap()["reason"], "it is bad");
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn times_have_bounds() {
        let second = Duration::from_secs(1);
        let check = |number| time(number, second, second..=10 * second, 5 * second);
        assert_eq!(
            [check(-1), check(0), check(7)],
            [Ok(Duration::ZERO), Ok(5 * second), Ok(7 * second)]
        );
        assert_eq!(check(11), Err("valid value is between 1s and 10s, got 11".into()));
    }
}
