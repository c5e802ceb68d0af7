//! `metadata.managedFields`: who manages an object, and what of it.
use super::fieldset::{self, Set};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::cmp::Ordering;

/// The managers of one object. `'t` is the tree it was decoded from: what does not change is
/// copied from there rather than written anew.
#[derive(Debug, Clone, Default)]
pub struct ManagedFields<'t> {
    pub(super) entries: Vec<Entry<'t>>,
}

#[derive(Debug, Clone)]
pub struct Entry<'t> {
    pub manager: Manager,
    pub time: Option<Timestamp>,
    /// Read when asked for: most writes touch the fields of one manager or two.
    fields: OnceCell<Set>,
    /// The entry as stored, while that is still what it says.
    source: Option<&'t Value>,
}

/// Who made a change, and how. Two appliers of one name are the same manager whatever version
/// they used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// The version the fields are named in.
    pub api_version: String,
    pub subresource: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    #[error("error decoding set: {0}")]
    Fields(#[from] fieldset::Error),
    #[error("managedFields is not a list of objects")]
    NotAList,
}

impl<'t> ManagedFields<'t> {
    /// Reads a list that may say anything; an absent one is empty.
    pub fn decode(list: Option<&Value>) -> Result<ManagedFields<'static>, Error> {
        let stored = ManagedFields::stored(list)?;
        let entries = stored.entries.into_iter().map(|entry| {
            let written = entry.source.and_then(|source| source.get("fieldsV1"));
            let fields = written.map_or(Ok(Set::new()), Set::from_value)?;
            Ok(Entry { fields: fields.into(), source: None, ..entry })
        });
        Ok(ManagedFields { entries: entries.collect::<Result<_, Error>>()? })
    }

    /// Reads a list out of an object that this server has stored; what its sets are is read when
    /// needed.
    pub fn stored(list: Option<&'t Value>) -> Result<ManagedFields<'t>, Error> {
        let items = match list {
            None | Some(Value::Null) => return Ok(ManagedFields::default()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(Error::NotAList),
        };
        let mut managed = ManagedFields { entries: Vec::with_capacity(items.len()) };
        for (i, item) in items.iter().enumerate() {
            let entry = Entry::decode(i, item)?;
            match managed.position(&entry.manager) {
                Some(at) => managed.entries[at] = entry,
                None => managed.entries.push(entry),
            }
        }
        Ok(managed)
    }

    /// Writes the list in upstream's order; none if there is no manager.
    pub fn encode(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.sort_by(|a, b| a.written_order(b));
        Some(self.entries.into_iter().map(Entry::encode).collect())
    }

    /// Writes the list in the order it has.
    pub(super) fn encode_in_place(self) -> Value {
        self.entries.into_iter().map(Entry::encode).collect()
    }

    pub fn entries(&self) -> &[Entry<'t>] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn position(&self, manager: &Manager) -> Option<usize> {
        self.entries.iter().position(|entry| entry.manager.is(manager))
    }

    /// Puts an entry in the place of the manager's old one.
    pub(super) fn set(&mut self, manager: &Manager, fields: Set, time: Option<Timestamp>) {
        let entry = Entry { manager: manager.clone(), time, fields: fields.into(), source: None };
        match self.position(manager) {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
    }

    /// Puts an entry back that was taken out.
    pub(super) fn restore(&mut self, entry: Entry<'t>) {
        match self.position(&entry.manager) {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
    }

    pub(super) fn remove(&mut self, manager: &Manager) -> Option<Entry<'t>> {
        self.position(manager).map(|at| self.entries.remove(at))
    }
}

/// The `metadata.managedFields` of an object.
pub fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Takes `metadata.managedFields` out of an object.
pub fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts `metadata.managedFields` into an object, or takes it out.
pub fn put(object: &mut Value, list: Option<Value>) {
    let Some(list) = list else {
        take(object);
        return;
    };
    if let Value::Object(object) = object {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
        if let Value::Object(metadata) = metadata {
            metadata.insert("managedFields".to_owned(), list);
        }
    }
}

/// Whether a client asks to forget all managers, by sending an empty list or one empty entry.
pub fn is_reset(list: Option<&Value>) -> bool {
    match list.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.values().all(|value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            _ => false,
        }),
        _ => false,
    }
}

