//! The metadata that machinery needs of every object, read from the bytes without the rest.
use crate::codec::DecodeError;
use crate::selector::label::Labels;
use crate::{owner, time};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Empty in what is stored.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: Box<str>,
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    #[serde(deserialize_with = "moment")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "moment")]
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub labels: Pairs,
    #[serde(deserialize_with = "or_default")]
    pub annotations: Pairs,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Box<[OwnerReference]>,
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Box<[Box<str>]>,
}

/// Labels or annotations: few, so a sorted list is smaller than a map and as quick.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl Metadata {
    /// Reads an object's bytes up to the end of its metadata.
    pub(super) fn read(bytes: &[u8]) -> Result<Metadata, DecodeError> {
        let mut found = None;
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let read = reader.deserialize_map(Head(&mut found));
        // To stop half-way is an error to the reader; what was found before is what is wanted.
        match (found, read) {
            (Some(metadata), _) => Ok(metadata),
            (None, Err(error)) => Err(DecodeError::Syntax(error.to_string())),
            (None, Ok(())) => Err(DecodeError::Type("the object has no metadata".to_owned())),
        }
    }

    /// The one owner that manages the object.
    pub fn controller(&self) -> Option<&OwnerReference> {
        owner::controller_of(Some(&self.owner_references))
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| **finalizer == *name)
    }
}

impl Pairs {
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Labels for Pairs {
    fn get(&self, key: &str) -> Option<&str> {
        Pairs::get(self, key)
    }
}

/// An object, of which only the metadata is looked for.
struct Head<'a>(&'a mut Option<Metadata>);

impl<'de> Visitor<'de> for Head<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(key) = access.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "metadata" {
                *self.0 = Some(access.next_value::<Mapped>()?.0);
                return Ok(());
            }
            access.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Metadata that is a map: what derives its reading would take a list of fields as well.
struct Mapped(Metadata);

impl<'de> Deserialize<'de> for Mapped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Mapped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Mapped, A::Error> {
                Metadata::deserialize(MapAccessDeserializer::new(access)).map(Mapped)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::with_capacity(access.size_hint().unwrap_or(0));
                while let Some(pair) = access.next_entry::<Box<str>, Box<str>>()? {
                    pairs.push(pair);
                }
                pairs.sort_unstable();
                Ok(Pairs(pairs.into()))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Go reads JSON's null as the zero value of any type.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let (secs, nanos) = time::parse(&text).map_err(|error| D::Error::custom(error.to_string()))?;
    Ok(time::timestamp(secs, nanos))
}
