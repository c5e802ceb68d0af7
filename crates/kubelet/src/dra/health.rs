//! How the devices of claims are: what drivers say on a stream (`DRAResourceHealth`), and for how long it
//! holds (`pkg/kubelet/cm/dra/healthinfo.go`). A pod's status shows it for each claim of a container. What
//! changes is written to a file, so that the next kubelet knows it before a driver has spoken.
mod file;

use super::driver::Driver;
use super::proto_v1::{DeviceHealth, HealthStatus, NodeWatchResourcesResponse};
use crate::worker::Kubelet;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// For how long a report holds, if it does not say: upstream's.
const HOLDS: Duration = Duration::from_secs(30);
/// When a stream that ended is begun again: upstream's.
const PAUSE: Duration = Duration::from_secs(5);
/// Devices of a driver that are remembered; a driver that invents more is not believed in those.
const MOST: usize = 16_384;
/// Bytes of a message that are shown.
const MESSAGE: usize = 1024;

/// What is known of drivers' devices.
#[derive(Default)]
pub struct Health(Mutex<Reports>);

/// By driver and endpoint, for two of a driver's programs run while one takes the other's place. What an
/// earlier kubelet heard has no endpoint.
#[derive(Debug, Default)]
struct Reports(BTreeMap<(String, String), BTreeMap<Device, Report>>);

/// A device's pool and name.
type Device = (String, String);

#[derive(Debug, Clone, PartialEq)]
struct Report {
    state: State,
    message: String,
    at: Timestamp,
    holds: Duration,
}

/// In the words of a pod's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    Healthy,
    Unhealthy,
    #[default]
    Unknown,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            State::Healthy => "Healthy",
            State::Unhealthy => "Unhealthy",
            State::Unknown => "Unknown",
        }
    }
}

impl Report {
    fn of(told: &DeviceHealth, now: Timestamp) -> Report {
        let seconds = u64::try_from(told.health_check_timeout_seconds).unwrap_or(0);
        Report {
            state: match told.health() {
                HealthStatus::Healthy => State::Healthy,
                HealthStatus::Unhealthy => State::Unhealthy,
                HealthStatus::Unknown => State::Unknown,
            },
            message: cut(&told.message),
            // When it was heard counts: drivers' clocks are their own.
            at: now,
            holds: if seconds == 0 { HOLDS } else { Duration::from_secs(seconds) },
        }
    }

    fn until(&self) -> Timestamp {
        let holds = SignedDuration::try_from(self.holds).unwrap_or(SignedDuration::MAX);
        self.at.saturating_add(holds).unwrap_or(Timestamp::MAX)
    }

    fn shown(&self) -> (State, &str, Duration) {
        (self.state, &self.message, self.holds)
    }
}

fn cut(message: &str) -> String {
    if message.len() <= MESSAGE {
        return message.to_owned();
    }
    format!("{}...", &message[..message.floor_char_boundary(MESSAGE - 3)])
}

impl Reports {
    /// What a driver's program says of all its devices; which of them are otherwise than before.
    fn update(
        &mut self,
        of: &(String, String),
        told: &[DeviceHealth],
        now: Timestamp,
    ) -> BTreeSet<Device> {
        let known = self.0.entry(of.clone()).or_default();
        let (mut changed, mut said) = (BTreeSet::new(), BTreeSet::new());
        for one in told {
            let name = one.device.clone().unwrap_or_default();
            let device = (name.pool_name, name.device_name);
            said.insert(device.clone());
            if known.len() >= MOST && !known.contains_key(&device) {
                continue;
            }
            let report = Report::of(one, now);
            let before = known.insert(device.clone(), report.clone());
            if before.is_none_or(|before| before.shown() != report.shown()) {
                changed.insert(device);
            }
        }
        // One that is not mentioned any more is as it was until its time is over.
        changed.extend(self.expire(of, now).into_iter().filter(|device| !said.contains(device)));
        changed
    }

