//! Namespaces of a user who is not root, in which they are.
//!
//! ```text
//!  outside   the user's own process, with the machine's network and the user's few rights
//!  holder    made once: it has the namespaces, does nothing and stays, because pods outlive the daemon
//!  inside    the daemon, in the holder's namespaces, where it is root
//! ```
//! Users of the machine become users of the namespace by a map, which somebody outside must write after the
//! namespace is there and before a program starts in it: a program that starts as nobody in particular
//! has no rights even there.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::shim::sys;

/// The user namespace comes first: with it comes the right to the others. Processes are the machine's, so
/// that none of them is the first, with whom all others would end.
const NAMESPACES: [(&str, i32); 6] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// Starts the holder: `map` writes the users of the process with this number before its program starts.
pub fn hold(
    mut command: Command,
    map: impl FnOnce(u32) -> io::Result<()> + Send,
) -> io::Result<Child> {
    let (told, tell) = io::pipe()?;
    let (wait, go) = io::pipe()?;
    let all = NAMESPACES.iter().fold(0, |all, (_, kind)| all | kind);
    let child = {
        let (mut tell, mut wait) = (tell.try_clone()?, wait.try_clone()?);
        move || {
            sys::unshare(all)?;
            tell.write_all(&std::process::id().to_ne_bytes())?;
            // Nothing comes if the map was not written: the other end is closed then.
            wait.read_exact(&mut [0])?;
            sys::become_root()
        }
    };
    in_child(&mut command, child);
    std::thread::scope(|scope| {
        let (mut told, mut go) = (told, go);
        let mapping = scope.spawn(move || {
            let mut pid = [0; 4];
            told.read_exact(&mut pid)?;
            map(u32::from_ne_bytes(pid))?;
            go.write_all(&[1])
        });
        // Returns when the program starts, or does not.
        let started = command.spawn();
        // The command has copies of both ends, with which nobody would ever hear that all is over.
        drop((command, tell, wait));
        let mapped = mapping.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        match (mapped, started) {
            // What the map says is the cause of what the child says.
            (Err(error), Err(_)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            (_, started) => started,
        }
    })
}

/// Makes the command's process one of the holder's namespaces, as root. It is asked to end when whoever
/// starts it ends.
pub fn enter(command: &mut Command, holder: u32) -> io::Result<()> {
    let open = |(name, kind): &(&str, i32)| -> io::Result<(OwnedFd, i32)> {
        let path = format!("/proc/{holder}/ns/{name}");
        let file = File::open(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        Ok((file.into(), *kind))
    };
    let namespaces = NAMESPACES.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    in_child(command, move || {
        for (namespace, kind) in &namespaces {
            sys::setns(namespace.as_fd(), *kind)?;
        }
        sys::become_root()?;
        sys::end_with_parent()
    });
    Ok(())
}

/// Runs this in the command's process before its program.
fn in_child(command: &mut Command, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the closures above make system calls on what they own and allocate nothing; whatever other
    // threads hold at the moment of the fork, they do not take.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(work);
    }
}
