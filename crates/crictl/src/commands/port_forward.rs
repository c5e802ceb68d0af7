//! `port-forward`: local ports that lead into a sandbox; each connection has a stream of its own.
use super::Command;
use super::exec::{TRANSPORT, open, over_websocket};
use crate::failure::{Failure, Outcome, While};
use crate::flags::Arguments;
use crate::session::Session;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use tokio::net::{TcpListener, TcpStream};

pub static COMMAND: Command = Command {
    name: "port-forward",
    about: "Forward local port to a pod",
    usage: "POD-ID [LOCAL_PORT:]REMOTE_PORT...",
    flags: &[TRANSPORT],
    run: |session, arguments| Box::pin(run(session, arguments)),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let (id, ports) = match &arguments.words[..] {
        [id, ports @ ..] if !ports.is_empty() => (id.clone(), ports),
        _ => return Err(Failure::Help),
    };
    over_websocket(&arguments)?;
    let ports: Vec<(u16, u16)> = ports
        .iter()
        .map(|text| pair(text))
        .collect::<Outcome<_>>()
        .during(|| "port forward".to_owned())?;
    let mut listeners = Vec::new();
    for (local, remote) in ports {
        let failed = || format!("port forward: unable to listen on port {local}");
        let listener = TcpListener::bind(("127.0.0.1", local)).await.during(failed)?;
        let address = listener.local_addr()?;
        writeln!(session.out, "Forwarding from {address} -> {remote}")?;
        listeners.push((listener, remote));
        if let Ok(listener) = TcpListener::bind(("::1", address.port())).await {
            writeln!(session.out, "Forwarding from {} -> {remote}", listener.local_addr()?)?;
            listeners.push((listener, remote));
        }
    }
    // Asked once at the start, so that a sandbox that is not there is told of before anyone connects.
    url(session, &id, listeners.first().map_or(0, |(_, remote)| *remote)).await?;
    session.flush()?;
    loop {
        let accepting = listeners.iter().map(|(listener, remote)| {
            let remote = *remote;
            Box::pin(async move { (listener.accept().await, listener.local_addr(), remote) })
        });
        let (accepted, _, _) = futures_util::future::select_all(accepting).await;
        let (Ok((connection, _)), Ok(address), remote) = accepted else { continue };
        writeln!(session.out, "Handling connection for {}", address.port())?;
        session.flush()?;
        if let Err(failure) = forward(session, &id, remote, connection).await {
            let why = failure.message().unwrap_or_default();
            let text =
                format!("an error occurred forwarding {} -> {remote}: {why}", address.port());
            session.log(crate::failure::Level::Error, &text)?;
        }
    }
}

/// Opens the stream of a connection, which then goes on beside others.
async fn forward(session: &mut Session, id: &str, remote: u16, connection: TcpStream) -> Outcome {
    let url = url(session, id, remote).await?;
    let (socket, _) = open(session, &url, streams::PORT_PROTOCOL).await?;
    tokio::spawn(async move {
        if let Err(error) = streams::forward::carry(socket, connection).await {
            eprintln!("an error occurred forwarding to {remote}: {error}");
        }
    });
    Ok(())
}

/// A URL serves once.
async fn url(session: &mut Session, id: &str, port: u16) -> Outcome<String> {
    let runtime = session.runtime().await?;
    let request = PortForwardRequest { pod_sandbox_id: id.to_owned(), port: vec![i32::from(port)] };
    let told = session.within(runtime.port_forward(request)).await;
    let url = told.during(|| "port forward".to_owned())?.url;
    // containerd's and CRI-O's servers are told the port once more.
    let separator = if url.contains('?') { '&' } else { '?' };
    Ok(format!("{url}{separator}port={port}"))
}

/// `8080:80`, `:80`, `80`: a port here and one of the sandbox.
fn pair(text: &str) -> Outcome<(u16, u16)> {
    let invalid = || Failure::Said(format!("invalid port format '{text}'"));
    let port = |text: &str| text.parse::<u16>().map_err(|_| invalid());
    let (local, remote) = match text.split_once(':') {
        Some(("", remote)) => (0, port(remote)?),
        Some((local, remote)) => (port(local)?, port(remote)?),
        None => (port(text)?, port(text)?),
    };
    if remote == 0 { Err("remote port must be > 0".into()) } else { Ok((local, remote)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_pairs() {
        assert_eq!(pair("8080:80").unwrap(), (8080, 80));
        assert_eq!(pair(":80").unwrap(), (0, 80));
        assert_eq!(pair("80").unwrap(), (80, 80));
        for text in ["", "0", "x", "80:", "1:2:3", "70000", "-1", "5:0"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }
}
