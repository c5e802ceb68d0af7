//! How a request is to be done: upstream's options, as types. They are read once, where a request comes
//! in ([`Query`](super::Query), or whoever asks within the process); what cannot be read is told when its
//! verb asks for it, after it is known that the client may ask at all.
use super::Token;
use api::codec::FieldValidation;
use api::codec::object::TypeMeta;
use api::field::{self, BadValue, Error, ErrorList, Path};
use api::group::GroupKind;
use api::meta::IncludeObject;
use api::rules::metadata;
use api::selector::{field as fields, label};
use api::status::Status;
use serde_json::{Value, json};
use std::time::Duration;
use store::cache::At;

/// What a request says beside what it is about; by its verb.
#[derive(Debug, Clone)]
pub enum Options {
    /// One object is read; or somebody else is asked, who reads for himself what is said to him.
    None,
    List(Result<ListOptions, Status>),
    Watch(Result<WatchOptions, Status>),
    /// Of what is created, updated or patched.
    Write(WriteOptions),
    Delete(Result<DeleteOptions, Status>),
    DeleteCollection(Result<(DeleteOptions, ListOptions), Status>),
}

/// Which objects.
#[derive(Debug, Clone)]
pub struct Selectors {
    pub labels: label::Selector,
    pub fields: fields::Selector,
}

impl Default for Selectors {
    fn default() -> Self {
        Selectors { labels: label::Selector::everything(), fields: fields::Selector::default() }
    }
}

#[derive(Debug, Clone)]
pub struct ListOptions {
    pub selectors: Selectors,
    /// 0: all.
    pub limit: usize,
    /// What is wrong with it comes last: the selectors are read first.
    pub place: Result<Place, Status>,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions { selectors: Selectors::default(), limit: 0, place: Ok(Place::default()) }
    }
}

/// Where a list begins, and as of when.
#[derive(Debug, Clone)]
pub enum Place {
    Beginning(At),
    After(Token),
}

impl Default for Place {
    fn default() -> Self {
        Place::Beginning(At::Latest)
    }
}

#[derive(Debug, Clone)]
pub struct WatchOptions {
    pub selectors: Selectors,
    /// Zero is whatever the server has; none is left to it.
    pub version: Result<Option<u64>, Status>,
    /// Every object comes first, then a bookmark that says so.
    pub initial_events: bool,
    pub bookmarks: bool,
    pub lifetime: Option<Duration>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        WatchOptions {
            selectors: Selectors::default(),
            version: Ok(None),
            initial_events: false,
            bookmarks: false,
            lifetime: None,
        }
    }
}

impl WatchOptions {
    /// Whether it tells what there is before it tells what happens.
    pub fn begins_with_list(&self) -> bool {
        self.initial_events || matches!(self.version, Ok(None | Some(0)))
    }
}

#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Empty: the server makes one of the client's program.
    pub field_manager: String,
    /// What is said of unknown fields; the server's own way if it is not said.
    pub field_validation: Option<FieldValidation>,
    /// Whether an apply takes fields from others.
    pub force: Option<bool>,
    /// What cannot be read of them.
    pub faults: ErrorList,
}

impl WriteOptions {
    pub const NONE: WriteOptions = WriteOptions {
        dry_run: false,
        field_manager: String::new(),
        field_validation: None,
        force: None,
        faults: ErrorList::new(),
    };

    /// The options, if they are in order for a write of this sort (`CreateOptions` and the like).
    pub fn check(&self, kind: &str, is_apply: bool) -> Result<&WriteOptions, Status> {
        let mut errors = ErrorList::new();
        if is_apply && self.field_manager.is_empty() {
            errors.push(Error::required(&Path::new("fieldManager"), "is required for apply patch"));
        }
        if !is_apply && kind == "PatchOptions" && self.force.is_some() {
            let text = "may not be specified for non-apply patch";
            errors.push(Error::forbidden(&Path::new("force"), text));
        }
        errors.extend(metadata::field_manager(&self.field_manager, &Path::new("fieldManager")));
        errors.extend(self.faults.iter().cloned());
        if errors.is_empty() {
            return Ok(self);
        }
        Err(Status::invalid(GroupKind::new("meta.k8s.io", kind), "", &errors))
    }

