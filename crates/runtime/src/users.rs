//! Whose machine it is: the numbers of users that this process may give away.
//!
//! In a user namespace that somebody has made for us nothing on the machine changes, but much is refused:
//! devices cannot be made, overlayfs keeps its marks elsewhere, control groups are ours only as far as
//! they were handed over. Whoever does such a thing asks here first.
use std::sync::OnceLock;

/// Whether this process is in the user namespace that the machine began with.
pub fn is_initial() -> bool {
    static INITIAL: OnceLock<bool> = OnceLock::new();
    // Where the kernel has no such namespaces there is only the first one.
    *INITIAL.get_or_init(|| {
        std::fs::read_to_string("/proc/self/uid_map").map_or(true, |map| has_everybody(&map))
    })
}

/// Every number there is means itself.
fn has_everybody(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether there is such a group here.
pub fn has_group(group: u32) -> bool {
    std::fs::read_to_string("/proc/self/gid_map").map_or(true, |map| has(&map, group))
}

fn has(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        match (fields.next(), fields.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => {
                number.checked_sub(first).is_some_and(|at| at < count)
            }
            _ => false,
        }
    })
}

/// The attribute that makes a folder hide what layers below have in it.
pub fn opaque_mark() -> &'static str {
    if is_initial() { "trusted.overlay.opaque" } else { "user.overlay.opaque" }
}

/// What overlayfs must be told besides its folders.
pub fn overlay_option() -> &'static str {
    if is_initial() { "" } else { ",userxattr" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_fewer_users_is_not_the_first() {
        for (map, whole) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("         0       1000          1\n         1     100000      65536\n", false),
            ("", false),
        ] {
            assert_eq!(has_everybody(map), whole, "{map:?}");
        }
    }

    #[test]
    fn numbers_are_there_if_some_line_has_them() {
        let map = "0 1000 1\n1 100000 65536\n";
        for (number, there) in [(0, true), (1, true), (5, true), (65536, true), (65537, false)] {
            assert_eq!(has(map, number), there, "{number}");
        }
        assert!(!has("0 1000 1", 5));
        assert!(has("0 0 4294967295", 4_294_967_294));
    }
}
