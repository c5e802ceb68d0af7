//! A definition's objects in another of its versions, by the webhook that it names.
//!
//! The webhook gets the objects that are in another version, all in one `ConversionReview`, and may
//! change all but what they are: kind, name, namespace, identity, and of the metadata labels and
//! annotations alone. The checks and their words are upstream's
//! (`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).
use super::backend::{self, Backend, Place};
use super::counts::Conversion;
use super::review::Review;
use crate::ground::uuid;
use crate::server::ApiServer;
use api::custom::{self, Family};
use api::field::{self, Path};
use api::quote::json_type;
use api::rules::metadata;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a conversion may take: upstream's client's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What an answer may weigh: it has every object of a list.
const MAX_ANSWER: usize = 64 << 20;

/// What was wrong, in the words of the counts and of refusals.
type Fault = (&'static str, String);

const CALL: &str = "conversion_webhook_call_failure";
const MALFORMED_RESPONSE: &str = "conversion_webhook_malformed_response_failure";
const PARTIAL_RESPONSE: &str = "conversion_webhook_partial_response_failure";
const INVALID_OBJECT: &str = "conversion_webhook_invalid_converted_object_failure";

/// A definition's webhook. Whoever keeps one keeps its connections.
pub struct Converter {
    /// The definition's name.
    definition: String,
    backend: Arc<Backend>,
    review_versions: Vec<String>,
}

/// The webhooks of the definitions that are served, each made when it is first needed.
#[derive(Default)]
pub struct Converters {
    /// By the definition's uid, with the generation that it is of.
    known: Mutex<HashMap<String, (i64, Arc<Converter>)>>,
}

impl Converters {
    pub fn get(&self, api: &ApiServer, family: &Family) -> Result<Arc<Converter>, String> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, known)) = lock().get(&family.uid)
            && *generation == family.generation
        {
            return Ok(known.clone());
        }
        let converter = Arc::new(Converter::new(api, &family.name, &family.conversion)?);
        let registry = api.registry();
        let is_served = |uid: &String| {
            let mut defined = registry.rows().iter().filter_map(|row| row.definition.as_ref());
            defined.any(|definition| definition.family.uid == *uid)
        };
        let mut known = lock();
        known.retain(|uid, _| is_served(uid));
        known.insert(family.uid.clone(), (family.generation, converter.clone()));
        Ok(converter)
    }
}

/// What is converted, as refusals name it.
pub enum Subject<'a> {
    One,
    /// A list, with its own `apiVersion` and `kind`.
    List {
        api_version: &'a str,
        kind: &'a str,
    },
}

impl Converter {
    /// Of a definition's `spec.conversion`, whose strategy is `Webhook`.
    pub fn new(api: &ApiServer, definition: &str, conversion: &Value) -> Result<Converter, String> {
        let webhook = &conversion["webhook"];
        let mut place = Place::read(&webhook["clientConfig"])?;
        if place.ca.trim_ascii().is_empty() {
            place.ca.clear();
        }
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        Ok(Converter {
            definition: definition.to_owned(),
            backend: api.extend().backends.get(place)?,
            review_versions: versions.filter_map(|v| v.as_str().map(str::to_owned)).collect(),
        })
    }

    /// The objects in a version (`group/version`), in their order. Those that are in it already are not
    /// sent anywhere, and neither is one that has nothing in it.
    pub async fn convert(
        &self,
        api: &ApiServer,
        subject: Subject<'_>,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, String> {
        for object in objects.iter_mut().filter(|object| is_empty(object)) {
            object["apiVersion"] = to.into();
        }
        let version = self.review_version()?;
        let sent: Vec<&Value> =
            objects.iter().filter(|object| object["apiVersion"] != *to).collect();
        let Some(first) = sent.first() else { return Ok(objects) };
        let what = subject.shown(first);
        let from = version_of(first).to_owned();
        let begun = Instant::now();
        let converted = self.ask(api, version, &sent, to, &what).await;
        let converted = converted.and_then(|converted| {
            let pairs = sent.iter().zip(converted).enumerate();
            let settled = pairs
                .map(|(index, (original, new))| settled(original, new, to, index, &subject, &what));
            let settled: Result<Vec<Value>, String> = settled.collect();
            settled.map_err(|cause| (INVALID_OBJECT, cause))
        });
        let failure = converted.as_ref().err().map(|(failure, _)| *failure);
        let to_version = to.rsplit('/').next().unwrap_or_default();
        let definition = &self.definition;
        Conversion { definition, from: &from, to: to_version, failure }
            .count(&api.extend().counts, begun.elapsed());
        let mut converted = converted.map_err(|(_, cause)| cause)?.into_iter();
        let others = objects.iter_mut().filter(|object| object["apiVersion"] != *to);
        others.zip(&mut converted).for_each(|(original, new)| *original = new);
        Ok(objects)
    }

