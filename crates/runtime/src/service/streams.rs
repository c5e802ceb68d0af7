//! Processes whose streams somebody holds: exec, attach, port-forward.
//!
//! An exec's pipes go straight from the daemon to the process; the shim only starts and reaps it.
//! Attaching goes through the shim, which owns the container's streams.
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tonic::Status;

use super::records::{Container, Sandbox};
use super::sandboxes::shim_status;
use super::shims::{self, ShimError};
use super::{Service, chain};
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::shim::protocol::{Answer, Request};
use crate::shim::sys;

/// Most output that a synchronous exec returns; upstream's runtimes have the same limit.
const OUTPUT_LIMIT: usize = 16 << 20;

/// Another process in a container, with our ends of its streams.
pub(crate) struct Process {
    pub stdin: Option<Sender>,
    pub stdout: Option<Receiver>,
    pub stderr: Option<Receiver>,
    terminal: Option<OwnedFd>,
    pid: i32,
    connection: UnixStream,
    /// What the shim has said so far of how it ended.
    said: Vec<u8>,
}

impl Process {
    pub fn resize(&self, width: u16, height: u16) {
        use std::os::fd::AsFd;
        if let Some(terminal) = &self.terminal {
            // A process that has ended has no size.
            let _ = sys::set_window(terminal.as_fd(), width, height);
        }
    }

    pub fn kill(&self) {
        let _ = sys::kill(self.pid, libc::SIGKILL);
    }

