//! The query and path parameters of operations, one row each.
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub place: &'static str,
    pub ty: &'static str,
    pub description: &'static str,
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "query", ty, description }
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "path", ty: "string", description }
}

pub(super) const NAME: Parameter = path("name", "The name of the object.");
pub(super) const NAMESPACE: Parameter = path("namespace", "The namespace the object is in.");
pub(super) const PROXY_PATH: Parameter = path("path", "The path to ask for behind the proxy.");
pub(super) const PRETTY: Parameter =
    query("pretty", "string", "Indent the output for people to read.");

pub(super) const DRY_RUN: Parameter =
    query("dryRun", "string", "Go through everything but store nothing. The only value is All.");
pub(super) const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "The name under which the fields of this change are owned, at most 128 printable characters. Required for apply.",
);
pub(super) const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What to do about unknown and duplicate fields: Ignore drops them, Warn drops them and sends a warning for each, Strict refuses the request.",
);
pub(super) const FORCE: Parameter =
    query("force", "boolean", "Take over fields that others own. Only for apply.");

/// Of list and watch.
pub(super) const LIST: &[Parameter] = &[
    query(
        "allowWatchBookmarks",
        "boolean",
        "Send BOOKMARK events in a watch, at times the server chooses.",
    ),
    query("continue", "string", "The token that the previous part of a list ended with."),
    query("fieldSelector", "string", "Only objects whose fields match."),
    query("labelSelector", "string", "Only objects whose labels match."),
    query(
        "limit",
        "integer",
        "At most so many objects; the list's metadata then says how to go on.",
    ),
    query("resourceVersion", "string", "How new the data must be; see resourceVersionMatch."),
    query("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    query(
        "sendInitialEvents",
        "boolean",
        "Begin a watch with the current objects, and a bookmark once all have been sent.",
    ),
    query("shardSelector", "string", "Only the objects of one shard of the collection."),
    query("timeoutSeconds", "integer", "End the call after so many seconds, whatever goes on."),
    query("watch", "boolean", "Go on with events about changes instead of ending with the list."),
];

/// Of delete.
pub(super) const DELETE: &[Parameter] = &[
    DRY_RUN,
    query("gracePeriodSeconds", "integer", "Seconds until the object is deleted; 0 is at once."),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete an object that can no longer be read from the store. Finalizers and preconditions are skipped.",
    ),
    query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    query(
        "propagationPolicy",
        "string",
        "What happens to dependents: Orphan keeps them, Background deletes them afterwards, Foreground deletes them first.",
    ),
];

/// Of a subresource's options kind: its fields are the query.
pub(super) const OPTIONS: &[(&str, &[Parameter])] = &[
    ("PodExecOptions", &[COMMAND, CONTAINER, STDERR, STDIN, STDOUT, TTY]),
    ("PodAttachOptions", &[CONTAINER, STDERR, STDIN, STDOUT, TTY]),
    (
        "PodPortForwardOptions",
        &[query("ports", "integer", "The ports to forward, for WebSocket clients.")],
    ),
    ("PodProxyOptions", &[PROXIED]),
    ("ServiceProxyOptions", &[PROXIED]),
    ("NodeProxyOptions", &[PROXIED]),
];

const COMMAND: Parameter =
    query("command", "string", "The command and its arguments; no shell is involved.");
const CONTAINER: Parameter =
    query("container", "string", "The container; needed if the pod has several.");
const STDERR: Parameter = query("stderr", "boolean", "Connect standard error.");
const STDIN: Parameter = query("stdin", "boolean", "Connect standard input.");
const STDOUT: Parameter = query("stdout", "boolean", "Connect standard output.");
const TTY: Parameter = query("tty", "boolean", "Allocate a terminal.");
const PROXIED: Parameter = query("path", "string", "The path to ask for behind the proxy.");

/// Of a pod's log.
pub(super) const LOG: &[Parameter] = &[
    CONTAINER,
    query("follow", "boolean", "Go on as the log grows."),
    query("insecureSkipTLSVerifyBackend", "boolean", "Do not verify the kubelet's certificate."),
    query("limitBytes", "integer", "End after about so many bytes."),
    PRETTY,
    query("previous", "boolean", "The log of the container's previous run."),
    query("sinceSeconds", "integer", "Only lines that are at most so old."),
    query("stream", "string", "All, Stdout or Stderr."),
    query("tailLines", "integer", "Begin so many lines before the end."),
    query("timestamps", "boolean", "Begin each line with its time."),
];

impl Parameter {
    pub fn v3(&self) -> Value {
        let mut value = json!({
            "description": self.description,
            "in": self.place,
            "name": self.name,
            "schema": { "type": self.ty, "uniqueItems": true },
        });
        self.require(&mut value);
        value
    }

    pub fn v2(&self) -> Value {
        let mut value = json!({
            "description": self.description,
            "in": self.place,
            "name": self.name,
            "type": self.ty,
            "uniqueItems": true,
        });
        self.require(&mut value);
        value
    }

    fn require(&self, value: &mut Value) {
        if self.place == "path" {
            value["required"] = true.into();
        }
    }
}
