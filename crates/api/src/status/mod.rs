//! `metav1.Status`: how the API says that something failed, or that a deletion was done.
//!
//! A [`Status`] is both the error type at the API's edge and the object sent to the client. The
//! constructors in `errors` give upstream's reasons, codes and texts, because clients match on
//! all three (`k8s.io/apimachinery/pkg/api/errors`).

mod errors;
mod reason;
#[cfg(test)]
mod tests;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use errors::{OPTIMISTIC_LOCK, ServerResponse};
pub use reason::Reason;

/// The outcome of a request that has no better object to return.
///
/// It is small (details are boxed), so that `Result<T, Status>` costs little on the good path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Only a list that expired half-way fills this: with a token to go on from.
    #[serde(deserialize_with = "empty_is_none")]
    pub metadata: Option<Box<ListMeta>>,
    #[serde(deserialize_with = "null_is_default")]
    pub status: Outcome,
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
    #[serde(deserialize_with = "null_is_default")]
    pub reason: Reason,
    #[serde(deserialize_with = "null_is_default")]
    pub details: Option<Box<Details>>,
    #[serde(deserialize_with = "null_is_default")]
    pub code: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    #[serde(rename = "")]
    Unset,
    Success,
    #[default]
    Failure,
}

/// What the status is about. `kind` holds a resource (`pods`) in most failures and a kind (`Pod`)
/// in `Invalid` ones, as upstream has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "null_is_default")]
    pub retry_after_seconds: i32,
}

/// One reason among several: for `Invalid`, one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub field: String,
}

impl Status {
    /// The answer to a deletion whose object is gone at once.
    pub fn success(details: Details) -> Self {
        Status {
            status: Outcome::Success,
            code: 0,
            details: Some(Box::new(details)),
            ..Status::default()
        }
    }

    /// True if this status is for `reason`, or has no reason we know and the matching code, as
    /// when a proxy answered in the server's place.
    pub fn is(&self, reason: Reason) -> bool {
        self.reason == reason
            || (!self.reason.is_known() && reason.code() == Some(self.code))
            // Both checks of the code predate the others in upstream and stayed broader.
            || (matches!(reason, Reason::TooManyRequests | Reason::RequestEntityTooLarge)
                && reason.code() == Some(self.code))
    }

    pub fn is_not_found(&self) -> bool {
        self.is(Reason::NotFound)
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason == Reason::AlreadyExists
    }

    pub fn is_conflict(&self) -> bool {
        self.is(Reason::Conflict)
    }

    /// The resource version or continue token is too old: list afresh.
    pub fn is_expired(&self) -> bool {
        self.reason == Reason::Expired || self.is(Reason::Gone)
    }

    pub fn cause(&self, reason: &str) -> Option<&Cause> {
        self.details.as_ref()?.causes.iter().find(|cause| cause.reason == reason)
    }

    /// The seconds the server asks the client to wait, if it does.
    pub fn suggests_client_delay(&self) -> Option<i32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (self.reason == Reason::ServerTimeout || seconds > 0).then_some(seconds)
    }

    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details_mut().causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    pub fn with_retry_after(mut self, seconds: i32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            kind: "Status",
            api_version: "v1",
            metadata: self.metadata.as_deref().unwrap_or(&NO_METADATA),
            status: self.status,
            message: &self.message,
            reason: &self.reason,
            details: self.details.as_deref(),
            code: self.code,
        }
        .serialize(serializer)
    }
}

static NO_METADATA: ListMeta = ListMeta {
    continue_: None,
    remaining_item_count: None,
    resource_version: None,
    self_link: None,
    shard_info: None,
};

/// The fields in the order in which upstream writes them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: &'a ListMeta,
    #[serde(skip_serializing_if = "Outcome::is_unset")]
    status: Outcome,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Reason::is_empty")]
    reason: &'a Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    #[serde(skip_serializing_if = "is_zero")]
    code: i32,
}

impl Outcome {
    fn is_unset(&self) -> bool {
        *self == Outcome::Unset
    }
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

fn empty_is_none<'de, D: Deserializer<'de>>(de: D) -> Result<Option<Box<ListMeta>>, D::Error> {
    let metadata = Option::<Box<ListMeta>>::deserialize(de)?;
    Ok(metadata.filter(|metadata| **metadata != NO_METADATA))
}

/// Go reads JSON's null as the zero value of any type.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
