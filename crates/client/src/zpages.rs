//! `/statusz` and `/flagz`: what a component is and with which flags it was started, for people and for
//! programs.
//!
//! Every component has one [`Zpages`] and says in which words: its name, its paths. Paths, forms and the way
//! a form is chosen are those of upstream's `apiserver/pkg/server/statusz` and `flagz`: plain text unless a
//! client asks for the kind by name (`application/json;g=config.k8s.io;v=v1beta1;as=Statusz`). Who may read
//! them is the business of whoever serves them.
use crate::pages::{JSON, Page};
use api::codec::yaml;
use api::content::{Clause, parse_accept};
use api::status::Status;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub const STATUSZ: &str = "/statusz";
pub const FLAGZ: &str = "/flagz";

const GROUP: &str = "config.k8s.io";
/// The versions of both kinds; who asks for one that is deprecated is told.
const VERSIONS: [Version; 2] = [
    Version { name: "v1beta1", is_deprecated: false },
    Version { name: "v1alpha1", is_deprecated: true },
];
const YAML: &str = "application/yaml";
/// What there is to choose from, in the order in which a wildcard chooses.
const MEDIA: [&str; 3] = [JSON, YAML, "text/plain"];

/// What stands between a name and its value. Nobody is to parse the text, so that it is another one in the
/// next process, as upstream has it.
const DELIMITERS: [&str; 4] = [":", ": ", "=", " "];

struct Version {
    name: &'static str,
    is_deprecated: bool,
}

/// Names of flags and what they were set to.
pub type Flags = BTreeMap<String, String>;

/// What a component says of itself.
#[derive(Debug, Clone)]
pub struct Zpages {
    component: &'static str,
    /// Sorted; what is the API itself is not among them.
    paths: &'static [&'static str],
    flags: Flags,
    started: Timestamp,
    delimiter: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Statusz,
    Flagz,
}

impl Zpages {
    pub fn new(
        component: &'static str,
        paths: &'static [&'static str],
        flags: Flags,
        started: Timestamp,
    ) -> Zpages {
        let delimiter = fastrand::choice(DELIMITERS).unwrap_or(":");
        Zpages { component, paths, flags, started, delimiter }
    }

    /// The page at a path, if it is one of these two.
    pub fn page(&self, path: &str, accept: &str, now: Timestamp) -> Option<Page> {
        let kind = match path {
            STATUSZ => Kind::Statusz,
            FLAGZ => Kind::Flagz,
            _ => return None,
        };
        Some(match choose(kind, accept) {
            Some((_, None)) => Page::ok(self.text(kind, now)),
            Some((media, Some(version))) => {
                let mut page = written(200, media, &self.object(kind, version, now));
                if version.is_deprecated {
                    let name = path.trim_start_matches('/');
                    let text = format!(
                        "299 - \"This version of the {name} endpoint is deprecated. Please use a newer version.\""
                    );
                    page.headers.push(("warning", text));
                }
                page
            }
            None => not_acceptable(accept),
        })
    }

    fn object(&self, kind: Kind, version: &Version, now: Timestamp) -> Value {
        let mut object = json!({
            "kind": kind.name(),
            "apiVersion": format!("{GROUP}/{}", version.name),
            "metadata": { "name": self.component },
        });
        match kind {
            Kind::Flagz if self.flags.is_empty() => {}
            Kind::Flagz => object["flags"] = json!(self.flags),
            Kind::Statusz => {
                let seconds = self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                object["startTime"] = seconds.into();
                object["uptimeSeconds"] = self.uptime(now).into();
                // Nothing here is written in Go; the field has to be there.
                object["goVersion"] = "".into();
                object["binaryVersion"] = binary_version().into();
                object["emulationVersion"] = emulation_version().into();
                object["paths"] = json!(self.paths);
            }
        }
        object
    }

    fn text(&self, kind: Kind, now: Timestamp) -> String {
        let (component, delimiter) = (self.component, self.delimiter);
        let name = kind.name().to_lowercase();
        let mut text = format!(
            "\n{component} {name}\nWarning: This endpoint is not meant to be machine parseable, has no \
             formatting compatibility guarantees and is for debugging purposes only.\n"
        );
        match kind {
            Kind::Flagz => {
                for (flag, value) in &self.flags {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "{flag}{delimiter}{value}");
                }
            }
            Kind::Statusz => {
                let started = self.started.to_zoned(TimeZone::UTC);
                let up = self.uptime(now);
                let rows = [
                    ("Started", started.strftime("%a %b %e %H:%M:%S UTC %Y").to_string()),
                    ("Up", format!("{} hr {:02} min {:02} sec", up / 3600, up / 60 % 60, up % 60)),
                    ("Go version", String::new()),
                    ("Binary version", binary_version().to_owned()),
                    ("Emulation version", emulation_version().to_owned()),
                    ("Paths", self.paths.join(" ")),
                ];
                text.push('\n');
                for (row, value) in rows {
                    let _ = writeln!(text, "{row}{delimiter} {value}");
                }
            }
        }
        text
    }

    fn uptime(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started).as_secs().max(0)
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Statusz => "Statusz",
            Kind::Flagz => "Flagz",
        }
    }
}

fn binary_version() -> &'static str {
    api::VERSION.trim_start_matches('v')
}

