//! Removing everything that the runtime ever made on this machine. What there is is listed first, so
//! that a person can look before it goes; nothing that is not ours is touched.
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::Group;
use crate::service::{sandbox_config, shims};
use crate::shim::sys;

/// Something of ours.
#[derive(Debug, Clone)]
pub enum Thing {
    /// A sandbox's processes, by its shim's socket.
    Processes(PathBuf),
    Mount(PathBuf),
    Cgroup(String),
    /// The group that the others were in.
    EmptyCgroup(String),
    Folder(PathBuf),
}

/// All there is, in the order in which it can go. `others` are folders that whoever has the runtime
/// made for it: volumes, logs.
pub fn plan(root: &Path, state: &Path, cgroup_root: &str, others: &[PathBuf]) -> Vec<Thing> {
    let mut things = Vec::new();
    let ours: Vec<&Path> = [root, state].into_iter().chain(others.iter().map(|p| &**p)).collect();
    for folder in entries(state) {
        if folder.join("shim.sock").exists() {
            things.push(Thing::Processes(folder.join("shim.sock")));
        }
    }
    let mut mounted = crate::files::mount_points();
    mounted.retain(|path| ours.iter().any(|folder| path.starts_with(folder) && path != folder));
    // What is mounted last goes first.
    mounted.reverse();
    things.extend(mounted.into_iter().map(Thing::Mount));
    for path in entries(&root.join("sandboxes")) {
        things.extend(groups(root, cgroup_root, &path).into_iter().map(Thing::Cgroup));
    }
    if Group::new(cgroup_root, "").folders().iter().any(|folder| folder.exists()) {
        things.push(Thing::EmptyCgroup(cgroup_root.to_owned()));
    }
    for folder in ours {
        if folder.exists() {
            things.push(Thing::Folder(folder.to_owned()));
        }
    }
    things
}

/// The groups we made for a sandbox: its containers', and its own unless it was given one.
fn groups(root: &Path, cgroup_root: &str, sandbox: &Path) -> Vec<String> {
    let id = sandbox.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let config = sandbox_config(sandbox).unwrap_or_default();
    let parent = config.linux.map(|linux| linux.cgroup_parent).unwrap_or_default();
    if parent.is_empty() {
        return vec![format!("{cgroup_root}/{id}")];
    }
    let containers = entries(&root.join("containers"));
    let names = containers.iter().filter_map(|folder| folder.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .chain([format!("pause-{id}")])
        .map(|name| format!("{parent}/{name}"))
        .filter(|path| Group::new(path, "").folders().iter().any(|folder| folder.exists()))
        .collect()
}

impl Thing {
    /// What is gone already needs nothing: another reset may be at work beside this one.
    pub fn remove(&self) -> io::Result<()> {
        let removed = self.try_remove();
        removed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    fn try_remove(&self) -> io::Result<()> {
        match self {
            Thing::Processes(socket) => match socket.parent() {
                Some(state) => shims::end(state),
                None => Ok(()),
            },
            Thing::Mount(path) => sys::unmount(&sys::c_path(path)?),
            Thing::Cgroup(path) => Group::new(path, "").remove(),
            Thing::EmptyCgroup(path) => {
                Group::new(path, "").folders().iter().for_each(|folder| remove_empty(folder));
                Ok(())
            }
            Thing::Folder(path) => crate::files::remove_folder(path),
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Processes(socket) => write!(f, "processes  of the shim at {}", socket.display()),
            Thing::Mount(path) => write!(f, "mount      {}", path.display()),
            Thing::Cgroup(path) => write!(f, "cgroup     {path}"),
            Thing::EmptyCgroup(path) => write!(f, "cgroup     {path}, if it is empty"),
            Thing::Folder(path) => write!(f, "folder     {}", path.display()),
        }
    }
}

/// A group and those below it, from the inside, as far as nothing is in them: another runtime's
/// sandboxes may be.
fn remove_empty(group: &Path) {
    entries(group).iter().filter(|path| path.is_dir()).for_each(|path| remove_empty(path));
    let _ = fs::remove_dir(group);
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_somebody_else_has_removed_is_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let gone = Thing::Folder(folder.path().join("gone"));
        gone.remove().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Thing::Mount(file).remove().is_err(), "a fault is still told");
    }

    /// Links below our folders, or in their place, lead to what is not ours.
    #[test]
    fn no_link_leads_a_reset_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (root, state) = (folder.path().join("root"), folder.path().join("state"));
        let (outside, kept) = (folder.path().join("outside"), folder.path().join("outside/kept"));
        fs::create_dir_all(&outside).unwrap();
        fs::write(&kept, "kept").unwrap();
        fs::create_dir_all(root.join("containers/c")).unwrap();
        symlink(&outside, root.join("sandboxes")).unwrap();
        symlink(&outside, root.join("containers/c/upper")).unwrap();
        symlink(&kept, root.join("containers/c/file")).unwrap();
        symlink(&outside, &state).unwrap();
        for thing in plan(&root, &state, "/skiff-test-of-reset", &[]) {
            // A folder that is a link may be refused: what counts is what is left.
            let _ = thing.remove();
        }
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        assert!(!root.exists());
    }
}