    /// A program of a driver begins to speak: what is known from before is its word until it says more.
    fn adopt(&mut self, of: &(String, String)) {
        let before = self.0.remove(&(of.0.clone(), String::new())).unwrap_or_default();
        let known = self.0.entry(of.clone()).or_default();
        for (device, report) in before {
            known.entry(device).or_insert(report);
        }
    }

    /// Forgets reports that hold no longer; of which devices.
    fn expire(&mut self, of: &(String, String), now: Timestamp) -> BTreeSet<Device> {
        let Some(known) = self.0.get_mut(of) else { return BTreeSet::new() };
        let over = known.extract_if(.., |_, report| report.until() < now);
        over.map(|(device, _)| device).collect()
    }

    /// When the next report is over.
    fn next_end(&self, of: &(String, String)) -> Option<Timestamp> {
        self.0.get(of)?.values().map(Report::until).min()
    }

    fn get(&self, driver: &str, device: &Device, now: Timestamp) -> (State, String) {
        let programs = self.0.iter().filter(|((name, _), _)| name == driver);
        let reports = programs.filter_map(|(_, devices)| devices.get(device));
        let newest = reports.max_by_key(|report| report.at).filter(|one| now <= one.until());
        newest.map(|one| (one.state, one.message.clone())).unwrap_or_default()
    }
}

impl Health {
    /// What was known before this process began.
    pub fn take_up(&self, root: &Path, now: Timestamp) {
        match file::read(root, now) {
            Ok(reports) => *self.0.lock() = reports,
            Err(why) => tracing::warn!("devices' health cannot be read, and is not known: {why}"),
        }
    }

    fn save(&self, root: &Path, now: Timestamp) {
        if let Err(error) = file::write(root, &self.0.lock(), now) {
            tracing::warn!("failed to write devices' health: {error}");
        }
    }

    pub fn get(&self, driver: &str, pool: &str, device: &str, now: Timestamp) -> (State, String) {
        self.0.lock().get(driver, &(pool.to_owned(), device.to_owned()), now)
    }
}

/// Hears what a driver says of its devices, for as long as it is registered.
pub async fn watch(kubelet: Arc<Kubelet>, name: String, driver: Driver) {
    let of = (name, driver.endpoint.clone());
    kubelet.dra.health.0.lock().adopt(&of);
    while !driver.life.is_stopped() {
        match hear(&kubelet, &driver, &of).await {
            Ok(()) => tracing::debug!(driver = of.0, "a stream of devices' health has ended"),
            // It said that it speaks so, and does not: one that learns it registers again.
            Err(status) if status.code() == tonic::Code::Unimplemented => break,
            Err(status) => tracing::debug!(driver = of.0, "no health of devices: {status}"),
        }
        let (root, now) = (&kubelet.config.root, kubelet.context.now());
        if kubelet.context.is_stopped() {
            // It is we who go: the next kubelet is told how things are now.
            kubelet.dra.health.save(root, now);
            return;
        }
        let known = kubelet.dra.health.0.lock().0.remove(&of).unwrap_or_default();
        if !known.is_empty() {
            kubelet.dra.health.save(root, now);
        }
        kubelet.tell_of_devices(&of.0, &known.into_keys().collect());
        driver.life.sleep(PAUSE).await;
    }
}

