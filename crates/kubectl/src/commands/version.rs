//! `kubectl version`.
use super::{Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, switch, text};
use crate::print;
use crate::session::Session;
use api::codec::yaml;
use serde_json::{Value, json};

/// The version whose kustomization files `-k` understands.
pub const KUSTOMIZE: &str = "v5.8.1";

static FLAGS: &[Flag] = &[
    switch("client", "Tell the version of this program only."),
    text("output", "", "json or yaml.").short('o'),
];

pub static COMMAND: Command = Command {
    name: "version",
    group: Group::Other,
    about: "Print the client and server version information",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err(format!("extra arguments: {}", go_list(&arguments.words)).into());
    }
    let output = arguments.text("output");
    if !matches!(output, "" | "json" | "yaml") {
        return Err(Failure::Plain("--output must be 'yaml' or 'json'".to_owned()));
    }
    let mut versions = json!({ "clientVersion": client(), "kustomizeVersion": KUSTOMIZE });
    let mut failed = None;
    if !arguments.is("client") {
        match session.cluster(&arguments)?.get_json("/version", "").await {
            Ok(server) => versions["serverVersion"] = server,
            Err(failure) => failed = Some(failure),
        }
    }
    match output {
        "json" => writeln!(session.out, "{}", print::pretty(&versions))?,
        "yaml" => session.out.write_all(yaml::encode(&versions).as_bytes())?,
        _ => {
            let text = |value: &Value| value["gitVersion"].as_str().unwrap_or_default().to_owned();
            writeln!(session.out, "Client Version: {}", text(&versions["clientVersion"]))?;
            writeln!(session.out, "Kustomize Version: {KUSTOMIZE}")?;
            if versions["serverVersion"].is_object() {
                writeln!(session.out, "Server Version: {}", text(&versions["serverVersion"]))?;
            }
        }
    }
    if let Some(warning) = skew(&versions["clientVersion"], &versions["serverVersion"]) {
        writeln!(session.err, "{warning}")?;
    }
    failed.map_or(Ok(()), Err)
}

fn go_list(words: &[String]) -> String {
    format!("[{}]", words.join(" "))
}

fn client() -> Value {
    let version = api::VERSION;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("{}/{architecture}", std::env::consts::OS);
    json!({ "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": platform })
}

/// What is said where client and server are more than a minor version apart.
fn skew(client: &Value, server: &Value) -> Option<String> {
    let number = |version: &Value| -> Option<(i64, i64)> {
        let digits =
            |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<i64>().ok();
        Some((digits(version["major"].as_str()?)?, digits(version["minor"].as_str()?)?))
    };
    let ((major, minor), (other_major, other_minor)) = (number(client)?, number(server)?);
    let apart = major != other_major || (minor - other_minor).abs() > 1;
    apart.then(|| {
        format!(
            "WARNING: version difference between client ({major}.{minor}) and server \
             ({other_major}.{other_minor}) exceeds the supported minor version skew of +/-1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_far_apart_are_told() {
        let version = |minor: &str| json!({ "major": "1", "minor": minor });
        assert_eq!(skew(&version("37"), &version("36+")), None);
        assert_eq!(
            skew(&version("37"), &version("32")).unwrap(),
            "WARNING: version difference between client (1.37) and server (1.32) exceeds the supported minor \
             version skew of +/-1"
        );
    }
}
