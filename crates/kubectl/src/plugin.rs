//! Plugins: programs called `kubectl-NAME` on the PATH.
use crate::failure::{Failure, Outcome};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Plugin {
    pub path: PathBuf,
    pub words: Vec<String>,
}

impl Plugin {
    /// Becomes the plugin.
    pub fn exec(self) -> Outcome {
        let error = std::process::Command::new(&self.path).args(&self.words).exec();
        Err(Failure::Plain(format!("failed to run {}: {error}", self.path.display())))
    }
}

/// The plugin with the longest name that a command line begins with.
pub fn find(words: &[String]) -> Option<Plugin> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    find_in(&folders, words)
}

fn find_in(folders: &[PathBuf], words: &[String]) -> Option<Plugin> {
    let names = words.iter().take_while(|word| !word.starts_with('-')).count();
    for count in (1..=names).rev() {
        let parts: Vec<String> = words[..count].iter().map(|word| word.replace('-', "_")).collect();
        let name = format!("kubectl-{}", parts.join("-"));
        let found = folders.iter().map(|folder| folder.join(&name)).find(|path| is_program(path));
        if let Some(path) = found {
            return Some(Plugin { path, words: words[count..].to_vec() });
        }
    }
    None
}

pub fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kubectl-foo", "kubectl-foo-bar_baz"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let found = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let plugin = find_in(&[folder.path().to_owned()], &words)?;
            let name = plugin.path.file_name()?.to_str()?.to_owned();
            Some(format!("{name} {}", plugin.words.join(" ")))
        };
        assert_eq!(found("foo bar-baz x -y").unwrap(), "kubectl-foo-bar_baz x -y");
        assert_eq!(found("foo --bar").unwrap(), "kubectl-foo --bar");
        assert_eq!(found("other"), None);
    }
}
