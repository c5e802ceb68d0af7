//! `logs`: a container's output, from the file whose path the runtime tells.
use super::{Command, NO_ID};
use crate::cri_log::{self, Printer, Wanted};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::session::Session;
use api::quote::Quoted;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

static FLAGS: &[Flag] = &[
    switch("follow", "Follow log output").or("f"),
    switch("previous", "Of the container's last life, if there was one").or("p"),
    switch("reopen", "Make the runtime reopen the log first").or("r"),
    number("tail", "Number of lines to show from the end of the logs").default("-1"),
    number("limit-bytes", "Maximum bytes of logs to return").default("-1"),
    text("since", "Show logs since a moment (2013-01-02T13:23:37) or a span before now (42m)"),
    switch("timestamps", "Show timestamps").or("t"),
    text("stream", "Only stdout or stderr").or("s"),
];

pub static COMMAND: Command = Command {
    name: "logs",
    about: "Fetch the logs of a container",
    usage: "CONTAINER-ID",
    flags: &[FLAGS],
    run: |session, arguments| Box::pin(run(session, arguments)),
    ..Command::EMPTY
};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let id = match &arguments.words[..] {
        [id] if !id.is_empty() => id.clone(),
        [] | [_] => return Err(NO_ID.into()),
        _ => return Err(Failure::Help),
    };
    let wanted = wanted(&arguments)?;
    let runtime = session.runtime().await?;
    if arguments.is("reopen") {
        let request = ReopenContainerLogRequest { container_id: id.clone() };
        let done = session.within(runtime.reopen_container_log(request)).await;
        done.during(|| "reopen container logs".to_owned())?;
        session.log(Level::Info, "Container logs reopened")?;
    }
    let status = status(session, &id).await?;
    let path = log_path(&status, arguments.is("previous"))?;
    let tail = u64::try_from(arguments.number("tail")).ok();
    let mut log = Log::open(&path, tail)?;
    let mut printer = Printer::new(wanted);
    let follows = arguments.is("follow") && !arguments.is("previous");
    loop {
        // Asked before the log is read: what it wrote last is not missed.
        let ended = !follows || !is_running(session, &id).await?;
        if !log.print(&mut printer, session, ended)? || ended {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
        log.follow(&path)?;
    }
}

fn wanted(arguments: &Arguments) -> Outcome<Wanted> {
    let stream = match arguments.text("stream").as_str() {
        "" => None,
        "stdout" => Some(false),
        "stderr" => Some(true),
        other => {
            let text =
                format!("invalid stream {}, must be \"stdout\" or \"stderr\"", Quoted(other));
            return Err(text.into());
        }
    };
    if stream.is_some() && arguments.given("tail") {
        return Err("--tail and --stream are mutually exclusive".into());
    }
    Ok(Wanted {
        since: cri_log::since(&arguments.text("since"), jiff::Timestamp::now())?,
        timestamps: arguments.is("timestamps"),
        stream,
        limit: u64::try_from(arguments.number("limit-bytes")).ok(),
    })
}

async fn status(session: &mut Session, id: &str) -> Outcome<ContainerStatus> {
    let runtime = session.runtime().await?;
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    Ok(session.within(runtime.container_status(request)).await?.status.unwrap_or_default())
}

async fn is_running(session: &mut Session, id: &str) -> Outcome<bool> {
    let runtime = session.runtime().await?;
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match tokio::time::timeout(session.settings.timeout, runtime.container_status(request)).await {
        Ok(Ok(told)) => {
            Ok(told.status.unwrap_or_default().state() == ContainerState::ContainerRunning)
        }
        Ok(Err(status)) if status.code() == tonic::Code::NotFound => Ok(false),
        Ok(Err(status)) => Err(status.into()),
        // It may be busy: the log goes on.
        Err(_) => Ok(true),
    }
}

fn log_path(status: &ContainerStatus, previous: bool) -> Outcome<PathBuf> {
    if status.log_path.is_empty() {
        return Err("the container has not set log path".into());
    }
    let path = Path::new(&status.log_path);
    if !previous {
        return Ok(path.to_owned());
    }
    let metadata = status.metadata.clone().unwrap_or_default();
    let Some(attempt) = metadata.attempt.checked_sub(1) else {
        return Err(format!("previous terminated container {} not found", metadata.name).into());
    };
    // A kubelet names logs by the number of the attempt.
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy()));
    Ok(path.with_file_name(format!("{attempt}{}", extension.unwrap_or_default())))
}

/// A log that is being read.
struct Log {
    reader: BufReader<File>,
    /// What of a line is there already.
    begun: Vec<u8>,
}

impl Log {
    fn open(path: &Path, tail: Option<u64>) -> Outcome<Log> {
        let mut file = open(path)?;
        if let Some(lines) = tail {
            let start = cri_log::start_of_tail(&mut file, lines)
                .and_then(|start| file.seek(SeekFrom::Start(start)));
            start.during(|| {
                format!("failed to tail {lines} lines of log file {}", path.display())
            })?;
        }
        Ok(Log { reader: BufReader::new(file), begun: Vec::new() })
    }

    /// Prints what is there, at last also what has no end yet; whether there may be more.
    fn print(&mut self, printer: &mut Printer, session: &mut Session, last: bool) -> Outcome<bool> {
        loop {
            self.begun.append(&mut cri_log::next(&mut self.reader)?);
            let whole = self.begun.ends_with(b"\n");
            if self.begun.is_empty() || !(whole || last) {
                return Ok(true);
            }
            let line = std::mem::take(&mut self.begun);
            if !printer.print(&line, &mut *session.out, &mut *session.err)? {
                return Ok(false);
            }
        }
    }

    /// Goes on with a new file if the runtime has begun one.
    fn follow(&mut self, path: &Path) -> Outcome {
        let Ok(now) = std::fs::metadata(path) else { return Ok(()) };
        let before = self.reader.get_ref().metadata()?;
        let read_all =
            self.reader.buffer().is_empty() && self.reader.stream_position()? >= before.len();
        if (now.ino(), now.dev()) != (before.ino(), before.dev()) && read_all {
            self.reader = BufReader::new(open(path)?);
            self.begun.clear();
        }
        Ok(())
    }
}

/// Only files are logs: a pipe would be waited for.
fn open(path: &Path) -> Outcome<File> {
    let failed = || format!("failed to open log file {}", Quoted(&path.to_string_lossy()));
    let is_file = std::fs::metadata(path).during(failed)?.is_file();
    if !is_file {
        return Err(format!("{}: it is no file", failed()).into());
    }
    File::open(path).during(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_where_the_runtime_says() {
        let status = |path: &str, attempt| ContainerStatus {
            log_path: path.to_owned(),
            metadata: Some(ContainerMetadata { name: "n".to_owned(), attempt }),
            ..ContainerStatus::default()
        };
        let path = |path, attempt, previous| {
            let found = log_path(&status(path, attempt), previous);
            found.map(|path| path.display().to_string()).map_err(|failure| failure.message())
        };
        assert_eq!(path("/l/c/2.log", 2, false), Ok("/l/c/2.log".to_owned()));
        assert_eq!(path("/l/c/2.log", 2, true), Ok("/l/c/1.log".to_owned()));
        assert_eq!(path("/l/c/x", 1, true), Ok("/l/c/0".to_owned()));
        assert!(path("/l/c/0.log", 0, true).is_err() && path("", 0, false).is_err());
    }
}
