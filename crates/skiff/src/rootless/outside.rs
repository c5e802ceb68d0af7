//! The process that the user started: it starts the real one inside, and makes sockets for it.
use super::{Ask, Reply, USER, Wish, holder};
use anyhow::Context as _;
use runtime::shim::protocol::{receive, send};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

/// Runs what was typed in the user's namespaces, until it ends.
pub fn run(wish: Wish) -> anyhow::Result<ExitCode> {
    let holder = holder::find_or_start()?;
    let mut typed = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(typed.next().unwrap_or_default()).args(typed);
    command.env(USER, rustix::process::geteuid().as_raw().to_string());
    let channel = match wish {
        Wish::Live => {
            // Each connection that leaves is one of this process.
            crate::raise_open_files();
            let (ours, theirs) = UnixStream::pair()?;
            command.stdin(OwnedFd::from(theirs));
            Some(ours)
        }
        Wish::Visit | Wish::End => None,
    };
    runtime::rootless::enter(&mut command, holder)?;
    let child = command.spawn().context("failed to enter this user's namespaces")?;
    // It has the other end of the channel, which is to close with the child.
    drop(command);
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let status = tasks.block_on(attend(child, channel))?;
    tasks.shutdown_background();
    if let (Wish::End, true) = (wish, status.success()) {
        holder::end(holder).context("failed to end what held this user's namespaces")?;
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Serves it, and tells it of signals, for as long as it lives.
async fn attend(mut child: Child, channel: Option<UnixStream>) -> anyhow::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(&child);
    let stop = crate::stop_signal()?;
    tokio::spawn(async move {
        stop.await;
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    });
    if let Some(channel) = channel {
        let tasks = tokio::runtime::Handle::current();
        // It ends with the other side.
        std::thread::spawn(move || {
            let _tasks = tasks.enter();
            while let Ok(Some((ask, descriptors))) = receive::<Ask>(&channel) {
                if answer(&channel, ask, descriptors).is_err() {
                    return;
                }
            }
        });
    }
    Ok(tokio::task::spawn_blocking(move || child.wait()).await??)
}

fn answer(channel: &UnixStream, ask: Ask, descriptors: Vec<OwnedFd>) -> std::io::Result<()> {
    match ask {
        Ask::Listen(address) => match TcpListener::bind(address) {
            Ok(listener) => send(channel, &Reply::Done, &[listener.as_fd()]),
            Err(error) => send(channel, &Reply::Failed(error.to_string()), &[]),
        },
        Ask::Carry => {
            let reply = match descriptors.into_iter().next() {
                Some(link) => match uplink::carry(link) {
                    Ok(()) => Reply::Done,
                    Err(error) => Reply::Failed(error.to_string()),
                },
                None => Reply::Failed("no link came along".to_owned()),
            };
            send(channel, &reply, &[])
        }
    }
}
