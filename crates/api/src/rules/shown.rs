//! Structs as upstream's messages show them: by the names that Go gives their fields, in Go's order,
//! with nothing left out. Only structs that a client meets often have a table here; the others are
//! shown as JSON.
use crate::field::BadValue;
use crate::quote::go_json;
use serde_json::Value;

/// Go's name, JSON's name, what stands for absence, and what is inside.
pub type Rows = &'static [(&'static str, &'static str, &'static str, Inside)];

#[derive(Clone, Copy)]
pub enum Inside {
    Plain,
    Struct(Rows),
    List(Rows),
}

use Inside::{List, Plain, Struct};

pub const FAILURE_POLICY: Rows = &[("Rules", "rules", "null", List(FAILURE_RULE))];
const FAILURE_RULE: Rows = &[
    ("Action", "action", "\"\"", Plain),
    ("OnExitCodes", "onExitCodes", "null", Struct(EXIT_CODES)),
    ("OnPodConditions", "onPodConditions", "null", List(POD_CONDITION)),
];
const EXIT_CODES: Rows = &[
    ("ContainerName", "containerName", "null", Plain),
    ("Operator", "operator", "\"\"", Plain),
    ("Values", "values", "null", Plain),
];
const POD_CONDITION: Rows = &[("Type", "type", "\"\"", Plain), ("Status", "status", "\"\"", Plain)];
pub const SUCCESS_POLICY: Rows = &[("Rules", "rules", "null", List(SUCCESS_RULE))];
const SUCCESS_RULE: Rows = &[
    ("SucceededIndexes", "succeededIndexes", "null", Plain),
    ("SucceededCount", "succeededCount", "null", Plain),
];
pub const VOLUME_AFFINITY: Rows = &[("Required", "required", "null", Struct(NODE_SELECTOR))];
const NODE_SELECTOR: Rows = &[("NodeSelectorTerms", "nodeSelectorTerms", "null", List(TERM))];
const TERM: Rows = &[
    ("MatchExpressions", "matchExpressions", "null", List(REQUIREMENT)),
    ("MatchFields", "matchFields", "null", List(REQUIREMENT)),
];
const REQUIREMENT: Rows = &[
    ("Key", "key", "\"\"", Plain),
    ("Operator", "operator", "\"\"", Plain),
    ("Values", "values", "null", Plain),
];
pub const REFERENCE: Rows = &[
    ("Kind", "kind", "\"\"", Plain),
    ("Namespace", "namespace", "\"\"", Plain),
    ("Name", "name", "\"\"", Plain),
    ("UID", "uid", "\"\"", Plain),
    ("APIVersion", "apiVersion", "\"\"", Plain),
    ("ResourceVersion", "resourceVersion", "\"\"", Plain),
    ("FieldPath", "fieldPath", "\"\"", Plain),
];
pub const EVENT_SOURCE: Rows =
    &[("Component", "component", "\"\"", Plain), ("Host", "host", "\"\"", Plain)];
const CLAIM_TEMPLATE_SPEC: Rows = &[("Spec", "spec", "{}", Struct(CLAIM_SPEC))];
const CLAIM_SPEC: Rows = &[("Devices", "devices", "{}", Struct(DEVICE_CLAIM))];
const DEVICE_CLAIM: Rows = &[
    ("Requests", "requests", "null", List(DEVICE_REQUEST)),
    ("Constraints", "constraints", "null", List(CONSTRAINT)),
    ("Config", "config", "null", List(CONFIGURATION)),
];
const DEVICE_REQUEST: Rows = &[
    ("Name", "name", "\"\"", Plain),
    ("Exactly", "exactly", "null", Struct(EXACT)),
    ("FirstAvailable", "firstAvailable", "null", List(SUBREQUEST)),
];
const EXACT: Rows = &[
    ("DeviceClassName", "deviceClassName", "\"\"", Plain),
    ("Selectors", "selectors", "null", List(SELECTOR)),
    ("AllocationMode", "allocationMode", "\"\"", Plain),
    ("Count", "count", "0", Plain),
    ("AdminAccess", "adminAccess", "null", Plain),
    ("Tolerations", "tolerations", "null", List(TOLERATION)),
    ("Capacity", "capacity", "null", Struct(CAPACITY)),
    ("DerivedAttributes", "derivedAttributes", "null", Plain),
];
const SUBREQUEST: Rows = &[
    ("Name", "name", "\"\"", Plain),
    ("DeviceClassName", "deviceClassName", "\"\"", Plain),
    ("Selectors", "selectors", "null", List(SELECTOR)),
    ("AllocationMode", "allocationMode", "\"\"", Plain),
    ("Count", "count", "0", Plain),
    ("Tolerations", "tolerations", "null", List(TOLERATION)),
    ("Capacity", "capacity", "null", Struct(CAPACITY)),
    ("DerivedAttributes", "derivedAttributes", "null", Plain),
];
const SELECTOR: Rows = &[("CEL", "cel", "null", Struct(CEL))];
const CEL: Rows = &[("Expression", "expression", "\"\"", Plain)];
const CAPACITY: Rows = &[("Requests", "requests", "null", Plain)];
const TOLERATION: Rows = &[
    ("Key", "key", "\"\"", Plain),
    ("Operator", "operator", "\"\"", Plain),
    ("Value", "value", "\"\"", Plain),
    ("Effect", "effect", "\"\"", Plain),
    ("TolerationSeconds", "tolerationSeconds", "null", Plain),
];
const CONSTRAINT: Rows = &[
    ("Requests", "requests", "null", Plain),
    ("MatchAttribute", "matchAttribute", "null", Plain),
    ("DistinctAttribute", "distinctAttribute", "null", Plain),
];
const CONFIGURATION: Rows =
    &[("Requests", "requests", "null", Plain), ("Opaque", "opaque", "null", Struct(OPAQUE))];
