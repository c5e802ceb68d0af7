//! The machine runs out of memory: what the kernel says of it becomes events of the node
//! (`pkg/kubelet/oom`). A container that was killed for its own limit is the pod's business and told
//! there; here it is the system as a whole.
use crate::worker::Kubelet;
use client::events::Happening;
use k8s_openapi::api::core::v1::ObjectReference;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// What the kernel says in one line.
#[derive(Debug, Clone, PartialEq)]
struct Victim {
    process: String,
    pid: u32,
}

/// `Out of memory: Killed process 123 (web) …`: not for the limit of a control group.
fn victim(line: &str) -> Option<Victim> {
    let text = line.split_once(';').map_or(line, |(_, text)| text);
    let rest = text.strip_prefix("Out of memory: Killed process ")?;
    let (pid, rest) = rest.split_once(' ')?;
    let name = rest.strip_prefix('(')?.split_once(')')?.0;
    Some(Victim { process: name.to_owned(), pid: pid.parse().ok()? })
}

/// Until the context stops. Where the kernel's log cannot be read, as in a container, nothing is
/// told.
pub async fn watch(kubelet: &Arc<Kubelet>) {
    let Some(log) = open() else { return kubelet.context.stopped().await };
    tokio::select! {
        () = kubelet.context.stopped() => {}
        ended = follow(&log, |victim| tell(kubelet, &victim)) => if let Err(error) = ended {
            tracing::debug!("the kernel's log cannot be followed: {error}");
            kubelet.context.stopped().await;
        },
    }
}

fn open() -> Option<AsyncFd<OwnedFd>> {
    use rustix::fs::{Mode, OFlags, SeekFrom};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok()?;
    // From now on.
    rustix::fs::seek(&log, SeekFrom::End(0)).ok()?;
    #[expect(deprecated, reason = "an `OwnedFd` always has the same descriptor and keeps it open")]
    AsyncFd::new(log).ok()
}

async fn follow(log: &AsyncFd<OwnedFd>, mut tell: impl FnMut(Victim)) -> io::Result<()> {
    loop {
        let mut ready = log.readable().await?;
        // One line at a time: that is how this file is read.
        let mut line = [0; 8192];
        match ready.try_io(|log| Ok(rustix::io::read(log.get_ref(), &mut line)?)) {
            Ok(Ok(count)) => {
                let text = String::from_utf8_lossy(&line[..count]);
                victim(text.lines().next().unwrap_or_default()).into_iter().for_each(&mut tell);
            }
            // Lines were overwritten before we came to them.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

fn tell(kubelet: &Kubelet, victim: &Victim) {
    let name = &kubelet.config.node_name;
    let node = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(name.clone()),
        uid: Some(name.clone()),
        ..ObjectReference::default()
    };
    let note =
        format!("System OOM encountered, victim process: {}, pid: {}", victim.process, victim.pid);
    kubelet.recorder.record(Happening::warning(node, "SystemOOM", note));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_had_to_go() {
        let line =
            "3,500,600,-;Out of memory: Killed process 42 (my web) total-vm:1kB, anon-rss:1kB";
        assert_eq!(victim(line), Some(Victim { process: "my web".to_owned(), pid: 42 }));
        for other in [
            "3,1,1,-;Memory cgroup out of memory: Killed process 42 (web)",
            "6,1,1,-;eth0: link up",
            "3,1,1,-;Out of memory: Killed process x (web)",
            "",
        ] {
            assert_eq!(victim(other), None, "{other}");
        }
    }
}
