//! `TYPE`, `TYPE NAME…`, `TYPE/NAME…`, `TYPE,TYPE`: what the words of a command line name.
use super::{Info, Request};
use crate::failure::Outcome;
use crate::mapper::{Mapper, Resource};

#[derive(Debug, Clone)]
pub enum Target {
    File(Box<Info>),
    Named { resource: Box<Resource>, namespace: String, name: String },
    All { resource: Box<Resource>, namespace: String },
}

/// What is wrong whatever the server serves.
pub fn check(request: &Request) -> Outcome {
    let words = &request.words;
    let pairs = words.iter().filter(|word| word.contains('/')).count();
    let selects = !request.selector.is_empty() || !request.field_selector.is_empty();
    if !request.selector.is_empty() && request.all {
        return Err("setting 'all' parameter but found a non empty selector. ".into());
    }
    if words.is_empty() {
        return Err(if selects || request.all {
            "at least one resource must be specified to use a selector".into()
        } else {
            MISSING.into()
        });
    }
    if pairs > 0 {
        if pairs < words.len() {
            return Err("there is no need to specify a resource type as a separate argument when passing \
                        arguments in resource/name form (e.g. 'kubectl get resource/<resource_name>' instead \
                        of 'kubectl get resource resource/<resource_name>'"
                .into());
        }
        if selects || request.all {
            return Err(
                "selectors and the all flag cannot be used when passing resource/name arguments"
                    .into(),
            );
        }
        for word in words {
            let parts: Vec<&str> = word.split('/').collect();
            if parts.len() > 2 {
                return Err(
                    "arguments in resource/name form may not have more than one slash".into()
                );
            }
            if parts.iter().any(|part| part.is_empty()) || parts[0].contains(',') {
                return Err(
                    "arguments in resource/name form must have a single resource and name".into()
                );
            }
        }
        return Ok(());
    }
    if words.len() > 1 && selects {
        return Err("name cannot be provided when a selector is specified".into());
    }
    if words.len() == 1 && !selects && !request.all && !request.type_is_all {
        return Err("resource(s) were provided, but no name was specified".into());
    }
    Ok(())
}

const MISSING: &str = "You must provide one or more resources by argument or filename.\nExample resource specifications \
     include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";

pub fn targets(mapper: &Mapper, request: &Request, namespace: &str) -> Outcome<Vec<Target>> {
    let words = &request.words;
    let namespace_of = |resource: &Resource| match resource.is_namespaced() {
        true => namespace.to_owned(),
        false => String::new(),
    };
    let named = |resource: &Resource, name: &str| Target::Named {
        resource: Box::new(resource.clone()),
        namespace: namespace_of(resource),
        name: name.to_owned(),
    };
    if words.iter().any(|word| word.contains('/')) {
        if request.all_namespaces {
            return Err("a resource cannot be retrieved by name across all namespaces".into());
        }
        let mut found = Vec::new();
        for word in words {
            let (kind, name) = word.split_once('/').unwrap_or((word, ""));
            found.push(named(mapper.find(kind)?, name));
        }
        return Ok(found);
    }
    let Some((kinds, names)) = words.split_first() else { return Ok(Vec::new()) };
    let resources = mapper.find_all(kinds)?;
    let mut found = Vec::new();
    for resource in resources {
        if names.is_empty() {
            let namespace = match request.all_namespaces {
                true => String::new(),
                false => namespace_of(resource),
            };
            found.push(Target::All { resource: Box::new(resource.clone()), namespace });
            continue;
        }
        if request.all_namespaces && resource.is_namespaced() {
            return Err("a resource cannot be retrieved by name across all namespaces".into());
        }
        found.extend(names.iter().map(|name| named(resource, name)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::tests::mapper;

    fn check_words(line: &str, fill: impl FnOnce(&mut Request), expected: &str) {
        let words = line.split_whitespace().map(str::to_owned).collect();
        let mut request = Request { words, ..Request::default() };
        fill(&mut request);
        let found = check(&request).and_then(|()| targets(&mapper(), &request, "default"));
        let found = match found {
            Err(failure) => failure.message(),
            Ok(targets) => {
                let shown = targets.iter().map(|target| match target {
                    Target::Named { resource, namespace, name } => {
                        format!("{}:{namespace}:{name}", resource.full_name())
                    }
                    Target::All { resource, namespace } => {
                        format!("{}:{namespace}:*", resource.full_name())
                    }
                    Target::File(_) => "file".to_owned(),
                });
                shown.collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn words_name_types_and_objects() {
        check_words("po a b", |_| {}, "pods:default:a pods:default:b");
        check_words("po/a deploy/b", |_| {}, "pods:default:a deployments.apps:default:b");
        check_words("po,no", |r| r.type_is_all = true, "pods:default:* nodes::*");
        check_words("po", |r| (r.all_namespaces, r.type_is_all) = (true, true), "pods::*");
        check_words("po", |r| r.selector = "a=b".into(), "pods:default:*");
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        check_words("po", |_| {}, "error: resource(s) were provided, but no name was specified");
        check_words(
            "po a",
            |r| r.selector = "a=b".into(),
            "error: name cannot be provided when a selector is specified",
        );
        check_words(
            "a/b/c",
            |_| {},
            "error: arguments in resource/name form may not have more than one slash",
        );
        check_words(
            "po a",
            |r| r.all_namespaces = true,
            "error: a resource cannot be retrieved by name across all namespaces",
        );
    }
}
