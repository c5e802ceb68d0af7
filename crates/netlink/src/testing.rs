//! Network namespaces for tests.
use crate::namespace::unshare;
use std::path::PathBuf;

/// Runs a test on a thread with a network namespace of its own. `None`, said on the standard
/// error, where this is not allowed.
pub fn isolated<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    let work = || {
        if let Err(error) = unshare() {
            eprintln!("skipped: no network namespace of one's own here ({error})");
            return None;
        }
        Some(run())
    };
    match std::thread::scope(|scope| scope.spawn(work).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The path of the calling thread's network namespace, for as long as the thread lives.
pub fn path() -> PathBuf {
    let (process, thread) = (std::process::id(), rustix::thread::gettid());
    format!("/proc/{process}/task/{thread}/ns/net", thread = thread.as_raw_nonzero()).into()
}

/// A namespace that a thread of its own holds until this is dropped.
pub struct Held {
    pub path: PathBuf,
    release: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Held {
    pub fn new() -> Held {
        let (tell, told) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            unshare().expect("who may make one namespace may make another");
            let _ = tell.send(path());
            let _ = released.recv();
        });
        let path = told.recv().expect("the thread tells before it waits");
        Held { path, release: Some(release), thread: Some(thread) }
    }
}

impl Default for Held {
    fn default() -> Held {
        Held::new()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release.take();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A table as `nft` shows it, from the calling thread's namespace; `None`, said on the standard error, where
/// there is no `nft`. It must be able to.
pub fn listed(family: &str, table: &str) -> Option<String> {
    let mut listed = String::new();
    for form in [&[][..], &["--json"][..]] {
        let mut nft = std::process::Command::new("nft");
        let done = match nft.args(form).args(["list", "table", family, table]).output() {
            Ok(done) => done,
            Err(error) => {
                eprintln!("skipped: no nft that would show a table ({error})");
                return None;
            }
        };
        assert!(
            done.status.success(),
            "{:?} {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        );
        listed += &String::from_utf8_lossy(&done.stdout);
    }
    Some(listed)
}
