//! What installing consists of, as a list that can be shown before it is done.
use anyhow::Context as _;
use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub enum Step {
    Copy {
        from: PathBuf,
        to: PathBuf,
    },
    Write {
        path: PathBuf,
        text: String,
        mode: u32,
    },
    Link {
        path: PathBuf,
        target: PathBuf,
    },
    Remove(PathBuf),
    /// A folder, unless something is in it.
    RemoveEmpty(PathBuf),
    Run(Vec<String>),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Copy { to, .. } => write!(f, "copy    {}", to.display()),
            Step::Write { path, .. } => write!(f, "write   {}", path.display()),
            Step::Link { path, .. } => write!(f, "link    {}", path.display()),
            Step::Remove(path) => write!(f, "remove  {}", path.display()),
            Step::RemoveEmpty(path) => write!(f, "remove  {} if it is empty", path.display()),
            Step::Run(words) => write!(f, "run     {}", words.join(" ")),
        }
    }
}

/// A path of the file system that is worked on.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl Step {
    pub fn command(words: &[&str]) -> Step {
        Step::Run(words.iter().map(|&word| word.to_owned()).collect())
    }

    pub fn run(&self, root: &Path) -> anyhow::Result<()> {
        match self {
            Step::Copy { from, to } => {
                let to = below(root, to);
                // It may be the one that runs, or the one that is there already.
                if from.canonicalize().ok() == to.canonicalize().ok() {
                    return Ok(());
                }
                write(&to, &std::fs::read(from)?, 0o755)?;
            }
            Step::Write { path, text, mode } => write(&below(root, path), text.as_bytes(), *mode)?,
            Step::Link { path, target } => std::os::unix::fs::symlink(target, below(root, path))?,
            Step::Remove(path) => match std::fs::remove_file(below(root, path)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            },
            Step::RemoveEmpty(path) => match std::fs::remove_dir(below(root, path)) {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    return Err(error.into());
                }
                _ => {}
            },
            Step::Run(words) => {
                let (program, arguments) = words.split_first().context("no command")?;
                let status = Command::new(program).args(arguments).status()?;
                anyhow::ensure!(status.success(), "{program} ended with {status}");
            }
        }
        Ok(())
    }
}

/// Writes a file whole or not at all: whoever runs the old one goes on with it.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = folder.join(name);
    let _ = std::fs::remove_file(&new);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}
