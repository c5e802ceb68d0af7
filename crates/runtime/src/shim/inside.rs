//! Paths inside the container's root, which is this process's own by then. Links are the image's or a
//! running container's, and may change at any time: what they lead to is opened once, and held.
//!
//! A magic link (`/proc/1/root`, `/proc/self/fd/7`) leads wherever the process or descriptor is, which
//! may be outside; so none is ever followed.
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2, readlinkat};
use rustix::io::Errno;

/// Links followed on the way to one place; the kernel's own number.
const LINK_LIMIT: u32 = 40;

/// What is at a path, for nothing but to be referred to.
pub fn place(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// Makes a file that is not there.
pub fn make_file(path: &Path) -> io::Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    openat2(CWD, path, flags, mode, ResolveFlags::NO_MAGICLINKS)?;
    Ok(())
}

/// Makes a folder with its parents, also where links lead that lead nowhere yet.
pub fn make_folders(path: &Path) -> io::Result<()> {
    make_below(path, 0)
}

fn make_below(path: &Path, links: u32) -> io::Result<()> {
    let mut at = PathBuf::from("/");
    for component in path.components() {
        let (parent, name) = match component {
            Component::Normal(name) => (at.clone(), name),
            Component::ParentDir => {
                at.push("..");
                continue;
            }
            _ => continue,
        };
        at.push(name);
        match place(&at, OFlags::DIRECTORY) {
            Ok(_) => continue,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // The parent is held, so that the new folder is in what was looked at.
        let holder = place(&parent, OFlags::DIRECTORY)?;
        match readlinkat(&holder, name, Vec::new()) {
            Ok(_) if links >= LINK_LIMIT => return Err(Errno::LOOP.into()),
            Ok(target) => {
                use std::os::unix::ffi::OsStrExt;
                let target = Path::new(std::ffi::OsStr::from_bytes(target.to_bytes()));
                make_below(&parent.join(target), links + 1)?;
            }
            Err(_) => match mkdirat(&holder, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            },
        }
    }
    Ok(())
}

/// Makes `path` the current directory, and proves that it is below the root.
pub fn enter(path: &Path) -> io::Result<()> {
    let folder = place(path, OFlags::DIRECTORY).map_err(|error| match error {
        Errno::LOOP => io::Error::other("it leads through a link of /proc, or in a circle"),
        error => error.into(),
    })?;
    rustix::process::fchdir(&folder)?;
    // From outside the root the kernel cannot name it: "(unreachable)/…", or nothing at all.
    let named = rustix::process::getcwd(Vec::new())?;
    if !named.as_bytes().starts_with(b"/") {
        return Err(io::Error::other("it is outside the container's root"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder below a temporary one, by a path that may lead through links.
    fn check(links: &[(&str, &str)], path: &str, expected: Result<&str, Errno>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, target) in links {
            let target = target.replace("TOP", &folder.path().display().to_string());
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        let made = make_folders(&folder.path().join(path));
        let found = made.map(|()| expected.unwrap_or_default());
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap();
        assert_eq!(found.map_err(errno), expected, "{path}");
        if let Ok(real) = expected {
            assert!(folder.path().join(real).is_dir(), "{real}");
        }
    }

    #[test]
    fn folders_are_made_where_links_lead_but_never_through_magic_ones() {
        check(&[], "a/b/c", Ok("a/b/c"));
        check(&[("l", "a/b")], "l/c", Ok("a/b/c"));
        check(&[("l", "TOP/a")], "l/../b", Ok("b"));
        check(&[("l", "l")], "l/x", Err(Errno::LOOP));
        check(&[("l", "/proc/self/root/TOP/x")], "l/y", Err(Errno::LOOP));
        // The first part is missing, so that it has to be made before the link is seen.
        check(&[("l", "gone/../../../../../proc/self/cwd/x")], "l/y", Err(Errno::LOOP));
    }

    #[test]
    fn a_directory_behind_a_magic_link_is_not_entered() {
        for path in ["/proc/self/cwd", "/proc/self/root/tmp", "/proc/self/fd/0"] {
            assert!(enter(Path::new(path)).is_err(), "{path}");
        }
    }
}