    /// How it ended. Who waits for other things too may give up and ask again: what was read is kept.
    pub async fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(body) = whole(&self.said) {
                return match serde_json::from_slice(body)? {
                    Answer::Exited { exit, .. } => Ok(exit.code),
                    other => Err(io::Error::other(format!("the shim answered {other:?}"))),
                };
            }
            if self.connection.read_buf(&mut self.said).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// An answer that has arrived as a whole, without its length.
fn whole(said: &[u8]) -> Option<&[u8]> {
    let (length, body) = said.split_first_chunk()?;
    body.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

impl Service {
    pub(crate) fn running(&self, id: &str) -> Result<Arc<Container>, Status> {
        let container = self.container(id)?;
        if container.is_running() {
            return Ok(container);
        }
        Err(Status::failed_precondition(format!("container {} is not running", container.id)))
    }

    /// Starts a process in a running container.
    pub(crate) async fn spawn(
        &self,
        container: &Container,
        command: Vec<String>,
        terminal: bool,
        stdin: bool,
    ) -> Result<Process, Status> {
        let internal = |error: io::Error| Status::internal(format!("failed to exec: {error}"));
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        if command.is_empty() {
            return Err(Status::invalid_argument("no command specified"));
        }
        let spec = self.specification(&sandbox, container);
        let mut process = spec.map_err(|error| Status::internal(chain(&error)))?.process;
        process.arguments = command;
        process.terminal = terminal;
        if terminal && !process.environment.iter().any(|line| line.starts_with("TERM=")) {
            process.environment.push("TERM=xterm".to_owned());
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let mut input = None;
        if !terminal {
            let (read, write) = pipe().map_err(internal)?;
            theirs.push(read);
            // Without input the pipe is at its end from the start.
            input = stdin.then_some(write);
            for _ in 0..2 {
                let (read, write) = pipe().map_err(internal)?;
                ours.push(read);
                theirs.push(write);
            }
        }
        let request = Request::Exec {
            id: container.id.clone(),
            process: Box::new(process),
            cgroup: container.group.folders(),
        };
        let answer = shims::converse(sandbox.socket(), request, theirs).await;
        let (answer, mut handles, connection) = answer.map_err(|error| shim_status(&error))?;
        let Answer::Started(started) = answer else {
            return Err(Status::internal("the shim did not start the process"));
        };
        connection.set_read_timeout(None).map_err(internal)?;
        connection.set_nonblocking(true).map_err(internal)?;
        let connection = UnixStream::from_std(connection).map_err(internal)?;
        let terminal = handles.pop();
        if let Some(terminal) = &terminal {
            ours.push(terminal.try_clone().map_err(internal)?);
            input = stdin.then(|| terminal.try_clone()).transpose().map_err(internal)?;
        }
        let mut outputs = ours.into_iter();
        let receiver = |descriptor: Option<OwnedFd>| descriptor.map(receiver).transpose();
        Ok(Process {
            stdin: input.map(sender).transpose().map_err(internal)?,
            stdout: receiver(outputs.next()).map_err(internal)?,
            stderr: receiver(outputs.next()).map_err(internal)?,
            terminal,
            pid: started.pid,
            connection,
            said: Vec::new(),
        })
    }

    pub(super) async fn exec_and_wait(
        &self,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, Status> {
        let container = self.running(&request.container_id)?;
        if request.timeout <= 0 {
            let mut process = self.spawn(&container, request.cmd, false, false).await?;
            return finish(&mut process).await;
        }
        let patience = Duration::from_secs(request.timeout.unsigned_abs());
        let deadline = tokio::time::Instant::now() + patience;
        let late = |_| Status::deadline_exceeded(format!("timeout {}s exceeded", request.timeout));
        // A process that is held up before it runs is its shim's to kill, for nobody takes it.
        let spawning = self.spawn(&container, request.cmd, false, false);
        let mut process = tokio::time::timeout_at(deadline, spawning).await.map_err(late)??;
        let finished = tokio::time::timeout_at(deadline, finish(&mut process)).await;
        finished.unwrap_or_else(|elapsed| {
            process.kill();
            Err(late(elapsed))
        })
    }

    /// Joins the container's own streams; what comes back speaks the shim's chunks.
    pub(crate) async fn attach_to(
        &self,
        container: &Container,
        stdin: bool,
    ) -> Result<UnixStream, Status> {
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        let request = Request::Attach { id: container.id.clone(), stdin };
        let answer = shims::converse(sandbox.socket(), request, Vec::new()).await;
        let (_, _, stream) = answer.map_err(|error| shim_status(&error))?;
        stream
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(stream))
            .map_err(|error| Status::internal(error.to_string()))
    }

    pub(crate) async fn resize(&self, container: &Container, width: u16, height: u16) {
        if let Ok(sandbox) = self.sandbox(&container.record.sandbox_id) {
            let request = Request::Resize { id: container.id.clone(), width, height };
            if let Err(ShimError::Unreachable(error)) = shims::ask(sandbox.socket(), request).await
            {
                tracing::debug!("failed to resize: {error}");
            }
        }
    }

    /// Connects to a port of the sandbox, from inside its network.
    pub(crate) async fn dial(
        &self,
        sandbox: &Sandbox,
        port: u16,
    ) -> io::Result<tokio::net::TcpStream> {
        let namespace = sandbox.network_path();
        // A thread of its own: it moves into the sandbox's network and never comes back.
        let (answer, dialled) = tokio::sync::oneshot::channel::<io::Result<_>>();
        std::thread::Builder::new().name("dial".to_owned()).spawn(move || {
            let connect = || {
                if let Some(path) = namespace {
                    use std::os::fd::AsFd;
                    let namespace = std::fs::File::open(path)?;
                    sys::setns(namespace.as_fd(), libc::CLONE_NEWNET)?;
                }
                let loopback = |ip: std::net::IpAddr| std::net::SocketAddr::new(ip, port);
                let stream =
                    std::net::TcpStream::connect(loopback(std::net::Ipv4Addr::LOCALHOST.into()))
                        .or_else(|_| {
                            let ip = std::net::Ipv6Addr::LOCALHOST.into();
                            std::net::TcpStream::connect(loopback(ip))
                        })?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            };
            let _ = answer.send(connect());
        })?;
        let stream = dialled.await.map_err(io::Error::other)??;
        tokio::net::TcpStream::from_std(stream)
    }
}

/// Reads what a process says until it has ended.
async fn finish(process: &mut Process) -> Result<ExecSyncResponse, Status> {
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (stdout, stderr, code) = tokio::join!(read_all(stdout), read_all(stderr), process.wait());
    let exit_code = code.map_err(|error| Status::internal(error.to_string()))?;
    Ok(ExecSyncResponse { stdout, stderr, exit_code })
}

fn sender(descriptor: OwnedFd) -> io::Result<Sender> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    Sender::from_owned_fd_unchecked(descriptor)
}

fn receiver(descriptor: OwnedFd) -> io::Result<Receiver> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    Receiver::from_owned_fd_unchecked(descriptor)
}

/// Reads to the end; what is beyond the limit is read and dropped, so that the process can end.
async fn read_all(receiver: Option<Receiver>) -> Vec<u8> {
    let Some(mut receiver) = receiver else { return Vec::new() };
    let mut output = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = receiver.read(&mut buffer).await {
        let room = OUTPUT_LIMIT.saturating_sub(output.len());
        output.extend_from_slice(&buffer[..read.min(room)]);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn who_asks_again_how_a_process_ended_has_lost_nothing() {
        let (connection, mut theirs) = UnixStream::pair().unwrap();
        let (stdin, stdout, stderr, terminal) = (None, None, None, None);
        let said = Vec::new();
        let mut process = Process { stdin, stdout, stderr, terminal, pid: 0, connection, said };
        let exit = serde_json::json!({ "code": 4, "at": 0, "oom_killed": false });
        let exit = serde_json::from_value(exit).unwrap();
        let answer = serde_json::to_vec(&Answer::Exited { id: "c".to_owned(), exit }).unwrap();
        let length = u32::try_from(answer.len()).unwrap().to_le_bytes();
        for piece in [&length[..], &answer[..5]] {
            theirs.write_all(piece).await.unwrap();
            let given_up = tokio::time::timeout(Duration::from_millis(20), process.wait()).await;
            assert!(given_up.is_err(), "there is more to come");
        }
        theirs.write_all(&answer[5..]).await.unwrap();
        assert_eq!(process.wait().await.unwrap(), 4);
    }
}
