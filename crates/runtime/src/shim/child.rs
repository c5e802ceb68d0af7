//! From a forked shim to a container's first process. Runs in the child, step by step, in the order
//! in which each step still may; the first that fails is reported and ends it.
//!
//! The sources of mounts are opened before the root changes, everything is attached after: paths
//! inside the container are then resolved by the kernel against the container's own root, and no
//! link in an image or a volume can lead a mount anywhere else. Control groups, namespaces, mounts,
//! root, identity, capabilities, filter, program.
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::identity;
use super::mounts;
use super::protocol::{Report, send};
use super::spec::{Capabilities, ContainerSpec, Identity, PidNamespace, ProcessSpec};
use super::sys;

/// What failed: the step and why.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct Failure {
    step: String,
    cause: io::Error,
}

pub trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|cause| Failure { step: step(), cause })
    }
}

/// Namespaces to join, with the kernel's kind of each. The process namespace was the parent's
/// business.
pub struct Join {
    /// First of all: what follows happens with its powers only.
    pub users: Option<OwnedFd>,
    pub namespaces: Vec<(OwnedFd, i32)>,
}

/// The process's standard streams, unless it gets a terminal.
pub struct Streams {
    pub descriptors: Vec<OwnedFd>,
}

/// Becomes the container.
pub fn run_container(
    spec: &ContainerSpec,
    cgroup: &[PathBuf],
    join: Join,
    streams: Streams,
    channel: UnixStream,
) -> ! {
    let outcome = enter(spec, cgroup, join, &channel)
        .and_then(|()| become_process(&spec.process, streams, &channel));
    report(outcome, &channel)
}

/// Becomes another process of a container whose namespaces `join` has.
pub fn run_exec(
    process: &ProcessSpec,
    cgroup: &[PathBuf],
    join: Join,
    streams: Streams,
    channel: UnixStream,
) -> ! {
    let outcome = join_cgroup(cgroup)
        .and_then(|()| set_oom_score(process))
        .and_then(|()| join_namespaces(&join))
        .and_then(|()| become_process(process, streams, &channel));
    report(outcome, &channel)
}

/// Says why it did not come to its program.
pub fn report(outcome: Result<std::convert::Infallible, Failure>, channel: &UnixStream) -> ! {
    let Err(failure) = outcome;
    let _ = send(channel, &Report::Failed(failure.to_string()), &[]);
    sys::exit_now(127)
}

fn enter(
    spec: &ContainerSpec,
    cgroup: &[PathBuf],
    join: Join,
    channel: &UnixStream,
) -> Result<(), Failure> {
    sys::set_dumpable(false).step(|| "protect the process".to_owned())?;
    join_cgroup(cgroup)?;
    set_oom_score(&spec.process)?;
    let users = join.users.as_ref().map(AsFd::as_fd);
    let mut sources = mounts::open_sources(spec, users)?;
    mounts::mount_root(&spec.root, users)?;
    join_namespaces(&join)?;
    if users.is_some() {
        succeed(&spec.pids, channel)?;
    }
    sys::unshare(libc::CLONE_NEWCGROUP).step(|| "make a cgroup namespace".to_owned())?;
    mounts::open_filesystems(&spec.mounts, &mut sources)?;
    mounts::enter_root(&spec.root, users.is_some())?;
    mounts::attach(spec, sources)?;
    mounts::hide(&spec.masked_paths, &spec.readonly_paths)?;
    if spec.root.readonly {
        mounts::make_root_readonly()?;
    }
    Ok(())
}

/// In a user namespace: goes on with mounts, and if need be processes, that belong to it. Both are
/// its own only if they are made by one who is in it already.
fn succeed(pids: &PidNamespace, channel: &UnixStream) -> Result<(), Failure> {
    if *pids != PidNamespace::Own {
        return sys::unshare(libc::CLONE_NEWNS).step(|| "make a mount namespace".to_owned());
    }
    let cloned = sys::clone_brother(libc::CLONE_NEWPID | libc::CLONE_NEWNS);
    match cloned.step(|| "make a process namespace".to_owned())? {
        None => Ok(()),
        Some(pid) => {
            let _ = send(channel, &Report::Successor(pid), &[]);
            sys::exit_now(0)
        }
    }
}

