//! Programs that are measured: an API server with nothing beside it, and a component on it.
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `skiff up` without any of its components, on an empty folder that is gone afterwards.
pub struct Server {
    pub folder: PathBuf,
    process: Child,
}

impl Server {
    pub fn start(skiff: &Path) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let folder = format!("skiff-bench-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut server = Command::new(skiff);
        server.args(["up", "--disable", "*", "--bind-address", "127.0.0.1", "--port", "0"]);
        server.arg("--kubeconfig").arg(folder.join("kubeconfig")).arg("--data-dir").arg(&folder);
        let mut process = server
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("skiff starts: build it, or name it with --skiff");
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("skiff speaks");
        Server { folder, process }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    pub fn id(&self) -> String {
        self.process.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One component.
pub struct Part(Child);

impl Part {
    pub fn start(command: &mut Command, kubeconfig: &Path) -> Part {
        command.arg("--kubeconfig").arg(kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        Part(command.spawn().expect("it starts"))
    }

    pub fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
