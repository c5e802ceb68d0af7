//! Containers of another OCI runtime (runc, crun, runsc …), for sandboxes whose handler names one.
//!
//! Everything else stays ours: the sandbox's namespaces, the streams and the log, reaping, how it
//! ended. A container's root and the sources of its mounts are mounted, as for our own, where only
//! the container sees them: in a mount namespace that begins with the runtime's `create` and lives
//! on in what it made. The runtime is told paths in there. Its processes come back to us when it has
//! ended, for we are their reaper; so it is run to its end for every step, and waited for.
mod config;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::child::{Failure, Step, Streams};
use super::mounts;
use super::protocol::{Report, send};
use super::sandbox::Sandbox;
use super::spec::{ContainerSpec, ForeignSpec, Identity, PidNamespace, ProcessSpec, RuntimeSpec};
use super::{identity, sys};
use crate::files::write_private;

/// A runtime, and where the sandbox's files about it are.
#[derive(Clone)]
pub struct Foreign {
    path: PathBuf,
    folder: PathBuf,
}

/// Until a step of a runtime must be done.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// What `create` or `exec` left running.
pub struct Made {
    pub pid: i32,
    pub terminal: Option<OwnedFd>,
}

impl Foreign {
    pub fn new(spec: &RuntimeSpec) -> io::Result<Self> {
        fs::create_dir_all(spec.folder.join("root"))?;
        Ok(Foreign { path: spec.path.clone(), folder: spec.folder.clone() })
    }

    /// The program and its first arguments, for every call alike.
    fn arguments(&self, rest: &[&str]) -> Vec<String> {
        let root = self.folder.join("root").display().to_string();
        let log = self.log().display().to_string();
        let first = [&self.path.display().to_string(), "--root", &root, "--log", &log];
        let format = ["--log-format", "json"];
        first.iter().chain(&format).chain(rest).map(|word| (*word).to_owned()).collect()
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log.json")
    }

    /// In the child that becomes `create`: mounts what the container is to find, writes the bundle.
    /// Comes back only if something failed.
    pub fn become_create(
        &self,
        id: &str,
        spec: &ContainerSpec,
        foreign: &ForeignSpec,
        namespaces: Vec<Value>,
        streams: Streams,
        channel: &UnixStream,
    ) -> Result<std::convert::Infallible, Failure> {
        let bundle = spec.folder.join("bundle");
        fs::create_dir_all(bundle.join("mounts")).step(|| "make the bundle".to_owned())?;
        let sources = mounts::open_sources(spec, None)?;
        mounts::mount_root(&spec.root, None)?;
        mounts::stage(spec, sources, |number| config::staged(&bundle, number))?;
        let identity = identity::resolve(&spec.process.user, &spec.root.upper)
            .step(|| format!("find user {:?}", spec.process.user.user))?;
        let document = config::container(spec, foreign, &bundle, namespaces, &identity);
        write_private(&bundle.join("config.json"), document.to_string().as_bytes())
            .step(|| "write config.json".to_owned())?;
        send(channel, &Report::Identity(identity), &[]).step(|| "report".to_owned())?;
        let bundle = bundle.display().to_string();
        let pid_file = self.pid_file().display().to_string();
        let socket = self.console().display().to_string();
        let mut rest = vec!["create", "--bundle", &bundle, "--pid-file", &pid_file];
        if spec.process.terminal {
            rest.extend(["--console-socket", &socket]);
        }
        rest.push(id);
        self.become_runtime(&rest, streams)
    }

    /// In the child that becomes `exec`.
    pub fn become_exec(
        &self,
        id: &str,
        process: &ProcessSpec,
        identity: &Identity,
        streams: Streams,
        channel: &UnixStream,
    ) -> Result<std::convert::Infallible, Failure> {
        let path = self.folder.join("process.json");
        let document = config::process(process, identity).to_string();
        write_private(&path, document.as_bytes()).step(|| "write process.json".to_owned())?;
        send(channel, &Report::Identity(identity.clone()), &[]).step(|| "report".to_owned())?;
        let path = path.display().to_string();
        let pid_file = self.pid_file().display().to_string();
        let socket = self.console().display().to_string();
        let mut rest = vec!["exec", "--detach", "--process", &path, "--pid-file", &pid_file];
        if process.terminal {
            rest.extend(["--console-socket", &socket]);
        }
        rest.push(id);
        self.become_runtime(&rest, streams)
    }

    fn become_runtime(
        &self,
        rest: &[&str],
        streams: Streams,
    ) -> Result<std::convert::Infallible, Failure> {
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let mut descriptors = streams.descriptors;
        while descriptors.len() < 3 {
            descriptors.push(null().step(|| "open /dev/null".to_owned())?);
        }
        for (number, descriptor) in descriptors.iter().enumerate() {
            sys::duplicate_to(descriptor.as_fd(), number as i32)
                .step(|| "set up standard streams".to_owned())?;
        }
        let texts = |words: &[String]| -> io::Result<Vec<CString>> {
            words.iter().map(|word| sys::c_text(word)).collect()
        };
        let arguments = texts(&self.arguments(rest)).step(|| "read the arguments".to_owned())?;
        let environment = texts(&[PATH.to_owned()]).step(|| "read the arguments".to_owned())?;
        sys::close_on_exec_from(3).step(|| "close descriptors".to_owned())?;
        sys::reset_signals();
        let error = sys::execve(&arguments[0], &arguments, &environment);
        Err(error).step(|| format!("run {}", self.path.display()))
    }

