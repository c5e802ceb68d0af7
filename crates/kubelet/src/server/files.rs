//! `/logs/`: files below `/var/log`, as a page of links or as they are.
use super::answer::{self, Refused, Reply};
use http::StatusCode;
use std::path::{Path, PathBuf};

pub(super) const ROOT: &str = "/var/log";
/// Most of a file that is sent: its end, which is what is looked for in a log.
const MOST: u64 = 8 << 20;

pub async fn page(path: &str) -> Result<Reply, Refused> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(Path::new(ROOT), &path)).await;
    read.map_err(answer::internal)?
}

fn read(root: &Path, path: &str) -> Result<Reply, Refused> {
    let missing = || answer::not_found("404 page not found");
    let place = within(root, path).ok_or_else(missing)?;
    if place.is_dir() {
        let entries = std::fs::read_dir(&place).map_err(|_| missing())?.flatten();
        let mut names: Vec<String> = entries
            .map(|entry| {
                let slash = if entry.path().is_dir() { "/" } else { "" };
                format!("{}{slash}", entry.file_name().to_string_lossy())
            })
            .collect();
        names.sort();
        let links: String =
            names.iter().map(|name| format!("<a href=\"{0}\">{0}</a>\n", escaped(name))).collect();
        let page = format!("<pre>\n{links}</pre>\n");
        return Ok(answer::of(StatusCode::OK, "text/html; charset=utf-8", page));
    }
    let bytes = tail(&place).map_err(|_| missing())?;
    Ok(answer::of(StatusCode::OK, "text/plain; charset=utf-8", bytes))
}

/// A file's end as text, if there is such a file.
pub(super) fn text(root: &Path, path: &str) -> Option<String> {
    let place = within(root, path).filter(|place| place.is_file())?;
    Some(String::from_utf8_lossy(&tail(&place).ok()?).into_owned())
}

/// The place that is meant, if it is below the root once links have been followed.
fn within(root: &Path, path: &str) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let place = root.join(path.trim_start_matches('/')).canonicalize().ok()?;
    let is_file = place.is_dir() || place.is_file();
    (is_file && place.starts_with(&root)).then_some(place)
}

fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("log");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(folder.path().join("secret"), "no").unwrap();
        std::fs::write(root.join("sub/a.log"), "yes").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        assert!(read(&root, "/sub/a.log").is_ok());
        assert!(read(&root, "").is_ok());
        for path in ["/../secret", "/link", "/missing", "/sub/../../secret"] {
            assert!(read(&root, path).is_err(), "{path}");
        }
    }
}
