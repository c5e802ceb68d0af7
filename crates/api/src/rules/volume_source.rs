//! Where the data of a volume is: the sources that pods and persistent volumes share.
use super::Field;
use crate::field::Error;
use crate::names;

/// A source: its field, what must be given in it, and what else holds.
pub struct Source {
    pub field: &'static str,
    /// The name under which a second source is refused, where upstream's differs.
    pub refused_as: &'static str,
    /// The path under which its faults are reported, where upstream's differs.
    pub path: &'static str,
    pub required: &'static [&'static str],
    pub check: fn(&Field<'_, '_>),
    /// What it asks of the volume around it.
    pub around: fn(&Field<'_, '_>),
    /// It is looked at even if it is not the first.
    pub beside_others: bool,
}

pub const fn source(field: &'static str, required: &'static [&'static str]) -> Source {
    Source {
        field,
        refused_as: field,
        path: field,
        required,
        check: |_| (),
        around: |_| (),
        beside_others: false,
    }
}

impl Source {
    pub const fn with(self, check: fn(&Field<'_, '_>)) -> Source {
        Source { check, ..self }
    }

    pub const fn with_volume(self, around: fn(&Field<'_, '_>)) -> Source {
        Source { around, ..self }
    }

    pub const fn beside_others(self) -> Source {
        Source { beside_others: true, ..self }
    }

    pub const fn refused_as(self, refused_as: &'static str) -> Source {
        Source { refused_as, ..self }
    }

    pub const fn reported_as(self, path: &'static str) -> Source {
        Source { path, ..self }
    }
}

/// Exactly one source; the first counts, the others are refused.
pub fn exactly_one(volume: &Field<'_, '_>, sources: &[Source]) {
    let mut none = true;
    for source in sources.iter().filter(|source| volume.at(source.field).exists()) {
        if !none && !source.beside_others {
            let refused = volume.spelled(source.refused_as);
            refused.forbidden("may not specify more than 1 volume type");
            continue;
        }
        none = false;
        let chosen = volume.at(source.field).on_path(volume.path().child(source.path));
        for field in source.required {
            if chosen.at(field).is_empty() {
                chosen.at(field).required("");
            }
        }
        (source.check)(&chosen);
        (source.around)(volume);
    }
    if none {
        volume.required("must specify a volume type");
    }
}

pub fn host_path(source: &Field<'_, '_>) {
    if source.at("path").is_empty() {
        return;
    }
    source.at("path").no_backsteps();
    source.at("type").one_of_if_given(&[
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ]);
}

pub fn partition(source: &Field<'_, '_>) {
    let partition = source.at("partition");
    if !(0..=255).contains(&partition.int()) {
        partition.invalid(crate::names::inclusive_range(1, 255));
    }
}

pub fn nfs(source: &Field<'_, '_>) {
    if !source.at("path").text().starts_with('/') {
        source.at("path").invalid("must be an absolute path");
    }
}

/// `strict` words: pods tell more about what is wrong than persistent volumes do.
pub fn iscsi(source: &Field<'_, '_>, prefix_detail: &'static str) {
    let check = |field: &Field<'_, '_>| {
        let text = field.text();
        let known = ["iqn", "eui", "naa"].iter().any(|prefix| text.starts_with(prefix));
        if !known {
            field.invalid(prefix_detail);
        } else if !is_initiator(text) {
            field.invalid("must be valid format");
        }
    };
    if source.at("iqn").require() {
        check(&source.at("iqn"));
    }
    let lun = source.at("lun");
    lun.between(0, 255);
    if (source.at("chapAuthDiscovery").flag() || source.at("chapAuthSession").flag())
        && !source.at("secretRef").exists()
    {
        source.at("secretRef").required("");
    }
    let initiator = source.at("initiatorName");
    if initiator.exists() {
        check(&initiator.on_path(source.path().child("initiatorname")));
    }
}

/// `iqn.2001-04.com.example:storage`, `eui.` and 16, or `naa.` and 32 letters and digits.
fn is_initiator(text: &str) -> bool {
    let alnum = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if let Some(rest) = text.strip_prefix("eui") {
        return rest.len() == 17 && alnum(&rest[1..], 16);
    }
    if let Some(rest) = text.strip_prefix("naa") {
        return rest.len() == 33 && alnum(&rest[1..], 32);
    }
    let Some((date, rest)) = text.strip_prefix("iqn.").and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let digits =
        |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let dated =
        date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let named = rest.split_once(':').is_some_and(|(authority, name)| {
        let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let odd = |c: char| ",;*&$|".contains(c) || c.is_whitespace();
        !authority.is_empty()
            && authority.bytes().all(sound)
            && !name.is_empty()
            && !name.contains(odd)
    });
    dated && named
}

pub fn fc(source: &Field<'_, '_>) {
    let (names, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    if names.is_empty() && ids.is_empty() {
        names.required("must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        names.invalid("targetWWNs and wwids can not be specified simultaneously");
    }
    if !names.is_empty() {
        if lun.exists() {
            lun.between(0, 255);
        } else {
            lun.required("lun is required if targetWWNs is specified");
        }
    }
}

pub fn quobyte(source: &Field<'_, '_>) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.at("registry");
    if registry.is_empty() {
        registry.required(PAIRS);
    } else if source.at("tenant").text().len() >= 65 {
        source.at("tenant").required("must be a UUID and may not exceed a length of 64 characters");
    } else {
        let pair = |pair: &str| {
            pair.rsplit_once(':')
                .is_some_and(|(host, _)| !host.contains(':') || host.starts_with('['))
        };
        for _ in registry.text().split(',').filter(|text| !pair(text)) {
            registry.invalid(PAIRS);
        }
    }
    source.at("volume").require();
}

pub fn flocker(source: &Field<'_, '_>) {
    let (name, uuid) = (source.at("datasetName"), source.at("datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => source.required("one of datasetName and datasetUUID is required"),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            source.invalid_as("resource", detail);
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'");
    }
}

pub fn flex(source: &Field<'_, '_>) {
    let options = source.at("options");
    for (key, entry) in options.entries() {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            entry.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub fn azure_disk(source: &Field<'_, '_>) {
    let (kind, uri) = (source.at("kind"), source.at("diskURI"));
    source.at("cachingMode").one_of_if_given(&["None", "ReadOnly", "ReadWrite"]);
    kind.one_of_if_given(&["Dedicated", "Managed", "Shared"]);
    let managed = kind.text() == "Managed";
    let supported = if managed {
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
    } else {
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    };
    let prefix = if managed { "/subscriptions/" } else { "https://" };
    if kind.exists() && !uri.text().starts_with(prefix) {
        uri.not_supported(&[supported]);
    }
}

/// A reference to a secret, if given, names one.
pub fn secret_name(source: &Field<'_, '_>) {
    if source.at("secretRef").exists() {
        source.at("secretRef.name").require();
    }
}

pub fn storage_os(source: &Field<'_, '_>) {
    source.at("volumeName").named_if_given(names::dns1123_label);
    source.at("volumeNamespace").named_if_given(names::dns1123_label);
    secret_name(source);
}

/// The name of a CSI driver.
pub fn csi_driver_name(field: &Field<'_, '_>) {
    if !field.require() {
        return;
    }
    if field.text().len() > 63 {
        field.push(Error::too_long(field.path(), 63));
    }
    field.faults(names::dns1123_subdomain(&field.text().to_lowercase()));
}

/// The name of a driver where messages say that case does not matter.
pub fn driver_name(field: &Field<'_, '_>) {
    if !field.require() {
        return;
    }
    let too_long = field.text().len() > 63;
    if too_long && !field.is_declared() {
        field.too_long(63);
    }
    field.faults(names::dns1123_subdomain_caseless(field.text()));
    if too_long && field.is_declared() {
        field.push(Error::too_long_characters(field.path(), 63));
    }
}
