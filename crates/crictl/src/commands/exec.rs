//! `exec` and `attach`: by the URL that the runtime answers with, over WebSocket; `exec --sync` by CRI
//! alone.
use super::{Command, NO_ID};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::select::{self, Wanted};
use crate::session::{Session, wait};
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::time::Duration;
use streams::Streams;
use streams::terminal::{self, Raw};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error as SocketError, http};

pub static TRANSPORT: &[Flag] =
    &[text("transport", "Transport protocol to use: websocket is the only one")
        .or("r")
        .default("websocket")];

static EXEC_FLAGS: &[Flag] = &[
    switch("sync", "Run the command synchronously").or("s"),
    number("timeout", "Timeout in seconds, with --sync"),
    switch("tty", "Allocate a pseudo-TTY").or("t"),
    switch("interactive", "Keep STDIN open").or("i"),
    text("state", "Filter by container state"),
    switch("quiet", "Do not print the container ID if multiple containers are selected").or("q"),
    switch("ignore-errors", "Ignore errors during command execution").or("e"),
    switch("parallel", "Accepted; one container comes after the other").or("x"),
];

pub static EXEC: Command = Command {
    name: "exec",
    about: "Run a command in a running container",
    usage: "[CONTAINER-ID] COMMAND [ARG...]",
    flags: &[EXEC_FLAGS, TRANSPORT, select::CONTAINERS],
    run: |session, arguments| Box::pin(exec(session, arguments)),
    ..Command::EMPTY
};

static ATTACH_FLAGS: &[Flag] =
    &[switch("tty", "Allocate a pseudo-TTY").or("t"), switch("stdin", "Keep STDIN open").or("i")];

pub static ATTACH: Command = Command {
    name: "attach",
    about: "Attach to a running container",
    usage: "CONTAINER-ID",
    flags: &[ATTACH_FLAGS, TRANSPORT],
    run: |session, arguments| Box::pin(attach(session, arguments)),
    ..Command::EMPTY
};

/// Flags that say which containers are meant, in place of an id.
const FILTERS: [&str; 7] = ["name", "pod", "image", "state", "label", "latest", "last"];

async fn exec(session: &mut Session, arguments: Arguments) -> Outcome {
    let filtered = FILTERS.iter().any(|name| arguments.given(name));
    let (ids, command) = match &arguments.words[..] {
        command @ [_, ..] if filtered => {
            let wanted = Wanted::of(&arguments, &["name", "pod", "image", "state"])?;
            let found = select::containers(session, &wanted).await;
            let found = found.during(|| "listing containers".to_owned())?;
            (found.into_iter().map(|container| container.id).collect(), command)
        }
        [id, command @ ..] if !command.is_empty() => (vec![id.clone()], command),
        _ => return Err(Failure::Help),
    };
    if ids.is_empty() {
        session.log(Level::Error, "No containers found per filter flags")?;
        return Err(Failure::Help);
    }
    over_websocket(&arguments)?;
    let mut failed = Vec::new();
    for id in &ids {
        if filtered && !arguments.is("quiet") && !arguments.is("parallel") {
            writeln!(session.out, "{id}:")?;
        }
        let ended = match arguments.is("sync") {
            true => exec_sync(session, id, command, arguments.number("timeout"))
                .await
                .during(|| format!("execing command in container {id} synchronously")),
            false => exec_streamed(session, &arguments, id, command)
                .await
                .during(|| format!("execing command in container {id}")),
        };
        failed.extend(ended.err());
    }
    if arguments.is("ignore-errors") {
        return Ok(());
    }
    Failure::of_all(failed)
}

async fn exec_sync(session: &mut Session, id: &str, command: &[String], timeout: i64) -> Outcome {
    let runtime = session.runtime().await?;
    let request = ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout };
    // Without a limit it takes as long as it takes.
    let more = u64::try_from(timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let limit = more.and_then(|more| session.settings.timeout.checked_add(more));
    let told = wait(limit, runtime.exec_sync(request)).await?;
    if told.exit_code != 0 {
        return Err(Failure::Said(format!(
            "command '{}' exited with {}: {}",
            command.join(" "),
            told.exit_code,
            String::from_utf8_lossy(&told.stderr)
        )));
    }
    for stream in [&told.stdout, &told.stderr] {
        session.out.write_all(stream)?;
        writeln!(session.out)?;
    }
    Ok(())
}

