//! Every row of the registry, by every verb, whole and one of it and every part of one, in a namespace
//! and outside: rights in a namespace reach what is in it, and nothing is served where it is not.
use super::{Server, Wire, admin, grant, run};
use api::kinds::{RESOURCES, Resource};
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::client::{Connection, Endpoint};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const MERGE: HeaderValue = HeaderValue::from_static("application/merge-patch+json");

/// What everybody may ask who has said who he is: about himself.
const OF_ONESELF: [&str; 3] =
    ["selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// A way to ask: method, what goes before the resource, the query. Watches are to last for no
/// time that could be read, so that one which is served ends at once; writes leave nothing behind.
const WAYS: [(Method, &str, &str); 7] = [
    (Method::GET, "", ""),
    (Method::GET, "", "?watch=true&timeoutSeconds=x"),
    (Method::GET, "/watch", "?timeoutSeconds=x"),
    (Method::POST, "", "?dryRun=All"),
    (Method::PUT, "", "?dryRun=All"),
    (Method::PATCH, "", "?dryRun=All"),
    (Method::DELETE, "", "?dryRun=All"),
];

/// A question about a row.
struct Asked<'a> {
    resource: &'a Resource,
    method: Method,
    path: String,
    in_namespace: bool,
    is_collection: bool,
}

impl Asked<'_> {
    fn fits(&self) -> bool {
        self.resource.is_namespaced() == self.in_namespace
    }

    fn is_of_oneself(&self) -> bool {
        self.method == Method::POST && OF_ONESELF.contains(&self.resource.plural)
    }
}

fn all() -> Vec<Asked<'static>> {
    let mut all = Vec::new();
    for resource in RESOURCES {
        let root = match resource.group {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let parts = resource.subresources.iter().map(|part| format!("/x/{}", part.name));
        for end in [String::new(), "/x".into()].into_iter().chain(parts) {
            for (place, (method, watch, query)) in
                ["", "/namespaces/foo"].iter().flat_map(|place| WAYS.map(|way| (place, way)))
            {
                let path = format!("{root}{watch}{place}/{}{end}{query}", resource.plural);
                let (in_namespace, is_collection) = (!place.is_empty(), end.is_empty());
                all.push(Asked { resource, method, path, in_namespace, is_collection });
            }
        }
    }
    all
}

/// Asks everything as one user; what was answered, in the same order.
async fn ask(endpoint: &Arc<Endpoint>, all: &[Asked<'_>]) -> Vec<(u16, Value)> {
    let mut connection = Connection::open(endpoint).await.expect("a connection");
    let mut answers = Vec::new();
    for Asked { method, path, .. } in all {
        let (media, body) = match *method {
            Method::GET => (JSON, ""),
            Method::PATCH => (MERGE, "{}"),
            _ => (JSON, "{}"),
        };
        let answer = connection.ask(method.clone(), path, media, body.into()).await;
        let (code, body) = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        answers.push((code, serde_json::from_slice(&body).unwrap_or_default()));
    }
    answers
}

#[test]
fn nothing_is_served_outside_its_scope() {
    let server = Server::start();
    server.kubectl("create namespace foo");
    let everything = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]);
    grant(&server, &Wire::new(&server), "jane", Some("foo"), everything);
    let all = all();
    assert!(all.len() > 2500, "{}", all.len());
    run(async {
        let admin = admin(&server);
        let users = ["jane", "nobody"].map(|user| Arc::new(admin.acting_as(user)));
        let [jane, nobody] = &users;
        let (jane, nobody) = tokio::join!(ask(jane, &all), ask(nobody, &all));
        for ((asked, jane), nobody) in all.iter().zip(jane).zip(nobody) {
            let what = format!("{} {}", asked.method, asked.path);
            let refused = |user: &str, (code, body): &(u16, Value)| {
                let text = format!("User {user:?} cannot ");
                *code == 403 && body["message"].as_str().is_some_and(|said| said.contains(&text))
            };
            if asked.is_of_oneself() {
                assert!(asked.fits() || (jane.0, nobody.0) == (404, 404), "{what}: {jane:?}");
                continue;
            }
            // Whoever may nothing learns nothing, not even what is served.
            assert!(refused("nobody", &nobody), "{what}: {nobody:?}");
            match (asked.in_namespace, asked.fits()) {
                (true, true) => assert!(!refused("jane", &jane), "{what}: {jane:?}"),
                (true, false) => assert_eq!(jane.0, 404, "{what}: {jane:?}"),
                (false, _) => assert!(refused("jane", &jane), "{what}: {jane:?}"),
            }
        }
        // Whoever may everything is told what there is not.
        let lost: Vec<Asked<'_>> = all.into_iter().filter(|asked| !asked.fits()).collect();
        for (asked, (code, body)) in lost.iter().zip(ask(&admin, &lost).await) {
            let what = format!("{} {}: {body}", asked.method, asked.path);
            match (asked.in_namespace, asked.is_collection, &asked.method) {
                // All namespaces at once are looked at, and never changed.
                (false, true, &Method::GET) => assert!([200, 400, 405].contains(&code), "{what}"),
                (false, true, _) => assert_eq!(code, 405, "{what}"),
                _ => assert_eq!(code, 404, "{what}"),
            }
        }
    });
    assert_eq!(server.kubectl("get --raw /readyz"), "ok");
}