/// While /proc is the host's and we may.
fn set_oom_score(process: &ProcessSpec) -> Result<(), Failure> {
    match process.oom_score {
        Some(score) => fs::write("/proc/self/oom_score_adj", score.to_string())
            .step(|| "set the OOM score".to_owned()),
        None => Ok(()),
    }
}

fn join_cgroup(folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders {
        let path = folder.join("cgroup.procs");
        fs::write(&path, "0").step(|| format!("join {}", folder.display()))?;
    }
    Ok(())
}

fn join_namespaces(join: &Join) -> Result<(), Failure> {
    if let Some(users) = &join.users {
        sys::setns(users.as_fd(), libc::CLONE_NEWUSER)
            .and_then(|()| sys::set_identity(0, 0, &[]))
            .step(|| "join the user namespace".to_owned())?;
    }
    for (namespace, kind) in &join.namespaces {
        sys::setns(namespace.as_fd(), *kind).step(|| format!("join namespace {kind:#x}"))?;
    }
    Ok(())
}

/// Everything about the process itself, ending in its program.
fn become_process(
    process: &ProcessSpec,
    streams: Streams,
    channel: &UnixStream,
) -> Result<std::convert::Infallible, Failure> {
    sys::setsid().step(|| "make a session".to_owned())?;
    sys::umask(0o022);
    let identity = identity::resolve(&process.user, Path::new("/"))
        .step(|| format!("find user {:?}", process.user.user))?;
    streams_or_terminal(process, streams, &identity, channel)?;
    for limit in &process.limits {
        sys::set_limit(limit.resource, limit.soft, limit.hard)
            .step(|| format!("set limit {}", limit.resource))?;
    }
    label(process)?;
    make_directory(process)?;
    send(channel, &Report::Identity(identity.clone()), &[]).step(|| "report".to_owned())?;

    let filter = process.seccomp.as_deref().map(decode_filter).transpose()?;
    let install = |filter: &Option<Vec<u8>>| match filter {
        Some(filter) => {
            sys::install_seccomp(filter).step(|| "install the system call filter".to_owned())
        }
        None => Ok(()),
    };
    drop_to(process, &identity, || {
        // Without no_new_privs a filter needs CAP_SYS_ADMIN, which is about to go.
        if process.no_new_privileges { Ok(()) } else { install(&filter) }
    })?;
    // After the identity: it is the user who must be able to enter it.
    std::env::set_current_dir(&process.directory)
        .step(|| format!("change to directory {:?}", process.directory))?;
    let (path, arguments, environment) = program(process, &identity)?;
    sys::close_on_exec_from(3).step(|| "close descriptors".to_owned())?;
    sys::reset_signals();
    if process.no_new_privileges {
        sys::set_no_new_privileges().step(|| "set no_new_privs".to_owned())?;
        install(&filter)?;
    }
    let error = sys::execve(&path, &arguments, &environment);
    Err(error).step(|| format!("exec {:?}", process.arguments[0]))
}

fn streams_or_terminal(
    process: &ProcessSpec,
    streams: Streams,
    identity: &Identity,
    channel: &UnixStream,
) -> Result<(), Failure> {
    if process.terminal {
        return open_terminal(identity.uid, channel).step(|| "open a terminal".to_owned());
    }
    for (number, descriptor) in streams.descriptors.iter().enumerate() {
        // So that /dev/stdout can be opened again by whom it belongs to.
        let _ = rustix::fs::fchown(
            descriptor,
            Some(rustix::fs::Uid::from_raw(identity.uid)),
            Some(rustix::fs::Gid::from_raw(identity.gid)),
        );
        sys::duplicate_to(descriptor.as_fd(), number as i32)
            .step(|| "set up standard streams".to_owned())?;
    }
    Ok(())
}

/// Opens a terminal of the container's own, makes it the process's streams and hands its other end
/// to the shim.
fn open_terminal(uid: u32, channel: &UnixStream) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    const DEVPTS: i64 = 0x1cd1;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let controller = open("/dev/pts/ptmx", flags, Mode::empty())?;
    // What a container put there instead is not trusted.
    if rustix::fs::fstatfs(&controller)?.f_type as i64 != DEVPTS {
        return Err(io::Error::other("/dev/pts is not a terminal file system"));
    }
    let number = sys::terminal_number(controller.as_fd())?;
    let terminal = open(format!("/dev/pts/{number}"), flags, Mode::empty())?;
    rustix::fs::fchown(&terminal, Some(rustix::fs::Uid::from_raw(uid)), None)?;
    for standard in 0..3 {
        sys::duplicate_to(terminal.as_fd(), standard)?;
    }
    sys::set_controlling_terminal(terminal.as_fd())?;
    send(channel, &Report::Terminal, &[controller.as_fd()])
}

