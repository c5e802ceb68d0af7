//! Hashes that objects are named and labelled by, byte for byte upstream's: a ReplicaSet made by one
//! controller manager is found by the other.
mod spew;

use crate::quote::go_json;
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// Letters and digits without vowels and what looks like one: no hash spells a word.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const START: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// `pod-template-hash`, and the `controller-revision-hash` of DaemonSets: of the template, and of how often
/// another template had the same (`ComputeHash` in pkg/controller/controller_utils.go).
pub fn of_template(template: &Value, collisions: Option<i32>) -> String {
    let mut hash = Fnv1a(START);
    // A hash takes everything that is written into it.
    let _ = spew::pod_template(template, &mut hash);
    if let Some(collisions) = collisions {
        // Eight bytes, of which the number is the first four.
        hash.add(&i64::from(collisions as u32).to_le_bytes());
    }
    spelled(hash.0)
}

/// The hash of a StatefulSet's revision, of its data (`HashControllerRevision` in pkg/controller/history).
pub fn of_revision(data: &Value, collisions: i32) -> String {
    // Trees have no keys but texts: all of them are JSON.
    let text = go_json(data).unwrap_or_default() + &collisions.to_string();
    let multiply_first = |hash: u32, byte: u8| hash.wrapping_mul(PRIME) ^ u32::from(byte);
    spelled(text.bytes().fold(START, multiply_first))
}

/// What a kubelet marks a container with: another name or image is another container (`HashContainer` in
/// pkg/kubelet/container/helpers.go, the bytes of some JSON as Go's debugging prints them).
pub fn of_container(name: &str, image: &str) -> String {
    let json = go_json(&json!({ "image": image, "name": name })).unwrap_or_default();
    let mut hash = Fnv1a(START);
    for (at, byte) in json.bytes().enumerate() {
        hash.add(if at == 0 { b"([]uint8)[" } else { &b" "[..] });
        hash.add(byte.to_string().as_bytes());
    }
    hash.add(b"]");
    format!("{:x}", hash.0)
}

/// What a kubelet's file of allocations is checked by: a text as Go's debugging prints it (`dump.ForHash`).
pub fn of_text(text: &str) -> u32 {
    let mut hash = Fnv1a(START);
    hash.add(b"(string)");
    hash.add(text.as_bytes());
    hash.0
}

/// A number in letters that spell nothing.
fn spelled(number: u32) -> String {
    let digits = number.to_string().into_bytes();
    digits.iter().map(|digit| char::from(ALPHABET[usize::from(*digit) % ALPHABET.len()])).collect()
}

struct Fnv1a(u32);

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        let xor_first = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(PRIME);
        self.0 = bytes.iter().fold(self.0, xor_first);
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Templates with the hashes that upstream's own code gives them, without collisions and with three,
    /// and that of a revision of theirs.
    const VECTORS: &str = include_str!("vectors.txt");

    #[test]
    fn hashes_are_upstreams() {
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let [plain, third, revision, template] = line.splitn(4, ' ').collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            let template: Value = serde_json::from_str(template).unwrap();
            assert_eq!(of_template(&template, None), plain, "{template}");
            assert_eq!(of_template(&template, Some(3)), third, "{template}");
            assert_eq!(of_revision(&template, 1), revision, "{template}");
        }
    }

    /// As upstream's own test of it has them.
    #[test]
    fn containers_are_marked_as_upstream_marks_them() {
        assert_eq!(of_container("test_container", "foo/image:v1"), "8e45cbd0");
        assert_eq!(of_container("foo", "bar"), "11a6d6d6");
    }
}
