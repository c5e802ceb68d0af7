//! A connection to a pod's port: a WebSocket of its own with a stream of data and one of errors, each
//! of which begins with the port's number.
use super::Error;
use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const DATA: u8 = 0;
const ERRORS: u8 = 1;

/// Carries one connection to its end.
pub async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    local: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), Error> {
    let (mut sink, source) = socket.split();
    let (mut read, mut write) = tokio::io::split(local);
    let upwards = async {
        let mut buffer = vec![0; 32 << 10];
        buffer[0] = DATA;
        loop {
            match read.read(&mut buffer[1..]).await {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    let message = Message::binary(buffer[..=length].to_vec());
                    if sink.send(message).await.is_err() {
                        break;
                    }
                }
            }
        }
        // There is no half of a close in this protocol: the answer is waited for.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = downwards(source, &mut write) => outcome,
        () = upwards => Ok(()),
    }
}

async fn downwards<S: AsyncRead + AsyncWrite + Unpin>(
    mut source: SplitStream<WebSocketStream<S>>,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<(), Error> {
    // The first two bytes of each stream are the port.
    let mut begun = [false; 2];
    while let Some(message) = source.next().await {
        let bytes = match message {
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Text(text)) => Bytes::from(text),
            Ok(Message::Close(_)) | Err(_) => break,
            Ok(_) => continue,
        };
        let Some((stream, mut body)) = bytes.split_first() else { continue };
        let Some(begun) = begun.get_mut(usize::from(*stream)) else { continue };
        if !std::mem::replace(begun, true) {
            body = body.get(2..).unwrap_or_default();
        }
        match *stream {
            DATA => write.write_all(body).await?,
            ERRORS if !body.is_empty() => {
                return Err(Error::Failed(String::from_utf8_lossy(body).trim().to_owned()));
            }
            _ => {}
        }
    }
    let _ = write.shutdown().await;
    Ok(())
}