/// One stream, until it ends, or the driver is gone.
async fn hear(
    kubelet: &Arc<Kubelet>,
    driver: &Driver,
    of: &(String, String),
) -> Result<(), tonic::Status> {
    let mut stream = driver.watch_health().await?;
    loop {
        let now = kubelet.context.now();
        let end = kubelet.dra.health.0.lock().next_end(of);
        let end = end.map_or(HOLDS, |end| end.duration_since(now).unsigned_abs());
        let told: Option<NodeWatchResourcesResponse> = tokio::select! {
            () = driver.life.stopped() => return Ok(()),
            // A moment later than its end, when it holds no more.
            () = tokio::time::sleep(end + Duration::from_millis(1)) => None,
            told = stream.message() => match told? {
                Some(told) => Some(told),
                None => return Ok(()),
            },
        };
        let now = kubelet.context.now();
        let changed = {
            let mut reports = kubelet.dra.health.0.lock();
            match told {
                Some(told) => reports.update(of, &told.devices, now),
                None => reports.expire(of, now),
            }
        };
        if !changed.is_empty() {
            kubelet.dra.health.save(&kubelet.config.root, now);
        }
        kubelet.tell_of_devices(&of.0, &changed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto_v1::DeviceIdentifier;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn told(device: &str, health: HealthStatus, holds: i64, message: &str) -> DeviceHealth {
        DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "p".into(), device_name: device.into() }),
            health: health.into(),
            last_updated_time: 0,
            health_check_timeout_seconds: holds,
            message: message.into(),
        }
    }

    #[test]
    fn what_is_said_holds_for_a_while() {
        let mut reports = Reports::default();
        let of = ("d".to_owned(), "/d.sock".to_owned());
        let say = |reports: &mut Reports, told: &[DeviceHealth], second| {
            let changed = reports.update(&of, told, at(second));
            changed.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ")
        };
        let is = |reports: &Reports, device: &str, second| {
            let (state, why) = reports.get("d", &("p".into(), device.into()), at(second));
            format!("{} {why}", state.name())
        };
        assert_eq!(is(&reports, "a", 0), "Unknown ");
        let well = [
            told("a", HealthStatus::Healthy, 0, ""),
            told("b", HealthStatus::Healthy, 100, "fine"),
        ];
        assert_eq!(say(&mut reports, &well, 0), "a b");
        assert_eq!(say(&mut reports, &well, 10), "", "nothing new");
        assert_eq!(is(&reports, "a", 40), "Healthy ");
        assert_eq!(is(&reports, "a", 41), "Unknown ");
        assert_eq!(is(&reports, "b", 110), "Healthy fine");
        // Of one that is not mentioned the last word counts until it is old.
        let hot = [told("a", HealthStatus::Unhealthy, -5, "hot")];
        assert_eq!(say(&mut reports, &hot, 50), "a");
        assert_eq!(is(&reports, "b", 60), "Healthy fine");
        assert_eq!(reports.next_end(&of), Some(at(80)));
        assert_eq!(say(&mut reports, &hot, 111), "b");
        assert_eq!(is(&reports, "a", 111), "Unhealthy hot");
        assert_eq!(is(&reports, "b", 111), "Unknown ");
        assert_eq!(reports.get("other", &("p".into(), "a".into()), at(111)).0, State::Unknown);
    }

    #[test]
    fn what_an_earlier_kubelet_heard_counts_until_the_driver_speaks() {
        let mut reports = Reports::default();
        let before = ("d".to_owned(), String::new());
        let well =
            [told("a", HealthStatus::Healthy, 0, ""), told("b", HealthStatus::Unhealthy, 0, "hot")];
        reports.update(&before, &well, at(0));
        let of = ("d".to_owned(), "/d.sock".to_owned());
        reports.adopt(&of);
        assert_eq!(reports.0.keys().collect::<Vec<_>>(), [&of]);
        let changed = reports.update(&of, &well[..1], at(10));
        assert_eq!(changed.len(), 0, "it says the same of one, and nothing of the other");
        assert_eq!(reports.get("d", &("p".into(), "b".into()), at(30)).0, State::Unhealthy);
        assert_eq!(reports.update(&of, &well[..1], at(31)).len(), 1, "that one's time is over");
    }

    #[test]
    fn a_driver_does_not_fill_the_memory() {
        let mut reports = Reports::default();
        let of = ("d".to_owned(), String::new());
        let many: Vec<DeviceHealth> = (0..MOST + 5)
            .map(|number| told(&number.to_string(), HealthStatus::Healthy, i64::MAX, ""))
            .collect();
        assert_eq!(reports.update(&of, &many, at(0)).len(), MOST);
        let long = told("0", HealthStatus::Unhealthy, 0, &"é".repeat(2000));
        reports.update(&of, &[long], at(1));
        let (_, message) = reports.get("d", &("p".into(), "0".into()), at(1));
        assert!(message.len() <= MESSAGE && message.ends_with("..."), "{}", message.len());
    }
}
