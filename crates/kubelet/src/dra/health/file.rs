//! What is known of devices as the file that the next kubelet reads, ours or upstream's
//! (`pkg/kubelet/cm/dra/healthinfo.go`): drivers' devices by `POOL/DEVICE`.
use super::{Device, HOLDS, MOST, Report, Reports, State, cut};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Upstream's: the kubelets of a node take each other's place.
const NAME: &str = "dra_health_state";
/// A file that is longer is none of a kubelet's.
const LONGEST: u64 = 64 << 20;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Driver {
    /// Go writes nothing for none.
    devices: Option<BTreeMap<String, Kept>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Kept {
    pool_name: String,
    device_name: String,
    health: String,
    last_updated: String,
    /// In nanoseconds.
    health_check_timeout: i64,
    message: String,
}

/// Nothing of what is known if there is no file; why it cannot be read.
pub(super) fn read(root: &Path, now: Timestamp) -> Result<Reports, String> {
    let file = match fs::File::open(root.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Reports::default()),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > LONGEST {
        true => Err("it is too long".to_owned()),
        false => parse(&text, now),
    }
}

/// Whole or not at all, readable by its owner only.
pub(super) fn write(root: &Path, reports: &Reports, now: Timestamp) -> io::Result<()> {
    let temporary = root.join(format!(".{NAME}"));
    let _ = fs::remove_file(&temporary);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&text(reports, now)?)?;
    fs::rename(&temporary, root.join(NAME))
}

fn parse(text: &[u8], now: Timestamp) -> Result<Reports, String> {
    let drivers: Option<BTreeMap<String, Driver>> =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut reports = Reports::default();
    for (name, driver) in drivers.unwrap_or_default() {
        let devices = driver.devices.unwrap_or_default().into_values();
        let devices = devices.filter_map(|kept| {
            let report = report(&kept, now)?;
            Some(((kept.pool_name, kept.device_name), report))
        });
        let devices: BTreeMap<_, _> =
            devices.filter(|(_, report)| now <= report.until()).take(MOST).collect();
        if !devices.is_empty() {
            reports.0.insert((name, String::new()), devices);
        }
    }
    Ok(reports)
}

fn report(kept: &Kept, now: Timestamp) -> Option<Report> {
    let at: Timestamp = kept.last_updated.parse().ok()?;
    let nanoseconds = u64::try_from(kept.health_check_timeout).unwrap_or(0);
    let known = [State::Healthy, State::Unhealthy];
    Some(Report {
        state: known.into_iter().find(|state| state.name() == kept.health).unwrap_or_default(),
        message: cut(&kept.message),
        // A clock that was set back must not make it hold for longer.
        at: at.min(now),
        holds: if nanoseconds == 0 { HOLDS } else { Duration::from_nanos(nanoseconds) },
    })
}

