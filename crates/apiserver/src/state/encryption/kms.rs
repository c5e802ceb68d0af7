//! KMS v2: a plugin on this machine holds the key, and never lets it go.
//!
//! The plugin encrypts a random seed; each value is encrypted with a key of its own, derived from
//! the seed and 32 random bytes that are stored with the value. So the plugin is asked once per seed
//! and not once per value. [`probe`] keeps the seed in step with the plugin's key.
mod probe;
mod source;

use super::Error;
use super::ciphers::random;
use super::config::Kms;
use prost::Message;
use source::Source;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};
use store::Opened;
use tonic::transport::{Channel, Endpoint};

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("v2");
}
use proto::key_management_service_client::KeyManagementServiceClient as Client;
use proto::{
    DecryptRequest, EncryptRequest, EncryptedDekSourceType as SourceType, EncryptedObject,
};

/// How many seeds are remembered that others wrote with.
const MAX_SEEDS: usize = 1000;
const MAX_KEY_ID: usize = 1024;
const MAX_SOURCE: usize = 1024;
const MAX_ANNOTATIONS: usize = 32 * 1024;

pub struct Plugin {
    name: String,
    prefix: String,
    client: Client<Channel>,
    timeout: Duration,
    /// What is written with, once the plugin has answered.
    state: RwLock<Option<Arc<State>>>,
    /// Seeds by what the plugin made of them.
    seeds: Mutex<HashMap<Vec<u8>, Arc<Source>>>,
    last: tokio::sync::Mutex<probe::Last>,
}

struct State {
    source: Arc<Source>,
    /// What goes with every value: all but its data.
    template: EncryptedObject,
    /// Until when the plugin's silence is borne.
    expires: SystemTime,
}

