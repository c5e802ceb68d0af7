//! Owner references: who controls an object, and with whom it goes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;

use crate::field::{BadValue, Error, ErrorList, Path};

/// The one owner that manages the object, if there is one.
pub fn controller_of(owners: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    owners?.iter().find(|owner| owner.controller == Some(true))
}

pub fn is_controlled_by(owners: Option<&[OwnerReference]>, uid: &str) -> bool {
    controller_of(owners).is_some_and(|owner| owner.uid == uid)
}

/// A reference that makes the owner the controller, and its deletion wait for this object.
pub fn controller_ref(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Checks `metadata.ownerReferences`: each complete, none to an Event, at most one controller.
pub fn validate(owners: &[OwnerReference], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut first: Option<&OwnerReference> = None;
    for (i, owner) in owners.iter().enumerate() {
        validate_one(owner, &path.index(i), &mut errors);
        if owner.controller != Some(true) {
            continue;
        }
        let Some(first) = first else {
            first = Some(owner);
            continue;
        };
        let detail = format!(
            "Only one reference can have Controller set to true. \
             Found \"true\" in references for {}/{} and {}/{}",
            first.kind, first.name, owner.kind, owner.name
        );
        let all: Vec<_> = owners.iter().map(Wire::from).collect();
        errors.push(Error::invalid(path, BadValue::json(&all), detail));
    }
    errors
}

fn validate_one(owner: &OwnerReference, path: &Path<'_>, errors: &mut ErrorList) {
    let version = match owner.api_version.split_once('/') {
        None => Some(owner.api_version.as_str()),
        Some((_, version)) => Some(version).filter(|version| !version.contains('/')),
    };
    if owner.api_version.is_empty() {
        errors.push(Error::required(&path.child("apiVersion"), "must not be empty"));
    } else if version.is_none_or(str::is_empty) {
        let detail = "must be <group>/<version> or <version>";
        let at = path.child("apiVersion");
        errors.push(Error::invalid(&at, &owner.api_version, detail));
    }
    for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
        if value.is_empty() {
            errors.push(Error::required(&path.child(field), "must not be empty"));
        }
    }
    if owner.api_version == "v1" && owner.kind == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(Error::invalid(path, BadValue::json(&Wire::from(owner)), detail));
    }
}

/// The reference in the field order in which upstream prints it inside a message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

impl<'a> From<&'a OwnerReference> for Wire<'a> {
    fn from(owner: &'a OwnerReference) -> Self {
        Wire {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            uid: &owner.uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(owners: &[OwnerReference], want: Expect) {
        let path = Path::new("metadata.ownerReferences");
        let errors = validate(owners, &path);
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        want.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_complete_reference_passes() {
        let owner = controller_ref("apps/v1", "ReplicaSet", "web", "1");
        check(std::slice::from_ref(&owner), expect![""]);
        assert!(is_controlled_by(Some(&[owner]), "1"));
        assert!(controller_of(None).is_none());
    }

    #[test]
    fn faults_are_named_as_upstream_names_them() {
        check(
            &[controller_ref("a/b/c", "", "", ""), controller_ref("v1", "Event", "e", "1")],
            expect![[r#"
                metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>
                metadata.ownerReferences[0].kind: Required value: must not be empty
                metadata.ownerReferences[0].name: Required value: must not be empty
                metadata.ownerReferences[0].uid: Required value: must not be empty
                metadata.ownerReferences[1]: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"1","controller":true,"blockOwnerDeletion":true}: /v1, Kind=Event is disallowed from being an owner
                metadata.ownerReferences: Invalid value: [{"apiVersion":"a/b/c","kind":"","name":"","uid":"","controller":true,"blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Event","name":"e","uid":"1","controller":true,"blockOwnerDeletion":true}]: Only one reference can have Controller set to true. Found "true" in references for / and Event/e"#]],
        );
    }
}