fn text(reports: &Reports, now: Timestamp) -> serde_json::Result<Vec<u8>> {
    // Of two programs of a driver the last word counts, device by device.
    let mut newest: BTreeMap<&str, BTreeMap<&Device, &Report>> = BTreeMap::new();
    for ((driver, _), devices) in &reports.0 {
        let known = newest.entry(driver.as_str()).or_default();
        for (device, report) in devices.iter().filter(|(_, one)| now <= one.until()) {
            let last = known.entry(device).or_insert(report);
            if last.at < report.at {
                *last = report;
            }
        }
    }
    let kept = |((pool, device), report): (&Device, &Report)| {
        let kept = Kept {
            pool_name: pool.clone(),
            device_name: device.clone(),
            health: report.state.name().to_owned(),
            last_updated: report.at.to_string(),
            health_check_timeout: i64::try_from(report.holds.as_nanos()).unwrap_or(i64::MAX),
            message: report.message.clone(),
        };
        (format!("{pool}/{device}"), kept)
    };
    let drivers = newest.into_iter().map(|(driver, devices)| {
        (driver, Driver { devices: Some(devices.into_iter().map(kept).collect()) })
    });
    serde_json::to_vec(&drivers.collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::os::unix::fs::PermissionsExt;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn known(driver: &str, endpoint: &str, device: &str, state: State, second: i64) -> Reports {
        let report = Report {
            state,
            message: "so".to_owned(),
            at: at(second),
            holds: Duration::from_secs(30),
        };
        let devices = [(("p".to_owned(), device.to_owned()), report)].into();
        Reports([((driver.to_owned(), endpoint.to_owned()), devices)].into())
    }

    fn is(reports: &Reports, device: &str, second: i64) -> String {
        let (state, why) = reports.get("d", &("p".into(), device.into()), at(second));
        format!("{} {why}", state.name())
    }

    #[test]
    fn the_file_is_upstreams() {
        let reports = known("d", "/d.sock", "a", State::Unhealthy, 10);
        let written = String::from_utf8(text(&reports, at(20)).unwrap()).unwrap();
        expect![[r#"{"d":{"Devices":{"p/a":{"PoolName":"p","DeviceName":"a","Health":"Unhealthy","LastUpdated":"1970-01-01T00:00:10Z","HealthCheckTimeout":30000000000,"Message":"so"}}}}"#]]
            .assert_eq(&written);
        assert_eq!(is(&parse(written.as_bytes(), at(20)).unwrap(), "a", 20), "Unhealthy so");
        // As upstream's writes it: with a zone, fractions, and nothing where there is nothing.
        let theirs = r#"{"e":{"Devices":null},"d":{"Devices":{"p/a":{"PoolName":"p","DeviceName":"a","Health":"Healthy","LastUpdated":"1970-01-01T01:00:10.123456789+01:00","HealthCheckTimeout":0,"Message":""}}}}"#;
        let read = parse(theirs.as_bytes(), at(20)).unwrap();
        assert_eq!(
            (is(&read, "a", 40), is(&read, "a", 41)),
            ("Healthy ".into(), "Unknown ".into())
        );
        assert_eq!(parse(b"null", at(0)).unwrap().0.len(), 0);
    }

    #[test]
    fn what_is_old_or_broken_is_not_believed() {
        let reports = known("d", "", "a", State::Healthy, 10);
        let written = text(&reports, at(20)).unwrap();
        assert_eq!(is(&parse(&written, at(41)).unwrap(), "a", 41), "Unknown ");
        let none = String::from_utf8(text(&reports, at(41)).unwrap()).unwrap();
        assert_eq!(none, r#"{"d":{"Devices":{}}}"#);
        // The clock was set back since.
        let read = parse(&written, at(5)).unwrap();
        assert_eq!(
            (is(&read, "a", 35), is(&read, "a", 36)),
            ("Healthy so".into(), "Unknown ".into())
        );
        for wrong in ["", "[]", "{", r#"{"d":1}"#] {
            assert!(parse(wrong.as_bytes(), at(0)).is_err(), "{wrong}");
        }
        let odd = r#"{"d":{"Devices":{"x":{"LastUpdated":"yesterday"}}}}"#;
        assert_eq!(parse(odd.as_bytes(), at(0)).unwrap().0.len(), 0);
    }

    #[test]
    fn of_two_programs_the_last_word_is_written() {
        let mut reports = known("d", "/new.sock", "a", State::Unhealthy, 12);
        reports.0.extend(known("d", "/old.sock", "a", State::Healthy, 11).0);
        let read = parse(&text(&reports, at(20)).unwrap(), at(20)).unwrap();
        assert_eq!(is(&read, "a", 20), "Unhealthy so");
    }

    #[test]
    fn the_file_is_replaced_and_private() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path(), at(0)).unwrap().0.len(), 0, "there is none");
        for (state, shown) in [(State::Healthy, "Healthy so"), (State::Unhealthy, "Unhealthy so")] {
            write(folder.path(), &known("d", "", "a", state, 10), at(10)).unwrap();
            assert_eq!(is(&read(folder.path(), at(10)).unwrap(), "a", 10), shown);
        }
        let mode = fs::metadata(folder.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        fs::write(folder.path().join(NAME), "nonsense").unwrap();
        assert!(read(folder.path(), at(10)).is_err());
    }
}
