//! What systemd's logind has to do with it: it lets whoever asks delay a shutdown, tells when one
//! begins, and goes on when everybody has let go.
use crate::dbus::{Argument, Bus, Call, Reader};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// Where logind is told to wait longer.
const FOLDER: &str = "/etc/systemd/logind.conf.d";
/// Looks for its new configuration, each after twice the pause of the one before.
const LOOKS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The bus of the system.
pub fn socket() -> PathBuf {
    let said = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok();
    let path = said.as_deref().and_then(|said| said.strip_prefix("unix:path="));
    PathBuf::from(path.unwrap_or("/run/dbus/system_bus_socket"))
}

pub struct Logind {
    bus: Bus,
    /// While this is open, a shutdown waits.
    lock: Option<OwnedFd>,
}

impl Logind {
    /// Asks that shutdowns wait for us, so long at most.
    pub async fn delay(socket: &Path, longest: Duration) -> io::Result<Logind> {
        let mut logind = Logind { bus: Bus::connect(socket).await?, lock: None };
        if logind.patience().await? < longest {
            logind.lengthen(longest).await?;
        }
        logind.hold().await?;
        let rule = format!(
            "type='signal',interface='{MANAGER}',member='PrepareForShutdown',path='{PATH}'"
        );
        let bus = "org.freedesktop.DBus";
        let arguments = &[Argument::Text(&rule)];
        let call = Call {
            to: bus,
            path: "/org/freedesktop/DBus",
            interface: bus,
            member: "AddMatch",
            arguments,
        };
        logind.bus.call(call).await?;
        Ok(logind)
    }

    /// How long it waits for anybody.
    async fn patience(&mut self) -> io::Result<Duration> {
        let arguments = &[Argument::Text(MANAGER), Argument::Text("InhibitDelayMaxUSec")];
        let interface = "org.freedesktop.DBus.Properties";
        let call = Call { to: SERVICE, path: PATH, interface, member: "Get", arguments };
        let answer = self.bus.call(call).await?;
        let mut body = Reader::new(&answer.body);
        let kind = body.signature();
        let microseconds = body.long().filter(|_| kind.as_deref() == Some("t"));
        let microseconds = microseconds.ok_or_else(|| {
            io::Error::other("InhibitDelayMaxUSec from logind is not a uint64 as expected")
        })?;
        Ok(Duration::from_micros(microseconds))
    }

    async fn lengthen(&mut self, longest: Duration) -> io::Result<()> {
        fs::create_dir_all(FOLDER)?;
        let text = format!(
            "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n",
            longest.as_secs()
        );
        fs::write(Path::new(FOLDER).join("99-kubelet.conf"), text)?;
        // A hangup lets it read its configuration.
        self.bus
            .call(Call {
                to: "org.freedesktop.systemd1",
                path: "/org/freedesktop/systemd1",
                interface: "org.freedesktop.systemd1.Manager",
                member: "KillUnit",
                arguments: &[
                    Argument::Text("systemd-logind.service"),
                    Argument::Text("all"),
                    Argument::Number(1),
                ],
            })
            .await?;
        for look in 0..LOOKS {
            if self.patience().await? >= longest {
                return Ok(());
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.pow(look)).await;
        }
        Err(io::Error::other(format!("logind does not wait for {} s", longest.as_secs())))
    }

    pub async fn hold(&mut self) -> io::Result<()> {
        let arguments =
            ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        let arguments = arguments.map(Argument::Text);
        let call = Call {
            to: SERVICE,
            path: PATH,
            interface: MANAGER,
            member: "Inhibit",
            arguments: &arguments,
        };
        self.bus.call(call).await?;
        let file = self.bus.file();
        self.lock = Some(file.ok_or_else(|| io::Error::other("logind gives no lock"))?);
        Ok(())
    }

    /// The machine may go down.
    pub fn let_go(&mut self) {
        self.lock = None;
    }

    /// Waits for the beginning of a shutdown, or for its end before it came to that.
    pub async fn next(&mut self) -> io::Result<bool> {
        loop {
            let signal = self.bus.signal().await?;
            if signal.interface == MANAGER && signal.member == "PrepareForShutdown" {
                let mut body = Reader::new(&signal.body);
                return Ok(body.number() == Some(1));
            }
        }
    }
}