    /// Before a `create` or `exec`: where it says who runs, and hands over a terminal.
    pub fn prepare(&self, terminal: bool) -> io::Result<Option<UnixListener>> {
        for file in [self.pid_file(), self.console(), self.log()] {
            let _ = fs::remove_file(file);
        }
        terminal.then(|| UnixListener::bind(self.console())).transpose()
    }

    /// After it: how it went.
    pub fn finish(&self, code: i32, console: Option<UnixListener>) -> io::Result<Made> {
        if code != 0 {
            return Err(self.reason(code));
        }
        let pid = fs::read_to_string(self.pid_file())?.trim().parse().map_err(io::Error::other)?;
        let terminal = console.map(|listener| receive_terminal(&listener)).transpose()?;
        Ok(Made { pid, terminal })
    }

    /// What it wrote into its log last.
    fn reason(&self, code: i32) -> io::Error {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let message = log.lines().rev().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["level"] == "error").then(|| line["msg"].as_str().map(str::to_owned))?
        });
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let message = message.unwrap_or_else(|| format!("it ended with {code}"));
        io::Error::other(format!("{name}: {message}"))
    }

    pub fn start(&self, id: &str) -> io::Result<()> {
        self.run(&["start", id])
    }

    pub fn kill(&self, id: &str, signal: i32) -> io::Result<()> {
        self.run(&["kill", id, &signal.to_string()])
    }

    /// Forgets a container that has ended.
    pub fn delete(&self, id: &str) {
        let _ = self.run(&["delete", "--force", id]);
    }

    pub fn update(&self, id: &str, resources: &Value) -> io::Result<()> {
        let path = self.folder.join("resources.json");
        fs::write(&path, resources.to_string())?;
        self.run(&["update", "--resources", &path.display().to_string(), id])
    }

    /// A step without streams.
    fn run(&self, rest: &[&str]) -> io::Result<()> {
        let _ = fs::remove_file(self.log());
        let arguments = self.arguments(rest);
        let child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .env_clear()
            .env("PATH", PATH.trim_start_matches("PATH="))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id() as i32;
        match sys::wait_within(pid, PATIENCE)? {
            Some(0) => Ok(()),
            Some(code) => Err(self.reason(code)),
            None => {
                // A container can hold up who waits for it.
                let _ = sys::kill(pid, libc::SIGKILL);
                let _ = sys::wait_within(pid, PATIENCE);
                let text = format!("{} is not done after {PATIENCE:?}", self.path.display());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("tty.sock")
    }
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The sandbox's namespaces and the container's own, for the document. Ours are named by our
/// descriptors, which are open as long as we are there.
pub fn namespaces(
    sandbox: &Sandbox,
    spec: &ContainerSpec,
    target: impl Fn(&str) -> io::Result<i32>,
) -> io::Result<Vec<Value>> {
    let own = std::process::id();
    let mut list = vec![json!({ "type": "mount" }), json!({ "type": "cgroup" })];
    for (kind, namespace, hosts) in [
        ("network", &sandbox.network, spec.host_network),
        ("ipc", &sandbox.ipc, spec.host_ipc),
        ("uts", &sandbox.uts, spec.host_network),
    ] {
        if let (Some(namespace), false) = (namespace, hosts) {
            let path = format!("/proc/{own}/fd/{}", namespace.as_raw_fd());
            list.push(json!({ "type": kind, "path": path }));
        }
    }
    let pid = match &spec.pids {
        PidNamespace::Host => return Ok(list),
        PidNamespace::Own => None,
        PidNamespace::Sandbox => match &sandbox.pids {
            Some((_, pid)) => Some(*pid),
            None => return Err(io::Error::other("the sandbox shares no process namespace")),
        },
        PidNamespace::Of(id) => Some(target(id)?),
    };
    list.push(match pid {
        Some(pid) => json!({ "type": "pid", "path": format!("/proc/{pid}/ns/pid") }),
        None => json!({ "type": "pid" }),
    });
    Ok(list)
}

/// The terminal's controlling end: the runtime sent it with its name, and has ended since.
fn receive_terminal(listener: &UnixListener) -> io::Result<OwnedFd> {
    listener.set_nonblocking(true)?;
    let (stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut name = [0; 4096];
    let (_, handles) = super::protocol::receive_with_descriptors(&stream, &mut name)?;
    handles.into_iter().next().ok_or_else(|| io::Error::other("the runtime sent no terminal"))
}

/// Whether a path is a program; said when it is configured, not when it is first needed.
pub fn is_program(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
