//! What a request is about: its path, verb and query, as upstream reads them
//! (`apiserver/pkg/endpoints/request`).
use crate::call::{Call, Options, PASSED_ON, Query, Shown, Unserved};
use api::kinds::{Registry, Verb};
use http::Method;
use percent_encoding::percent_decode_str;

/// What a path leads to.
#[derive(Debug)]
pub enum Target {
    Call(Box<Call>),
    /// A request on a resource that is not served: there, by that method, or at all. Whoever may not
    /// ask for it is not told that.
    Unserved(Unserved),
    /// Discovery, health and other documents.
    Document,
}

/// The subresources of a namespace, which are not resources in it.
const OF_NAMESPACES: &[&str] = &["status", "finalize"];

/// Parses a request on what there is in the registry.
pub fn parse(registry: &Registry, method: &Method, path: &str, query: &str) -> Target {
    let query = Query::parse(query);
    let options = |verb: Verb| (query.options(verb), query.shown());
    parse_with(registry, method, path, query.flag("watch"), options)
}

/// The same, of whoever has said in other words what he wants.
pub fn parse_with(
    registry: &Registry,
    method: &Method,
    path: &str,
    is_watch: bool,
    options: impl FnOnce(Verb) -> (Options, Shown),
) -> Target {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let parts = segments(&decoded);
    let (group, version, rest) = match parts[..] {
        ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
        _ => return Target::Document,
    };
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces"] | ["namespaces", _] => ("", rest),
        ["namespaces", _, part, ..] if OF_NAMESPACES.contains(part) => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, part, rest) = match rest {
        [] => return Target::Document,
        [plural] => (*plural, "", "", &[][..]),
        [plural, name] => (*plural, *name, "", &[][..]),
        [plural, name, part, rest @ ..] => (*plural, *name, *part, rest),
    };
    let resource = registry.find(group, version, plural);
    // A custom resource with a namespace that is called so: `namespaces/x` is the object `x` of the namespace `x`,
    // by the way upstream reads paths (`apiserver/pkg/endpoints/request/requestinfo.go`).
    let is_namesake =
        plural == "namespaces" && resource.as_ref().is_some_and(|it| it.is_namespaced());
    let namespace = if is_namesake && namespace.is_empty() { name } else { namespace };
    let watch = watch_path || name.is_empty() && is_watch;
    let verb = verb(method, name.is_empty(), watch);
    // Below `watch/` that is the verb, whatever the method.
    let right = if watch_path { "watch" } else { verb.map_or("", |verb| verb.as_str()) };
    let within = match plural == "namespaces" && group.is_empty() && namespace.is_empty() {
        // A namespace's own rights may be given within it.
        true => name,
        false => namespace,
    };
    let unserved = |code: i32| {
        Target::Unserved(Unserved {
            right,
            group: group.to_owned(),
            version: version.to_owned(),
            resource: plural.to_owned(),
            subresource: part.to_owned(),
            namespace: within.to_owned(),
            name: name.to_owned(),
            code,
        })
    };
    let Some(resource) = resource else { return unserved(404) };
    // An empty name is no name: two slashes lead nowhere.
    let named = parts.len() - rest.len();
    if parts[..named].iter().any(|part| part.is_empty()) {
        return unserved(404);
    }
    let subresource = match part {
        "" => None,
        part => match resource.subresource(part) {
            Some(found) => Some(found),
            None => return unserved(404),
        },
    };
    // Only what is proxied has a path below it.
    if part != "proxy" && !rest.is_empty() {
        return unserved(404);
    }
    // What has no namespace is in none, and what has one is in it alone; only collections are also
    // found in all namespaces at once.
    let is_misplaced = match resource.is_namespaced() {
        true => namespace.is_empty() && !name.is_empty(),
        false => !namespace.is_empty(),
    };
    if is_misplaced {
        return unserved(404);
    }
    let verbs = subresource.map_or(resource.verbs, |subresource| subresource.verbs);
    let on_all_namespaces = resource.is_namespaced() && namespace.is_empty();
    let verb = match verb {
        // What is proxied takes any method; how it is counted does not matter then.
        None if part == "proxy" && *method == Method::OPTIONS => Verb::Get,
        Some(verb @ (Verb::List | Verb::Watch)) if verbs.contains(verb) => verb,
        Some(verb) if verbs.contains(verb) && !on_all_namespaces && !watch_path => verb,
        _ => return unserved(405),
    };
    // What is proxied is said to whoever it is passed on to.
    let is_own = subresource.is_none_or(|part| !PASSED_ON.contains(&part.name));
    let (options, shown) = if is_own { options(verb) } else { (Options::None, Shown::default()) };
    Target::Call(Box::new(Call {
        verb,
        right,
        resource: resource.clone(),
        subresource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        rest: match rest {
            [] => String::new(),
            _ => passed_on(path, named).unwrap_or_else(|| rest.join("/")),
        },
        options,
        shown,
    }))
}