/// Major and minor alone.
fn emulation_version() -> &'static str {
    let version = binary_version();
    let end = version.match_indices('.').nth(1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

/// The form that a client prefers: text, or the kind in a version. `None` if there is none it takes.
fn choose(kind: Kind, accept: &str) -> Option<(&'static str, Option<&'static Version>)> {
    if accept.trim().is_empty() {
        return Some(("text/plain", None));
    }
    let clauses = parse_accept(accept);
    clauses.iter().find_map(|clause| {
        MEDIA.iter().filter(|media| is_of(clause, media)).find_map(|media| {
            let parameter = |name: &str| {
                clause.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
            };
            // No streams, and no other version of the metadata API.
            let is_plain = |name| parameter(name).is_none_or(str::is_empty);
            if !is_plain("stream") || !is_plain("sv") {
                return None;
            }
            let wanted = [parameter("g"), parameter("v"), parameter("as")];
            match (*media, wanted) {
                ("text/plain", [None, None, None]) => Some((*media, None)),
                (JSON | YAML, [Some(GROUP), Some(version), Some(name)]) if name == kind.name() => {
                    let version = VERSIONS.iter().find(|known| known.name == version)?;
                    Some((*media, Some(version)))
                }
                _ => None,
            }
        })
    })
}

fn is_of(clause: &Clause<'_>, media: &str) -> bool {
    let Some((main_type, sub_type)) = media.split_once('/') else { return false };
    match (clause.main_type, clause.sub_type) {
        ("*", "*") => true,
        (main, sub) => main == main_type && (sub == sub_type || sub == "*"),
    }
}

/// The refusal is in the encoding that the client named, if it named one without a kind.
fn not_acceptable(accept: &str) -> Page {
    let status = Status::not_acceptable(&MEDIA);
    let clauses = parse_accept(accept);
    let plain = |clause: &Clause<'_>| !clause.parameters.iter().any(|(name, _)| *name != "pretty");
    let named = clauses.iter().filter(|clause| plain(clause));
    let named = named.flat_map(|clause| MEDIA.iter().find(|media| is_of(clause, media))).next();
    let media = if named == Some(&YAML) { YAML } else { JSON };
    written(406, media, &json!(status))
}

fn written(code: u16, media: &'static str, object: &Value) -> Page {
    match media {
        YAML => Page::new(code, YAML, yaml::encode(object)),
        _ => Page::new(code, JSON, format!("{object}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const STARTED: i64 = 1_800_000_000;

    fn zpages() -> Zpages {
        let flags = [("v", "2"), ("bind-address", "::")];
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let started = Timestamp::from_second(STARTED).unwrap();
        let zpages = Zpages::new("kube-proxy", &["/flagz", "/healthz"], flags, started);
        Zpages { delimiter: ":", ..zpages }
    }

    fn check(path: &str, accept: &str, expected: &Expect) {
        let now = Timestamp::from_second(STARTED + 3 * 3600 + 62).unwrap();
        let page = zpages().page(path, accept, now).expect("a page");
        let version = binary_version();
        let body = page.body.replace(version, "VERSION").replace(emulation_version(), "MINOR");
        let headers = page.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let headers: String = headers.collect();
        expected.assert_eq(&format!("{} {}\n{headers}{body}", page.code, page.content_type));
    }

    #[test]
    fn people_get_text() {
        let status = expect![[r#"
            200 text/plain; charset=utf-8

            kube-proxy statusz
            Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

            Started: Fri Jan 15 08:00:00 UTC 2027
            Up: 3 hr 01 min 02 sec
            Go version: 
            Binary version: VERSION
            Emulation version: MINOR
            Paths: /flagz /healthz
        "#]];
        for accept in ["", " ", "text/plain", "*/*", "text/*", "application/json, */*"] {
            check(STATUSZ, accept, &status);
        }
        check(
            FLAGZ,
            "*/*",
            &expect![[r#"
                200 text/plain; charset=utf-8

                kube-proxy flagz
                Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
                bind-address:::
                v:2
            "#]],
        );
    }

    #[test]
    fn programs_get_a_kind_that_they_name() {
        check(
            STATUSZ,
            "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
            &expect![[r#"
                200 application/json
                {"apiVersion":"config.k8s.io/v1beta1","binaryVersion":"VERSION","emulationVersion":"MINOR","goVersion":"","kind":"Statusz","metadata":{"name":"kube-proxy"},"paths":["/flagz","/healthz"],"startTime":"2027-01-15T08:00:00Z","uptimeSeconds":10862}
            "#]],
        );
        check(
            FLAGZ,
            "application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz",
            &expect![[r#"
                200 application/yaml
                warning: 299 - "This version of the flagz endpoint is deprecated. Please use a newer version."
                apiVersion: config.k8s.io/v1alpha1
                flags:
                  bind-address: '::'
                  v: "2"
                kind: Flagz
                metadata:
                  name: kube-proxy
            "#]],
        );
    }

    #[test]
    fn what_there_is_not_is_refused_as_upstream_refuses_it() {
        let refused = expect![[r#"
            406 application/json
            {"apiVersion":"v1","code":406,"kind":"Status","message":"only the following media types are accepted: application/json, application/yaml, text/plain","metadata":{},"reason":"NotAcceptable","status":"Failure"}
        "#]];
        for accept in [
            "application/json",
            "application/xml",
            "application/json;v=v1beta1;g=config.k8s.io",
            "application/json;v=v1;g=config.k8s.io;as=Statusz",
            "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
            "application/json;v=v1beta1;g=config.k8s.io;as=Statusz;stream=watch",
            "application/vnd.kubernetes.protobuf;v=v1beta1;g=config.k8s.io;as=Statusz",
            "text/plain;as=Statusz",
        ] {
            check(STATUSZ, accept, &refused);
        }
        let now = Timestamp::from_second(STARTED).unwrap();
        assert!(
            zpages().page(STATUSZ, "application/yaml", now).unwrap().body.contains("code: 406")
        );
        assert!(zpages().page("/statusz/", "", now).is_none());
    }
}