    /// What the webhook makes of the objects, as many as it was sent.
    async fn ask(
        &self,
        api: &ApiServer,
        version: &str,
        sent: &[&Value],
        to: &str,
        what: &str,
    ) -> Result<Vec<Value>, Fault> {
        let uid = uuid();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": { "uid": uid, "desiredAPIVersion": to, "objects": sent },
            "response": { "uid": "", "convertedObjects": null, "result": { "metadata": {} } },
        });
        let failed = |cause: String| format!("conversion webhook for {what} failed: {cause}");
        let body = Bytes::from(review.to_string());
        let question = backend::Question { body, timeout: TIMEOUT, limit: MAX_ANSWER };
        let answer = self.backend.post(api, question).await;
        let answer = answer.map_err(|error| (CALL, failed(error.to_string())))?;
        let converted = converted_objects(&answer, version, &uid);
        let converted = converted.map_err(|cause| (MALFORMED_RESPONSE, failed(cause)))?;
        if converted.len() == sent.len() {
            return Ok(converted);
        }
        let (found, wanted) = (converted.len(), sent.len());
        let cause =
            format!("conversion webhook for {what} returned {found} objects, expected {wanted}");
        Err((PARTIAL_RESPONSE, cause))
    }

    fn review_version(&self) -> Result<&str, String> {
        let mut known = self.review_versions.iter().map(String::as_str);
        let known = known.find(|version| matches!(*version, "v1" | "v1beta1"));
        known.ok_or_else(|| "no supported conversion review versions".into())
    }
}

impl Subject<'_> {
    fn shown(&self, first: &Value) -> String {
        match self {
            Subject::One => shown_kind(first),
            Subject::List { api_version, kind } => {
                let slash = if api_version.contains('/') { "" } else { "/" };
                format!("{slash}{api_version}, Kind={kind}")
            }
        }
    }
}

/// `group/version, Kind=K`, as Go prints it.
fn shown_kind(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}

/// An object's version without its group.
fn version_of(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.rsplit('/').next().unwrap_or_default()
}

/// Whether an object is nothing but its type.
fn is_empty(object: &Value) -> bool {
    let fields = object.as_object();
    fields.is_some_and(|f| f.len() == 2 && f.contains_key("kind") && f.contains_key("apiVersion"))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    kind: String,
    api_version: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    result: Outcome,
    converted_objects: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outcome {
    status: Option<String>,
    message: Option<String>,
}

fn converted_objects(answer: &[u8], version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let (package, group) = ("apiextensions", "apiextensions.k8s.io");
    let review = Review { package, group, version, kind: "ConversionReview" }.read(answer)?;
    let answer: Answer = serde_json::from_value(review).map_err(|error| error.to_string())?;
    let is_v1 = version == "v1";
    let named = (&*answer.kind, &*answer.api_version);
    if is_v1 && named != ("ConversionReview", "apiextensions.k8s.io/v1") {
        let slash = if named.1.contains('/') { "" } else { "/" };
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
             {slash}{}, Kind={}",
            named.1, named.0
        ));
    }
    let response = answer.response.ok_or("no response provided")?;
    if is_v1 && response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    let status = response.result.status.unwrap_or_default();
    if status != "Success" {
        return Err(match response.result.message.filter(|message| !message.is_empty()) {
            Some(message) => message,
            None => format!("response.result.status was '{status}', not 'Success'"),
        });
    }
    Ok(response.converted_objects.unwrap_or_default())
}

/// A converted object, checked against the one it was made from, with that one's metadata.
fn settled(
    original: &Value,
    mut new: Value,
    to: &str,
    index: usize,
    subject: &Subject<'_>,
    what: &str,
) -> Result<Value, String> {
    let is_list = matches!(subject, Subject::List { .. });
    if let Some(cause) = no_object(&new) {
        return Err(match is_list {
            true => format!(
                "conversion webhook for {what} returned invalid converted object at index {index}: {cause}"
            ),
            false => cause,
        });
    }
    let invalid = |cause: String| {
        let object = if is_list { "converted object" } else { "object" };
        format!("conversion webhook for {what} returned invalid {object} at index {index}: {cause}")
    };
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let differs = |name: &str, wanted: &str, found: &str| {
        invalid(format!("invalid {name} (expected {wanted}, received {found})"))
    };
    let (version, kind) = (text(&new, "apiVersion"), text(&new, "kind"));
    if version != to {
        return Err(differs("groupVersion", to, &version));
    }
    if kind != text(original, "kind") {
        return Err(differs("kind", &text(original, "kind"), &kind));
    }
    for (shown, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (before, after) = (text(&original["metadata"], field), text(&new["metadata"], field));
        if before != after {
            let cause = format!("must have the same {shown}: {before} != {after}");
            return Err(match is_list {
                true => invalid(cause),
                false => format!("conversion webhook for {what} returned invalid object: {cause}"),
            });
        }
    }
    let restored = restored(&original["metadata"], &new["metadata"]).map_err(|cause| match is_list {
        true => format!(
            "conversion webhook for {what} returned invalid metadata in object at index {index}: {cause}"
        ),
        false => format!("conversion webhook for {what} returned invalid metadata: {cause}"),
    })?;
    new["metadata"] = restored;
    if !api::depth::within_limit(&new) {
        return Err(invalid("it is nested too deep".into()));
    }
    Ok(new)
}

