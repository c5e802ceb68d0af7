//! Lists in pages: which versions a client may ask for, and the token it goes on with.
use crate::request::{Call, Query};
use api::field::{Error, Path};
use api::group::GroupKind;
use api::meta::ListMeta;
use api::status::Status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use store::KeyRange;
use store::cache::At;

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter, or use the continue token in \
    this response to retrieve the remainder of the results. Continuing with the provided token \
    results in an inconsistent list - objects that were created, modified, or deleted between the \
    time the first chunk was returned and now may show up in the list.";

/// Where a list that was cut short goes on: upstream's token.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    /// Minus one: whatever is there now.
    rv: i64,
    start: String,
}

/// The token that goes on after a key.
pub fn token(after: &store::Key, whole: &KeyRange, revision: i64) -> String {
    let start = after.next();
    let start = start.strip_prefix(&*whole.start).unwrap_or(&start);
    encode(String::from_utf8_lossy(start).into_owned(), revision)
}

fn encode(start: String, rv: i64) -> String {
    let token = Token { v: "meta.k8s.io/v1".into(), rv, start };
    BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Which keys to read, as of when: from the continue token, or from the resource version.
pub fn place(call: &Call, whole: &KeyRange) -> Result<(KeyRange, At), Status> {
    let query = &call.query;
    validate(query, false)?;
    let revision = parse_version(query.get("resourceVersion"))?;
    let text = query.get("continue");
    if !text.is_empty() {
        if revision.is_some_and(|revision| revision > 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = read(text)?;
        let start = [&*whole.start, token.start.as_bytes()].concat();
        let at = u64::try_from(token.rv).map_or(At::Latest, At::Exactly);
        return Ok((whole.starting_at(start.as_slice()), at));
    }
    let limited = query.number("limit")?.is_some_and(|limit| limit > 0);
    let at = match (query.get("resourceVersionMatch"), revision) {
        (_, None) => At::Latest,
        (_, Some(0)) => At::Any,
        // Before there was a word for it, a limit meant this.
        ("Exact", Some(revision)) => At::Exactly(revision),
        ("", Some(revision)) if limited => At::Exactly(revision),
        (_, Some(revision)) => At::NotOlderThan(revision),
    };
    Ok((whole.clone(), at))
}

fn read(text: &str) -> Result<Token, Status> {
    let bad = |why: &str| Status::bad_request(format!("continue key is not valid: {why}"));
    let decoded = BASE64.decode(text).map_err(|error| bad(&error.to_string()))?;
    let token: Token = serde_json::from_slice(&decoded).map_err(|error| bad(&error.to_string()))?;
    // A token is the client's word: it may not lead out of what was listed.
    let leads_out = token.start.split('/').any(|part| matches!(part, ".." | "." | ""));
    match () {
        () if token.v != "meta.k8s.io/v1" => {
            Err(bad(&format!("server does not recognize this encoded version {:?}", token.v)))
        }
        () if token.rv == 0 => {
            Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))
        }
        () if token.start.is_empty() => {
            Err(bad("encoded start key empty (version meta.k8s.io/v1)"))
        }
        () if leads_out => Err(bad(&token.start)),
        () => Ok(token),
    }
}

/// What a client is told when the history its token is about is gone.
pub fn expired(call: &Call) -> Option<Status> {
    let token = read(call.query.get("continue")).ok()?;
    let mut status = Status::expired(EXPIRED);
    let metadata = ListMeta { continue_: Some(encode(token.start, -1)), ..ListMeta::default() };
    status.metadata = Some(Box::new(metadata));
    Some(status)
}

/// Checks the parameters of a list or watch against each other.
pub fn validate(query: &Query, watch: bool) -> Result<(), Status> {
    let path = Path::new("resourceVersionMatch");
    let wanted = query.get("resourceVersionMatch");
    let initial = query.has("sendInitialEvents");
    let mut errors = Vec::new();
    let mut forbidden = |text: &'static str| errors.push(Error::forbidden(&path, text));
    if watch && initial && wanted != "NotOlderThan" {
        forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !wanted.is_empty() && watch && !initial {
        forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if !wanted.is_empty() && !watch && query.get("resourceVersion").is_empty() {
        forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if !wanted.is_empty() && !query.get("continue").is_empty() {
        forbidden("resourceVersionMatch is forbidden when continue is provided");
    }
    if wanted == "Exact" && !watch && query.get("resourceVersion") == "0" {
        forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
    let known: &[&str] = if watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
    if !wanted.is_empty() && !known.contains(&wanted) {
        errors.push(Error::not_supported(&path, wanted, known.iter().copied()));
    }
    if initial && !watch {
        let path = Path::new("sendInitialEvents");
        errors.push(Error::forbidden(&path, "sendInitialEvents is forbidden for list"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GroupKind::new("meta.k8s.io", "ListOptions"), "", &errors))
}

/// A resource version; `None` when it is left to the server.
pub fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: &str) {
        let query_of = Query::parse(query);
        let found = validate(&query_of, query_of.flag("watch")).err().map(|status| status.message);
        let found = found.unwrap_or_else(|| "fine".into());
        assert!(found.ends_with(expected), "{query}: {found}");
    }

    #[test]
    fn versions_are_matched_where_that_means_something() {
        check("resourceVersion=5&resourceVersionMatch=Exact", "fine");
        check("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "fine");
        check(
            "resourceVersionMatch=Exact",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        check(
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        );
        check(
            "resourceVersionMatch=Nearly&resourceVersion=1",
            "Unsupported value: \"Nearly\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
        );
        check(
            "watch=1&sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
        check("sendInitialEvents=true", "sendInitialEvents is forbidden for list");
    }

    #[test]
    fn a_token_stays_within_what_was_listed() {
        for start in ["../secrets/a", "a//b", "./a", ""] {
            assert!(read(&encode(start.into(), 5)).is_err(), "{start}");
        }
        assert_eq!(read(&encode("a\0".into(), 5)).expect("a token").start, "a\0");
        assert!(read("%").is_err());
    }
}
