//! Talking to shims: starting one, asking one. A question is short and is asked on a thread that
//! may block.
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

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
        let stream = UnixStream::connect(&socket)?;
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
