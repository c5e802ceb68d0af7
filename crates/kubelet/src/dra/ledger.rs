//! Which claims are prepared, for which pods, and what their containers get: as a value, and as the
//! file that the next kubelet reads, ours or upstream's (`pkg/kubelet/cm/dra/state`).
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// By namespace and name.
    pub claims: BTreeMap<(String, String), Claim>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Claim {
    #[serde(rename = "ClaimUID")]
    pub uid: String,
    #[serde(rename = "ClaimName")]
    pub name: String,
    pub namespace: String,
    /// Pods that use it, in Go's words for a set.
    #[serde(rename = "PodUIDs")]
    pub pods: BTreeMap<String, Empty>,
    #[serde(rename = "DriverState")]
    pub drivers: BTreeMap<String, Driver>,
    /// Whether its drivers have done it, as far as this process knows.
    #[serde(skip)]
    pub is_prepared: bool,
    /// Its last pod is going: nobody else may begin with it.
    #[serde(skip)]
    pub is_going: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Empty {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Driver {
    /// Go writes nothing for none.
    #[serde(default, deserialize_with = "or_nothing")]
    pub devices: Vec<Device>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Device {
    pub pool_name: String,
    pub device_name: String,
    #[serde(rename = "ShareID")]
    pub share: Option<String>,
    #[serde(default, deserialize_with = "or_nothing")]
    pub request_names: Vec<String>,
    #[serde(rename = "CDIDeviceIDs", default, deserialize_with = "or_nothing")]
    pub cdi: Vec<String>,
}

fn or_nothing<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default())
}

/// The file: a text with its checksum.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
    #[serde(rename = "ClaimInfoStateList", default, deserialize_with = "or_nothing")]
    claims: Vec<Claim>,
}

fn checksum(text: &str) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(text.as_bytes());
    sum.sum()
}

impl Ledger {
    pub fn read(text: &[u8]) -> Result<Ledger, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if checksum(&file.data) != file.checksum {
            return Err("checkpoint is corrupted".to_owned());
        }
        let data: Data = serde_json::from_str(&file.data).map_err(|error| error.to_string())?;
        let key = |claim: &Claim| (claim.namespace.clone(), claim.name.clone());
        Ok(Ledger { claims: data.claims.into_iter().map(|one| (key(&one), one)).collect() })
    }

    pub fn text(&self) -> serde_json::Result<Vec<u8>> {
        let data = serde_json::to_string(&Data {
            kind: "DRACheckpoint".to_owned(),
            version: "checkpoint.dra.kubelet.k8s.io/v1".to_owned(),
            claims: self.claims.values().cloned().collect(),
        })?;
        serde_json::to_vec(&File { checksum: checksum(&data), data })
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub fn get_mut(&mut self, namespace: &str, name: &str) -> Option<&mut Claim> {
        self.claims.get_mut(&(namespace.to_owned(), name.to_owned()))
    }

    /// A pod begins to use a claim. Whether its drivers have to be asked.
    pub fn begin(&mut self, pod: &str, wanted: Claim) -> Result<bool, String> {
        let key = (wanted.namespace.clone(), wanted.name.clone());
        let known = self.claims.entry(key).or_insert_with(|| wanted.clone());
        if known.uid != wanted.uid {
            return Err(format!(
                "old ResourceClaim with same name {} and different UID {} still exists (previous pod force-deleted?!)",
                known.name, known.uid
            ));
        }
        if known.is_going {
            return Err(format!("ResourceClaim {} is being unprepared", known.name));
        }
        known.pods.insert(pod.to_owned(), Empty {});
        Ok(!known.is_prepared)
    }

    /// A pod does not use its claims any more: those that nobody else uses have to be unprepared.
    pub fn end(&mut self, pod: &str) -> Vec<Claim> {
        let mut last = Vec::new();
        for claim in self.claims.values_mut().filter(|claim| claim.pods.contains_key(pod)) {
            if claim.pods.len() > 1 {
                claim.pods.remove(pod);
            } else {
                claim.is_going = true;
                last.push(claim.clone());
            }
        }
        last
    }

    pub fn remove(&mut self, claim: &Claim) {
        self.claims.remove(&(claim.namespace.clone(), claim.name.clone()));
    }

    /// Pods that use one of these devices, by pool and name, of a driver.
    pub fn holders(&self, driver: &str, devices: &BTreeSet<(String, String)>) -> BTreeSet<String> {
        let uses = |claim: &&Claim| {
            let all = claim.drivers.get(driver).into_iter().flat_map(|driver| &driver.devices);
            all.into_iter()
                .any(|one| devices.contains(&(one.pool_name.clone(), one.device_name.clone())))
        };
        self.claims.values().filter(uses).flat_map(|claim| claim.pods.keys().cloned()).collect()
    }

    /// Pods that use something.
    pub fn pods(&self) -> BTreeSet<String> {
        self.claims.values().flat_map(|claim| claim.pods.keys().cloned()).collect()
    }
}

