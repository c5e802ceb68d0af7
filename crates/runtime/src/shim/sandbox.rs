//! The namespaces that a sandbox's containers share, made once and kept open.
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::{Answer, Report, receive, send};
use super::spec::{IdMap, SandboxSpec};
use super::sys;

pub struct Sandbox {
    pub network: Option<OwnedFd>,
    pub ipc: Option<OwnedFd>,
    pub uts: Option<OwnedFd>,
    pub users: Option<OwnedFd>,
    /// The shared process namespace and the process that holds it.
    pub pids: Option<(OwnedFd, i32)>,
}

/// Until the process that sets up the namespaces has done so, or has gone.
const PATIENCE: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Makes the namespaces in a child, which sets them up from inside. It goes away again, unless
    /// it has to be the first process of a shared process namespace.
    pub fn create(spec: &SandboxSpec) -> io::Result<Self> {
        let mut flags = 0;
        for (wanted, flag) in [
            (spec.network.is_some(), libc::CLONE_NEWNET),
            (spec.ipc, libc::CLONE_NEWIPC),
            // The host's name belongs to those who have the host's network.
            (spec.network.is_some(), libc::CLONE_NEWUTS),
            (spec.shared_pids, libc::CLONE_NEWPID),
            (spec.users.is_some(), libc::CLONE_NEWUSER),
        ] {
            if wanted {
                flags |= flag;
            }
        }
        let (ours, theirs) = UnixStream::pair()?;
        // It mounts and unmounts nothing, and writes to files of the kernel: that is soon done.
        ours.set_read_timeout(Some(PATIENCE))?;
        let Some(pid) = sys::clone(flags, None)? else {
            sys::close_all_but(&[theirs.as_raw_fd()]);
            hold(spec, theirs)
        };
        drop(theirs);
        let mapped = map_users(spec, pid).and_then(|()| send(&ours, &Answer::Done, &[]));
        let reported = mapped.and_then(|()| receive::<Report>(&ours));
        let opened = match reported {
            Ok(Some((Report::Failed(reason), _))) => Err(io::Error::other(reason)),
            Ok(Some(_)) => open(spec, pid),
            Ok(None) => Err(io::Error::other("the process that sets up the namespaces died")),
            Err(error) => Err(error),
        };
        if opened.is_err() || !spec.shared_pids {
            let _ = sys::kill(pid, libc::SIGKILL);
            sys::wait_within(pid, PATIENCE)?;
            return opened;
        }
        send(&ours, &Answer::Done, &[])?;
        opened
    }
}

fn open(spec: &SandboxSpec, pid: i32) -> io::Result<Sandbox> {
    let namespace = |wanted: bool, name: &str| -> io::Result<Option<OwnedFd>> {
        let path = format!("/proc/{pid}/ns/{name}");
        wanted.then(|| File::open(path).map(OwnedFd::from)).transpose()
    };
    let network = namespace(spec.network.is_some(), "net")?;
    if let Some(path) = &spec.network {
        pin(Path::new(&format!("/proc/{pid}/ns/net")), path)?;
    }
    Ok(Sandbox {
        uts: namespace(network.is_some(), "uts")?,
        network,
        ipc: namespace(spec.ipc, "ipc")?,
        users: namespace(spec.users.is_some(), "user")?,
        pids: namespace(spec.shared_pids, "pid")?.map(|namespace| (namespace, pid)),
    })
}

/// Says which of the host's users and groups those of the new namespace are.
fn map_users(spec: &SandboxSpec, pid: i32) -> io::Result<()> {
    let Some(map) = &spec.users else { return Ok(()) };
    let line = |map: &IdMap| format!("{} {} {}\n", map.inside, map.host, map.length);
    fs::write(format!("/proc/{pid}/uid_map"), line(&map.users))?;
    fs::write(format!("/proc/{pid}/gid_map"), line(&map.groups))
}

/// Gives a namespace a path, for those who set up networks.
fn pin(namespace: &Path, path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)?;
    let source = namespace.to_str().ok_or_else(|| io::Error::other("not a path"))?;
    sys::mount(source, &sys::c_path(path)?, "", libc::MS_BIND, "")
}

/// In the child: everything that is set from inside, then silence.
fn hold(spec: &SandboxSpec, channel: UnixStream) -> ! {
    let ready = receive::<Answer>(&channel).map(drop);
    let set_up = ready.and_then(|()| set_up(spec));
    // Until the shim has opened the namespaces, for which it may lack the capability if we are not.
    // There is nobody else to look yet.
    let report = match set_up.and_then(|()| sys::set_dumpable(true)) {
        Ok(()) => Report::Identity(super::spec::Identity {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            home: String::new(),
        }),
        Err(error) => Report::Failed(error.to_string()),
    };
    let sent = send(&channel, &report, &[]);
    if sent.is_err() || matches!(report, Report::Failed(_)) {
        sys::exit_now(1);
    }
    // One who only lends its namespaces is killed here.
    let opened = receive::<Answer>(&channel).map(drop);
    if opened.and_then(|()| give_up_everything()).is_err() {
        sys::exit_now(1);
    }
    sys::close_from(0);
    sys::pause_forever()
}

/// The first process of a shared process namespace is in every container's sight, and one with
/// `CAP_SYS_PTRACE` can do with it as it likes: so it has no files, no power, and is in an empty place
/// of its own.
fn give_up_everything() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount("", c"/", "", libc::MS_PRIVATE | libc::MS_REC, "")?;
    // Any folder that is there on every machine; what it hides is hidden from this process only.
    sys::mount("tmpfs", c"/proc", "tmpfs", libc::MS_RDONLY, "size=0k")?;
    std::env::set_current_dir("/proc")?;
    sys::pivot_here()?;
    sys::unmount(c".")?;
    std::env::set_current_dir("/")?;
    sys::set_dumpable(false)?;
    sys::set_no_new_privileges()?;
    sys::capset(0, 0, 0)
}

fn set_up(spec: &SandboxSpec) -> io::Result<()> {
    sys::setsid()?;
    for folder in &spec.cgroup {
        fs::write(folder.join("cgroup.procs"), "0")?;
    }
    if spec.users.is_some() {
        sys::set_identity(0, 0, &[])?;
    }
    if spec.network.is_some() {
        sys::loopback_up()?;
        if !spec.hostname.is_empty() {
            sys::sethostname(&spec.hostname)?;
        }
    }
    for (path, value) in &spec.sysctls {
        let path = Path::new("/proc/sys").join(path);
        fs::write(&path, value).map_err(|error| {
            io::Error::other(format!("failed to write {value:?} to {}: {error}", path.display()))
        })?;
    }
    Ok(())
}
