//! Rules as lines, requests as lines, and which rule each is for.
use super::*;
use crate::host::Depth;
use crate::path::Path;
use crate::table::{Action, Origin, PathMatch};
use api::names::NamespacedName;
use api::regexp::Regexp;
use http::HeaderValue;

/// One rule per line: its name, then `host=`, `path=` (`=/a` exact, `~/a` an expression), `method=`,
/// `header=name:value`, `query=name:value`, `age=`, `except=`, `clients=`, `depth=many`, `default`.
fn hosts(rules: &str) -> Hosts {
    let mut hosts = Hosts::default();
    for (i, line) in rules.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        hosts.insert(rule(line, i)).expect("a rule");
    }
    hosts.sort();
    hosts
}

fn rule(line: &str, place: usize) -> Rule {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a name");
    let words: Vec<(&str, &str)> =
        words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
    let all = |key: &'static str| words.iter().filter(move |(k, _)| *k == key).map(|(_, v)| *v);
    let one = |key: &'static str| all(key).next();
    let depth = if one("depth").is_some() { Depth::Many } else { Depth::One };
    let path = one("path").unwrap_or("/");
    let text = |text: &str| match text.strip_prefix('~') {
        Some(text) => TextMatch::Expression(Regexp::compile(text).expect("an expression")),
        None => TextMatch::Exact(text.to_owned()),
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once(':').expect("name:value");
        (name.to_owned(), text(value))
    };
    Rule {
        host: Pattern::parse(one("host").unwrap_or_default(), depth),
        clients: one("clients").map(clients),
        except: all("except").map(|host| Pattern::parse(host, Depth::Many)).collect(),
        path: match path.split_at(1) {
            ("=", path) => PathMatch::Exact(path.to_owned()),
            ("~", path) => PathMatch::Expression(path.to_owned()),
            _ => PathMatch::Prefix(path.to_owned()),
        },
        method: one("method").map(|method| method.parse().expect("a method")),
        headers: all("header")
            .map(pair)
            .map(|(name, text)| (name.parse().expect("a name"), text))
            .collect(),
        query: all("query").map(pair).collect(),
        origin: Origin {
            is_default: one("default").is_some(),
            created: one("age").map_or(0, |age| -age.parse::<i64>().expect("a number")),
            key: NamespacedName::new("default", name),
            place: (place, 0),
        },
        action: Arc::new(Action::default()),
    }
}

fn clients(authorities: &str) -> Arc<Clients> {
    Arc::new(Clients { authorities: authorities.to_owned(), is_optional: false })
}

/// `GET host/path?query name:value …` → the rule's name, or `-`. What `x-proved` says the client has proved.
fn ask(hosts: &Hosts, request: &str) -> String {
    let mut words = request.split_whitespace();
    let method: Method = words.next().expect("a method").parse().expect("a method");
    let url = words.next().expect("a URL");
    let (host, rest) = url.split_at(url.find('/').expect("a path"));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut headers = HeaderMap::new();
    for (name, value) in words.map(|word| word.split_once(':').expect("name:value")) {
        let value = HeaderValue::from_str(value).expect("a value");
        headers.append(name.parse::<HeaderName>().expect("a name"), value);
    }
    let Ok(Path { matched, .. }) = Path::read(path) else { return "refused".to_owned() };
    let clients = headers.get("x-proved").and_then(|value| value.to_str().ok()).map(clients);
    let clients = clients.as_deref();
    let asked = Asked { host, path: &matched, method: &method, headers: &headers, query, clients };
    find(hosts, &asked).map_or("-".to_owned(), |found| found.rule.origin.key.name.to_string())
}

#[track_caller]
fn check(rules: &str, requests: &[(&str, &str)]) {
    let hosts = hosts(rules);
    for (request, expected) in requests {
        assert_eq!(ask(&hosts, request), *expected, "{request}");
    }
}

#[test]
fn prefixes_match_by_whole_elements() {
    // The table in upstream's documentation of path types.
    check(
        "foo host=a path=/foo
         slash host=b path=/foo/
         exact host=c path==/foo
         deep host=d path=/aaa/bbb
         root host=e path=/",
        &[
            ("GET a/foo", "foo"),
            ("GET a/foo/", "foo"),
            ("GET a/foo/bar", "foo"),
            ("GET a/foobar", "-"),
            ("GET b/foo", "slash"),
            ("GET b/foo/", "slash"),
            ("GET c/foo", "exact"),
            ("GET c/foo/", "-"),
            ("GET c/FOO", "-"),
            ("GET d/aaa/bbb/", "deep"),
            ("GET d/aaa/bbb/ccc", "deep"),
            ("GET d/aaa/bbbxyz", "-"),
            ("GET d/aaa/bb", "-"),
            ("GET e/", "root"),
            ("GET e/anything/at/all", "root"),
        ],
    );
}

