//! systemd's watchdog: a service that does not say every now and then that it lives is started again.
//! Whoever asks for it says so in the environment (`WATCHDOG_USEC`, `NOTIFY_SOCKET`).
use client::Context;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How often it wants to hear of us: half of what it waits.
fn period(microseconds: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let own = process.is_none_or(|id| id == std::process::id().to_string());
    let whole = microseconds?.parse::<u64>().ok().filter(|whole| own && *whole > 0)?;
    Some(Duration::from_micros(whole / 2))
}

fn tell(socket: &str, text: &str) -> std::io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

/// Until the context stops. It speaks from where everything else is done: what cannot get on does
/// not say that it can.
pub async fn feed(context: &Context) {
    let given = |name: &str| std::env::var(name).ok();
    let period = period(given("WATCHDOG_USEC").as_deref(), given("WATCHDOG_PID").as_deref());
    let (Some(period), Some(socket)) = (period, given("NOTIFY_SOCKET")) else {
        return context.stopped().await;
    };
    feed_at(context, &socket, period).await;
}

async fn feed_at(context: &Context, socket: &str, period: Duration) {
    loop {
        if let Err(error) = tell(socket, "WATCHDOG=1") {
            tracing::debug!("the watchdog does not listen: {error}");
        }
        if !context.sleep(period).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_is_taken() {
        assert_eq!(period(Some("2000000"), None), Some(Duration::from_secs(1)));
        assert_eq!(period(Some("2000000"), Some("1")), None);
        assert_eq!(period(Some("0"), None), None);
        assert_eq!(period(Some("soon"), None), None);
        assert_eq!(period(None, None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_fed_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let context = Context::simulated(jiff::Timestamp::UNIX_EPOCH, 1);
        let feeding = feed_at(&context, path.to_str().unwrap(), Duration::from_secs(1));
        let fed = tokio::time::timeout(Duration::from_millis(2500), feeding).await;
        assert!(fed.is_err());
        let mut text = [0; 64];
        for _ in 0..3 {
            let count = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..count], b"WATCHDOG=1");
        }
        assert!(socket.recv(&mut text).is_err());
    }
}
