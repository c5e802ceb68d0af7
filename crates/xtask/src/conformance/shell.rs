//! Commands and files, with errors that say which.
use std::fmt::Display;
use std::path::Path;
use std::process::Command;

/// Runs a command to its end, its output shown.
pub fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("{command:?}: {status}"))
}

/// What a command prints.
pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {}: {}", output.status, complaint.trim()))
        }
    }
}

/// An error about a path, in words.
pub fn failed<E: Display>(doing: &str, path: &Path) -> impl FnOnce(E) -> String + use<E> {
    let (doing, path) = (doing.to_owned(), path.to_owned());
    move |error| format!("failed to {doing} {}: {error}", path.display())
}

pub fn make_folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(failed("make", path))
}

pub fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(failed("read", path))
}

pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    std::fs::write(path, bytes).map_err(failed("write", path))
}
