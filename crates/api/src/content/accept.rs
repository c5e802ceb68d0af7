//! The `Accept` header: reading it, and choosing the answer it prefers.

use super::{Encoding, Endpoint, Target};
use crate::status::Status;

/// The answer that was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub encoding: Encoding,
    /// The kind to answer with, if not the endpoint's own.
    pub target: Option<&'static Target>,
    /// Indented, for people.
    pub pretty: bool,
    /// Events instead of a list.
    pub stream: bool,
}

/// One alternative in an `Accept` header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<'a> {
    pub main_type: &'a str,
    pub sub_type: &'a str,
    pub quality: f32,
    pub parameters: Vec<(&'a str, &'a str)>,
}

/// The best answer an endpoint has for an `Accept` header; the first encoding if there is none.
pub fn negotiate(accept: &str, endpoint: &Endpoint) -> Result<Accepted, Status> {
    choose(accept, endpoint).ok_or_else(|| {
        let accepted: Vec<_> = Encoding::ALL.iter().map(|e| e.media_type()).collect();
        Status::not_acceptable(&accepted)
    })
}

/// The best answer for a watch.
pub fn negotiate_stream(accept: &str, endpoint: &Endpoint) -> Result<Accepted, Status> {
    let accepted = choose(accept, endpoint);
    accepted.filter(|accepted| accepted.encoding.stream_media_type().is_some()).ok_or_else(|| {
        let accepted: Vec<_> = Encoding::ALL.iter().filter_map(|e| e.stream_media_type()).collect();
        Status::not_acceptable(&accepted)
    })
}

fn choose(accept: &str, endpoint: &Endpoint) -> Option<Accepted> {
    if accept.is_empty() {
        let encoding = *endpoint.encodings.first()?;
        return Some(Accepted { encoding, target: None, pretty: false, stream: false });
    }
    // The client's order comes first, ours decides among what one clause allows.
    parse_accept(accept).iter().find_map(|clause| {
        let mut encodings = Encoding::ALL.iter().copied();
        encodings.find_map(|encoding| clause.accepts(encoding, endpoint))
    })
}

impl Clause<'_> {
    fn accepts(&self, encoding: Encoding, endpoint: &Endpoint) -> Option<Accepted> {
        let (main_type, sub_type) = encoding.media_type().split_once('/')?;
        match (self.main_type, self.sub_type) {
            ("*", "*") => {}
            (main, sub) if main == main_type && (sub == sub_type || sub == "*") => {}
            _ => return None,
        }
        let mut accepted = Accepted { encoding, target: None, pretty: false, stream: false };
        let mut convert: Option<(&str, &str, &str)> = None;
        for (name, value) in &self.parameters {
            match *name {
                "g" => convert.get_or_insert_default().0 = value,
                "v" => convert.get_or_insert_default().1 = value,
                "as" => convert.get_or_insert_default().2 = value,
                "stream" if value.is_empty() => {}
                "stream" if *value == "watch" && encoding.stream_media_type().is_some() => {
                    accepted.stream = true;
                }
                "stream" => return None,
                // The version of the metadata API, of which there is one.
                "sv" if !value.is_empty() && *value != "v1" => return None,
                "pretty" => accepted.pretty = *value == "1",
                _ => {}
            }
        }
        let encodings = match convert {
            None => endpoint.encodings,
            Some(wanted) => {
                let mut targets = endpoint.targets.iter();
                let target = targets.find(|t| (t.group, t.version, t.kind) == wanted)?;
                accepted.target = Some(target);
                target.encodings
            }
        };
        encodings.contains(&encoding).then_some(accepted)
    }
}

/// Whoever has more to say does not mean it: sorting them takes the square of their number.
const MOST_CLAUSES: usize = 100;

/// The clauses of an `Accept` header, the preferred one first; malformed ones are left out.
pub fn parse_accept(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> =
        header.split(',').filter_map(parse_clause).take(MOST_CLAUSES).collect();
    // An insertion sort, because the order is not a proper one (a type with a wildcard goes last
    // even at a higher quality) and upstream's result comes from the same steps.
    for i in 1..clauses.len() {
        for j in (1..=i).rev() {
            if !preferred(&clauses[j], &clauses[j - 1]) {
                break;
            }
            clauses.swap(j, j - 1);
        }
    }
    clauses
}

