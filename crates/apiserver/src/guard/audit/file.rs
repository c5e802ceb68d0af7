//! A log that is put aside when it is long, and forgotten when it is old.
//!
//! `audit.log` becomes `audit-2026-01-31T12-00-00.000.log`, with `.gz` if it is compressed: the names
//! that upstream's gives, so that whatever collects them finds them.
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// Bytes; 0: it is never put aside.
    pub max_size: u64,
    /// 0: all are kept.
    pub max_backups: usize,
    /// Days; 0: for ever.
    pub max_age: u64,
    pub compress: bool,
}

pub struct File {
    path: PathBuf,
    rotation: Rotation,
    /// Nothing: standard output.
    out: Option<fs::File>,
    size: u64,
}

impl File {
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<File> {
        if path == Path::new("-") {
            return Ok(File { path: path.into(), rotation, out: None, size: 0 });
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let out = append(path)?;
        let size = out.metadata()?.len();
        Ok(File { path: path.into(), rotation, out: Some(out), size })
    }

    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let full = self.size > 0 && self.size + lines.len() as u64 > self.rotation.max_size;
        if full && self.rotation.max_size > 0 && self.out.is_some() {
            self.rotate()?;
        }
        match &mut self.out {
            Some(out) => out.write_all(lines)?,
            None => io::stdout().write_all(lines)?,
        }
        self.size += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let (folder, stem, suffix) = self.name();
        let time = format!("{:.3}", Timestamp::now()).replace(':', "-");
        let backup = folder.join(format!("{stem}-{}{suffix}", time.trim_end_matches('Z')));
        fs::rename(&self.path, backup)?;
        self.out = Some(append(&self.path)?);
        self.size = 0;
        let (path, rotation) = (self.path.clone(), self.rotation);
        // Compressing takes a while, and events come meanwhile.
        let clean = move || {
            let old = File { path, rotation, out: None, size: 0 };
            if let Err(error) = old.clean() {
                tracing::warn!(%error, path = ?old.path, "failed to clear away old audit logs");
            }
        };
        std::thread::Builder::new().name("audit-clean".into()).spawn(clean).map(drop)
    }

    /// Folder, name and extension with its dot.
    fn name(&self) -> (PathBuf, String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map_or_else(String::new, |part| part.to_string_lossy().into_owned())
        };
        let suffix = match text(self.path.extension()) {
            suffix if suffix.is_empty() => suffix,
            suffix => format!(".{suffix}"),
        };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        (folder.unwrap_or(Path::new(".")).to_owned(), text(self.path.file_stem()), suffix)
    }

    fn clean(&self) -> io::Result<()> {
        let (folder, stem, suffix) = self.name();
        let mut backups = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let rest = name.strip_prefix(&format!("{stem}-")).unwrap_or_default();
            let time = rest.strip_suffix(".gz").unwrap_or(rest).strip_suffix(&suffix);
            if let Some(time) = time.and_then(parse) {
                backups.push((time, folder.join(name)));
            }
        }
        // The newest first.
        backups.sort_by(|a, b| b.cmp(a));
        let age = Duration::from_secs(self.rotation.max_age * 24 * 60 * 60);
        let oldest = Timestamp::now() - age;
        let is_gone = |i: usize, time: Timestamp| {
            self.rotation.max_backups > 0 && i >= self.rotation.max_backups
                || self.rotation.max_age > 0 && time < oldest
        };
        for (i, (time, path)) in backups.iter().enumerate() {
            let packed = path.extension().is_some_and(|extension| extension == "gz");
            if is_gone(i, *time) {
                fs::remove_file(path)?;
            } else if self.rotation.compress && !packed {
                compress(path)?;
            }
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// `2026-01-31T12-00-00.000`: a colon is no good in a file's name.
fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    format!("{date}T{}Z", time.replace('-', ":")).parse().ok()
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let unfinished = path.with_extension("gz.new");
    let out = OpenOptions::new();
    let out = { out }.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    let mut encoder = GzEncoder::new(out, Compression::fast());
    io::copy(&mut fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::rename(&unfinished, name)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_long_log_is_put_aside_and_old_ones_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logs/audit.log");
        let rotation = Rotation { max_size: 10, max_backups: 2, max_age: 1, compress: true };
        let mut file = File::open(&path, rotation).expect("a log");
        file.write(b"one").expect("room");
        file.write(b"two").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("a log"), "onetwo");
        assert_eq!(fs::metadata(&path).expect("a log").permissions().mode() & 0o777, 0o600);
        let logs = folder.path().join("logs");
        for name in ["2020-01-31T12-00-00.000", "2020-02-28T12-00-00.000"] {
            fs::write(logs.join(format!("audit-{name}.log")), "old").expect("a file");
        }
        fs::write(logs.join("audit-of-others.log"), "not ours").expect("a file");
        // What is done in the background after a rotation, done here.
        fs::rename(&path, logs.join("audit-2999-01-31T12-00-00.000.log")).expect("a backup");
        file.clean().expect("it is cleaned");
        assert_eq!(names(&logs), ["audit-2999-01-31T12-00-00.000.log.gz", "audit-of-others.log"]);
    }

    #[test]
    fn a_write_that_does_not_fit_begins_a_new_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let rotation = Rotation { max_size: 10, max_backups: 0, max_age: 0, compress: false };
        let mut file = File::open(&path, rotation).expect("a log");
        file.write(b"0123456789").expect("room");
        file.write(b"new").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("a log"), "new");
        let names = names(folder.path());
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(parse(&names[0]["audit-".len()..names[0].len() - ".log".len()]).is_some());
    }
}
