//! Creations: the object as it is, and with each change.
use super::mutate::{self, Change};
use super::server::Request;
use super::{NAMESPACE, SEED, SEVERAL};
use api::kinds::{Resource, Verb};
use http::Method;
use serde_json::{Value, json};
use testkit::sample::Random;

/// The path of a kind's objects.
pub fn collection(resource: &Resource) -> String {
    let root = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match resource.is_namespaced() {
        true => format!("{root}/namespaces/{NAMESPACE}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    }
}

/// Every creation that is asked about one valid object.
pub fn requests(resource: &Resource, object: &Value) -> Vec<Request> {
    let create = |object: &Value, about: String| create(resource, object, &about);
    let changes = mutate::all(object, resource.ty(), false);
    let mut all = vec![create(object, "as it is".into())];
    for change in &changes {
        all.extend(change.apply(object).map(|object| create(&object, change.about())));
    }
    let mut random = Random::new(SEED);
    for some in mutate::several(&changes, SEVERAL, &mut random) {
        let changed = some.iter().try_fold(object.clone(), |object, change| change.apply(&object));
        all.extend(changed.map(|object| create(&object, about(&some))));
    }
    if resource.verbs.contains(Verb::Patch) {
        all.extend(patches_of_nothing(&collection(resource), object));
    }
    all
}

/// One creation, dry.
pub fn create(resource: &Resource, object: &Value, about: &str) -> Request {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(resource));
    Request::new(Method::POST, path, object, format!("create {about}"))
}

pub fn about(changes: &[Change]) -> String {
    changes.iter().map(Change::about).collect::<Vec<_>>().join(", ")
}

/// An apply creates what is not there: the one patch that needs no object.
fn patches_of_nothing(place: &str, object: &Value) -> Vec<Request> {
    let mut applied = object.clone();
    applied["metadata"]["name"] = "applied".into();
    let patch = |query: &str, media: &'static str, body: &Value| {
        let path = format!("{place}/{query}");
        Request::new(Method::PATCH, path, body, format!("{media} of nothing")).content_type(media)
    };
    vec![
        patch("applied?dryRun=All&fieldManager=oracle", "application/apply-patch+yaml", &applied),
        patch("absent?dryRun=All", "application/merge-patch+json", &json!({})),
        patch("absent?dryRun=All", "application/json-patch+json", &json!([])),
        patch("absent?dryRun=All", "application/strategic-merge-patch+json", &json!({})),
    ]
}