const OPAQUE: Rows =
    &[("Driver", "driver", "\"\"", Plain), ("Parameters", "parameters", "null", Plain)];

pub const DEPLOYMENT_STRATEGY: Rows = &[
    ("Type", "type", "\"\"", Plain),
    ("RollingUpdate", "rollingUpdate", "null", Struct(ROLLING_UPDATE)),
];
const ROLLING_UPDATE: Rows =
    &[("MaxUnavailable", "maxUnavailable", "0", Plain), ("MaxSurge", "maxSurge", "0", Plain)];
pub const SET_STRATEGY: Rows = &[
    ("Type", "type", "\"\"", Plain),
    ("RollingUpdate", "rollingUpdate", "null", Struct(SET_UPDATE)),
];
const SET_UPDATE: Rows =
    &[("Partition", "partition", "0", Plain), ("MaxUnavailable", "maxUnavailable", "null", Plain)];

pub const SECURITY_CONTEXT: Rows = &[
    ("Capabilities", "capabilities", "null", Struct(CAPABILITIES)),
    ("Privileged", "privileged", "null", Plain),
    ("SELinuxOptions", "seLinuxOptions", "null", Struct(SE_LINUX)),
    ("WindowsOptions", "windowsOptions", "null", Struct(WINDOWS)),
    ("RunAsUser", "runAsUser", "null", Plain),
    ("RunAsGroup", "runAsGroup", "null", Plain),
    ("RunAsNonRoot", "runAsNonRoot", "null", Plain),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", "null", Plain),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", "null", Plain),
    ("ProcMount", "procMount", "null", Plain),
    ("SeccompProfile", "seccompProfile", "null", Struct(PROFILE)),
    ("AppArmorProfile", "appArmorProfile", "null", Struct(PROFILE)),
];
const CAPABILITIES: Rows = &[("Add", "add", "null", Plain), ("Drop", "drop", "null", Plain)];
const SE_LINUX: Rows = &[
    ("User", "user", "\"\"", Plain),
    ("Role", "role", "\"\"", Plain),
    ("Type", "type", "\"\"", Plain),
    ("Level", "level", "\"\"", Plain),
];
const WINDOWS: Rows = &[
    ("GMSACredentialSpecName", "gmsaCredentialSpecName", "null", Plain),
    ("GMSACredentialSpec", "gmsaCredentialSpec", "null", Plain),
    ("RunAsUserName", "runAsUserName", "null", Plain),
    ("HostProcess", "hostProcess", "null", Plain),
];
const PROFILE: Rows =
    &[("Type", "type", "\"\"", Plain), ("LocalhostProfile", "localhostProfile", "null", Plain)];

pub const SCOPE_SELECTOR: Rows =
    &[("MatchExpressions", "matchExpressions", "null", List(SCOPE_REQUIREMENT))];
const SCOPE_REQUIREMENT: Rows = &[
    ("ScopeName", "scopeName", "\"\"", Plain),
    ("Operator", "operator", "\"\"", Plain),
    ("Values", "values", "null", Plain),
];

/// A struct, or Go's nil where a pointer to one leads nowhere.
pub fn pointer(value: &Value, rows: Rows) -> BadValue {
    match value {
        Value::Null => BadValue::null(),
        value => BadValue::verbatim(row(value, rows)),
    }
}

pub fn structure(value: &Value, rows: Rows) -> BadValue {
    BadValue::verbatim(row(value, rows))
}

/// Its metadata has no name of its own in Go: what is inside comes first.
pub fn claim_template_spec(spec: &Value) -> BadValue {
    let metadata = super::metadata::shown(&spec["metadata"]);
    let opened = metadata.text().and_then(|text| text.strip_suffix('}')).unwrap_or("{");
    let comma = if opened == "{" { "" } else { "," };
    let rest = row(spec, CLAIM_TEMPLATE_SPEC);
    BadValue::verbatim(format!("{opened}{comma}{}", &rest[1..]))
}

fn row(value: &Value, rows: Rows) -> String {
    let part = |(go, json, zero, inside): &(&str, &str, &str, Inside)| {
        let shown = match (value.get(json), inside) {
            (Some(value @ Value::Object(_)), Struct(rows)) => row(value, rows),
            (None, Struct(rows)) if *zero == "{}" => row(&Value::Null, rows),
            (Some(Value::Array(items)), List(rows)) => {
                let items: Vec<String> = items.iter().map(|item| row(item, rows)).collect();
                format!("[{}]", items.join(","))
            }
            (Some(value), _) => go_json(value).unwrap_or_default(),
            (None, _) => (*zero).to_owned(),
        };
        format!("\"{go}\":{shown}")
    };
    format!("{{{}}}", rows.iter().map(part).collect::<Vec<_>>().join(","))
}
