//! `kubectl cp`: files to a container and from it, as an archive through its `tar`.
use super::exec::quietly;
use super::{Command, Group};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::pods;
use crate::session::Session;
use std::path::{Component, Path, PathBuf};

static FLAGS: &[Flag] = &[
    text("container", "", "Container; by default the annotated one, or the first.").short('c'),
    switch("no-preserve", "Do not keep owners and permissions."),
    number("retries", "0", "How often to go on after a fault; negative: for ever."),
];

pub static COMMAND: Command = Command {
    name: "cp",
    group: Group::Troubleshooting,
    about: "Copy files and directories to and from containers",
    usage: "<file-spec-src> <file-spec-dest>",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

/// One side of a copy.
#[derive(Debug, PartialEq)]
enum Place {
    Here(PathBuf),
    There { namespace: Option<String>, pod: String, path: String },
}

impl Place {
    /// `path`, `pod:path`, `namespace/pod:path`
    fn parse(text: &str) -> Outcome<Place> {
        let Some((pod, path)) = text.split_once(':') else { return Ok(Place::Here(text.into())) };
        if pod.is_empty() {
            return Err(
                "filespec must match the canonical format: [[namespace/]pod:]file/path".into()
            );
        }
        match pod.split('/').collect::<Vec<_>>()[..] {
            [pod] => {
                Ok(Place::There { namespace: None, pod: pod.to_owned(), path: path.to_owned() })
            }
            [namespace, pod] if !namespace.is_empty() && !pod.is_empty() => Ok(Place::There {
                namespace: Some(namespace.to_owned()),
                pod: pod.to_owned(),
                path: path.to_owned(),
            }),
            // A path of this machine may hold a colon.
            _ if text.starts_with(['/', '.']) => Ok(Place::Here(text.into())),
            _ => {
                Err("filespec must match the canonical format: [[namespace/]pod:]file/path".into())
            }
        }
    }
}

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let [from, to] = &arguments.words[..] else {
        return Err("source and destination are required".into());
    };
    let (from, to) = (Place::parse(from)?, Place::parse(to)?);
    let cluster = session.cluster(&arguments)?;
    match (from, to) {
        (Place::Here(from), Place::There { namespace, pod, path }) => {
            let name = from.display();
            if from.symlink_metadata().is_err() {
                return Err(format!("{name} doesn't exist in local filesystem").into());
            }
            let pod = Pod::find(session, &cluster, &arguments, namespace, &pod).await?;
            pod.put(session, &arguments, &from, &path).await
        }
        (Place::There { namespace, pod, path }, Place::Here(to)) => {
            if path.is_empty() {
                return Err("filepath can not be empty".into());
            }
            let pod = Pod::find(session, &cluster, &arguments, namespace, &pod).await?;
            pod.take(session, &arguments, &path, &to).await
        }
        (Place::There { .. }, Place::There { .. }) => {
            Err("one of src or dest must be a local file specification".into())
        }
        (Place::Here(_), Place::Here(_)) => {
            Err("one of src or dest must be a remote file specification".into())
        }
    }
}

struct Pod {
    cluster: Cluster,
    namespace: String,
    name: String,
    container: String,
}

impl Pod {
    async fn find(
        session: &mut Session,
        cluster: &Cluster,
        arguments: &Arguments,
        namespace: Option<String>,
        name: &str,
    ) -> Outcome<Pod> {
        let namespace = namespace.unwrap_or(cluster.namespace.clone());
        let pod = cluster.get(&pods::resource(), &namespace, name).await?;
        let (container, told) = pods::container(&pod, arguments.some("container"))?;
        if let Some(told) = told {
            writeln!(session.err, "{told}")?;
        }
        Ok(Pod { cluster: cluster.clone(), namespace, name: name.to_owned(), container })
    }

    async fn exec(
        &self,
        command: &[&str],
        stdin: Option<Vec<u8>>,
        err: &mut (dyn std::io::Write + Send),
    ) -> Outcome<Vec<u8>> {
        let mut out = Vec::new();
        let stdin = stdin.map(|bytes| Box::new(std::io::Cursor::new(bytes)) as _);
        let place = (&*self.namespace, &*self.name, &*self.container);
        quietly(&self.cluster, place, command, stdin, &mut out, err).await?;
        Ok(out)
    }

