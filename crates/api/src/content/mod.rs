//! Content negotiation: in which encoding a request came, and in which encoding and form its
//! answer is wanted.
//!
//! A client may ask for the object itself, for a [`Target`] such as a Table or its metadata
//! alone, and for a stream of events. Rules and preferences are those of upstream's
//! `apiserver/pkg/endpoints/handlers/negotiation`.

mod accept;
mod target;

pub use accept::{Accepted, Clause, negotiate, negotiate_stream, parse_accept};
pub use target::{ANSWERS, CUSTOM_RESOURCES, DISCOVERY, Endpoint, OBJECTS, PLAIN, Target};

use crate::status::Status;

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    /// All of them, the preferred one first.
    pub const ALL: &'static [Encoding] = &[Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

    pub const fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The media type of a watch, where the encoding has frames for one.
    pub const fn stream_media_type(self) -> Option<&'static str> {
        match self {
            Encoding::Json => Some("application/json;stream=watch"),
            Encoding::Yaml => None,
            Encoding::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }

    /// The encoding of a request's body. An absent header means the first of `supported`.
    pub fn of_request(content_type: &str, supported: &[Encoding]) -> Result<Encoding, Status> {
        let media_type = match content_type {
            "" => return supported.first().copied().ok_or_else(|| unsupported(supported)),
            header => media_type(header).ok_or_else(|| unsupported(supported))?,
        };
        let mut supported_types = supported.iter().copied();
        supported_types
            .find(|encoding| encoding.media_type().eq_ignore_ascii_case(media_type))
            .ok_or_else(|| unsupported(supported))
    }
}

fn unsupported(supported: &[Encoding]) -> Status {
    let media_types: Vec<_> = supported.iter().map(|encoding| encoding.media_type()).collect();
    Status::unsupported_media_type(&media_types)
}

/// The media type in a header, if its parameters are well formed.
fn media_type(header: &str) -> Option<&str> {
    let (media_type, parameters) = header.split_once(';').unwrap_or((header, ""));
    let well_formed = |parameter: &str| {
        let parameter = parameter.trim();
        parameter.is_empty()
            || parameter.split_once('=').is_some_and(|(name, value)| {
                !name.is_empty() && !name.contains(char::is_whitespace) && !value.is_empty()
            })
    };
    parameters.split(';').all(well_formed).then(|| media_type.trim())
}

/// The language of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchType {
    Json,
    Merge,
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    pub const ALL: &'static [PatchType] =
        &[PatchType::Json, PatchType::Merge, PatchType::StrategicMerge, PatchType::Apply];

    pub const fn media_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }

    /// The language of a request's body, out of those that `supported` lists: custom resources
    /// know no strategic merge.
    pub fn of_request(content_type: &str, supported: &[PatchType]) -> Result<PatchType, Status> {
        let media_type = match content_type.find(';') {
            None | Some(0) => content_type,
            Some(end) => &content_type[..end],
        };
        let found = supported.iter().copied().find(|patch| patch.media_type() == media_type);
        found.ok_or_else(|| {
            let accepted: Vec<_> = supported.iter().map(|patch| patch.media_type()).collect();
            Status::unsupported_media_type(&accepted)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_unless_it_says_otherwise() {
        for (header, want) in [
            ("", Some(Encoding::Json)),
            ("application/json", Some(Encoding::Json)),
            ("Application/JSON; charset=utf-8", Some(Encoding::Json)),
            ("application/yaml", Some(Encoding::Yaml)),
            ("application/vnd.kubernetes.protobuf;type=x", Some(Encoding::Protobuf)),
            ("text/plain", None),
            ("application/json; charset", None),
        ] {
            assert_eq!(Encoding::of_request(header, Encoding::ALL).ok(), want, "{header}");
        }
        let status = Encoding::of_request("text/plain", Encoding::ALL).unwrap_err();
        assert_eq!(
            (status.code, status.message.as_str()),
            (
                415,
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            )
        );
    }

    #[test]
    fn a_patch_must_name_its_language() {
        let of = |header| PatchType::of_request(header, PatchType::ALL).ok();
        assert_eq!(of("application/merge-patch+json; charset=utf-8"), Some(PatchType::Merge));
        assert_eq!(of("application/apply-patch+yaml"), Some(PatchType::Apply));
        assert_eq!(of("application/json"), None);
        assert_eq!(of(""), None);
    }
}