/// Why what a webhook returned is no object that says what it is, if it is none.
fn no_object(new: &Value) -> Option<String> {
    match new {
        Value::Null => Some("unexpected end of JSON input".to_owned()),
        Value::Object(_) if new["kind"].as_str().unwrap_or_default().is_empty() => {
            Some(custom::without_kind(&new.to_string()))
        }
        Value::Object(_) => None,
        other => Some(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(other)
        )),
    }
}

/// The original's metadata with the labels and annotations of the converted object.
fn restored(original: &Value, converted: &Value) -> Result<Value, String> {
    let converted = match converted {
        Value::Object(fields) => fields,
        Value::Null => return Err("missing metadata in converted object".into()),
        other => {
            let ty = golang_type(other);
            return Err(format!("invalid metadata of type {ty} in converted object"));
        }
    };
    let mut restored = original.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let found = match converted.get(field) {
            None | Some(Value::Null) => {
                restored.remove(field);
                continue;
            }
            Some(Value::Object(found)) => found,
            Some(other) => {
                let ty = golang_type(other);
                return Err(format!("invalid metadata.{field} of type {ty} in converted object"));
            }
        };
        check_texts(field, restored.get(field), found)?;
        restored.insert(field.into(), Value::Object(found.clone()));
    }
    Ok(Value::Object(restored))
}

/// What the webhook made of labels or annotations is judged as a client's would be; what it left as it
/// was is not.
fn check_texts(
    field: &str,
    before: Option<&Value>,
    found: &Map<String, Value>,
) -> Result<(), String> {
    let mut texts = BTreeMap::new();
    for (key, value) in found {
        let Value::String(text) = value else {
            let ty = golang_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {ty} in converted object"
            ));
        };
        texts.insert(key.clone(), text.clone());
    }
    if before.and_then(Value::as_object) == Some(found) {
        return Ok(());
    }
    let path = Path::new("metadata");
    let errors = match field {
        "labels" => metadata::validate_labels(&texts, &path.child("labels")),
        _ => metadata::validate_annotations(&texts, &path.child("annotation")),
    };
    field::aggregate(&errors).map_or(Ok(()), Err)
}

