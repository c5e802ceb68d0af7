//! Talking to shims: starting one, asking one, ending one. A question is short and is asked on a thread
//! that may block, but not for ever: a shim is in reach of whoever has the host's processes.
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::shim::protocol::{Answer, Request, receive, send};
use crate::shim::spec::SandboxSpec;
use crate::shim::sys;

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("the shim does not answer")]
    Unreachable(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("failed to start the shim")]
    Start(#[source] io::Error),
}

/// Until a shim must have answered: a little more than it takes for itself, which is much only where
/// something is started or another runtime is asked.
fn patience(request: &Request) -> Duration {
    Duration::from_secs(match request {
        Request::Start { .. } => 60,
        Request::Exec { .. } | Request::Update { .. } | Request::Kill { .. } => 45,
        Request::Shutdown => 20,
        _ => 15,
    })
}

/// For the binary's allocator: no thread of its own, for the shim forks; little kept, for there are
/// many shims. Containers do not see it.
const ALLOCATOR: &str = "background_thread:false,narenas:1,tcache:false,dirty_decay_ms:0";

/// Starts a shim; it answers on `state/shim.sock` as soon as its namespaces stand.
pub async fn start(executable: &Path, state: &Path, spec: &SandboxSpec) -> Result<(), ShimError> {
    let description = state.join("spec.json");
    let text = serde_json::to_vec(spec).map_err(|error| ShimError::Start(error.into()))?;
    std::fs::write(&description, text).map_err(ShimError::Start)?;
    let socket = state.join("shim.sock");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(ShimError::Start)?;
    let program = sys::protected(executable).map_err(ShimError::Start)?;
    use std::os::fd::AsRawFd;
    let mut child = tokio::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("skiff")
        .arg("shim")
        .arg(&description)
        .env_clear()
        .env("_RJEM_MALLOC_CONF", ALLOCATOR)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ShimError::Start)?;
    // It outlives us; as long as we are here we collect it.
    tokio::spawn(async move { child.wait().await });
    ask(socket, Request::Hello).await.map(drop)
}

/// One question, one answer.
pub async fn ask(socket: PathBuf, request: Request) -> Result<Answer, ShimError> {
    converse(socket, request, Vec::new()).await.map(|(answer, _, _)| answer)
}

/// A question with descriptors; the connection comes back for what follows.
pub async fn converse(
    socket: PathBuf,
    request: Request,
    descriptors: Vec<OwnedFd>,
) -> Result<(Answer, Vec<OwnedFd>, UnixStream), ShimError> {
    let talk = move || {
        let stream = connect(&socket, patience(&request))?;
        let handles: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        send(&stream, &request, &handles)?;
        drop(descriptors);
        let answer = receive::<Answer>(&stream)?;
        answer
            .map(|(answer, handles)| (answer, handles, stream))
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let result = tokio::task::spawn_blocking(talk).await;
    match result.map_err(|error| ShimError::Unreachable(io::Error::other(error)))? {
        Ok((Answer::Failed(reason), _, _)) => Err(ShimError::Refused(reason)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(ShimError::Unreachable(error)),
    }
}

fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Ends the shim whose state is in `state`, with all that it runs. One that does not answer is killed:
/// its containers are then ended by their control groups. Blocks.
pub fn end(state: &Path) -> io::Result<()> {
    end_within(state, patience(&Request::Shutdown))
}

fn end_within(state: &Path, patience: Duration) -> io::Result<()> {
    let ask = || -> io::Result<()> {
        let stream = connect(&state.join("shim.sock"), patience)?;
        send(&stream, &Request::Shutdown, &[])?;
        receive::<Answer>(&stream).map(drop)
    };
    match ask() {
        // Nobody listens there any more.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(())
        }
        Err(_) => kill(state),
        Ok(()) => Ok(()),
    }
}

/// Kills the shim by what it was started with. Whoever pretends to be it is none the better for it.
pub fn kill(state: &Path) -> io::Result<()> {
    let description = state.join("spec.json");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        use std::os::unix::ffi::OsStrExt;
        if words.next() == Some(b"shim") && words.next() == Some(description.as_os_str().as_bytes())
        {
            sys::kill(pid, libc::SIGKILL)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_that_does_not_answer_is_killed() {
        let state = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(state.path().join("shim.sock")).unwrap();
        let description = state.path().join("spec.json");
        // One that only has the same words.
        let mut shim = std::process::Command::new("tail")
            .args(["-f", "/dev/null", "shim"])
            .arg(&description)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        end_within(state.path(), Duration::from_millis(10)).unwrap();
        assert!(shim.try_wait().unwrap().is_none(), "another program is left alone");
        let _ = shim.kill();
        let _ = shim.wait();
        use std::os::unix::process::CommandExt;
        let mut shim = std::process::Command::new("tail")
            .arg0("skiff")
            .args(["shim"])
            .arg(&description)
            .args(["-f", "/dev/null"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        end_within(state.path(), Duration::from_millis(10)).unwrap();
        assert!(!shim.wait().unwrap().success());
        end_within(&state.path().join("gone"), Duration::from_millis(10)).unwrap();
    }
}
