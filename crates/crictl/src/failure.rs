//! What a command may fail with, in the words of Go's gRPC and of cri-tools; and lines of a log as its
//! logger (`sirupsen/logrus`) writes them.
use api::quote::Quoted;
use tonic::{Code, Status};

#[derive(Debug)]
pub enum Failure {
    Said(String),
    /// The command's help says it.
    Help,
    /// Everything was said already.
    Exit(u8),
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// What is written to stderr, if anything.
    pub fn message(&self) -> Option<String> {
        match self {
            Failure::Said(text) => Some(text.clone()),
            Failure::Help | Failure::Exit(_) => None,
        }
    }

    pub fn code(&self) -> u8 {
        match self {
            Failure::Exit(code) => *code,
            _ => 1,
        }
    }

    /// All of them, each on a line, if there are any.
    pub fn of_all(all: Vec<Failure>) -> Outcome {
        let lines: Vec<String> = all.iter().filter_map(Failure::message).collect();
        match all.is_empty() {
            true => Ok(()),
            false => Err(Failure::Said(lines.join("\n"))),
        }
    }
}

/// Says what was being done when something failed.
pub trait While<T> {
    fn during(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<Failure>> While<T> for Result<T, E> {
    fn during(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| match error.into() {
            Failure::Said(text) => Failure::Said(format!("{}: {text}", doing())),
            other => other,
        })
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Said(format!(
            "rpc error: code = {} desc = {}",
            code_name(status.code()),
            status.message()
        ))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Said(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure::Said(text.to_owned())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        // Whoever read our output has gone: nobody is there to be told.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::Exit(1);
        }
        Failure::Said(error.to_string())
    }
}

impl From<streams::Error> for Failure {
    fn from(error: streams::Error) -> Failure {
        match error {
            streams::Error::Io(error) => error.into(),
            other => Failure::Said(other.to_string()),
        }
    }
}

/// A code as Go's gRPC spells it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// A line for standard error: short on a terminal, with its moment and level elsewhere.
pub fn log_line(level: Level, text: &str) -> String {
    let (short, long) = match level {
        Level::Debug => ("DEBU", "debug"),
        Level::Info => ("INFO", "info"),
        Level::Warning => ("WARN", "warning"),
        Level::Error => ("ERRO", "error"),
    };
    if rustix::termios::isatty(std::io::stderr()) {
        // What a runtime says reaches a person's terminal: no control of it.
        return format!("{short}[0000] {}", crate::print::tame(text));
    }
    let moment = api::time::format_timestamp(jiff::Timestamp::now());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => format!("time=\"{moment}\" level={long} msg={text}"),
        false => format!("time=\"{moment}\" level={long} msg={}", Quoted(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_go_s_words() {
        let failure: Outcome = Err(Status::not_found("no \"x\"")).during(|| "stopping".to_owned());
        assert_eq!(
            failure.unwrap_err().message().unwrap(),
            "stopping: rpc error: code = NotFound desc = no \"x\""
        );
        let all = Failure::of_all(vec!["a".into(), "b".into()]).unwrap_err();
        assert_eq!((all.message().as_deref(), all.code()), (Some("a\nb"), 1));
        assert!(Failure::of_all(Vec::new()).is_ok());
    }

    #[test]
    fn log_lines_are_quoted_where_they_must_be() {
        // Tests have no terminal for standard error, or one: only the end is told.
        let line = log_line(Level::Error, "a \"b\"\u{1b}[2J");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
}
