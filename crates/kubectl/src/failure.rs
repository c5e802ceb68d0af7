//! What a command may fail with, and the words and exit code that upstream's kubectl has for it
//! (`kubectl/pkg/cmd/util/helpers.go`).
use api::quote::Quoted;
use api::status::{Reason, Status};

#[derive(Debug, Clone)]
pub enum Failure {
    /// `error: …`
    Plain(String),
    /// What an API server answered, or why none did.
    Server(Box<Status>),
    /// A kubeconfig that means nothing.
    Configuration(String),
    /// Words of a command line that mean nothing; with the command whose help is to be read.
    Usage { text: String, command: String },
    /// Several, each on a line of its own.
    Many(Vec<Failure>),
    /// A text as it is, with an exit code.
    Said { text: String, code: u8 },
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Ends with this code, for everything was said already.
    pub fn exit(code: u8) -> Failure {
        Failure::Said { text: String::new(), code }
    }

    pub fn usage(command: &str, text: impl Into<String>) -> Failure {
        Failure::Usage { text: text.into(), command: command.to_owned() }
    }

    /// One of them, or all.
    pub fn of_all(mut all: Vec<Failure>) -> Outcome {
        match all.len() {
            0 => Ok(()),
            1 => Err(all.remove(0)),
            _ => Err(Failure::Many(all)),
        }
    }

    pub fn code(&self) -> u8 {
        match self {
            Failure::Said { code, .. } => *code,
            _ => 1,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Failure::Server(status) if status.is_not_found())
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Failure::Server(status) if status.is_conflict())
    }

    /// The same, telling which file it was about.
    #[must_use]
    pub fn with_source(self, verb: &str, source: &str) -> Failure {
        if source.is_empty() {
            return self;
        }
        match self {
            Failure::Server(mut status) if unreachable_server(&status).is_none() => {
                status.message =
                    format!("error when {verb} {}: {}", Quoted(source), status.message);
                Failure::Server(status)
            }
            Failure::Plain(text) => {
                Failure::Plain(format!("error when {verb} {}: {text}", Quoted(source)))
            }
            other => other,
        }
    }

    /// What is written to stderr, without the line's end.
    pub fn message(&self) -> String {
        match self {
            Failure::Plain(text) if text.starts_with("error: ") => text.clone(),
            Failure::Plain(text) => format!("error: {text}"),
            Failure::Server(status) => match invalid(status) {
                Some(text) => text,
                None => server(status),
            },
            Failure::Configuration(text) => format!("Error in configuration: {text}"),
            Failure::Usage { text, command } => {
                format!("error: {text}\nSee '{command} --help' for usage.")
            }
            Failure::Many(all) => {
                let lines: Vec<String> = all.iter().map(Failure::short).collect();
                lines.join("\n")
            }
            Failure::Said { text, .. } => text.clone(),
        }
    }

    /// As one of several, without the word that says that it is an error.
    pub fn short(&self) -> String {
        match self {
            Failure::Plain(text) => text.clone(),
            Failure::Server(status) => server(status),
            other => other.message(),
        }
    }

    /// The bare text.
    pub fn text(&self) -> String {
        match self {
            Failure::Server(status) => status.message.clone(),
            other => other.short(),
        }
    }
}

fn server(status: &Status) -> String {
    if let Some(text) = unreachable_server(status) {
        return text;
    }
    let message = &status.message;
    match &status.reason {
        Reason::Unauthorized => {
            format!("error: You must be logged in to the server ({message})")
        }
        reason if !reason.as_str().is_empty() => {
            format!("Error from server ({}): {message}", reason.as_str())
        }
        _ => format!("Error from server: {message}"),
    }
}

/// How `client::https` tells that there was no server to answer, or that it could not say who asks.
fn unreachable_server(status: &Status) -> Option<String> {
    if status.message.starts_with("getting credentials: ") {
        return Some(format!("Unable to connect to the server: {}", status.message));
    }
    let rest = status.message.strip_prefix("failed to connect to ")?;
    let (address, cause) = rest.split_once(": ")?;
    if cause.contains("onnection refused") {
        return Some(format!(
            "The connection to the server {address} was refused - did you specify the right host or port?"
        ));
    }
    Some(format!("Unable to connect to the server: {cause}"))
}

/// Each of an invalid object's faults on a line of its own.
fn invalid(status: &Status) -> Option<String> {
    if status.reason != Reason::Invalid {
        return None;
    }
    let mut text = "The request is invalid".to_owned();
    let Some(details) = &status.details else {
        if !status.message.is_empty() {
            text = format!("{text}: {}", status.message);
        }
        return Some(text);
    };
    if !details.kind.is_empty() || !details.name.is_empty() {
        text = format!("The {} {} is invalid", details.kind, Quoted(&details.name));
    } else if details.causes.is_empty() && !status.message.is_empty() {
        text = format!("{text}: {}", status.message);
    }
    let mut causes: Vec<String> = Vec::new();
    for cause in &details.causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !causes.contains(&line) {
            causes.push(line);
        }
    }
    match &causes[..] {
        [] => {}
        [one] => text = format!("{text}: {one}"),
        many => {
            text.push_str(": ");
            for line in many {
                text.push_str("\n* ");
                text.push_str(line);
            }
        }
    }
    Some(text)
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Server(Box::new(status))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Plain(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure::Plain(text.to_owned())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        // Whoever read our output has gone: nobody is there to be told.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::exit(1);
        }
        Failure::Plain(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::group::GroupResource;

    fn check(failure: impl Into<Failure>, expected: &str) {
        assert_eq!(failure.into().message(), expected);
    }

    #[test]
    fn failures_have_upstream_s_words() {
        let pods = GroupResource::new("", "pods");
        check(Status::not_found(pods, "x"), "Error from server (NotFound): pods \"x\" not found");
        check("no", "error: no");
        check("error: no", "error: no");
        check(
            Status::service_unavailable(
                "failed to connect to h:1: Connection refused (os error 111)",
            ),
            "The connection to the server h:1 was refused - did you specify the right host or port?",
        );
        check(
            Status::unauthorized("Unauthorized"),
            "error: You must be logged in to the server (Unauthorized)",
        );
        check(
            Failure::usage("kubectl get", "unknown flag: --x"),
            "error: unknown flag: --x\nSee 'kubectl get --help' for usage.",
        );
        check(Failure::Many(vec!["a".into(), "b".into()]), "a\nb");
    }
}