/// The parts of a path between its slashes, but for one at its end.
fn segments(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path).split('/').collect()
}

/// What follows so many parts of a path, as it was sent: a page may tell a folder from a file by its
/// slash, and an encoded slash from a plain one. Nothing if a slash before it was encoded.
fn passed_on(path: &str, named: usize) -> Option<String> {
    let mut parts = path.strip_prefix('/')?.splitn(named + 1, '/');
    let rest = parts.nth(named)?;
    let is_plain = !path[..path.len() - rest.len()].to_ascii_lowercase().contains("%2f");
    is_plain.then(|| rest.to_owned())
}

/// What a method means on a collection or on one object of it.
fn verb(method: &Method, collection: bool, watch: bool) -> Option<Verb> {
    Some(match *method {
        Method::GET | Method::HEAD if watch => Verb::Watch,
        Method::GET | Method::HEAD if collection => Verb::List,
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if collection => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::kinds::{RESOURCES, built_in};

    #[test]
    fn what_is_proxied_gets_its_path_as_it_was_sent() {
        let rest = |path: &str| match parse(built_in(), &Method::GET, path, "") {
            Target::Call(call) => call.rest,
            other => panic!("{path}: {other:?}"),
        };
        let proxy = "/api/v1/namespaces/a/pods/b/proxy";
        for (path, expected) in [
            ("", ""),
            ("/", ""),
            ("/c", "c"),
            ("/c/", "c/"),
            ("/c//d", "c//d"),
            ("/c%2Fd%20e", "c%2Fd%20e"),
        ] {
            assert_eq!(rest(&format!("{proxy}{path}")), expected, "{path}");
        }
        assert_eq!(rest("/api/v1/namespaces/a/pods/b%2Fproxy/c%20d"), "c d");
    }

    /// `GET /path?query` → what the request is about.
    fn check(request: &str, expected: &str) {
        let (method, path) = request.split_once(' ').unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let shown = match parse(built_in(), &method.parse().unwrap(), path, query) {
            Target::Document => "document".to_owned(),
            Target::Call(call) => {
                let sub = call.subresource.map_or(String::new(), |s| format!("/{}", s.name));
                let place = format!("{}/{}", call.namespace, call.name);
                format!("{} {}{sub} {place}", call.verb.as_str(), call.resource.group_resource())
            }
            Target::Unserved(unserved) => {
                let Unserved { right, resource, subresource, namespace, name, code, .. } = unserved;
                format!("{code}: {right} {resource}/{subresource} {namespace}/{name}")
            }
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
        check("GET /api/v1/nodes/", "list nodes /");
        check("GET /api/v1/names%70aces/a%2Db/p%6fds", "list pods a-b/");
        check("GET /api/v1/namespaces/a/pods/b%2Fstatus", "get pods/status a/b");
    }

    #[test]
    fn everything_else_is_a_document() {
        for path in ["/", "/api", "/apis/apps", "/apis/apps/v1", "/healthz"] {
            check(&format!("GET {path}"), "document");
        }
    }

    #[test]
    fn what_is_not_served_there_is_still_asked_for() {
        check("DELETE /api/v1/namespaces", "405: deletecollection namespaces/ /");
        check("POST /api/v1/pods", "405: create pods/ /");
        check("POST /api/v1/watch/namespaces/a/pods", "405: watch pods/ a/");
        check("OPTIONS /api/v1/namespaces/a/pods/b", "405:  pods/ a/b");
        check("OPTIONS /api/v1/namespaces/a/pods/b/proxy/c", "get pods/proxy a/b");
        check("GET /api/v1/pods/web", "404: get pods/ /web");
        check("GET /api/v1/namespaces/a/nodes/b", "404: get nodes/ a/b");
        check("GET /api/v1/namespaces/a/namespaces/b", "404: get namespaces/ a/b");
        check("GET /api/v1/namespaces/a/status/b", "404: get namespaces/status a/a");
        check("GET /api/v1/namespaces/a/pods/b/unknown", "404: get pods/unknown a/b");
        check("GET /api/v1/namespaces/a/pods/b/log/c", "404: get pods/log a/b");
        check("GET /api/v1/unknown", "404: list unknown/ /");
        check("POST /apis/x.io/v1/namespaces/a/things", "404: create things/ a/");
        check("GET /api/v1/namespaces//pods", "404: list pods/ /");
        check("GET /api//v1/pods", "404: get v1/ /pods");
    }

    /// Every row of the registry, in and out of a namespace, as a whole and one of it, with every
    /// subresource and by every method: it is served where its scope says and nowhere else.
    #[test]
    fn no_resource_is_served_outside_its_scope() {
        let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let mut served = 0;
        for resource in RESOURCES {
            let root = match resource.group {
                "" => format!("/api/{}", resource.version),
                group => format!("/apis/{group}/{}", resource.version),
            };
            let parts = resource.subresources.iter().map(|part| format!("/x/{}", part.name));
            // What follows a namespace, and is no part of it, is a resource in it.
            let unknown = (resource.kind != "Namespace").then(|| "/x/unknown".to_owned());
            let ends: Vec<String> =
                ["", "/x"].map(str::to_owned).into_iter().chain(unknown).chain(parts).collect();
            for (place, end, method, watch) in ["", "/namespaces/foo"]
                .iter()
                .flat_map(|place| ends.iter().map(move |end| (place, end)))
                .flat_map(|(place, end)| methods.map(|method| (place, end, method)))
                .flat_map(|(place, end, method)| ["", "/watch"].map(|w| (place, end, method, w)))
            {
                let path = format!("{root}{watch}{place}/{}{end}", resource.plural);
                let in_namespace = !place.is_empty();
                match parse(built_in(), &method.parse().unwrap(), &path, "") {
                    Target::Document => panic!("{method} {path} is a request on a resource"),
                    Target::Unserved(unserved) => {
                        assert_eq!(unserved.resource, resource.plural, "{method} {path}");
                        assert_eq!(unserved.namespace == "foo", in_namespace, "{method} {path}");
                    }
                    Target::Call(call) => {
                        served += 1;
                        let is_item = !end.is_empty();
                        let fits = in_namespace == resource.is_namespaced()
                            || !in_namespace
                                && !is_item
                                && matches!(call.verb, Verb::List | Verb::Watch);
                        assert!(fits, "{method} {path} is served");
                        assert_eq!(call.namespace == "foo", in_namespace, "{method} {path}");
                        let verbs = call.subresource.map_or(resource.verbs, |part| part.verbs);
                        assert!(verbs.contains(call.verb), "{method} {path}");
                    }
                }
            }
        }
        assert!(served > 1000, "{served}");
    }
}