async fn exec_streamed(
    session: &mut Session,
    arguments: &Arguments,
    id: &str,
    command: &[String],
) -> Outcome {
    let (tty, stdin) = (arguments.is("tty"), arguments.is("interactive"));
    let runtime = session.runtime().await?;
    let request = ExecRequest {
        container_id: id.to_owned(),
        cmd: command.to_vec(),
        tty,
        stdin,
        stdout: true,
        stderr: !tty,
    };
    let url = session.within(runtime.exec(request)).await?.url;
    talk(session, &url, tty, stdin).await
}

async fn attach(session: &mut Session, arguments: Arguments) -> Outcome {
    let id = match &arguments.words[..] {
        [id] if !id.is_empty() => id.clone(),
        [] | [_] => return Err(NO_ID.into()),
        _ => return Err(Failure::Help),
    };
    over_websocket(&arguments)?;
    let (tty, stdin) = (arguments.is("tty"), arguments.is("stdin"));
    let runtime = session.runtime().await?;
    let request = AttachRequest { container_id: id, stdin, tty, stdout: true, stderr: !tty };
    let url = session.within(runtime.attach(request)).await;
    let url = url.during(|| "attaching running container failed".to_owned())?.url;
    let ended = talk(session, &url, tty, stdin).await;
    ended.during(|| "attaching running container failed".to_owned())
}

pub fn over_websocket(arguments: &Arguments) -> Outcome {
    match arguments.text("transport").as_str() {
        "websocket" => Ok(()),
        other => Err(format!("the transport {other:?} is not spoken here: use websocket").into()),
    }
}

/// Connects this process's streams with a container's.
async fn talk(session: &mut Session, url: &str, tty: bool, stdin: bool) -> Outcome {
    if tty && !stdin {
        return Err("tty=true must be specified with interactive=true".into());
    }
    if tty && !terminal::is_terminal() {
        return Err("input is not a terminal".into());
    }
    let (socket, protocol) = open(session, url, streams::PROTOCOLS).await?;
    session.flush()?;
    let raw = tty.then(Raw::take).flatten();
    let streams = Streams {
        stdin: stdin.then(|| Box::new(tokio::io::stdin()) as _),
        stdout: &mut *session.out,
        stderr: &mut *session.err,
        sizes: tty.then(terminal::sizes).flatten(),
        detach: if tty { streams::keys("ctrl-p,ctrl-q")? } else { Vec::new() },
    };
    let ended = streams::carry(socket, &protocol, streams).await;
    drop(raw);
    Ok(ended?)
}

/// A WebSocket at the URL that a runtime told, and which of the protocols it chose.
pub async fn open(
    session: &Session,
    url: &str,
    protocols: &str,
) -> Outcome<(WebSocketStream<TcpStream>, String)> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some((scheme, _)) => {
            return Err(format!("streams over {scheme} are not spoken here: {url}").into());
        }
        None => return Err(format!("the runtime names no server of streams: {url:?}").into()),
    };
    let unfit = |error: &dyn std::fmt::Display| Failure::Said(format!("{url}: {error}"));
    let mut request =
        format!("ws://{rest}").into_client_request().map_err(|error| unfit(&error))?;
    let offered = http::HeaderValue::from_str(protocols).map_err(|error| unfit(&error))?;
    request.headers_mut().insert("sec-websocket-protocol", offered);
    let host = request.uri().host().unwrap_or("127.0.0.1").to_owned();
    let port = request.uri().port_u16().unwrap_or(80);
    let opening = async {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await?;
        tokio_tungstenite::client_async(request, stream).await
    };
    let (socket, answer) = match tokio::time::timeout(session.settings.timeout, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(SocketError::Http(answer))) => {
            let text = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let code = answer.status().as_u16();
            return Err(format!("unable to upgrade connection: {code}: {}", text.trim()).into());
        }
        Ok(Err(error)) => return Err(unfit(&error)),
        Err(_) => return Err(unfit(&"context deadline exceeded")),
    };
    let chosen = answer.headers().get("sec-websocket-protocol");
    let chosen = chosen.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    Ok((socket, chosen))
}
