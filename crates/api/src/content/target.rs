//! What an endpoint can turn its objects into.

use super::Encoding;

/// A kind that a client may ask for in place of the endpoint's own: one row each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub encodings: &'static [Encoding],
}

/// What an endpoint can answer with.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// For its own objects.
    pub encodings: &'static [Encoding],
    pub targets: &'static [Target],
}

/// Built-in resources.
pub const OBJECTS: Endpoint = Endpoint { encodings: Encoding::ALL, targets: METADATA };

/// What has no table: what a subresource answers with, and questions that are not stored.
pub const ANSWERS: Endpoint = Endpoint { encodings: Encoding::ALL, targets: WITHOUT_TABLES };

/// Custom resources, which have no protobuf form; their metadata has.
pub const CUSTOM_RESOURCES: Endpoint =
    Endpoint { encodings: &[Encoding::Json, Encoding::Yaml], targets: METADATA };

/// `/api` and `/apis`.
pub const DISCOVERY: Endpoint = Endpoint { encodings: Encoding::ALL, targets: AGGREGATED };

/// Everything that answers with one kind only.
pub const PLAIN: Endpoint = Endpoint { encodings: Encoding::ALL, targets: &[] };

const META: &str = "meta.k8s.io";
const TEXT: &[Encoding] = &[Encoding::Json, Encoding::Yaml];

const METADATA: &[Target] = &[
    row(META, "v1", "Table", TEXT),
    row(META, "v1", "PartialObjectMetadata", Encoding::ALL),
    row(META, "v1", "PartialObjectMetadataList", Encoding::ALL),
    row(META, "v1beta1", "Table", TEXT),
    row(META, "v1beta1", "PartialObjectMetadata", Encoding::ALL),
    row(META, "v1beta1", "PartialObjectMetadataList", Encoding::ALL),
];

const WITHOUT_TABLES: &[Target] = &[
    row(META, "v1", "PartialObjectMetadata", Encoding::ALL),
    row(META, "v1beta1", "PartialObjectMetadata", Encoding::ALL),
];

const AGGREGATED: &[Target] =
    &[row("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList", Encoding::ALL)];

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    encodings: &'static [Encoding],
) -> Target {
    Target { group, version, kind, encodings }
}
