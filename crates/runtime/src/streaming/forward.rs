//! Port-forward: bytes between a client's stream and a port inside a sandbox's network.
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_tungstenite::tungstenite::Message;

use super::QUEUE;
use super::websocket::{Socket, encode};
use crate::service::Service;

/// Copies both ways until both are done. `None` from the client ends its direction only.
pub(super) async fn copy(
    service: &Service,
    sandbox: &str,
    port: u16,
    mut incoming: Receiver<Bytes>,
    outgoing: Sender<Bytes>,
) -> Result<(), String> {
    let sandbox = service.sandbox(sandbox).map_err(|status| status.message().to_owned())?;
    let failed = |error: std::io::Error| {
        format!("failed to connect to localhost:{port} inside sandbox {}: {error}", sandbox.id)
    };
    let stream = service.dial(&sandbox, port).await.map_err(failed)?;
    let (mut read, mut write) = stream.into_split();
    let to_port = async {
        while let Some(bytes) = incoming.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
    };
    let to_client = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            if outgoing.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
                break;
            }
        }
        drop(outgoing);
    };
    tokio::pin!(to_port);
    tokio::select! {
        // The port has nothing more to say: what the client still sends has no reader.
        () = to_client => {}
        () = async { to_port.as_mut().await; std::future::pending::<()>().await } => {}
    }
    Ok(())
}

/// Two channels a port, data and errors; each starts with the port's number.
pub(super) async fn over_websocket(service: Service, sandbox: &str, ports: &[u16], socket: Socket) {
    let (mut sink, mut source) = socket.split();
    let (to_client, mut messages) = mpsc::channel::<(u8, Bytes)>(QUEUE);
    let mut inputs = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        let (data, error) = (2 * number as u8, 2 * number as u8 + 1);
        let greeting = Bytes::copy_from_slice(&port.to_le_bytes());
        for channel in [data, error] {
            let _ = to_client.send((channel, greeting.clone())).await;
        }
        let (input, incoming) = mpsc::channel(QUEUE);
        inputs.push(input);
        let (service, sandbox, port) = (service.clone(), sandbox.to_owned(), *port);
        let to_client = to_client.clone();
        tokio::spawn(async move {
            let (output, mut outputs) = mpsc::channel::<Bytes>(QUEUE);
            let sending = to_client.clone();
            let pump = tokio::spawn(async move {
                while let Some(bytes) = outputs.recv().await {
                    let _ = sending.send((data, bytes)).await;
                }
            });
            if let Err(message) = copy(&service, &sandbox, port, incoming, output).await {
                let _ = to_client.send((error, Bytes::from(message))).await;
            }
            let _ = pump.await;
        });
    }
    drop(to_client);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            let Message::Binary(bytes) = message else { continue };
            let Some((channel, _)) = bytes.split_first() else { continue };
            if let (0, Some(input)) = (channel % 2, inputs.get(usize::from(channel / 2))) {
                let _ = input.send(bytes.slice(1..)).await;
            }
        }
    });
    while let Some((channel, bytes)) = messages.recv().await {
        if sink.send(encode(channel, &bytes, false)).await.is_err() {
            break;
        }
    }
    let _ = sink.close().await;
}