#[test]
fn the_longest_path_counts_and_exact_before_it() {
    check(
        "root path=/
         a path=/a
         ab path=/a/b
         exact path==/a/b
         expression path=~/a/[b-c]",
        &[
            ("GET h/", "root"),
            ("GET h/x", "root"),
            ("GET h/a", "a"),
            ("GET h/a/x", "a"),
            ("GET h/a/b", "exact"),
            ("GET h/a/c", "expression"),
            ("GET h/a/b/", "ab"),
            ("GET h/a/b/c", "ab"),
            ("GET h/a//b/c", "ab"),
            ("GET h/x/../a/b/c", "ab"),
        ],
    );
}

#[test]
fn a_name_comes_before_a_wildcard_and_that_before_any() {
    check(
        "name host=x.a.com path=/name
         one host=*.a.com path=/one
         many host=*.com depth=many path=/
         any path=/any",
        &[
            ("GET x.a.com/name", "name"),
            ("GET x.a.com/one", "one"),
            ("GET x.a.com/two", "many"),
            ("GET y.x.a.com/one", "many"),
            ("GET a.com/one", "many"),
            ("GET a.org/any", "any"),
            ("GET a.org/one", "-"),
        ],
    );
}

#[test]
fn of_the_same_path_who_says_most_counts_then_the_older_then_the_name() {
    check(
        "plain path=/
         z-old path=/a age=9
         b-young path=/a age=1
         a-young path=/b age=1
         c-young path=/b age=1
         method path=/m method=POST
         headers path=/m header=x:1 header=y:2
         header path=/m header=x:1
         parameter path=/m query=q:1
         fallback path=/ default",
        &[
            ("GET h/a", "z-old"),
            ("GET h/b", "a-young"),
            ("POST h/m", "method"),
            ("POST h/m x:1 y:2", "method"),
            ("GET h/m x:1 y:2", "headers"),
            ("GET h/m x:1", "header"),
            ("GET h/m?q=1 x:1", "header"),
            ("GET h/m?q=1", "parameter"),
            ("GET h/m", "plain"),
        ],
    );
}

#[test]
fn headers_and_parameters_are_read_as_their_clients_write_them() {
    check(
        "joined header=x:1,2
         expression header=v:~^blue|green$
         odd query=k:",
        &[
            ("GET h/ x:1 x:2", "joined"),
            ("GET h/ x:2 x:1", "-"),
            ("GET h/ X:1,2", "joined"),
            ("GET h/ v:green", "expression"),
            ("GET h/ v:red", "-"),
            ("GET h/?k", "odd"),
            ("GET h/?%6B=&k=2", "odd"),
            ("GET h/?k=2&k=", "-"),
        ],
    );
    check("first query=q:a", &[("GET h/?q=%61", "first"), ("GET h/?q=%6", "-")]);
}

#[test]
fn a_listener_leaves_hosts_to_those_that_name_them() {
    check(
        "all path=/ except=*.a.com
         some host=*.a.com depth=many path=/ except=x.a.com
         one host=x.a.com path=/only",
        &[
            ("GET b.com/", "all"),
            ("GET y.a.com/", "some"),
            ("GET x.a.com/only", "one"),
            ("GET x.a.com/other", "-"),
        ],
    );
}

#[test]
fn fifty_thousand_routes_are_found_as_quickly_as_one() {
    let mut hosts = Hosts::default();
    for i in 0..50_000 {
        let line = format!("r{i} host=h{}.example.com path=/team/{i}", i % 5);
        hosts.insert(rule(&line, i)).expect("a rule");
    }
    hosts.sort();
    let begun = std::time::Instant::now();
    for i in (0..50_000).step_by(5) {
        assert_eq!(ask(&hosts, &format!("GET h0.example.com/team/{i}/page")), format!("r{i}"));
    }
    // Ten thousand of them: a walk through all rules would take minutes.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn a_rule_for_those_who_have_proved_something_is_for_nobody_else() {
    check(
        "proved clients=one
         open path=/open
         other clients=two path=/other",
        &[
            ("GET h/", "-"),
            ("GET h/ x-proved:one", "proved"),
            ("GET h/ x-proved:two", "-"),
            ("GET h/other x-proved:one", "proved"),
            ("GET h/other x-proved:two", "other"),
            ("GET h/open", "open"),
            ("GET h/open x-proved:two", "open"),
        ],
    );
}
