//! Image references: what a person writes, and the one full spelling it stands for.
use std::fmt;
use std::str::FromStr;

use super::digest::Digest;

/// `docker.io/library/busybox:latest`, `localhost:5000/a/b@sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub domain: String,
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid image reference {text:?}: {reason}")]
pub struct InvalidReference {
    text: String,
    reason: &'static str,
}

/// Where a name without a host is looked for, and the folder of its names without a slash.
const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_FOLDER: &str = "library";
const NAME_LIMIT: usize = 255;

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let invalid = |reason| InvalidReference { text: text.to_owned(), reason };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (
                name,
                Some(digest.parse::<Digest>().map_err(|_| invalid("its digest is not one"))?),
            ),
            None => (text, None),
        };
        // A colon after the last slash starts the tag; one before it belongs to the host's port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let (domain, repository) = match name.split_once('/') {
            Some((first, rest))
                if first.contains(['.', ':'])
                    || first == "localhost"
                    || first.chars().any(|c| c.is_ascii_uppercase()) =>
            {
                (if first == "index.docker.io" { DEFAULT_DOMAIN } else { first }, rest)
            }
            _ => (DEFAULT_DOMAIN, name),
        };
        let repository = if domain == DEFAULT_DOMAIN && !repository.contains('/') {
            format!("{DEFAULT_FOLDER}/{repository}")
        } else {
            repository.to_owned()
        };
        if name.is_empty() || domain.is_empty() {
            return Err(invalid("it has no name"));
        }
        if repository.len() + domain.len() > NAME_LIMIT {
            return Err(invalid("its name is too long"));
        }
        if !domain.chars().all(|c| c.is_ascii_alphanumeric() || "-.:[]".contains(c)) {
            return Err(invalid("its host is not one"));
        }
        if !repository.split('/').all(is_component) {
            return Err(invalid("its name must be lower case words joined by . _ __ - and /"));
        }
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(invalid("its tag is not one"));
        }
        let tag = match (tag, &digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Reference { domain: domain.to_owned(), repository, tag, digest })
    }
}

fn is_component(word: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(word.chars().next())
        && edge(word.chars().last())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
        && !word.contains("..")
        && !word.contains("___")
}

fn is_tag(tag: &str) -> bool {
    let mut characters = tag.chars();
    tag.len() <= 128
        && characters.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

impl Reference {
    /// Host and repository, without tag or digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.domain, self.repository)
    }

    /// The same name, pointing at `digest`.
    pub fn at(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.name())
    }

    /// What is asked of the registry: the digest if there is one, for it cannot move.
    pub fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed() {
        let digest = "sha256:".to_owned() + &"a".repeat(64);
        for (text, full) in [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("me/app:1", "docker.io/me/app:1".to_owned()),
            ("index.docker.io/me/app", "docker.io/me/app:latest".to_owned()),
            ("localhost/a", "localhost/a:latest".to_owned()),
            ("127.0.0.1:5000/a/b:v1", "127.0.0.1:5000/a/b:v1".to_owned()),
            (&format!("quay.io/a@{digest}"), format!("quay.io/a@{digest}")),
            (&format!("a:b@{digest}"), format!("docker.io/library/a:b@{digest}")),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), full);
            assert_eq!(full.parse::<Reference>().unwrap(), reference, "full names stay");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for text in
            ["", ":x", "A/b c", "a//b", "../../etc", "a@sha256:xyz", "a:é", "a/..", "host.x/"]
        {
            assert!(text.parse::<Reference>().is_err(), "{text:?}");
        }
    }
}
