//! The documents of a folder's files.
use api::codec::yaml;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A document, and the file that it is in.
pub struct Document {
    pub file: PathBuf,
    pub text: String,
}

/// As Go says it.
pub fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "is a directory".into(),
        io::ErrorKind::NotADirectory => "not a directory".into(),
        _ => error.to_string(),
    }
}

/// All of them, file by file, and a hash of what the files hold: empty if they hold nothing.
pub fn documents(folder: &Path) -> Result<(Vec<Document>, String), String> {
    let (mut all, mut hasher) = (Vec::new(), Sha256::new());
    let mut is_empty = true;
    for file in files(folder)? {
        let bytes = fs::read(&file).map_err(|error| {
            let shown = file.display();
            format!("failed to read file {file:?}: open {shown}: {}", in_words(&error))
        })?;
        if bytes.is_empty() {
            continue;
        }
        is_empty = false;
        hasher.update(&bytes);
        hasher.update([0]);
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("error loading {}: yaml: invalid UTF-8", file.display()))?;
        let texts = yaml::documents(&text).map(str::to_owned);
        all.extend(texts.map(|text| Document { file: file.clone(), text }));
    }
    let hash = if is_empty { String::new() } else { format!("sha256:{:x}", hasher.finalize()) };
    Ok((all, hash))
}

/// The files that may be manifests, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: io::Error| {
        let shown = folder.display();
        format!("failed to read manifest directory {folder:?}: open {shown}: {}", in_words(&error))
    };
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let is_manifest = ending.is_some_and(|ending| {
            ["yaml", "yml", "json"].iter().any(|known| ending.as_os_str() == *known)
        });
        // What a link leads to is read, whatever it is.
        let is_folder = entry.file_type().is_ok_and(|found| found.is_dir());
        if is_manifest && !is_folder {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// What tells that something in a folder changed, without a look into its files.
pub fn traces(folder: &Path) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let trace = |file: PathBuf| {
        let found = fs::metadata(&file).ok();
        let size = found.as_ref().map_or(0, fs::Metadata::len);
        let written = found.and_then(|found| found.modified().ok());
        (file, size, written)
    };
    files(folder).unwrap_or_default().into_iter().map(trace).collect()
}
