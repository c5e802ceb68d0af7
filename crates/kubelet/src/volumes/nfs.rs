//! Volumes on an NFS server, mounted as upstream does it: by the machine's `mount`, whose helper speaks
//! with the server (`pkg/volume/nfs`). Where there is none, the pod is told so.
use super::{VolumeError, io_error, is_mounted};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A server that does not answer must not keep a pod for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is mounted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Share {
    pub server: String,
    pub path: String,
    pub read_only: bool,
    pub options: Vec<String>,
}

impl Share {
    fn arguments(&self, target: &Path) -> Vec<String> {
        // An address of IPv6 has colons of its own.
        let server = match self.server.contains(':') && !self.server.starts_with('[') {
            true => format!("[{}]", self.server),
            false => self.server.clone(),
        };
        let read_only = self.read_only.then(|| "ro".to_owned());
        let options: Vec<String> = self.options.iter().cloned().chain(read_only).collect();
        let mut words = vec!["-t".to_owned(), "nfs".to_owned()];
        if !options.is_empty() {
            words.extend(["-o".to_owned(), options.join(",")]);
        }
        // Whatever they are called, they are no options.
        words.push("--".to_owned());
        words.extend([format!("{server}:{}", self.path), target.display().to_string()]);
        words
    }

    /// Mounts the share, unless it is.
    pub async fn mount(&self, volume: &str, target: &Path) -> Result<(), VolumeError> {
        self.mount_by("mount", volume, target).await
    }

    async fn mount_by(
        &self,
        program: &str,
        volume: &str,
        target: &Path,
    ) -> Result<(), VolumeError> {
        if is_mounted(target) {
            return Ok(());
        }
        fs::create_dir_all(target).map_err(io_error("create", target))?;
        let failed = |why: String| VolumeError::SetUp { volume: volume.to_owned(), why };
        let run = Command::new(program)
            .args(self.arguments(target))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(PATIENCE, run).await {
            Err(_) => return Err(failed("mount failed: timed out".to_owned())),
            Ok(Err(error)) => return Err(failed(format!("mount failed: {error}"))),
            Ok(Ok(output)) => output,
        };
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(failed(format!("mount failed: {}: {}", output.status, said.trim())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_mounted_with_its_options() {
        let check = |share: Share, expected: &str| {
            assert_eq!(share.arguments(Path::new("/v")).join(" "), expected);
        };
        let share = Share { server: "s".into(), path: "/export".into(), ..Share::default() };
        check(share.clone(), "-t nfs -- s:/export /v");
        check(
            Share { read_only: true, options: vec!["nfsvers=4.1".into()], ..share.clone() },
            "-t nfs -o nfsvers=4.1,ro -- s:/export /v",
        );
        check(Share { server: "fd00::1".into(), ..share }, "-t nfs -- [fd00::1]:/export /v");
    }

    #[tokio::test]
    async fn a_machine_that_cannot_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let share = Share { server: "s".into(), path: "/".into(), ..Share::default() };
        let target = folder.path().join("v");
        let said = share.mount_by("false", "data", &target).await.unwrap_err().line();
        assert!(
            said.starts_with("MountVolume.SetUp failed for volume \"data\" : mount failed: "),
            "{said}"
        );
        let said = share.mount_by("/no/such/mount", "data", &target).await.unwrap_err().line();
        assert!(said.contains("No such file"), "{said}");
    }
}
