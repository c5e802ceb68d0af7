//! One event, as `audit.k8s.io/v1` has it.
use crate::guard::authn::User;
use api::status::Status;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How much is recorded, from nothing on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub const ALL: [Level; 4] =
        [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// Fields in the order of the wire.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    kind: &'static str,
    api_version: &'static str,
    pub level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    pub user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Box<RawValue>>,
    pub request_received_timestamp: Micro,
    pub stage_timestamp: Micro,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct UserInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> UserInfo {
        UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// How it was found out who somebody is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationMetadata {
    /// The right by which he acts as somebody else, where that right is a constrained one.
    pub impersonation_constraint: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectReference {
    /// Whether the content of such objects is a secret: secrets, and requests that carry tokens.
    pub fn is_secret(&self) -> bool {
        matches!(
            (&*self.resource, &*self.subresource),
            ("secrets" | "tokenreviews", _) | ("serviceaccounts", "token")
        )
    }
}

/// A `Status` as it is shown here: without its own type, its metadata always there.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ResponseStatus {
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub status: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub reason: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
    pub code: i32,
}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> ResponseStatus {
        let mut tree = serde_json::json!(status);
        let mut take = |field: &str| match tree[field].take() {
            Value::String(text) if text.is_empty() => Value::Null,
            value => value,
        };
        ResponseStatus {
            metadata: BTreeMap::new(),
            status: take("status"),
            reason: take("reason"),
            details: take("details"),
            message: status.message.clone(),
            code: status.code,
        }
    }
}

impl ResponseStatus {
    /// Leaves out what may quote an object: why one was not read, not valid, or not converted. A
    /// refusal, a conflict, or something missing names an object and quotes none.
    pub fn forget_quotes(&mut self) {
        if !matches!(self.code, 400 | 415 | 422 | 500..) {
            return;
        }
        self.message = "not recorded, as it may quote a secret".into();
        let causes = self.details.get_mut("causes").and_then(Value::as_array_mut);
        for cause in causes.into_iter().flatten() {
            if let Some(cause) = cause.as_object_mut() {
                cause.remove("message");
            }
        }
    }
}

/// A time with microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Micro(pub Timestamp);

impl Serialize for Micro {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.6}", self.0))
    }
}

impl Event {
    pub fn new(level: Level, audit_id: String, received: Timestamp) -> Event {
        Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id,
            stage: Stage::RequestReceived,
            request_uri: String::new(),
            verb: String::new(),
            user: UserInfo::default(),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: Micro(received),
            stage_timestamp: Micro(received),
            annotations: BTreeMap::new(),
        }
    }

    pub fn json(&self) -> Vec<u8> {
        // A tree of strings: it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The older form: one line of text.
    pub fn legacy(&self) -> Vec<u8> {
        let or = |text: &str, other: &str| match text {
            "" => other.to_owned(),
            text => text.to_owned(),
        };
        let list = |groups: &[String]| {
            let quoted: Vec<String> = groups.iter().map(|group| format!("{group:?}")).collect();
            quoted.join(",")
        };
        let groups = match self.user.groups.is_empty() {
            true => "<none>".to_owned(),
            false => list(&self.user.groups),
        };
        let (as_user, as_groups) = match &self.impersonated_user {
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
            Some(user) if user.groups.is_empty() => (user.username.clone(), "<lookup>".to_owned()),
            Some(user) => (user.username.clone(), list(&user.groups)),
        };
        let namespace = self.object_ref.as_ref().map_or("", |object| &object.namespace);
        let response = self.response_status.as_ref().map(|status| status.code.to_string());
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "{} AUDIT: id={:?} stage=\"{:?}\" ip={:?} method={:?} user={:?} groups={groups:?} as={as_user:?} asgroups={as_groups:?} user-agent={:?} namespace={:?} uri={:?} response=\"{}\"",
            self.request_received_timestamp.0,
            self.audit_id,
            self.stage,
            self.source_ips.first().map_or("<unknown>", String::as_str),
            self.verb,
            or(&self.user.username, "<none>"),
            self.user_agent,
            or(namespace, "<none>"),
            self.request_uri,
            response.as_deref().unwrap_or("<deferred>"),
        );
        out.into_bytes()
    }
}
