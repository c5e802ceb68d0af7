//! The parameters of a query, and the options that they are.
use super::options::dry_run;
use super::{
    DeleteOptions, ListOptions, Options, Place, Selectors, Shown, Token, UNREAD, WatchOptions,
    WriteOptions,
};
use api::codec::FieldValidation;
use api::field::{Error, Path};
use api::group::GroupKind;
use api::kinds::Verb;
use api::meta::IncludeObject;
use api::selector::{field, label};
use api::status::Status;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use store::cache::At;

/// The parameters of the query, by name; the first of each counts.
#[derive(Debug, Default)]
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
}

impl Query {
    /// What is said about how a verb is to be done.
    pub fn options(&self, verb: Verb) -> Options {
        match verb {
            Verb::Get => Options::None,
            Verb::List => Options::List(self.list()),
            Verb::Watch => Options::Watch(self.watch()),
            Verb::Create | Verb::Update | Verb::Patch => Options::Write(self.write()),
            Verb::Delete => Options::Delete(self.delete()),
            Verb::DeleteCollection => {
                let both = self.delete().and_then(|delete| Ok((delete, self.list()?)));
                Options::DeleteCollection(both)
            }
        }
    }

    pub fn shown(&self) -> Shown {
        let pretty = match self.get("pretty") {
            "" => None,
            value => Some(!matches!(value, "false" | "0")),
        };
        let include = IncludeObject::parse(self.get("includeObject")).map_err(|error| {
            Status::invalid(GroupKind::new("meta.k8s.io", "TableOptions"), "", &[error])
        });
        Shown { pretty, include }
    }

    fn selectors(&self) -> Result<Selectors, Status> {
        let labels = label::Selector::parse(self.get("labelSelector"))
            .map_err(|e| Status::bad_request(e.to_string()))?;
        let fields = field::Selector::parse(self.get("fieldSelector"))
            .map_err(|e| Status::bad_request(e.to_string()))?;
        Ok(Selectors { labels, fields })
    }

    fn list(&self) -> Result<ListOptions, Status> {
        let selectors = self.selectors()?;
        let limit = usize::try_from(self.number("limit")?.unwrap_or(0)).unwrap_or(0);
        // A list ends when it ends; what cannot be read is wrong all the same.
        self.number("timeoutSeconds")?;
        validate(self, false)?;
        Ok(ListOptions { selectors, limit, place: self.place(limit > 0) })
    }

    /// From the continue token, or from the resource version.
    fn place(&self, is_limited: bool) -> Result<Place, Status> {
        let token = match self.get("continue") {
            "" => None,
            token => Some(Token::read(token)?),
        };
        let invalid = |fault| Status::bad_request(format!("invalid resource version: {fault}"));
        let revision = version(self.get("resourceVersion")).map_err(invalid)?;
        match (token, revision) {
            (None, revision) => {
                Ok(Place::Beginning(match (self.get("resourceVersionMatch"), revision) {
                    (_, None) => At::Latest,
                    (_, Some(0)) => At::Any,
                    ("Exact", Some(revision)) => At::Exactly(revision),
                    // Before there was a word for it, a limit meant this.
                    ("", Some(revision)) if is_limited => At::Exactly(revision),
                    (_, Some(revision)) => At::NotOlderThan(revision),
                }))
            }
            (Some(_), Some(1..)) => Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            )),
            (Some(token), _) => Ok(Place::After(token)),
        }
    }

    fn watch(&self) -> Result<WatchOptions, Status> {
        let selectors = self.selectors()?;
        validate(self, true)?;
        let lifetime = self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(WatchOptions {
            selectors,
            // What is no version at all is a fault of the server to upstream.
            version: version(self.get("resourceVersion")).map_err(|message| Status {
                code: 500,
                message,
                ..Status::default()
            }),
            initial_events: self.flag("sendInitialEvents"),
            bookmarks: self.flag("allowWatchBookmarks"),
            lifetime: lifetime.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
        })
    }

    fn write(&self) -> WriteOptions {
        let mut faults = Vec::new();
        let words = Some(self.get("dryRun")).filter(|word| !word.is_empty());
        let dry_run = dry_run(words.as_slice(), &mut faults);
        let validation = self.get("fieldValidation");
        let field_validation = FieldValidation::parse(validation);
        if field_validation.is_none() && !validation.is_empty() {
            let known = ["", "Ignore", "Strict", "Warn"];
            faults.push(Error::not_supported(&Path::new("fieldValidation"), validation, known));
        }
        WriteOptions {
            dry_run,
            field_manager: self.get("fieldManager").to_owned(),
            field_validation,
            force: self.has("force").then(|| self.flag("force")),
            faults,
        }
    }

    fn delete(&self) -> Result<DeleteOptions, Status> {
        let mut tree = Value::Null;
        for name in ["propagationPolicy", "gracePeriodSeconds", "orphanDependents", UNREAD] {
            if self.has(name) {
                tree[name] = match name {
                    "gracePeriodSeconds" => self.number(name)?.into(),
                    "orphanDependents" | UNREAD => self.flag(name).into(),
                    _ => self.get(name).into(),
                };
            }
        }
        if !self.get("dryRun").is_empty() {
            tree["dryRun"] = json!([self.get("dryRun")]);
        }
        DeleteOptions::read(&tree)
    }
}

/// Checks the parameters of a list or watch against each other.
fn validate(query: &Query, watch: bool) -> Result<(), Status> {
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
fn version(text: &str) -> Result<Option<u64>, String> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
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
    fn a_write_is_told_what_its_options_say_wrong() {
        let faults = |query: &str, kind: &str, is_apply: bool| {
            let options = Query::parse(query).write();
            options.check(kind, is_apply).err().map(|status| status.message).unwrap_or_default()
        };
        assert_eq!(faults("dryRun=All&fieldValidation=Strict", "CreateOptions", false), "");
        assert_eq!(
            faults("dryRun=some&fieldValidation=Maybe", "CreateOptions", false),
            "CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"some\"]: supported values: \"All\", fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"]"
        );
        assert_eq!(
            faults("force=true", "PatchOptions", false),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
        assert_eq!(
            faults("", "PatchOptions", true),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
    }
}