impl Plugin {
    pub async fn start(rule: &Kms) -> Result<Arc<Plugin>, Error> {
        if rule.version() == "v1" {
            return Err(Error::Invalid("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.".into()));
        }
        let failed = |error: tonic::transport::Error| {
            let name = &rule.name;
            Error::Invalid(format!(
                "could not configure KMSv2-Plugin's probe {name:?}, error: {error}"
            ))
        };
        let endpoint = Endpoint::try_from(rule.endpoint.clone()).map_err(failed)?;
        let timeout = rule.timeout().and_then(|timeout| u64::try_from(timeout.nanos).ok());
        let plugin = Arc::new(Plugin {
            name: rule.name.clone(),
            prefix: format!("k8s:enc:kms:v2:{}:", rule.name),
            client: Client::new(endpoint.connect_lazy()),
            timeout: timeout.map_or(Duration::from_secs(3), Duration::from_nanos),
            state: RwLock::default(),
            seeds: Mutex::default(),
            last: tokio::sync::Mutex::default(),
        });
        // One that is not there yet is waited for in the background.
        if let Err(cause) = plugin.check().await {
            tracing::warn!(name = rule.name, cause, "kms plugin failed health check probe");
        }
        tokio::spawn(probe::keep_in_step(Arc::downgrade(&plugin)));
        Ok(plugin)
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn state(&self) -> Option<Arc<State>> {
        self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn current(&self) -> Result<Arc<State>, String> {
        self.state().ok_or_else(|| "got unexpected nil transformer".into())
    }

    pub fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let state = self.current()?;
        let now = SystemTime::now();
        if now > state.expires {
            return Err(format!(
                "encryptedDEKSource with keyID hash {:?} expired at {} (current time is {})",
                probe::hash(&state.template.key_id),
                probe::time(state.expires),
                probe::time(now)
            ));
        }
        let mut encrypted_data = Vec::with_capacity(plain.len() + 64);
        state.source.seal(place, plain, &mut encrypted_data)?;
        out.extend_from_slice(self.prefix.as_bytes());
        let object = EncryptedObject { encrypted_data, ..state.template.clone() };
        object.encode(out).map_err(|error| error.to_string())
    }

    pub async fn open(&self, place: &[u8], kept: &[u8]) -> Result<Opened, String> {
        let mut object = EncryptedObject::decode(kept).map_err(|error| error.to_string())?;
        validate(&object)?;
        let state = self.current()?;
        let data = std::mem::take(&mut object.encrypted_data);
        let source = self.source(&state, &object).await?;
        let value = source.open(place, &data)?.into();
        let stale = object.key_id != state.template.key_id
            || object.encrypted_dek_source_type != state.template.encrypted_dek_source_type;
        Ok(Opened { value, stale })
    }

    /// The keys of a value: known, or asked of the plugin.
    async fn source(&self, state: &State, object: &EncryptedObject) -> Result<Arc<Source>, String> {
        if *object == state.template {
            return Ok(state.source.clone());
        }
        let name = object.encode_to_vec();
        let seeds = || self.seeds.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = seeds().get(&name) {
            return Ok(known.clone());
        }
        let request = DecryptRequest {
            ciphertext: object.encrypted_dek_source.clone(),
            uid: crate::ground::uuid(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let mut client = self.client.clone();
        let answer = within(self.timeout, client.decrypt(request)).await;
        let key = answer.map_err(|cause| format!("failed to decrypt DEK, error: {cause}"))?;
        let source = Arc::new(Source::new(object.encrypted_dek_source_type(), &key.plaintext)?);
        let mut seeds = seeds();
        if seeds.len() >= MAX_SEEDS {
            seeds.clear();
        }
        seeds.insert(name, source.clone());
        Ok(source)
    }

    /// A new seed, encrypted by the plugin.
    async fn generate(&self, uid: &str) -> Result<(Source, EncryptedObject), String> {
        let seed = random::<32>()?;
        let kind = SourceType::HkdfSha256XnonceAesGcmSeed;
        let request = EncryptRequest { plaintext: seed.to_vec(), uid: uid.to_owned() };
        let mut client = self.client.clone();
        let answer = within(self.timeout, client.encrypt(request)).await;
        let answer = answer.map_err(|cause| format!("failed to encrypt DEK, error: {cause}"))?;
        let mut object = EncryptedObject {
            // Anything: what is validated is the rest.
            encrypted_data: vec![0],
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: kind.into(),
        };
        validate(&object)?;
        object.encrypted_data.clear();
        Ok((Source::new(kind, &seed)?, object))
    }
}

/// Bounds a call to the plugin, and takes its answer out of the envelope.
async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => {
            Err(format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))
        }
        Err(_) => Err("rpc error: code = DeadlineExceeded desc = context deadline exceeded".into()),
    }
}

/// The limits of what a plugin may have stored with each value.
fn validate(object: &EncryptedObject) -> Result<(), String> {
    if object.encrypted_data.is_empty() {
        return Err("encrypted data is empty".into());
    }
    match object.encrypted_dek_source.len() {
        0 => {
            return Err(
                "failed to validate encrypted DEK source: encrypted DEK source is empty".into()
            );
        }
        size if size > MAX_SOURCE => {
            return Err(format!(
                "failed to validate encrypted DEK source: encrypted DEK source is {size} bytes, which exceeds the max size of {MAX_SOURCE}"
            ));
        }
        _ => {}
    }
    key_id(&object.key_id).map_err(|cause| format!("failed to validate key id: {cause}"))?;
    annotations(&object.annotations)
        .map_err(|cause| format!("failed to validate annotations: {cause}"))
}

fn key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".into()),
        size if size > MAX_KEY_ID => {
            Err(format!("keyID is {size} bytes, which exceeds the max size of {MAX_KEY_ID}"))
        }
        _ => Ok(()),
    }
}

fn annotations(all: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let size: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS {
        return Err(format!(
            "total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS}"
        ));
    }
    // A name of the plugin's own domain.
    let unqualified = all.keys().find(|key| !key.contains('.'));
    unqualified.map_or(Ok(()), |key| {
        Err(format!("annotations: Invalid value: {key:?}: should be a domain with at least two segments separated by dots"))
    })
}
