//! What a request is about: its path, verb and query, as upstream reads them
//! (`apiserver/pkg/endpoints/request`).
use api::codec::FieldValidation;
use api::kinds::{self, Resource, Subresource, Verb};
use api::selector::field;
use api::status::{ServerResponse, Status};
use http::Method;
use std::collections::HashMap;

/// A request on a resource.
#[derive(Debug, Clone)]
pub struct Call {
    pub verb: Verb,
    pub resource: &'static Resource,
    pub subresource: Option<&'static Subresource>,
    /// Empty for cluster-scoped resources, and for all namespaces at once.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// What follows the subresource: only what is proxied has a path there.
    pub rest: String,
    pub query: Query,
}

impl Call {
    /// The one object that a field selector leaves, or nothing.
    pub fn selected_name(&self) -> String {
        field::Selector::parse(self.query.get("fieldSelector"))
            .ok()
            .and_then(|s| s.requires_exact_match("metadata.name").map(str::to_owned))
            .unwrap_or_default()
    }
}

/// The parameters of the query, by name; the first of each counts.
#[derive(Debug, Default, Clone)]
pub struct Query(HashMap<String, String>);

impl Query {
    pub fn parse(query: &str) -> Query {
        let mut all = HashMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Query(all)
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Go's conversion of a query to a boolean: anything but these is true.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !matches!(value.as_str(), "false" | "0" | ""))
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }

    pub fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Status::bad_request(format!(
                "dryRun: Unsupported value: {other:?}: supported values: \"All\""
            ))),
        }
    }

    pub fn field_validation(&self) -> Result<FieldValidation, Status> {
        match self.get("fieldValidation") {
            "" => Ok(FieldValidation::Warn),
            word => FieldValidation::parse(word).ok_or_else(|| {
                Status::bad_request(format!(
                    "fieldValidation: Unsupported value: {word:?}: supported values: \"Ignore\", \"Warn\", \"Strict\""
                ))
            }),
        }
    }
}

/// What a path leads to.
#[derive(Debug)]
pub enum Target {
    Call(Call),
    /// Discovery, health and other documents.
    Document,
}

/// Parses a request. A resource that nobody serves is a document that nobody has: both are 404.
pub fn parse(method: &Method, path: &str, query: &str) -> Result<Target, Status> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts[..] {
        ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
        _ => return Ok(Target::Document),
    };
    let query = Query::parse(query);
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    // A namespace's own subresources are not resources in it.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource, rest) = match rest {
        [plural] => (*plural, "", "", &[][..]),
        [plural, name] => (*plural, *name, "", &[][..]),
        [plural, name, "proxy", rest @ ..] => (*plural, *name, "proxy", rest),
        [plural, name, subresource] => (*plural, *name, *subresource, &[][..]),
        _ => return Ok(Target::Document),
    };
    // A page may tell a folder from a file by its slash.
    let slash = if path.ends_with('/') && !rest.is_empty() { "/" } else { "" };
    let rest = format!("{}{slash}", rest.join("/"));
    let Some(resource) = kinds::find(group, version, plural) else { return Ok(Target::Document) };
    let subresource = match subresource {
        "" => None,
        name => match resource.subresource(name) {
            Some(found) => Some(found),
            None => return Ok(Target::Document),
        },
    };
    if resource.is_namespaced() && namespace.is_empty() && !name.is_empty() {
        return Ok(Target::Document);
    }
    let collection = name.is_empty();
    let verb = match *method {
        Method::GET | Method::HEAD if watch_path || collection && query.flag("watch") => {
            Verb::Watch
        }
        Method::GET | Method::HEAD if collection => Verb::List,
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if collection => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => return Err(ServerResponse { code: 405, ..ServerResponse::default() }.into()),
    };
    let verbs = subresource.map_or(resource.verbs, |subresource| subresource.verbs);
    let on_all_namespaces = resource.is_namespaced() && namespace.is_empty();
    let reads = matches!(verb, Verb::List | Verb::Watch);
    if !verbs.contains(verb) || on_all_namespaces && !reads {
        return Err(ServerResponse { code: 405, ..ServerResponse::default() }.into());
    }
    Ok(Target::Call(Call {
        verb,
        resource,
        subresource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        rest,
        query,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GET /path?query` → what the request is about.
    fn check(request: &str, expected: &str) {
        let (method, path) = request.split_once(' ').unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let shown = match parse(&method.parse().unwrap(), path, query) {
            Ok(Target::Document) => "document".to_owned(),
            Ok(Target::Call(call)) => {
                let sub = call.subresource.map_or(String::new(), |s| format!("/{}", s.name));
                let place = format!("{}/{}", call.namespace, call.name);
                format!("{} {}{sub} {place}", call.verb.as_str(), call.resource.group_resource())
            }
            Err(status) => format!("{} {}", status.code, status.message),
        };
        assert_eq!(shown, expected, "{request}");
    }

    #[test]
    fn paths_name_resources() {
        check("GET /api/v1/namespaces/default/pods/web", "get pods default/web");
        check("GET /api/v1/namespaces/default/pods", "list pods default/");
        check("GET /api/v1/pods?watch=true", "watch pods /");
        check("GET /api/v1/watch/pods", "watch pods /");
        check("GET /api/v1/namespaces/default", "get namespaces /default");
        check("PUT /api/v1/namespaces/default/finalize", "update namespaces/finalize /default");
        check("GET /apis/apps/v1/deployments", "list deployments.apps /");
        check(
            "PATCH /apis/apps/v1/namespaces/a/deployments/b/scale",
            "patch deployments.apps/scale a/b",
        );
        check("DELETE /api/v1/namespaces/a/pods", "deletecollection pods a/");
        check("POST /api/v1/nodes", "create nodes /");
    }

    #[test]
    fn everything_else_is_a_document() {
        for path in [
            "/",
            "/api",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
            "/api/v1/unknown",
            "/api/v1/pods/web",
        ] {
            check(&format!("GET {path}"), "document");
        }
    }

    #[test]
    fn a_verb_the_row_does_not_have_is_refused() {
        check(
            "DELETE /api/v1/namespaces",
            "405 the server does not allow this method on the requested resource",
        );
        check(
            "POST /api/v1/pods",
            "405 the server does not allow this method on the requested resource",
        );
    }
}
