//! Images that are on the machine before anybody asks for them: archives in a folder are brought in before
//! the first pod starts, so that a machine without a registry has what it needs.
use crate::node::Embedded;
use runtime::image::{Images, RegistriesConfig};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which archives were brought in: each with its size and when it was written.
const KNOWN: &str = ".imported.json";

type Known = BTreeMap<String, (u64, i64)>;

/// Brings in what is new. An archive that cannot be read is said, and keeps nobody from starting.
pub async fn import(folder: &Path, embedded: &Embedded) {
    let archives = archives(folder);
    if archives.is_empty() {
        return;
    }
    let file = folder.join(KNOWN);
    let known = std::fs::read(&file).ok();
    let mut known: Known =
        known.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let opened = RegistriesConfig::read(&embedded.places.registries)
        .map_err(anyhow::Error::from)
        .and_then(|registries| Ok(Images::open(&embedded.places.root, registries)?));
    let images = match opened {
        Ok(images) => images,
        Err(error) => return tracing::warn!("no images are brought in: {error:#}"),
    };
    for (path, mark) in archives {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if known.get(&name) == Some(&mark) {
            continue;
        }
        match images.import(&path, None).await {
            Ok(found) => {
                let names = found.iter().flat_map(|image| image.tags.iter().cloned());
                tracing::info!(archive = name, images = ?names.collect::<Vec<_>>(), "brought in");
                known.insert(name, mark);
            }
            Err(error) => tracing::warn!("failed to bring in {}: {error}", path.display()),
        }
    }
    let text = serde_json::to_vec(&known).unwrap_or_default();
    if let Err(error) = crate::install::write(&file, &text, 0o600) {
        tracing::warn!(%error, "the images will be brought in once more at the next start");
    }
}

fn archives(folder: &Path) -> Vec<(PathBuf, (u64, i64))> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|ending| name.ends_with(ending))
    };
    let paths = entries.map(|entry| entry.path()).filter(is_archive);
    let mut all: Vec<_> = paths
        .filter_map(|path| {
            let file = path.metadata().ok()?;
            Some((path, (file.len(), file.mtime())))
        })
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_known_by_their_endings() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.tar", "a.tar.gz", "c.tgz", "d.tar.zst", "e.txt", KNOWN] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = archives(folder.path());
        let names: Vec<_> = found.iter().map(|(path, _)| path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.tar.gz", "b.tar", "c.tgz", "d.tar.zst"]);
        assert!(archives(Path::new("/nowhere")).is_empty());
    }
}
