//! Variables of a container, and the parts of a pod that they and volumes can name.
use super::super::Field;
use crate::names;

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// What has a name in a pod at all, in alphabetical order.
const KNOWN: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const HUGE_PAGES: [&str; 2] = ["requests.hugepages-", "limits.hugepages-"];

pub fn variables(variables: &Field<'_, '_>) {
    for variable in variables.items() {
        variable.at("name").named(names::relaxed_env_var_name);
        if variable.at("valueFrom").exists() {
            value_from(&variable.at("valueFrom"), !variable.at("value").is_empty());
        }
    }
}

fn value_from(from: &Field<'_, '_>, has_value: bool) {
    let mut sources = 0;
    let mut given = |field: &'static str| {
        let exists = from.at(field).exists();
        sources += usize::from(exists);
        exists
    };
    if given("fieldRef") {
        field_ref(&from.at("fieldRef"), FIELDS);
    }
    if given("resourceFieldRef") {
        resource_ref(&from.at("resourceFieldRef"), false);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if given(field) {
            let reference = from.at(field);
            reference
                .at("name")
                .faults(names::name_is_dns_subdomain(reference.at("name").text(), false));
            reference.at("key").named(names::config_map_key);
        }
    }
    if given("fileKeyRef") {
        let reference = from.at("fileKeyRef");
        reference.at("key").named(names::relaxed_env_var_name);
        reference.at("volumeName").named(names::dns1123_label);
        if reference.at("path").require() {
            reference.at("path").no_backsteps();
        }
    }
    let wrong = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    from.invalid_as("", wrong);
}

/// A field of the pod; of labels and annotations also a single one.
pub fn field_ref(reference: &Field<'_, '_>, supported: &[&str]) {
    if !reference.at("apiVersion").require() || !reference.at("fieldPath").require() {
        return;
    }
    let (version, path) = (reference.at("apiVersion").text(), reference.at("fieldPath"));
    let text = path.text();
    let subscripted = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    let subscripted = subscripted.filter(|(base, _)| !base.is_empty());
    let base = subscripted.map_or(text, |(base, _)| base);
    let fault = if version != "v1" {
        Some(format!("unsupported pod version: {version}"))
    } else if subscripted.is_some() && !matches!(base, "metadata.annotations" | "metadata.labels") {
        Some(format!("field label does not support subscript: {text}"))
    } else if !KNOWN.contains(&base) && text != "spec.host" {
        Some(format!("field label not supported: {text}"))
    } else {
        None
    };
    if let Some(fault) = fault {
        return path.invalid(format!("error converting fieldPath: {fault}"));
    }
    match subscripted {
        Some((base, key)) => {
            let key =
                if base == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            for fault in names::qualified_name(&key) {
                reference.invalid_as(key.as_str(), fault);
            }
        }
        None if !supported.contains(&text) => path.not_supported(supported),
        None => {}
    }
}

/// A field of the pod that a volume can show.
pub fn volume_field_ref(reference: &Field<'_, '_>) {
    field_ref(reference, VOLUME_FIELDS);
}

pub fn resource_ref(reference: &Field<'_, '_>, in_volume: bool) {
    let resource = reference.at("resource");
    let huge_pages = HUGE_PAGES.iter().any(|prefix| resource.text().starts_with(prefix));
    if in_volume && reference.at("containerName").is_empty() {
        reference.at("containerName").required("");
    } else if resource.require() && !RESOURCES.contains(&resource.text()) && !huge_pages {
        resource.not_supported(RESOURCES);
    }
    let divisor = reference.at("divisor");
    let Some(amount) = divisor.quantity().filter(|amount| !amount.is_zero()) else { return };
    let (divisors, words): (&[&str], _) = match resource.text() {
        "limits.cpu" | "requests.cpu" => {
            (&["1m", "1"], "1m and 1 are supported with the cpu resource")
        }
        "limits.memory" | "requests.memory" => (BYTE_DIVISORS, "the memory resource"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTE_DIVISORS, "the local ephemeral storage resource")
        }
        _ if huge_pages => (BYTE_DIVISORS, "the hugepages resource"),
        _ => return,
    };
    if !divisors.contains(&amount.to_string().as_str()) {
        let detail = match divisors.len() {
            2 => format!("only divisor's values {words}"),
            _ => format!(
                "only divisor's values {} are supported with {words}",
                BYTE_DIVISORS.join(", ")
            ),
        };
        divisor.invalid_as(resource.text(), detail);
    }
}

pub fn sources(sources: &Field<'_, '_>) {
    for source in sources.items() {
        source.at("prefix").named_if_given(names::relaxed_env_var_name);
        let given: Vec<_> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|field| source.at(field).exists())
            .collect();
        for field in &given {
            let name = source.at(field);
            let name = name.at("name");
            if name.require() {
                name.faults(names::name_is_dns_subdomain(name.text(), true));
            }
        }
        match given.len() {
            0 => sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => sources.invalid_as("", "may not have more than one field specified at a time"),
        }
    }
}
