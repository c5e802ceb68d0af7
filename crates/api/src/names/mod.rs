//! Names: what may be one, how the server makes one up, and the pair that identifies an object.
//!
//! A check such as [`dns1123_label`] returns the faults of a name in upstream's words
//! (`k8s.io/apimachinery/pkg/util/validation`), none if it is fine: validation puts each into an
//! error of its own. A good name costs no allocation.

mod dns;
pub mod ip;
mod keys;
mod shape;

use crate::object::Object;
use std::fmt;
use std::sync::Arc;

pub use dns::{
    CRON_JOB_NAME_MAX, DNS1123_LABEL_MAX, DNS1123_SUBDOMAIN_MAX, dns1035_label, dns1123_label,
    dns1123_subdomain, dns1123_subdomain_caseless, dns1123_subdomain_with_underscore,
    fully_qualified_domain_name, fully_qualified_name, name_is_dns_label, name_is_dns_subdomain,
    name_is_dns1035_label, wildcard_dns1123_subdomain,
};
pub use keys::{
    c_identifier, config_map_key, decimal_integer, domain_prefixed_key, domain_prefixed_path,
    env_var_name, group_id, http_header_name, label_value, path_segment_name, path_segment_prefix,
    percent, port_name, port_number, prefixed_label_key, qualified_name, relaxed_env_var_name,
    user_id,
};
pub use shape::{inclusive_range, max_length, regex_fault};

/// What is wrong with a name; empty if nothing is.
pub type Faults = Vec<String>;

/// An object's name and the namespace it is in, empty for one that is in none. Prints as
/// `default/web` or `node-1`, sorts by namespace first. Cheap to clone: queues and indexes hold
/// many.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl NamespacedName {
    pub fn new(namespace: &str, name: &str) -> Self {
        NamespacedName { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &Object) -> Self {
        NamespacedName::new(object.namespace(), object.name())
    }

    /// Reads `namespace/name` or `name`, as keys of work queues are written.
    pub fn parse(key: &str) -> Option<Self> {
        match key.split_once('/') {
            None => Some(NamespacedName::new("", key)),
            Some((_, name)) if name.contains('/') => None,
            Some((namespace, name)) => Some(NamespacedName::new(namespace, name)),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// `base` and five random characters, cut to 63: the name for a `generateName`.
pub fn generate_name(base: &str, random: u64) -> String {
    const ROOM: usize = 63 - SUFFIX_LENGTH;
    let mut name = String::with_capacity(base.len().min(ROOM) + SUFFIX_LENGTH);
    name.push_str(&base[..base.floor_char_boundary(ROOM)]);
    push_random(&mut name, SUFFIX_LENGTH, random);
    name
}

const SUFFIX_LENGTH: usize = 5;

/// Appends characters that spell no words: no vowels, nor digits that look like one. A `u64` has
/// room for thirteen of them.
pub fn push_random(name: &mut String, length: usize, mut random: u64) {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    for _ in 0..length {
        name.push(char::from(LETTERS[(random % 27) as usize]));
        random /= 27;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_and_differ() {
        assert_eq!(generate_name("web-", 0), "web-bbbbb");
        assert_eq!(generate_name("web-", 27 * 26), "web-b9bbb");
        let long = generate_name(&"x".repeat(100), u64::MAX);
        assert_eq!(long.len(), 63);
        assert!(generate_name(&"é".repeat(40), 1).len() <= 63);
    }

    #[test]
    fn a_key_names_an_object() {
        assert_eq!(NamespacedName::parse("a/b"), Some(NamespacedName::new("a", "b")));
        assert_eq!(NamespacedName::parse("b"), Some(NamespacedName::new("", "b")));
        assert_eq!(NamespacedName::parse("a/b/c"), None);
        assert_eq!(NamespacedName::new("default", "web").to_string(), "default/web");
        assert_eq!(NamespacedName::new("", "node-1").to_string(), "node-1");
    }
}
