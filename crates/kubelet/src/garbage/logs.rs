//! Logs that grew beyond their size are renamed, and the runtime begins another file. The last but
//! one and older are compressed, and the oldest go
//! (`pkg/kubelet/logs/container_log_manager.go`).
use crate::found::{POD_NAME, POD_NAMESPACE, POD_UID, RESTART_COUNT};
use crate::runtime::cri;
use crate::worker::Kubelet;
use jiff::Timestamp;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

pub async fn rotate_all(kubelet: &Kubelet) {
    let state = cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() };
    let filter = cri::ContainerFilter { state: Some(state), ..cri::ContainerFilter::default() };
    let request = cri::ListContainersRequest { filter: Some(filter) };
    let Ok(listed) = kubelet.runtime.list_containers(request).await else { return };
    for one in listed.containers {
        let Some(path) = log_of(&kubelet.config.log_root, &one) else { continue };
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        if size <= kubelet.config.log_max_size {
            continue;
        }
        if let Err(error) = rotate(kubelet, &one.id, &path).await {
            tracing::warn!("failed to rotate {}: {error}", path.display());
        }
    }
}

/// Where the runtime was told to write it.
fn log_of(root: &Path, one: &cri::Container) -> Option<PathBuf> {
    let label = |key: &str| one.labels.get(key);
    let pod = format!("{}_{}_{}", label(POD_NAMESPACE)?, label(POD_NAME)?, label(POD_UID)?);
    let name = &one.metadata.as_ref()?.name;
    Some(root.join(pod).join(name).join(format!("{}.log", one.annotations.get(RESTART_COUNT)?)))
}

async fn rotate(kubelet: &Kubelet, id: &str, path: &Path) -> io::Result<()> {
    let (path, files) = (path.to_owned(), kubelet.config.log_max_files);
    let now = kubelet.context.now();
    let (tidied, log) = (path.clone(), path.clone());
    // Compressing takes its time.
    tokio::task::spawn_blocking(move || tidy(&tidied, files)).await.map_err(io::Error::other)??;
    let aside = append(&log, &format!(".{}", stamp(now)));
    fs::rename(&log, &aside)?;
    let request = cri::ReopenContainerLogRequest { container_id: id.to_owned() };
    if let Err(error) = kubelet.runtime.reopen_container_log(request).await {
        // It goes on writing to what it has: under the name that is known.
        fs::rename(&aside, &path)?;
        return Err(io::Error::other(error.to_string()));
    }
    Ok(())
}

/// Makes room for one more: with the current one and the next there are not more than so many.
fn tidy(path: &Path, files: usize) -> io::Result<()> {
    let mut old = rotated(path)?;
    let kept = files.saturating_sub(2);
    let surplus = old.len().saturating_sub(kept);
    for oldest in old.drain(..surplus) {
        fs::remove_file(oldest)?;
    }
    for plain in old.iter().filter(|path| path.extension().is_none_or(|ending| ending != "gz")) {
        let (temporary, packed) = (append(plain, ".tmp"), append(plain, ".gz"));
        let file = File::create(&temporary)?;
        let mut packer = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        io::copy(&mut File::open(plain)?, &mut packer)?;
        packer.finish()?;
        fs::rename(&temporary, &packed)?;
        fs::remove_file(plain)?;
    }
    Ok(())
}

/// The oldest first: a time is part of their names. What was left half done goes.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let begin = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&begin) {
            continue;
        }
        match name.ends_with(".tmp") {
            true => fs::remove_file(entry.path())?,
            false => found.push(entry.path()),
        }
    }
    found.sort();
    Ok(found)
}

fn append(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}

/// `20260101-120000`
fn stamp(now: Timestamp) -> String {
    now.strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_kept_and_old_ones_are_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        for name in ["0.log", "0.log.1.gz", "0.log.2.gz", "0.log.3.gz", "0.log.4", "0.log.5.tmp"] {
            fs::write(folder.path().join(name), "text").unwrap();
        }
        tidy(&log, 5).unwrap();
        let names = |found: Vec<PathBuf>| {
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            found.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(rotated(&log).unwrap()), "0.log.2.gz 0.log.3.gz 0.log.4.gz");
        let mut text = String::new();
        let packed = File::open(folder.path().join("0.log.4.gz")).unwrap();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(stamp("2026-01-02T03:04:05Z".parse().unwrap()), "20260102-030405");
    }
}
