//! `kubectl cp`: files to a container and from it, as an archive through its `tar`, of which neither direction
//! ever holds more than some pieces.
mod archive;
mod pipe;

use super::exec::quietly;
use super::{Command, Group};
use crate::cluster::Cluster;
use crate::complete::Offers;
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::pods;
use crate::session::Session;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    offers: Offers::Copied,
    ..Command::EMPTY
};

/// One side of a copy.
#[derive(Debug, PartialEq)]
enum Place {
    Here(PathBuf),
    There { namespace: Option<String>, pod: String, path: String },
}

impl Place {
    fn is_nowhere(&self) -> bool {
        match self {
            Place::Here(path) => path.as_os_str().is_empty(),
            Place::There { path, .. } => path.is_empty(),
        }
    }

    /// `path`, `pod:path`, `namespace/pod:path`
    fn parse(text: &str) -> Outcome<Place> {
        let shorter = |path: &str| match path.strip_suffix('/') {
            Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
            _ => path.to_owned(),
        };
        let Some((pod, path)) = text.split_once(':') else {
            return Ok(Place::Here(shorter(text).into()));
        };
        let path = &shorter(path);
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
    let is_there = |place: &Place| matches!(place, Place::There { .. });
    if is_there(&from) && is_there(&to) {
        return Err("one of src or dest must be a local file specification".into());
    }
    if from.is_nowhere() || to.is_nowhere() {
        return Err("filepath can not be empty".into());
    }
    let cluster = session.cluster(&arguments)?;
    match (from, to) {
        (Place::Here(from), Place::There { namespace, pod, path }) => {
            if from.metadata().is_err() {
                return Err(format!("{} doesn't exist in local filesystem", from.display()).into());
            }
            let pod = Pod::find(session, &cluster, &arguments, (namespace, &pod), false).await?;
            pod.put(session, &arguments, &from, &path).await
        }
        (Place::There { namespace, pod, path }, Place::Here(to)) => {
            let hint = format!(
                "kubectl exec -n {:?} {pod:?} -- tar cf - {path:?} | tar xf -",
                namespace.as_deref().unwrap_or_default()
            );
            let pod = Pod::find(session, &cluster, &arguments, (namespace, &pod), true).await?;
            pod.take(session, &arguments, &path, to, hint).await
        }
        _ => Err("one of src or dest must be a remote file specification".into()),
    }
}

/// How long a container may take to say whether a folder is there, and to say its last words.
const FOLDER: Duration = Duration::from_secs(30);
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between attempts that brought nothing.
const PAUSE: Duration = Duration::from_secs(1);

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
        (namespace, name): (Option<String>, &str),
        comes: bool,
    ) -> Outcome<Pod> {
        let namespace = namespace.unwrap_or(cluster.namespace.clone());
        let pod = cluster.get(&pods::resource(), &namespace, name).await?;
        let (container, told) = pods::container(&pod, arguments.some("container"))?;
        if let Some(told) = told {
            // What comes from a container comes with all that is said on the way, as upstream's.
            let to = if comes { &mut session.out } else { &mut session.err };
            writeln!(to, "{told}")?;
        }
        Ok(Pod { cluster: cluster.clone(), namespace, name: name.to_owned(), container })
    }

    fn place(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.container)
    }

    /// A file or folder goes to the container.
    async fn put(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        from: &Path,
        to: &str,
    ) -> Outcome {
        let mut to = remote(to);
        // Into a folder that is there, under its own name.
        let (mut out, mut err) = (std::io::sink(), std::io::sink());
        let command = ["test", "-d", &to];
        let asked = quietly(&self.cluster, self.place(), &command, None, &mut out, &mut err);
        match tokio::time::timeout(FOLDER, asked).await {
            Ok(Ok(())) => {
                let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
                to = archive::clean(&format!("{to}/{}", name.unwrap_or_default()));
            }
            Ok(Err(_)) => {}
            Err(_) => return Err("context deadline exceeded".into()),
        }
        let (folder, name) = match to.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((folder, name)) => (folder, name),
            None => (".", &*to),
        };
        let mut command = vec!["tar"];
        if arguments.is("no-preserve") {
            command.extend(["--no-same-permissions", "--no-same-owner"]);
        }
        command.extend(["-xmf", "-", "-C", folder]);
        let (writer, reader) = pipe::to_container();
        let (from, name) = (from.to_owned(), name.to_owned());
        let packing = tokio::task::spawn_blocking(move || archive::pack(&from, &name, writer));
        let (out, err) = (&mut *session.out, &mut *session.err);
        let carried =
            quietly(&self.cluster, self.place(), &command, Some(Box::new(reader)), out, err).await;
        let packed = packing.await.map_err(|error| Failure::Plain(error.to_string()))?;
        match packed {
            // The container has heard enough, or can hear no more: it knows which.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::Plain(error.to_string()))
            }
            _ => carried,
        }
    }

    /// A file or folder comes from the container.
    async fn take(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        from: &str,
        to: PathBuf,
        hint: String,
    ) -> Outcome {
        let (mut writer, reader) = pipe::from_container();
        let path = from.to_owned();
        let mut unpacking = tokio::task::spawn_blocking(move || {
            archive::unpack(reader, &path, &to, &mut archive::Warnings::new(hint))
        });
        let receiving = async {
            let outcome = self.receive(session, arguments, from, &mut writer).await;
            // Whoever unpacks hears that nothing more will come.
            drop(writer);
            outcome
        };
        tokio::pin!(receiving);
        let (unpacked, received) = tokio::select! {
            unpacked = &mut unpacking => (unpacked, None),
            received = &mut receiving => ((&mut unpacking).await, Some(received)),
        };
        let (end, outcome) = unpacked.map_err(|error| Failure::Plain(error.to_string()))?;
        match (end, received) {
            // It broke off, and the container may have said why.
            (archive::End::Cut, Some(Err(failure))) => Err(failure),
            // A whole archive is what was asked for, whatever tar says of it at last, which is to be read.
            (archive::End::Marked, None) if outcome.is_ok() => {
                let _ = tokio::time::timeout(LAST_WORDS, receiving).await;
                Ok(())
            }
            _ => outcome,
        }
    }

    /// The archive as it comes, again from where it broke off as often as that was asked for.
    async fn receive(
        &self,
        session: &mut Session,
        arguments: &Arguments,
        from: &str,
        writer: &mut pipe::Writer,
    ) -> Outcome {
        let most = arguments.number("retries");
        let mut tried = 0;
        loop {
            let begun = writer.written();
            let quoted = from.replace('\'', "'\\''");
            let script =
                format!("tar cf - '{quoted}' | tail -c+{}", if tried > 0 { begun + 1 } else { 0 });
            let command = match most {
                0 => vec!["tar", "cf", "-", from],
                _ => vec!["sh", "-c", &script],
            };
            let out = &mut *session.out;
            let outcome =
                quietly(&self.cluster, self.place(), &command, None, &mut *writer, out).await;
            // What a command ended with, it would end with again.
            let is_final = matches!(outcome, Err(Failure::Said { .. }));
            if most == 0 || is_final || !writer.is_awaited().await {
                return outcome;
            }
            if most > 0 && tried >= most {
                writeln!(session.out, "Dropping out copy after {tried} retries")?;
                return outcome;
            }
            tried += 1;
            let written = writer.written();
            writeln!(session.out, "Resuming copy at {written} bytes, retry {tried}/{most}")?;
            if written == begun {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A path in a container, without what a trailing slash would say; it may be written as Windows does.
fn remote(path: &str) -> String {
    archive::clean(&path.replace('\\', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{told, world};

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
        assert_eq!(Place::parse("p:/x/").unwrap(), there(None, "p", "/x"));
        assert!(Place::parse(":x").is_err() && Place::parse("a/b/c:x").is_err());
        assert_eq!((&*remote("/a/"), &*remote("a\\b"), &*remote("/")), ("/a", "a/b", "/"));
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_refused() {
        let world = world();
        for (line, expected) in [
            ("cp a", "error: source and destination are required"),
            ("cp a:/x b:/y", "error: one of src or dest must be a local file specification"),
            ("cp a: b", "error: filepath can not be empty"),
            ("cp a b", "error: one of src or dest must be a remote file specification"),
            ("cp /no/where p:/x", "error: /no/where doesn't exist in local filesystem"),
            ("cp p:/x y", "Error from server (NotFound): pods \"p\" not found"),
        ] {
            assert_eq!(told(&world, line).await, format!("{expected}\n"), "{line}");
        }
    }
}
