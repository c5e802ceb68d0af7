//! What a kind needs of the server beyond its rules: one row each. All other code treats every kind alike,
//! so that a custom resource which bears the name of a built-in kind is nobody else's.
//!
//! A row is found by group and kind, and only for what is built in.
mod moments;

use api::kinds::Resource;
use api::rules::Part;
use serde_json::Value;

#[derive(Debug)]
pub struct Peculiar {
    group: &'static str,
    kind: &'static str,
    pub naming: Naming,
    pub kept: Kept,
    pub deletion: Deletion,
    /// It has addresses and ports that no other may have.
    pub has_addresses: bool,
    /// Rights on it may be given within it.
    pub holds_rights: bool,
    /// Its selector is a map of labels.
    pub selects_by_map: bool,
    /// What its time being over is told as, whatever is done with it.
    pub deprecated: Option<&'static str>,
    /// Times that only a clock knows, put where they are missing.
    pub fill: Option<fn(&mut Value, Clock<'_>)>,
    /// Times of what an update of a part changes, by the object before.
    pub note: Option<fn(&mut Value, &Value, Part<'_>, Clock<'_>)>,
    /// The object as it is read back, if that is not all of what was written.
    pub as_read: Option<fn(&mut Value)>,
    /// Fields that a write of a part cannot change, and so cannot come to own.
    pub unowned: fn(Part<'_>) -> Option<&'static [&'static [&'static str]]>,
    /// Where it asks for an administrator's access to devices: when a part of it is made or changed.
    pub admin_access: fn(Part<'_>, is_new: bool) -> Option<&'static str>,
}

/// The time of now, as an object has it.
pub type Clock<'a> = &'a dyn Fn() -> Value;

/// How an object gets a name that its client leaves to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// From what it shall begin with, if that is said.
    Generated,
    /// It needs none: something is made up.
    NotNeeded,
    /// Nothing can be made up: what it shall begin with is all.
    AsGiven,
}

/// For how long an object is kept, and how soon it must be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    UntilDeleted,
    ForAWhile,
    /// What is only renewed may be lost: it is renewed again.
    Renewed,
}

/// What goes before an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Its finalizers.
    Plain,
    /// Those of its specification, too, and it says that it is going.
    OfNamespace,
    /// Where it runs somebody has to stop it first.
    OfPod,
    /// All objects that it defines.
    OfDefinition,
}

impl Peculiar {
    const fn of_kind(group: &'static str, kind: &'static str) -> Peculiar {
        Peculiar {
            group,
            kind,
            naming: Naming::Generated,
            kept: Kept::UntilDeleted,
            deletion: Deletion::Plain,
            has_addresses: false,
            holds_rights: false,
            selects_by_map: false,
            deprecated: None,
            fill: None,
            note: None,
            as_read: None,
            unowned: |_| None,
            admin_access: |_, _| None,
        }
    }
}

static PLAIN: Peculiar = Peculiar::of_kind("", "");

static ROWS: &[Peculiar] = &[
    Peculiar {
        deprecated: Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        ..Peculiar::of_kind("", "Endpoints")
    },
    Peculiar { kept: Kept::ForAWhile, ..Peculiar::of_kind("", "Event") },
    Peculiar { kept: Kept::ForAWhile, ..Peculiar::of_kind("events.k8s.io", "Event") },
    Peculiar { kept: Kept::Renewed, ..Peculiar::of_kind("coordination.k8s.io", "Lease") },
    Peculiar { naming: Naming::NotNeeded, ..Peculiar::of_kind("", "LimitRange") },
    Peculiar { naming: Naming::AsGiven, ..Peculiar::of_kind("networking.k8s.io", "IPAddress") },
    Peculiar {
        deletion: Deletion::OfNamespace,
        holds_rights: true,
        ..Peculiar::of_kind("", "Namespace")
    },
    Peculiar {
        deletion: Deletion::OfDefinition,
        ..Peculiar::of_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    },
    Peculiar {
        deletion: Deletion::OfPod,
        unowned: |part| match part {
            Part::Sub("status") => Some(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ]),
            _ => None,
        },
        ..Peculiar::of_kind("", "Pod")
    },
    Peculiar {
        unowned: |part| match part {
            Part::Sub("status") => Some(&[&["spec"], &["metadata", "labels"]]),
            _ => None,
        },
        ..Peculiar::of_kind("apps", "Deployment")
    },
    Peculiar { selects_by_map: true, ..Peculiar::of_kind("", "ReplicationController") },
    Peculiar {
        has_addresses: true,
        // It was once set where it means nothing.
        as_read: Some(|service| {
            if service["spec"]["type"] == "ExternalName" {
                api::rules::prepare::put(&mut service["spec"], "internalTrafficPolicy", None);
            }
        }),
        ..Peculiar::of_kind("", "Service")
    },
    Peculiar { note: Some(moments::phase), ..Peculiar::of_kind("", "PersistentVolume") },
    Peculiar {
        note: Some(moments::conditions),
        unowned: |part| match part {
            Part::Main => Some(&[&["spec"], &["status"]]),
            Part::Sub("status") => Some(&[&["spec"], &["status", "conditions"]]),
            Part::Sub(_) => None,
        },
        ..Peculiar::of_kind("certificates.k8s.io", "CertificateSigningRequest")
    },
    Peculiar {
        fill: Some(moments::of_rule),
        note: Some(moments::another_taint),
        ..Peculiar::of_kind("resource.k8s.io", "DeviceTaintRule")
    },
    Peculiar {
        fill: Some(moments::of_slice),
        ..Peculiar::of_kind("resource.k8s.io", "ResourceSlice")
    },
    Peculiar {
        admin_access: |part, is_new| match (part, is_new) {
            (Part::Main, true) => Some("/spec/devices/requests"),
            (Part::Sub("status"), false) => Some("/status/allocation/devices/results"),
            _ => None,
        },
        ..Peculiar::of_kind("resource.k8s.io", "ResourceClaim")
    },
    Peculiar {
        admin_access: |part, is_new| match (part, is_new) {
            (Part::Main, true) => Some("/spec/spec/devices/requests"),
            _ => None,
        },
        ..Peculiar::of_kind("resource.k8s.io", "ResourceClaimTemplate")
    },
];

/// What is peculiar about a kind; nothing about most, and about none that a definition brought.
pub fn of(resource: &Resource) -> &'static Peculiar {
    let found = ROWS.iter().find(|row| resource.is(row.group, row.kind));
    found.unwrap_or(&PLAIN)
}

#[cfg(test)]
mod tests;
