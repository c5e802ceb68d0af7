//! Which credential programs may run: client-go's rules and words (`plugin/pkg/client/auth/exec`).
use api::quote::Quoted;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What somebody said about programs that are to tell who we are.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Policy {
    #[default]
    AllowAll,
    DenyAll,
    /// By path, or by a name that is found on the PATH.
    Allow(Vec<String>),
}

impl Policy {
    /// A policy by its name, with the list that goes with one of them.
    pub fn parse(name: &str, list: Option<&[String]>) -> Result<Policy, String> {
        match (name, list) {
            ("" | "AllowAll", None) => Ok(Policy::AllowAll),
            ("DenyAll", None) => Ok(Policy::DenyAll),
            ("" | "AllowAll" | "DenyAll", Some(_)) => Err(format!(
                "misconfigured credential plugin allowlist: plugin policy is {} but allowlist is \
                 non-nil",
                Quoted(name)
            )),
            ("Allowlist", None) => Err("credential plugin policy set to \"Allowlist\", but \
                                        allowlist is unspecified"
                .to_owned()),
            ("Allowlist", Some([])) => {
                Err("credential plugin policy set to \"Allowlist\", but allowlist is empty; use \
                     \"DenyAll\" policy instead"
                    .to_owned())
            }
            ("Allowlist", Some(list)) => {
                list.iter().enumerate().try_for_each(|(at, entry)| check(at, entry))?;
                Ok(Policy::Allow(list.to_vec()))
            }
            _ => Err(format!("unknown plugin policy: {}", Quoted(name))),
        }
    }

    /// What is to be run for a command, if it may be.
    pub(super) fn allow(&self, command: &str, path: &Folders) -> Result<PathBuf, String> {
        let command = clean(command);
        let list = match self {
            Policy::AllowAll => return Ok(path.find(&command).unwrap_or(command.into())),
            Policy::DenyAll => {
                return Err(format!(
                    "plugin {} not allowed: policy set to \"DenyAll\"",
                    Quoted(&command)
                ));
            }
            Policy::Allow(list) => list,
        };
        let is_listed = |path: &Path| list.iter().any(|entry| Path::new(entry) == path);
        let resolved = path.find(&command);
        if is_listed(Path::new(&command)) {
            return Ok(resolved.unwrap_or(command.into()));
        }
        let resolved = resolved.map_err(|cause| {
            format!(
                "plugin path {} cannot be resolved for credential plugin allowlist check: {cause}",
                Quoted(&command)
            )
        })?;
        // An entry of the same name may be found in the same place.
        let name = resolved.file_name();
        let mut same = list.iter().filter(|entry| Path::new(entry).file_name() == name);
        if is_listed(&resolved) || same.any(|entry| path.find(entry).as_ref() == Ok(&resolved)) {
            return Ok(resolved);
        }
        Err(format!(
            "plugin path {} is not permitted by the credential plugin allowlist",
            Quoted(&resolved.to_string_lossy())
        ))
    }
}

fn check(at: usize, entry: &str) -> Result<(), String> {
    if entry.is_empty() {
        return Err(format!(
            "misconfigured credential plugin allowlist: empty allowlist entry #{}",
            at + 1
        ));
    }
    match clean(entry) {
        cleaned if cleaned == entry => Ok(()),
        cleaned => {
            Err(format!("non-normalized file path: {} vs {}", Quoted(entry), Quoted(&cleaned)))
        }
    }
}

/// Go's `filepath.Clean`.
fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_rooted => {}
            part => parts.push(part),
        }
    }
    match (is_rooted, parts.join("/")) {
        (true, rest) => format!("/{rest}"),
        (false, rest) if rest.is_empty() => ".".to_owned(),
        (false, rest) => rest,
    }
}

/// Where programs are looked for: the PATH.
pub(super) struct Folders(Vec<PathBuf>);

impl Folders {
    pub fn of(path: Option<OsString>) -> Folders {
        Folders(path.iter().flat_map(std::env::split_paths).collect())
    }