fn preferred(a: &Clause<'_>, b: &Clause<'_>) -> bool {
    a.quality > b.quality
        || (a.main_type != "*" && b.main_type == "*")
        || (a.sub_type != "*" && b.sub_type == "*")
}

/// The steps are upstream's (`munnerz/goautoneg`): what follows a last `/` or `=` that ends the
/// text is as good as absent, one more of them in the middle spoils the part.
fn parse_clause(text: &str) -> Option<Clause<'_>> {
    let (media_type, mut parameters) = split(text.trim_matches(' '), ';');
    let (main_type, rest) = split(media_type, '/');
    let main_type = main_type.trim_matches(' ');
    let (sub_type, rest) = match rest {
        "" if main_type == "*" => ("*", ""),
        "" => return None,
        rest => split(rest, '/'),
    };
    if !rest.is_empty() {
        return None;
    }
    let sub_type = sub_type.trim_matches(' ');
    let mut clause = Clause { main_type, sub_type, quality: 1.0, parameters: Vec::new() };
    while !parameters.is_empty() {
        let parameter;
        (parameter, parameters) = split(parameters, ';');
        let (name, rest) = split(parameter, '=');
        let (value, more) = split(rest, '=');
        if rest.is_empty() || !more.is_empty() {
            continue;
        }
        match name.trim_matches(' ') {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            name => {
                clause.parameters.retain(|(other, _)| *other != name); // the last one counts
                clause.parameters.push((name, value.trim_matches(' ')));
            }
        }
    }
    Some(clause)
}

fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::super::{CUSTOM_RESOURCES, DISCOVERY, OBJECTS};
    use super::*;

    fn check(endpoint: &Endpoint, accept: &str, want: Expect) {
        want.assert_eq(&match negotiate(accept, endpoint) {
            Err(status) => status.message,
            Ok(Accepted { encoding, target, pretty, stream }) => {
                let target =
                    target.map_or(String::new(), |t| format!(" as {}.{}", t.kind, t.version));
                let pretty = if pretty { " pretty" } else { "" };
                let stream = if stream { " stream" } else { "" };
                format!("{encoding:?}{target}{pretty}{stream}")
            }
        });
    }

    #[test]
    fn the_client_chooses_the_encoding() {
        check(&OBJECTS, "", expect!["Json"]);
        check(&OBJECTS, "*/*", expect!["Json"]);
        check(&OBJECTS, "*", expect!["Json"]);
        check(&OBJECTS, "application/*", expect!["Json"]);
        check(&OBJECTS, "application/yaml", expect!["Yaml"]);
        check(
            &OBJECTS,
            "application/vnd.kubernetes.protobuf,application/json",
            expect!["Protobuf"],
        );
        check(&OBJECTS, "application/json;q=0.5, application/yaml", expect!["Yaml"]);
        check(&OBJECTS, "*/*, application/yaml;q=0.5", expect!["Yaml"]);
        check(&OBJECTS, "text/html, application/json;pretty=1", expect!["Json pretty"]);
        check(
            &OBJECTS,
            "text/html",
            expect![
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            ],
        );
        check(&CUSTOM_RESOURCES, "application/vnd.kubernetes.protobuf, */*", expect!["Json"]);
    }

    #[test]
    fn the_client_chooses_the_form() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(&OBJECTS, kubectl, expect!["Json as Table.v1"]);
        check(
            &OBJECTS,
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            expect!["Json"],
        );
        check(
            &OBJECTS,
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            expect![
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            ],
        );
        check(
            &CUSTOM_RESOURCES,
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            expect!["Protobuf as PartialObjectMetadata.v1"],
        );
        check(
            &DISCOVERY,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            expect!["Json as APIGroupDiscoveryList.v2"],
        );
        check(
            &DISCOVERY,
            "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
            expect!["Json"],
        );
    }

    #[test]
    fn a_watch_needs_an_encoding_with_frames() {
        check(&OBJECTS, "application/json;stream=watch", expect!["Json stream"]);
        check(&OBJECTS, "application/yaml;stream=watch,application/json", expect!["Json"]);
        let status = negotiate_stream("application/yaml", &OBJECTS).unwrap_err();
        expect!["only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"]
            .assert_eq(&status.message);
    }

    proptest! {
        #[test]
        fn any_header_is_read(header in "\\PC*|[*/a;=q.,0 ]*") {
            let _ = negotiate(&header, &OBJECTS);
        }
    }
}