    /// A file or folder goes to the container.
    async fn put(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        from: &Path,
        to: &str,
    ) -> Outcome {
        let mut to = to.trim_end_matches('/').to_owned();
        if to.is_empty() {
            to = "/".to_owned();
        }
        // Into a folder that is there, under its own name.
        if self.exec(&["test", "-d", &to], None, &mut std::io::sink()).await.is_ok() {
            let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
            to = format!("{}/{}", to.trim_end_matches('/'), name.unwrap_or_default());
        }
        let (folder, name) = to.rsplit_once('/').unwrap_or((".", &to));
        let archive = pack(from, name)?;
        let mut command = vec!["tar"];
        match arguments.is("no-preserve") {
            true => command.extend(["--no-same-permissions", "--no-same-owner", "-xmf", "-"]),
            false => command.extend(["-xmf", "-"]),
        }
        if !folder.is_empty() && folder != "." {
            command.extend(["-C", folder]);
        } else if to.starts_with('/') {
            command.extend(["-C", "/"]);
        }
        self.exec(&command, Some(archive), &mut session.err).await?;
        Ok(())
    }

    /// A file or folder comes from the container.
    async fn take(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        from: &str,
        to: &Path,
    ) -> Outcome {
        let mut left = arguments.number("retries");
        let archive = loop {
            match self.exec(&["tar", "cf", "-", from], None, &mut session.err).await {
                Ok(archive) => break archive,
                Err(failure) if left == 0 => return Err(failure),
                Err(failure) => {
                    writeln!(session.err, "{}: trying again", failure.text())?;
                    left -= 1;
                }
            }
        };
        unpack(&archive, from, to, &mut |text| drop(writeln!(session.err, "{text}")))
    }
}

/// An archive of a file or folder under a name.
fn pack(from: &Path, name: &str) -> Outcome<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    let failed = |error: std::io::Error| Failure::Plain(error.to_string());
    match from.is_dir() {
        true => archive.append_dir_all(name, from).map_err(failed)?,
        false => archive.append_path_with_name(from, name).map_err(failed)?,
    }
    archive.into_inner().map_err(failed)
}

/// Takes an archive apart below a place; nothing leaves it.
fn unpack(bytes: &[u8], from: &str, to: &Path, warn: &mut dyn FnMut(&str)) -> Outcome {
    let prefix = clean(from);
    let last = prefix.file_name().map(PathBuf::from).unwrap_or_default();
    let mut to = to.to_owned();
    let mut archive = tar::Archive::new(bytes);
    let mut found = false;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inside = clean(&path.to_string_lossy());
        let Ok(rest) = inside.strip_prefix(&prefix) else {
            return Err(format!(
                "tar contents corrupted: {} is not below {}",
                inside.display(),
                prefix.display()
            )
            .into());
        };
        // A file goes into a folder that is there under its own name; a folder's content goes there.
        if !found && !entry.header().entry_type().is_dir() && to.is_dir() {
            to = to.join(&last);
        }
        found = true;
        let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
        if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            std::fs::create_dir_all(&target)?;
        } else if kind.is_symlink() || kind.is_hard_link() {
            // A link could lead anywhere.
            warn(&format!(
                "warning: skipping symlink: \"{}\" -> {:?}",
                target.display(),
                entry.link_name()?.unwrap_or_default()
            ));
        } else {
            let mut file = std::fs::File::create(&target)?;
            std::io::copy(&mut entry, &mut file)?;
            if let Ok(mode) = entry.header().mode() {
                use std::os::unix::fs::PermissionsExt;
                let permissions = std::fs::Permissions::from_mode(mode & 0o777);
                std::fs::set_permissions(&target, permissions)?;
            }
        }
    }
    match found {
        true => Ok(()),
        false => Err(format!("no such file or directory: {from}").into()),
    }
}

/// A path without its root and without ways up.
fn clean(path: &str) -> PathBuf {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(_) => parts.push(part),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_here_or_there() {
        let there = |namespace: Option<&str>, pod: &str, path: &str| Place::There {
            namespace: namespace.map(str::to_owned),
            pod: pod.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Place::parse("/a/b").unwrap(), Place::Here("/a/b".into()));
        assert_eq!(Place::parse("p:/x").unwrap(), there(None, "p", "/x"));
        assert_eq!(Place::parse("n/p:x").unwrap(), there(Some("n"), "p", "x"));
        assert_eq!(Place::parse("./a:b").unwrap(), there(Some("."), "a", "b"));
        assert!(Place::parse(":x").is_err() && Place::parse("a/b/c:x").is_err());
    }

    #[test]
    fn what_was_packed_is_unpacked_and_stays_below_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir_all(from.join("sub")).unwrap();
        std::fs::write(from.join("sub/a"), "x").unwrap();
        let archive = pack(&from, "data").unwrap();
        let to = folder.path().join("to");
        unpack(&archive, "/data", &to, &mut |_| {}).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("sub/a")).unwrap(), "x");
        assert!(unpack(&archive, "/other", &to, &mut |_| {}).is_err());
        unpack(&archive, "data/", folder.path(), &mut |_| {}).unwrap();
        assert!(folder.path().join("sub/a").is_file());
        let file = pack(&from.join("sub/a"), "b").unwrap();
        unpack(&file, "/b", &to, &mut |_| {}).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("b")).unwrap(), "x");
    }
}
