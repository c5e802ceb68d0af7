//! Pulling images: whose credentials fit an image, and who has shown that an image is his to use.
//!
//! ```text
//!  credentials   secrets and the node's own file → what to show a registry     (pure)
//!  providers     programs that know credentials, as clouds have them
//!  attributes    what such a program is shown of a pod's service account
//!  records       which images were pulled, with whose credentials; on disk
//! ```
pub mod attributes;
pub mod credentials;
pub mod providers;
pub mod records;

/// The repository of an image, in full and without tag or digest: `docker.io/library/web`.
pub fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let name = match name.rsplit_once('/') {
        Some((path, last)) => format!("{path}/{}", last.split(':').next().unwrap_or_default()),
        None => name.split(':').next().unwrap_or_default().to_owned(),
    };
    let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost";
    match name.split_once('/') {
        Some((host, _)) if is_host(host) => name,
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::repository;

    #[test]
    fn a_repository_has_one_name() {
        for (image, expected) in [
            ("web", "docker.io/library/web"),
            ("web:1", "docker.io/library/web"),
            ("me/web@sha256:0", "docker.io/me/web"),
            ("localhost:5000/web:1", "localhost:5000/web"),
            ("r.io/a/b/c:1@sha256:0", "r.io/a/b/c"),
        ] {
            assert_eq!(repository(image), expected);
        }
    }
}
