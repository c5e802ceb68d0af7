//! A namespace's policy: which level, of which version, is enforced, audited and warned about.
use api::field::{Error, ErrorList, Path};
use serde_json::Value;
use std::fmt;

/// From the widest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The checks as they were in a minor version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    Minor(u32),
    Latest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

impl Level {
    pub fn parse(text: &str) -> Result<Level, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl Version {
    pub fn parse(text: &str) -> Result<Version, &'static str> {
        const FAULT: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(FAULT)?;
        let plain = minor.bytes().all(|byte| byte.is_ascii_digit());
        let padded = minor.len() > 1 && minor.starts_with('0');
        match minor.parse() {
            Ok(minor) if plain && !padded => Ok(Version::Minor(minor)),
            _ => Err(FAULT),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

impl Default for LevelVersion {
    fn default() -> Self {
        LevelVersion { level: Level::Privileged, version: Version::Latest }
    }
}

impl Default for Policy {
    fn default() -> Self {
        let open = LevelVersion::default();
        Policy { enforce: open, audit: open, warn: open }
    }
}

impl LevelVersion {
    fn is_equivalent(self, other: LevelVersion) -> bool {
        self == other || self.level == Level::Privileged && other.level == Level::Privileged
    }
}

impl Policy {
    /// The three modes by the word in their labels.
    pub fn modes(&self) -> [(&'static str, LevelVersion); 3] {
        [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)]
    }

    pub fn is_equivalent(&self, other: &Policy) -> bool {
        let pairs = self.modes().into_iter().zip(other.modes());
        pairs.into_iter().all(|((_, one), (_, other))| one.is_equivalent(other))
    }

    /// What a namespace's labels make of these defaults, and what is wrong with the labels. A level
    /// that cannot be read is enforced as the strictest, and neither audited nor warned about.
    pub fn of_labels(mut self, labels: &Value) -> (Policy, ErrorList) {
        let mut errors = ErrorList::new();
        let (mut enforced, mut warned, mut warned_version) = (false, false, false);
        let fields = [
            ("enforce", &mut self.enforce, Level::Restricted),
            ("audit", &mut self.audit, Level::Privileged),
            ("warn", &mut self.warn, Level::Privileged),
        ];
        for (word, mode, fallback) in fields {
            let key = label(word);
            if let Some(text) = labels[&key].as_str() {
                let level = Level::parse(text);
                mode.level = level.unwrap_or(fallback);
                note(&mut errors, &key, text, level.err());
                enforced |= word == "enforce" && level.is_ok();
                warned |= word == "warn";
            }
            let key = format!("{key}-version");
            if let Some(text) = labels[&key].as_str() {
                let version = Version::parse(text);
                mode.version = version.unwrap_or(Version::Latest);
                note(&mut errors, &key, text, version.err());
                warned_version |= word == "warn";
            }
        }
        // What is enforced is warned about, unless the labels say how much is.
        if !warned && enforced && self.enforce.level > self.warn.level {
            self.warn.level = self.enforce.level;
            if !warned_version {
                self.warn.version = self.enforce.version;
            }
        }
        (self, errors)
    }
}

pub fn label(word: &str) -> String {
    format!("pod-security.kubernetes.io/{word}")
}

fn note(errors: &mut ErrorList, key: &str, value: &str, fault: Option<&'static str>) {
    if let Some(fault) = fault {
        let metadata = Path::new("metadata");
        let labels = metadata.child("labels");
        errors.push(Error::invalid(&labels.key(key), value, fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Labels without their prefix, and the policy and faults they make.
    fn check(labels: &[(&str, &str)], expected: &str) {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(word, value)| (label(word), json!(value))).collect();
        let (policy, errors) = Policy::default().of_labels(&labels.into());
        let mut shown = policy.modes().map(|(_, mode)| mode.to_string()).join(" ");
        for error in errors {
            shown += &format!("; {error}");
        }
        assert_eq!(shown, expected);
    }

    #[test]
    fn labels_make_a_policy() {
        check(&[], "privileged:latest privileged:latest privileged:latest");
        check(&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest");
        check(
            &[("enforce", "restricted"), ("enforce-version", "v1.20"), ("audit", "baseline")],
            "restricted:v1.20 baseline:latest restricted:v1.20",
        );
        check(
            &[("enforce", "restricted"), ("warn", "privileged")],
            "restricted:latest privileged:latest privileged:latest",
        );
        check(
            &[("enforce", "baseline"), ("warn-version", "v1.9")],
            "baseline:latest privileged:latest baseline:v1.9",
        );
    }

    #[test]
    fn bad_labels_are_named() {
        check(
            &[("enforce", "x"), ("warn-version", "v1.08")],
            "restricted:latest privileged:latest privileged:latest; \
             metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one \
             of privileged, baseline, restricted; \
             metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.08\": \
             must be \"latest\" or \"v1.x\"",
        );
    }
}
