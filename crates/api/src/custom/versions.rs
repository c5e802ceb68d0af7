//! Which of two versions is the better one: `v2` over `v1`, `v1` over `v2beta1`, those over a word.
use std::cmp::Ordering;

/// Better versions are greater (`apimachinery/pkg/version`, `CompareKubeAwareVersionStrings`).
pub fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Words are in the order of the alphabet, and the first one is the best.
        (None, None) => b.cmp(a),
    }
}

/// How stable it is, then the major version, then the minor one.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok()?;
    let (stability, minor) = match rest {
        "" => return Some((2, major, 0)),
        rest => match rest.strip_prefix("beta") {
            Some(minor) => (1, minor),
            None => (0, rest.strip_prefix("alpha")?),
        },
    };
    let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    Some((stability, major, minor.parse().ok().filter(|_| is_number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_words_last() {
        let mut all =
            ["foo1", "v1alpha1", "v11alpha2", "v3beta1", "v1", "v10", "v2", "v10beta3", "bar"];
        all.sort_by(|a, b| compare(b, a));
        let best_first =
            ["v10", "v2", "v1", "v10beta3", "v3beta1", "v11alpha2", "v1alpha1", "bar", "foo1"];
        assert_eq!(all, best_first);
    }
}