    /// Go's `exec.LookPath`.
    fn find(&self, command: &str) -> Result<PathBuf, String> {
        let failed = |cause: &str| Err(format!("exec: {}: {cause}", Quoted(command)));
        if command.contains('/') {
            return match std::fs::metadata(command) {
                Ok(file) if file.is_dir() => failed("is a directory"),
                Ok(file) if file.permissions().mode() & 0o111 == 0 => failed("permission denied"),
                Ok(_) => Ok(command.into()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    failed(&format!("stat {command}: no such file or directory"))
                }
                Err(error) => failed(&format!("stat {command}: {error}")),
            };
        }
        let is_program = |path: &PathBuf| {
            std::fs::metadata(path)
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        match self.0.iter().map(|folder| folder.join(command)).find(is_program) {
            // Whoever can write into this folder could choose what is run.
            Some(path) if path.is_relative() => {
                failed("cannot run executable found relative to current directory")
            }
            Some(path) => Ok(path),
            None => failed("executable file not found in $PATH"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, list: Option<&[&str]>) -> String {
        let list: Option<Vec<String>> =
            list.map(|list| list.iter().map(|entry| (*entry).to_owned()).collect());
        Policy::parse(name, list.as_deref())
            .map_or_else(|text| text, |policy| format!("{policy:?}"))
    }

    #[test]
    fn a_policy_and_its_list_have_to_fit() {
        assert_eq!(parsed("", None), "AllowAll");
        assert_eq!(parsed("DenyAll", None), "DenyAll");
        assert_eq!(parsed("Allowlist", Some(&["a", "/b/c"])), "Allow([\"a\", \"/b/c\"])");
        assert_eq!(
            parsed("DenyAll", Some(&[])),
            "misconfigured credential plugin allowlist: plugin policy is \"DenyAll\" but allowlist is non-nil"
        );
        assert_eq!(
            parsed("Allowlist", Some(&["a", ""])),
            "misconfigured credential plugin allowlist: empty allowlist entry #2"
        );
        assert_eq!(
            parsed("Allowlist", Some(&["/a/../b"])),
            "non-normalized file path: \"/a/../b\" vs \"/b\""
        );
        assert_eq!(parsed("allowall", None), "unknown plugin policy: \"allowall\"");
        assert!(parsed("Allowlist", None).contains("unspecified"));
        assert!(parsed("Allowlist", Some(&[])).contains("is empty"));
    }

    #[test]
    fn what_is_on_the_list_may_run() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, other) = (folder.path().join("bin"), folder.path().join("other"));
        for place in [&bin, &other] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("helper"), "#!/bin/sh\n").unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(place.join("helper"), mode).unwrap();
        }
        let path = Folders(vec![bin.clone()]);
        let shown = |path: &Path| path.to_str().unwrap().to_owned();
        let (ours, theirs) = (shown(&bin.join("helper")), shown(&other.join("helper")));
        let allow = |list: &[&str], command: &str| {
            let list = list.iter().map(|entry| (*entry).to_owned()).collect();
            match Policy::Allow(list).allow(command, &path) {
                Ok(path) => shown(&path),
                Err(text) => text,
            }
        };
        assert_eq!(allow(&["helper"], "helper"), ours);
        assert_eq!(allow(&[&ours], "helper"), ours);
        assert_eq!(allow(&["helper"], &ours), ours);
        assert_eq!(allow(&[&theirs], &format!("{}/../other/helper", shown(&bin))), theirs);
        let refused = |path: &str| {
            format!("plugin path \"{path}\" is not permitted by the credential plugin allowlist")
        };
        assert_eq!(allow(&["helper"], &theirs), refused(&theirs));
        assert_eq!(allow(&["else"], "helper"), refused(&ours));
        assert_eq!(
            allow(&["x"], "absent"),
            "plugin path \"absent\" cannot be resolved for credential plugin allowlist check: exec: \"absent\": \
             executable file not found in $PATH"
        );
        assert_eq!(
            Policy::DenyAll.allow("helper", &path).unwrap_err(),
            "plugin \"helper\" not allowed: policy set to \"DenyAll\""
        );
        assert_eq!(Policy::AllowAll.allow("helper", &path), Ok(ours.into()));
    }
}