fn golang_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str) -> Value {
        json!({ "apiVersion": format!("e.io/{version}"), "kind": "Foo", "metadata": {
            "name": "a", "namespace": "b", "uid": "1", "labels": { "x": "y" }, "generation": 2 } })
    }

    fn check(change: impl FnOnce(&mut Value), is_list: bool, expected: &str) {
        let mut new = object("v2");
        change(&mut new);
        let subject = match is_list {
            true => Subject::List { api_version: "e.io/v2", kind: "FooList" },
            false => Subject::One,
        };
        let (original, what) = (object("v1"), subject.shown(&object("v1")));
        let found = settled(&original, new, "e.io/v2", 0, &subject, &what);
        let found = found.map_or_else(|cause| cause, |new| new["metadata"].to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn a_converted_object_is_still_the_same_one() {
        let whole = object("v1")["metadata"].to_string();
        check(|_| (), false, &whole);
        check(|new| new["metadata"]["generation"] = json!(9), false, &whole);
        check(
            |new| new["metadata"]["labels"] = Value::Null,
            false,
            r#"{"generation":2,"name":"a","namespace":"b","uid":"1"}"#,
        );
        check(
            |new| new["metadata"]["name"] = json!("z"),
            false,
            "conversion webhook for e.io/v1, Kind=Foo returned invalid object: must have the same name: a != z",
        );
        check(
            |new| new["metadata"]["uid"] = json!("z"),
            true,
            "conversion webhook for e.io/v2, Kind=FooList returned invalid converted object at index 0: must have the same UID: 1 != z",
        );
        check(
            |new| new["apiVersion"] = json!("e.io/v3"),
            false,
            "conversion webhook for e.io/v1, Kind=Foo returned invalid object at index 0: invalid groupVersion (expected e.io/v2, received e.io/v3)",
        );
        check(
            |new| new["kind"] = json!("Bar"),
            true,
            "conversion webhook for e.io/v2, Kind=FooList returned invalid converted object at index 0: invalid kind (expected Foo, received Bar)",
        );
        check(|new| *new = Value::Null, false, "unexpected end of JSON input");
        check(|new| *new = json!({}), false, "Object 'Kind' is missing in '{}'");
        check(
            |new| *new = json!([]),
            true,
            "conversion webhook for e.io/v2, Kind=FooList returned invalid converted object at index 0: json: cannot unmarshal array into Go value of type map[string]interface {}",
        );
        check(
            |new| new["metadata"]["labels"] = json!({ "x": 1 }),
            false,
            "conversion webhook for e.io/v1, Kind=Foo returned invalid metadata: metadata.labels[x] must be a string, but is int64 in converted object",
        );
        check(
            |new| new["metadata"]["annotations"] = json!([]),
            false,
            "conversion webhook for e.io/v1, Kind=Foo returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        );
    }

    #[tokio::test]
    async fn a_webhook_gets_what_is_in_another_version_and_nothing_else() {
        use crate::testing::{Beside, Server, reply};
        let server = Server::start().await;
        let beside = Beside::start(&[], |asked| {
            let request = &asked.body["request"];
            let mut objects = request["objects"].clone();
            for object in objects.as_array_mut().into_iter().flatten() {
                object["apiVersion"] = request["desiredAPIVersion"].clone();
                object["converted"] = true.into();
            }
            let mut review = asked.body.clone();
            review["response"] = json!({ "uid": request["uid"], "convertedObjects": objects,
                "result": { "status": "Success" } });
            std::future::ready(reply(&review))
        })
        .await;
        let conversion = json!({ "strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v9", "v1"],
            "clientConfig": { "url": beside.url("/convert"), "caBundle": beside.bundle() } } });
        let converter = Converter::new(&server.api, "foos.e.io", &conversion).expect("a converter");
        let bare = json!({ "apiVersion": "e.io/v1", "kind": "Foo" });
        let objects = vec![object("v2"), object("v1"), bare];
        let list = Subject::List { api_version: "e.io/v2", kind: "FooList" };
        let converted = converter.convert(&server.api, list, objects, "e.io/v2").await;
        let converted = converted.expect("converted");
        assert!(converted.iter().all(|object| object["apiVersion"] == "e.io/v2"));
        let marks: Vec<bool> = converted.iter().map(|o| o["converted"] == true).collect();
        assert_eq!(marks, [false, true, false]);
        let asked = &beside.questions()[0];
        assert_eq!(asked.path, "/convert?timeout=30s");
        assert_eq!(asked.body["request"]["objects"].as_array().map(Vec::len), Some(1));
        let nobody = json!({ "webhook": { "conversionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:1/x" } } });
        let converter = Converter::new(&server.api, "foos.e.io", &nobody).expect("a converter");
        let failed = converter.convert(&server.api, Subject::One, vec![object("v1")], "e.io/v2");
        assert_eq!(
            failed.await.expect_err("nobody is there"),
            "conversion webhook for e.io/v1, Kind=Foo failed: Post \"https://127.0.0.1:1/x?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused"
        );
        let counts = server.api.extend().counts.text();
        for line in [
            r#"apiserver_conversion_webhook_request_total{failure_type="",result="success"} 1"#,
            r#"apiserver_conversion_webhook_request_total{failure_type="conversion_webhook_call_failure",result="failure"} 1"#,
            r#"apiserver_conversion_webhook_duration_seconds_bucket{failure_type="",result="success",le="60"} 1"#,
            r#"apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="foos.e.io",from_version="v1",succeeded="true",to_version="v2"} 1"#,
        ] {
            assert!(counts.lines().any(|told| told == line), "{line}\n{counts}");
        }
    }

    #[test]
    fn an_answer_is_of_the_review_and_a_success() {
        let check = |answer: Value, expected: &str| {
            let found = converted_objects(answer.to_string().as_bytes(), "v1", "1");
            let found = found.map_or_else(|cause| cause, |objects| json!(objects).to_string());
            assert_eq!(found, expected, "{answer}");
        };
        let review = |response: Value| {
            json!({ "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
                "response": response })
        };
        check(
            json!({}),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        );
        check(review(json!(null)), "no response provided");
        check(review(json!({ "uid": "2" })), "expected response.uid=\"1\", got \"2\"");
        check(review(json!({ "uid": "1" })), "response.result.status was '', not 'Success'");
        let failed = json!({ "status": "Failure", "message": "no" });
        check(review(json!({ "uid": "1", "result": failed })), "no");
        let good = json!({ "status": "Success" });
        check(review(json!({ "uid": "1", "result": good, "convertedObjects": [1] })), "[1]");
    }
}