fn label(process: &ProcessSpec) -> Result<(), Failure> {
    if let Some(profile) = &process.apparmor {
        fs::write("/proc/self/attr/apparmor/exec", format!("exec {profile}"))
            .or_else(|_| fs::write("/proc/self/attr/exec", format!("exec {profile}")))
            .step(|| format!("apply AppArmor profile {profile:?}"))?;
    }
    if let Some(label) = &process.selinux {
        fs::write("/proc/self/attr/exec", label).step(|| format!("apply label {label:?}"))?;
    }
    Ok(())
}

/// A working directory that the image lacks is made, as upstream's runtimes do.
fn make_directory(process: &ProcessSpec) -> Result<(), Failure> {
    match fs::create_dir_all(&process.directory) {
        // On a read-only root the change into it tells what is wrong.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn drop_to(
    process: &ProcessSpec,
    identity: &Identity,
    before_capabilities: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    // What the host's root lacks nobody gets.
    let permitted = sys::permitted().step(|| "read capabilities".to_owned())?;
    let Capabilities { bounding, ambient } = process.capabilities;
    let (bounding, ambient) = (bounding & permitted, ambient & permitted);
    for capability in (0..64).filter(|number| bounding & 1 << number == 0) {
        match sys::drop_bounding(capability) {
            // The kernel knows no such capability.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            result => result.step(|| format!("drop capability {capability}"))?,
        }
    }
    sys::keep_capabilities(true).step(|| "keep capabilities".to_owned())?;
    sys::set_identity(identity.uid, identity.gid, &identity.groups)
        .step(|| format!("become user {}", identity.uid))?;
    if identity.uid != 0 {
        // Kept, but not in force: the filter needs them to be.
        sys::capset(permitted, permitted, ambient).step(|| "raise capabilities".to_owned())?;
    }
    before_capabilities()?;
    sys::capset(bounding, bounding, ambient).step(|| "set capabilities".to_owned())?;
    for capability in (0..64).filter(|number| ambient & 1 << number != 0) {
        sys::raise_ambient(capability).step(|| format!("raise capability {capability}"))?;
    }
    sys::keep_capabilities(false).step(|| "keep capabilities".to_owned())
}

fn decode_filter(text: &str) -> Result<Vec<u8>, Failure> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(io::Error::other)
        .step(|| "read the system call filter".to_owned())
}

type Program = (std::ffi::CString, Vec<std::ffi::CString>, Vec<std::ffi::CString>);

/// Finds the program on the container's own `PATH`.
fn program(process: &ProcessSpec, identity: &Identity) -> Result<Program, Failure> {
    let first = process.arguments.first().cloned().unwrap_or_default();
    let mut environment = process.environment.clone();
    if !environment.iter().any(|line| line.starts_with("HOME=")) {
        environment.push(format!("HOME={}", identity.home));
    }
    let strings = |texts: &[String]| {
        texts.iter().map(|text| sys::c_text(text)).collect::<io::Result<Vec<_>>>()
    };
    let found = find_program(&first, &environment).step(|| format!("exec: {first:?}"))?;
    let path = sys::c_path(&found).step(|| format!("exec: {first:?}"))?;
    let arguments = strings(&process.arguments).step(|| "read the arguments".to_owned())?;
    let environment = strings(&environment).step(|| "read the environment".to_owned())?;
    Ok((path, arguments, environment))
}

fn find_program(name: &str, environment: &[String]) -> io::Result<PathBuf> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let missing = || io::Error::new(io::ErrorKind::NotFound, "executable file not found in $PATH");
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file())
            && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    if name.is_empty() {
        return Err(missing());
    }
    if name.contains('/') {
        // Whatever is wrong with it the kernel says best.
        return Ok(PathBuf::from(name));
    }
    let search = environment.iter().rev().find_map(|line| line.strip_prefix("PATH="));
    search
        .unwrap_or("")
        .split(':')
        .map(|folder| Path::new(if folder.is_empty() { "." } else { folder }).join(name))
        .find(|path| runs(path))
        .ok_or_else(missing)
}
