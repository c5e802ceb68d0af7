//! What clients are told of a stored object that cannot be read, or that its converter does not convert.
//!
//! Upstream says the same thing in three ways, by who asks
//! (`apiserver/pkg/storage/etcd3/corrupt_obj_deleter.go`):
//!
//! ```text
//!  get, delete, a write that is only tried   InternalError     StorageError: …, Key: /pods/…
//!  a write                                   500, no reason    object not decodable revision=…
//!  list                                      StorageReadError  a cause for each, Key: /registry/pods/…
//! ```
use api::kinds::Resource;
use api::status::{Cause, Details, Reason, Status};
use std::fmt;
use store::{Key, KeyValue};

/// So many are told of in one answer.
pub const MOST: usize = 100;

/// One such object.
#[derive(Debug, Clone, PartialEq)]
pub struct Corrupt {
    key: Key,
    revision: u64,
    cause: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object not decodable revision={}: {}", self.revision, self.cause)
    }
}

impl Corrupt {
    pub fn new(stored: &KeyValue, cause: impl Into<String>) -> Corrupt {
        Corrupt { key: stored.key.clone(), revision: stored.mod_revision, cause: cause.into() }
    }

    /// What is said to whoever reads it alone. Where a read comes to, upstream has not yet put its prefix
    /// before the key.
    pub fn read(&self) -> Status {
        let key = self.key.to_string();
        Status::internal_error(self.at(key.strip_prefix("/registry").unwrap_or(&key)))
    }

    /// What is said to whoever writes it.
    pub fn written(&self) -> Status {
        Status { code: 500, message: self.to_string(), ..Status::default() }
    }

    /// What is said to whoever wants it in a list, of all that were found in it.
    pub fn listed(all: &[Corrupt], resource: &Resource) -> Status {
        let group_resource = resource.group_resource();
        let mut message = format!("failed to read one or more {group_resource} from the storage: ");
        if let Some(first) = all.first() {
            message += &first.at(&first.key.to_string());
        }
        if all.len() > 1 {
            message += &format!(" (and {} more)", all.len() - 1);
        }
        let cause = |corrupt: &Corrupt| {
            let key = corrupt.key.to_string();
            let reason = "UnexpectedServerResponse".to_owned();
            Cause { reason, message: corrupt.at(&key), field: key }
        };
        let mut causes: Vec<Cause> = all.iter().map(cause).collect();
        if causes.len() >= MOST {
            causes.push(Cause {
                reason: "FieldValueTooMany".into(),
                message: "too many errors, the list is truncated".into(),
                ..Cause::default()
            });
        }
        let details = Details {
            name: "list".into(),
            group: resource.group.into(),
            kind: resource.plural.into(),
            causes,
            ..Details::default()
        };
        let details = Some(Box::new(details));
        Status { code: 500, reason: Reason::StoreReadError, message, details, ..Status::default() }
    }

    fn at(&self, key: &str) -> String {
        format!(
            "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {self}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn corrupt(name: &str) -> Corrupt {
        let key = format!("/registry/configmaps/default/{name}");
        Corrupt { key: key.into(), revision: 7, cause: "no".into() }
    }

    const AT_A: &str = "Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision=7: no";

    #[test]
    fn who_asks_decides_what_is_said() {
        let read = corrupt("a").read();
        let words = "StorageError: corrupt object, Code: 7, Key: /configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision=7: no";
        assert_eq!(read.message, format!("Internal error occurred: {words}"));
        assert_eq!(json!(read)["details"], json!({ "causes": [{ "message": words }] }));
        let written = json!(corrupt("a").written());
        assert_eq!(written["message"], "object not decodable revision=7: no");
        assert_eq!((&written["code"], written.get("reason")), (&json!(500), None));
    }

    #[test]
    fn a_list_names_each() {
        let resource = api::kinds::find_kind("v1", "ConfigMap").expect("a kind");
        let status = Corrupt::listed(&[corrupt("a"), corrupt("b")], resource);
        let message = format!(
            "failed to read one or more configmaps from the storage: StorageError: corrupt object, Code: 7, {AT_A} (and 1 more)"
        );
        assert_eq!((status.code, status.message.as_str()), (500, message.as_str()));
        let details = status.details.expect("details");
        assert_eq!(
            (&*details.kind, &*details.name, details.causes.len()),
            ("configmaps", "list", 2)
        );
        assert_eq!(details.causes[1].field, "/registry/configmaps/default/b");
        let many = vec![corrupt("a"); MOST];
        let details = Corrupt::listed(&many, resource).details.expect("details");
        assert_eq!(details.causes[MOST].reason, "FieldValueTooMany");
    }
}
