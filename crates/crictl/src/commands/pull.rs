//! `pull`, and what others pull before they need it.
use super::{Command, make};
use crate::failure::{Failure, Outcome, While};
use crate::flags::{Arguments, Flag, list, span, text};
use crate::print::tame;
use crate::session::{Session, wait};
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use rustix::termios::{self, LocalModes, OptionalActions};
use std::collections::HashMap;
use std::io::{BufRead, Write as _, stdin};

/// How a registry is asked.
pub static REGISTRY: &[Flag] = &[
    text("creds", "USERNAME[:PASSWORD] for the registry").environment("CRICTL_CREDS"),
    text("auth", "The same, encoded in base64").environment("CRICTL_AUTH"),
    text("username", "Who to be for the registry; the password is asked for").or("u"),
    span("pull-timeout", "How long a pull may take; 0s: any time")
        .or("pt")
        .environment("CRICTL_PULL_TIMEOUT"),
];

static FLAGS: &[Flag] = &[
    text("pod-config", "A pod-config.[json|yaml] that says for which pod"),
    list("annotation", "Annotation to be set on the pulled image").or("a"),
];

pub static COMMAND: Command = Command {
    name: "pull",
    about: "Pull an image from a registry",
    usage: "NAME[:TAG|@DIGEST]",
    flags: &[REGISTRY, FLAGS],
    run: |session, arguments| Box::pin(run(session, arguments)),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let image = match &arguments.words[..] {
        [image] if !image.is_empty() => image.clone(),
        [] | [_] => return Err("image name cannot be empty".into()),
        _ => return Err(Failure::Help),
    };
    let sandbox = match arguments.some("pod-config") {
        Some(path) => {
            let read = make::pod_config(session, &path);
            Some(read.during(|| "load podSandboxConfig".to_owned())?)
        }
        None => None,
    };
    let annotations = arguments.pairs("annotation")?;
    session.image().await?;
    let auth = credentials(session, &arguments)?;
    let pulled = pull(session, &arguments, &image, auth, sandbox, annotations).await;
    let reference = pulled.during(|| "pulling image".to_owned())?;
    Ok(writeln!(session.out, "Image is up to date for {}", tame(&reference))?)
}

pub async fn pull(
    session: &mut Session,
    arguments: &Arguments,
    image: &str,
    auth: Option<AuthConfig>,
    sandbox_config: Option<PodSandboxConfig>,
    annotations: HashMap<String, String>,
) -> Outcome<String> {
    if arguments.text("pull-timeout").starts_with('-') {
        return Err("timeout should be bigger than 0".into());
    }
    let client = session.image().await?;
    let image = Some(ImageSpec { image: image.to_owned(), annotations, ..ImageSpec::default() });
    let request = PullImageRequest { image, auth, sandbox_config };
    let pulled = wait(arguments.span("pull-timeout"), client.pull_image(request)).await?;
    Ok(pulled.image_ref)
}

/// Who to be for a registry.
pub fn credentials(session: &mut Session, arguments: &Arguments) -> Outcome<Option<AuthConfig>> {
    let named = |username: &str, password: String| AuthConfig {
        username: username.to_owned(),
        password,
        ..AuthConfig::default()
    };
    if let Some(username) = arguments.some("username") {
        return Ok(Some(named(&username, password(session)?)));
    }
    match (arguments.some("creds"), arguments.some("auth")) {
        (Some(_), Some(_)) => Err("both `--creds` and `--auth` are specified".into()),
        (Some(both), None) => match both.split_once(':') {
            Some(("", _)) => Err("username can't be empty".into()),
            Some((username, password)) => Ok(Some(named(username, password.to_owned()))),
            None => Ok(Some(named(&both, String::new()))),
        },
        (None, Some(auth)) => Ok(Some(AuthConfig { auth, ..AuthConfig::default() })),
        (None, None) => Ok(None),
    }
}

/// Asked on the terminal, which does not show it.
fn password(session: &mut Session) -> Outcome<String> {
    write!(session.out, "Enter Password:")?;
    session.out.flush()?;
    let before = termios::tcgetattr(stdin())
        .map_err(|_| "inappropriate ioctl for device: the password is asked for on a terminal")?;
    let mut silent = before.clone();
    silent.local_modes -= LocalModes::ECHO;
    termios::tcsetattr(stdin(), OptionalActions::Now, &silent).map_err(std::io::Error::from)?;
    let mut line = String::new();
    let read = stdin().lock().read_line(&mut line);
    termios::tcsetattr(stdin(), OptionalActions::Now, &before).map_err(std::io::Error::from)?;
    writeln!(session.out)?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