impl Claim {
    /// Devices that belong to a request, with their drivers; every one if it is not named.
    pub fn devices<'a>(&'a self, request: &'a str) -> impl Iterator<Item = (&'a str, &'a Device)> {
        let all = self.drivers.iter();
        let all =
            all.flat_map(|(name, driver)| driver.devices.iter().map(|one| (name.as_str(), one)));
        all.filter(move |(_, device)| {
            let names = &device.request_names;
            request.is_empty() || names.is_empty() || names.iter().any(|name| name == request)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str) -> Claim {
        let device = |name: &str, requests: &[&str]| Device {
            pool_name: "pool".into(),
            device_name: name.into(),
            request_names: requests.iter().map(|name| String::from(*name)).collect(),
            cdi: vec![format!("v.com/c={name}")],
            ..Device::default()
        };
        let devices = vec![device("d0", &["gpu"]), device("d1", &["nic"]), device("d2", &[])];
        Claim {
            uid: uid.into(),
            name: "c".into(),
            namespace: "n".into(),
            drivers: [("v.com".to_owned(), Driver { devices })].into(),
            ..Claim::default()
        }
    }

    #[test]
    fn a_claim_is_prepared_once_and_unprepared_with_its_last_pod() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.begin("a", claim("1")), Ok(true));
        ledger.get_mut("n", "c").unwrap().is_prepared = true;
        assert_eq!(ledger.begin("b", claim("1")), Ok(false));
        assert!(ledger.begin("d", claim("2")).unwrap_err().contains("force-deleted"));
        assert_eq!(ledger.end("a"), []);
        let last = ledger.end("b");
        assert_eq!(last.len(), 1);
        assert_eq!(
            ledger.begin("e", claim("1")).unwrap_err(),
            "ResourceClaim c is being unprepared"
        );
        ledger.remove(&last[0]);
        assert_eq!(ledger.pods().len(), 0);
        assert_eq!(ledger.end("b"), []);
    }

    #[test]
    fn the_file_is_upstreams() {
        let mut ledger = Ledger::default();
        ledger.begin("a", claim("1")).unwrap();
        let text = ledger.text().unwrap();
        let read = Ledger::read(&text).unwrap();
        assert_eq!(read.claims, ledger.claims);
        // As upstream's v1.37 writes it.
        let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"1","ClaimName":"c","Namespace":"n","PodUIDs":{"a":{}},"DriverState":{"v.com":{"Devices":null}}}]}"#;
        let file = File { data: data.to_owned(), checksum: checksum(data) };
        let read = Ledger::read(&serde_json::to_vec(&file).unwrap()).unwrap();
        assert!(read.get("n", "c").unwrap().pods.contains_key("a"));
        let wrong = File { data: data.to_owned(), checksum: 1 };
        assert!(Ledger::read(&serde_json::to_vec(&wrong).unwrap()).is_err());
        assert!(Ledger::read(b"nonsense").is_err());
    }

    #[test]
    fn devices_are_those_of_the_request() {
        let claim = claim("1");
        let names = |request: &str| {
            let names = claim.devices(request).map(|(_, device)| device.device_name.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "d0 d1 d2");
        assert_eq!(names("gpu"), "d0 d2");
    }
}
