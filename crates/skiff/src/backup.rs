//! `skiff backup` and `skiff restore`: a cluster in one file.
//!
//! The file is a tar archive of what makes a cluster this cluster: its objects, the keys it is known by
//! and those that its Secrets are encrypted with. Whoever has it has the cluster, so only its owner can
//! read it. What runs on nodes is not in it: they come back to the objects that they find.
use anyhow::{Context, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use store::embedded::{Embedded, backup};

#[derive(clap::Args)]
pub struct Backup {
    /// The file to write.
    file: PathBuf,
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
}

#[derive(clap::Args)]
pub struct Restore {
    /// The backup; with --salvage, the file to write one to.
    file: PathBuf,
    /// Where the cluster shall be; there must be none.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
    /// Restore nothing, but make a backup of whatever can still be read of a damaged store.
    #[arg(long)]
    salvage: bool,
}

/// Objects, in an archive.
const STORE: &str = "store.backup";
/// Beside the objects: keys, and how Secrets are encrypted.
const KEYS: &[&str] = &["pki", "encryption-config.yaml"];

/// Clients may have seen later revisions than the backup has: none that follows may be one of those.
const REVISIONS_SINCE: u64 = 1_000_000;

/// Where a running cluster is asked for its objects.
pub fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("store.sock")
}

pub async fn run(options: Backup) -> anyhow::Result<()> {
    let Backup { file, data_dir } = options;
    if !data_dir.join("store").exists() {
        bail!("there is no cluster in {}", data_dir.display());
    }
    let objects = beside(&file, "objects");
    let saved = save(&data_dir, &objects).await;
    let packed = saved.and_then(|()| {
        let parts = beside(&file, "part");
        pack(&data_dir, &objects, &parts)?;
        fs::rename(&parts, &file).with_context(|| format!("failed to write {}", file.display()))
    });
    let _ = fs::remove_file(&objects);
    packed?;
    println!("{} holds the cluster of {}: keep it secret", file.display(), data_dir.display());
    Ok(())
}

/// The objects: from the cluster that runs, or from what it left on the disk.
async fn save(data_dir: &Path, objects: &Path) -> anyhow::Result<()> {
    let url = format!("unix://{}", socket(data_dir).display());
    match store::face::save(&url, objects).await {
        Err(store::face::SaveError::Connect { .. }) => {
            let engine = Embedded::open(&data_dir.join("store"), Default::default())?;
            engine.backup(objects)?;
            engine.close().await;
            Ok(())
        }
        saved => Ok(saved?),
    }
}

fn pack(data_dir: &Path, objects: &Path, file: &Path) -> anyhow::Result<()> {
    let mut out = OpenOptions::new();
    let out = out.write(true).create(true).truncate(true).mode(0o600).open(file);
    let mut archive = tar::Builder::new(out.with_context(|| format!("{}", file.display()))?);
    archive.append_path_with_name(objects, STORE)?;
    for name in KEYS {
        let path = data_dir.join(name);
        match path.is_dir() {
            true => archive.append_dir_all(name, &path)?,
            false if path.exists() => archive.append_path_with_name(&path, name)?,
            false => {}
        }
    }
    archive.into_inner()?.sync_all()?;
    Ok(())
}

pub fn restore(options: &Restore) -> anyhow::Result<()> {
    let Restore { file, data_dir, salvage } = options;
    if *salvage {
        return make_salvage(file, data_dir);
    }
    let store = data_dir.join("store");
    if fs::read_dir(&store).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!(
            "there is a cluster in {}: stop it and move the folder away, or restore into another",
            data_dir.display()
        );
    }
    private_folder(data_dir)?;
    let objects = data_dir.join(STORE);
    let unpacked = unpack(file, data_dir);
    let restored = unpacked.and_then(|()| Ok(backup::restore(&objects, &store, REVISIONS_SINCE)?));
    let _ = fs::remove_file(&objects);
    let keys = restored?.keys;
    println!("{keys} objects are in {}: `skiff up` runs the cluster", data_dir.display());
    Ok(())
}

fn make_salvage(file: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let objects = beside(file, "objects");
    let salvaged = backup::salvage(&data_dir.join("store"), &objects);
    let packed = salvaged.map_err(anyhow::Error::from).and_then(|info| {
        pack(data_dir, &objects, file)?;
        Ok(info.keys)
    });
    let _ = fs::remove_file(&objects);
    let keys = packed?;
    println!("{keys} objects could be read and are in {}", file.display());
    println!("move {} away, then `skiff restore {}`", data_dir.display(), file.display());
    Ok(())
}

/// Files of a backup, and no others, into a folder.
fn unpack(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let opened = File::open(file).with_context(|| format!("failed to open {}", file.display()))?;
    let no_backup = || format!("{} is no backup of skiff", file.display());
    let mut found = false;
    for entry in tar::Archive::new(opened).entries().with_context(no_backup)? {
        let mut entry = entry.with_context(no_backup)?;
        let name = entry.path().with_context(no_backup)?.into_owned();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if !is_ours(&name) {
            bail!("{}: {} has no place in it", no_backup(), name.display());
        }
        found |= name == Path::new(STORE);
        write_private(&folder.join(&name), &mut entry)
            .with_context(|| format!("failed to write {}", name.display()))?;
    }
    if found { Ok(()) } else { bail!(no_backup()) }
}

/// Plain names below those that a backup is made of.
fn is_ours(name: &Path) -> bool {
    let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    let first = name.components().next().and_then(|part| part.as_os_str().to_str());
    plain && first.is_some_and(|first| first == STORE || KEYS.contains(&first))
}

fn write_private(path: &Path, content: &mut dyn Read) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        private_folder(folder)?;
    }
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(content, &mut out)?;
    out.sync_all()
}

fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file's neighbour, for as long as it is not whole.
fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{what}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_backup_is_made_of_is_unpacked() {
        for good in ["store.backup", "pki/ca.key", "pki/etc/x", "encryption-config.yaml"] {
            assert!(is_ours(Path::new(good)), "{good}");
        }
        for bad in ["../pki/ca.key", "/pki/ca.key", "pki/../../x", "audit/audit.log", "", "."] {
            assert!(!is_ours(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn what_is_no_backup_is_refused_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        let (file, data_dir) = (place.path().join("b"), place.path().join("data"));
        fs::write(&file, "nonsense").expect("written");
        let options = Restore { file, data_dir: data_dir.clone(), salvage: false };
        let refused = restore(&options).expect_err("no backup").to_string();
        assert!(refused.ends_with("is no backup of skiff"), "{refused}");
        assert_eq!(fs::read_dir(&data_dir).map_or(0, Iterator::count), 0);
    }
}