impl<'t> Entry<'t> {
    fn decode(i: usize, item: &'t Value) -> Result<Entry<'t>, Error> {
        let map = item.as_object().ok_or(Error::NotAList)?;
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(Error::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(Error::NoApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(Error::NoFieldsType(i)),
            other => return Err(Error::FieldsType(i, other.to_owned())),
        }
        let manager = Manager {
            name: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
        };
        let time = text("time").parse().ok();
        Ok(Entry { manager, time, fields: OnceCell::new(), source: Some(item) })
    }

    fn encode(self) -> Value {
        if let Some(source) = self.source {
            return source.clone();
        }
        let mut map = Map::new();
        map.insert("fieldsV1".to_owned(), self.fields().to_value());
        let mut text = |key: &str, value: String| {
            if !value.is_empty() {
                map.insert(key.to_owned(), value.into());
            }
        };
        text("manager", self.manager.name);
        text("operation", self.manager.operation.as_str().to_owned());
        text("apiVersion", self.manager.api_version);
        text("subresource", self.manager.subresource);
        text("fieldsType", "FieldsV1".to_owned());
        text("time", self.time.map(written_time).unwrap_or_default());
        Value::Object(map)
    }

    pub fn fields(&self) -> &Set {
        self.fields.get_or_init(|| {
            let written = self.source.and_then(|source| source.get("fieldsV1"));
            written.and_then(|written| Set::from_value(written).ok()).unwrap_or_default()
        })
    }

    pub fn into_fields(self) -> Set {
        self.fields();
        self.fields.into_inner().unwrap_or_default()
    }

    /// Whether the set might have anything to do with that one. `false` is certain.
    pub(super) fn may_touch(&self, set: &Set) -> bool {
        match (self.fields.get(), self.source.and_then(|source| source.get("fieldsV1"))) {
            (None, Some(written)) => set.overlaps(written),
            _ => true,
        }
    }

    /// Changes the set; the entry is written anew only if that makes a difference.
    pub(super) fn set_fields(&mut self, fields: Set) {
        if self.source.is_some() && fields != *self.fields() {
            self.source = None;
        }
        self.fields = fields.into();
    }

    pub(super) fn become_applier(&mut self, name: &str) {
        self.fields();
        self.manager.name = name.to_owned();
        self.manager.operation = Operation::Apply;
        self.source = None;
    }

    pub(super) fn subtract(&mut self, other: &Set) {
        let before = self.fields().len();
        let fields = self.fields.take().unwrap_or_default().difference(other);
        if fields.len() != before {
            self.source = None;
        }
        self.fields = fields.into();
    }

    /// Whether both entries are written alike, times aside.
    pub(super) fn says_the_same(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager && self.fields() == other.fields()
    }

    pub fn is_applier(&self) -> bool {
        self.manager.operation == Operation::Apply
    }

    /// Appliers first, then by age.
    fn written_order(&self, other: &Entry<'_>) -> Ordering {
        let (a, b) = (&self.manager, &other.manager);
        (a.operation.cmp(&b.operation))
            .then(self.seconds().cmp(&other.seconds()))
            .then_with(|| a.name.cmp(&b.name))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    }

    pub(super) fn seconds(&self) -> i64 {
        self.time.map_or(0, Timestamp::as_second)
    }
}

impl Manager {
    pub(super) fn is(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Upstream's key of a manager, by which it sorts them.
    pub(super) fn identifier(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |key: &str, value: &str| {
            if !value.is_empty() {
                parts.push(format!("\"{key}\":{}", json!(value)));
            }
        };
        part("manager", &self.name);
        part("operation", self.operation.as_str());
        if self.operation == Operation::Update {
            part("apiVersion", &self.api_version);
        }
        part("subresource", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

fn written_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
