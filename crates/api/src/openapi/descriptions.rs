//! What types and fields are for, in the words of the typed crate (see `build.rs`).
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError, Weak};

type Texts = HashMap<String, HashMap<String, String>>;

/// All descriptions, unpacked for the making of a document and dropped with it; those who make some
/// at a time share them.
#[derive(Clone)]
pub struct Descriptions(Arc<Texts>);

impl Descriptions {
    pub fn load() -> Self {
        static SHARED: Mutex<Weak<Texts>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = shared.upgrade().unwrap_or_else(|| Arc::new(Self::unpack()));
        *shared = Arc::downgrade(&texts);
        Descriptions(texts)
    }

    fn unpack() -> Texts {
        let packed = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.json.z"));
        let mut text = String::new();
        // The build wrote it; should it be broken all the same, the documents have no prose.
        let _ = flate2::read::ZlibDecoder::new(&packed[..]).read_to_string(&mut text);
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The description of a type, by its OpenAPI name.
    pub(super) fn of(&self, name: &str) -> Option<String> {
        let list = || {
            // The typed crate has one generic list.
            let kind = name.rsplit('.').next()?.strip_suffix("List")?;
            Some(format!("{kind}List is a list of {kind} objects."))
        };
        self.0.get(name).and_then(|texts| texts.get("").cloned()).or_else(list)
    }

    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<String> {
        let text = self.0.get(name).and_then(|texts| texts.get(field).cloned());
        text.or_else(|| {
            let common = match field {
                "apiVersion" => {
                    "The group and version that this representation of the object is in."
                }
                "kind" => "The kind of the object, in CamelCase.",
                "items" => "The objects of the list.",
                "metadata" => "Standard metadata of an object or a list.",
                _ => return None,
            };
            Some(common.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::RESOURCES;
    use crate::schema::builtin;

    #[test]
    fn every_kind_of_the_registry_is_described() {
        let descriptions = Descriptions::load();
        for resource in RESOURCES {
            let name = crate::openapi::schemas::openapi_name(builtin(), resource.ty()).unwrap();
            let texts = descriptions
                .0
                .get(&name)
                .unwrap_or_else(|| panic!("{name} is no root in build.rs"));
            assert!(texts.contains_key(""), "{name} has no description");
        }
    }
}