    /// What is done about unknown fields.
    pub fn validation(&self) -> FieldValidation {
        self.field_validation.unwrap_or(FieldValidation::Warn)
    }

    /// As `CreateOptions` and the like say it.
    pub fn tree(&self, kind: &str) -> Value {
        let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if !self.field_manager.is_empty() {
            options["fieldManager"] = self.field_manager.as_str().into();
        }
        if let Some(validation) = self.field_validation {
            options["fieldValidation"] = validation.as_str().into();
        }
        options
    }
}

/// What the client says about a deletion, in its body or its query.
#[derive(Debug, Default, Clone)]
pub struct DeleteOptions {
    pub grace: Option<i64>,
    pub propagation: String,
    pub uid: String,
    pub resource_version: String,
    pub dry_run: bool,
    /// Only if it cannot be read, and then without asking what it is.
    pub unread: bool,
}

pub const UNREAD: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    pub fn kind() -> GroupKind<'static> {
        GroupKind::new("meta.k8s.io", "DeleteOptions")
    }

    /// Reads a `DeleteOptions` object.
    pub fn read(body: &Value) -> Result<DeleteOptions, Status> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let orphan = body["orphanDependents"].as_bool();
        let policy = body["propagationPolicy"].as_str();
        let path = Path::new("propagationPolicy");
        let mut errors = ErrorList::new();
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let text = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(Error::invalid(&path, policy, text));
        }
        let unknown = |policy: &&str| !matches!(*policy, "Foreground" | "Background" | "Orphan");
        if let Some(other) = policy.filter(unknown) {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(Error::not_supported(&path, other, known));
        }
        let words = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry_run = dry_run(&words.collect::<Vec<_>>(), &mut errors);
        let unread = body[UNREAD] == true;
        for other in
            ["propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions"]
        {
            if unread && body.get(other).is_some_and(|other| !other.is_null()) {
                let text = format!("cannot be set together with .{other}");
                errors.push(Error::invalid(&Path::new(UNREAD), &Value::Bool(true), text));
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid(DeleteOptions::kind(), "", &errors));
        }
        let propagation = match (policy, orphan) {
            (Some(policy), _) => policy,
            (None, Some(true)) => "Orphan",
            (None, Some(false)) => "Background",
            (None, None) => "",
        };
        let grace = body["gracePeriodSeconds"].as_i64();
        Ok(DeleteOptions {
            // A negative time is the shortest there is.
            grace: grace.map(|grace| if grace < 0 { 1 } else { grace }),
            propagation: propagation.to_owned(),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run,
            unread,
        })
    }

    /// What the audit log shows of such an object: upstream's own, internal version.
    pub fn recorded(mut options: Value) -> Value {
        let api_version = "meta.k8s.io/__internal".into();
        TypeMeta { api_version, kind: "DeleteOptions".into() }.write_into(&mut options);
        options
    }

    /// As a `DeleteOptions` object says it.
    pub fn tree(&self) -> Value {
        let mut options = json!({});
        if let Some(grace) = self.grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        if !self.propagation.is_empty() {
            options["propagationPolicy"] = self.propagation.as_str().into();
        }
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if !value.is_empty() {
                options["preconditions"][field] = value.as_str().into();
            }
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}

/// Whether nothing is to come of it; what is none of the words for that is a fault.
pub fn dry_run(words: &[&str], faults: &mut ErrorList) -> bool {
    if words.iter().any(|word| *word != "All") {
        let path = Path::new("dryRun");
        faults.push(field::Error::not_supported(&path, BadValue::json(words), ["All"]));
    }
    !words.is_empty()
}

/// How the client wants to see what it is told, whatever that is.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Laid out for people, or not, if it is said.
    pub pretty: Option<bool>,
    /// What a table holds of each object; asked for only where there is a table.
    pub include: Result<IncludeObject, Status>,
}

impl Default for Shown {
    fn default() -> Self {
        Shown { pretty: None, include: Ok(IncludeObject::Metadata) }
    }
}
