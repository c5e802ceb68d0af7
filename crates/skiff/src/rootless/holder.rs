//! The process that has a user's namespaces.
use super::map;
use crate::places;
use anyhow::Context as _;
use runtime::shim::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The holder of this user's namespaces; a new one, if there is none.
pub fn find_or_start() -> anyhow::Result<u32> {
    // First: what is in somebody else's folder is not to be believed.
    own_folder(&places::state_dir())?;
    if let Some(pid) = find() {
        return Ok(pid);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.env(super::USER, rustix::process::geteuid().as_raw().to_string());
    command.arg(super::HOLD).stdin(Stdio::null()).stdout(Stdio::piped());
    let several = std::sync::atomic::AtomicBool::new(false);
    let write = |pid| {
        several.store(map::write(pid)?, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let mut child = runtime::rootless::hold(command, write).context(
        "this user cannot make namespaces: see whether user.max_user_namespaces is 0, or \
         kernel.unprivileged_userns_clone, or kernel.apparmor_restrict_unprivileged_userns is set",
    )?;
    if !several.into_inner() {
        tracing::warn!(
            "containers can be nobody but root: no numbers are set aside for this user in /etc/subuid \
             and /etc/subgid, or newuidmap and newgidmap (package uidmap) are missing"
        );
    }
    // It says a word when everything in the namespaces is in its place.
    let mut word = [0];
    let said = child.stdout.take().map(|mut stdout| stdout.read_exact(&mut word));
    if !matches!(said, Some(Ok(()))) {
        let status = child.wait()?;
        anyhow::bail!("the process that holds this user's namespaces has ended: {status}");
    }
    Ok(child.id())
}

/// A folder for sockets at which one is root: nobody else's, and for nobody else.
fn own_folder(folder: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("failed to make {}", folder.display()))?;
    // In a place that is everybody's somebody may have been there before us.
    let found = fs::symlink_metadata(folder)?;
    let is_ours = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o077 == 0;
    anyhow::ensure!(
        is_ours,
        "{} is not this user's alone: remove it, or set XDG_RUNTIME_DIR to another place",
        folder.display()
    );
    Ok(())
}

/// The holder that runs.
pub fn find() -> Option<u32> {
    let text = fs::read_to_string(file()).ok()?;
    let (pid, began) = text.trim().split_once(' ')?;
    // A number may have become somebody else's since.
    (beginning(Path::new("/proc").join(pid))? == began).then(|| pid.parse().ok())?
}

/// Ends it; what still runs in its namespaces has them on.
pub fn end(pid: u32) -> io::Result<()> {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        pidfd_send_signal(&process, Signal::KILL)?;
        // It can be read from when the process is gone; on a busy machine that takes a moment.
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience))?;
    }
    match fs::remove_file(file()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn file() -> PathBuf {
    places::state_dir().join("holder")
}

/// When a process began, by the machine's clock.
fn beginning(process: PathBuf) -> Option<String> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // After its name, which may have anything in it.
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}

/// Puts in place what everybody finds who enters, says so, and stays.
pub fn stay() -> anyhow::Result<()> {
    // A terminal that is closed is not meant for us.
    let _ = sys::setsid();
    sys::mount("", c"/", "", libc::MS_SLAVE | libc::MS_REC, "").context("mounts")?;
    sys::loopback_up().context("failed to bring up the loopback link")?;
    own_resolver().context("failed to say where DNS is asked")?;
    own_control_groups();
    let began = beginning("/proc/self".into()).context("/proc does not say who this is")?;
    let unfinished = file().with_extension("new");
    fs::write(&unfinished, format!("{} {began}\n", std::process::id()))?;
    fs::rename(&unfinished, file())?;
    io::stdout().write_all(b"!")?;
    io::stdout().flush()?;
    // Who waits for the end of what we were started with does not wait for ours.
    let nothing = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    sys::pause_forever()
}

fn own_resolver() -> io::Result<()> {
    let own = places::state_dir().join("resolv.conf");
    fs::write(&own, format!("nameserver {}\n", uplink::RESOLVER))?;
    // Often a link to where some service keeps it.
    let Ok(place) = fs::canonicalize("/etc/resolv.conf") else { return Ok(()) };
    sys::mount(&own.to_string_lossy(), &sys::c_path(&place)?, "", libc::MS_BIND, "")
}

/// Where there is only v2, what was handed to us is all that is to be seen. If nothing was, nobody can use
/// it, and is told.
fn own_control_groups() {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists()
        && let Err(error) = sys::mount("cgroup2", c"/sys/fs/cgroup", "cgroup2", 0, "")
    {
        eprintln!("control groups are those of the machine: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let (own, open) = (place.path().join("own"), place.path().join("open"));
        own_folder(&own).unwrap();
        own_folder(&own).unwrap();
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let said = own_folder(&open).unwrap_err().to_string();
        assert!(said.ends_with("set XDG_RUNTIME_DIR to another place"), "{said}");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(own_folder(&link).is_err());
    }

    #[test]
    fn a_process_is_known_by_its_beginning() {
        let own = beginning("/proc/self".into()).unwrap();
        assert_eq!(beginning(format!("/proc/{}", std::process::id()).into()), Some(own.clone()));
        assert!(own.parse::<u64>().is_ok(), "{own}");
        assert_ne!(beginning("/proc/1".into()), Some(own));
    }
}
