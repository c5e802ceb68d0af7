//! Several servers, one cluster: the keys that they have in common.
//!
//! Authorities, the key that signs service accounts' tokens and the key of what is encrypted at rest must
//! be the same on all servers of a cluster. The first one puts them into the store, sealed with a token
//! that the store never sees; another that is told the token takes them from there. Whoever has only the
//! store has nothing.
use ::apiserver::encryption::own_configuration;
use ::apiserver::pki::Pki;
use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use store::{Outcome, Store, WriteOptions};

const KEY: &str = "/registry/skiff/keys";
const TOKEN: &str = "server-token";
const SHARED: [&str; 6] = [
    "pki/ca.crt",
    "pki/ca.key",
    "pki/front-proxy-ca.crt",
    "pki/front-proxy-ca.key",
    "pki/sa.key",
    "encryption-config.yaml",
];

/// By their paths below the data directory.
type Files = BTreeMap<String, String>;

/// Makes the keys of this machine those of the cluster whose store this is, or the other way round.
pub async fn share(store: &Store, data: &Path, token: Option<&str>) -> anyhow::Result<()> {
    let kept = std::fs::read_to_string(data.join(TOKEN)).ok();
    let token = token.map(str::to_owned).or(kept).map(|token| token.trim().to_owned());
    if let Some(token) = &token {
        ensure!(
            token.len() >= 16,
            "a token of servers has 16 letters at least: whoever guesses it has the cluster"
        );
    }
    let token = match store.get(KEY.as_bytes()).await? {
        Some(found) => {
            let token = token.with_context(|| {
                format!("this etcd holds a cluster already: pass --token with what is in {} on one of its servers", data.join(TOKEN).display())
            })?;
            take(data, opened(&found.value, &token)?, false)?;
            token
        }
        None => {
            let token = token.unwrap_or_else(crate::token::secret_word);
            let are_new = !data.join("pki/ca.key").exists();
            Pki::open(&data.join("pki"))?;
            own_configuration(data)?;
            let sealed = sealed(&read(data)?, &token)?;
            if let Outcome::Conflict(Some(found)) =
                store.create(KEY, sealed, WriteOptions::default()).await?
            {
                // Another server was first.
                take(data, opened(&found.value, &token)?, are_new)?;
            }
            token
        }
    };
    Ok(crate::install::write(&data.join(TOKEN), format!("{token}\n").as_bytes(), 0o600)?)
}

fn read(data: &Path) -> anyhow::Result<Files> {
    let one = |file: &str| {
        let text = std::fs::read_to_string(data.join(file));
        Ok((file.to_owned(), text.with_context(|| format!("failed to read {file}"))?))
    };
    SHARED.into_iter().map(one).collect()
}

/// Writes keys here. Other ones that are here already are somebody's: they stay, unless they were made a
/// moment ago.
fn take(data: &Path, files: Files, replace: bool) -> anyhow::Result<()> {
    let here = |file: &str| std::fs::read_to_string(data.join(file)).ok();
    if files.iter().all(|(file, text)| here(file).as_ref() == Some(text)) {
        return Ok(());
    }
    let is_other = |file: &&&str| here(file).is_some_and(|found| files.get(**file) != Some(&found));
    if let Some(file) = ["pki/ca.key", "pki/sa.key"].iter().find(is_other).filter(|_| !replace) {
        bail!(
            "{} is of another cluster than the one in etcd: use an empty --data-dir",
            data.join(file).display()
        );
    }
    // What an authority signed that was here before is worth nothing now.
    let pki = data.join("pki");
    if replace && pki.exists() {
        std::fs::remove_dir_all(&pki)?;
    }
    for file in SHARED {
        let text = files.get(file).with_context(|| format!("the shared keys have no {file}"))?;
        crate::install::write(&data.join(file), text.as_bytes(), 0o600)?;
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    salt: String,
    nonce: String,
    sealed: String,
}

/// A token is random, or somebody chose it: guessing must cost something.
const ROUNDS: NonZeroU32 = NonZeroU32::new(200_000).expect("it is not zero");

fn key(token: &str, salt: &[u8]) -> anyhow::Result<LessSafeKey> {
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt, token.as_bytes(), &mut key);
    let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| anyhow::anyhow!("no key"))?;
    Ok(LessSafeKey::new(key))
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    ensure!(drawn == N, "the machine has no random numbers");
    Ok(bytes)
}

fn sealed(files: &Files, token: &str) -> anyhow::Result<Vec<u8>> {
    let (salt, nonce) = (random::<16>()?, random::<NONCE_LEN>()?);
    let mut text = serde_json::to_vec(files)?;
    let unique = Nonce::assume_unique_for_key(nonce);
    key(token, &salt)?
        .seal_in_place_append_tag(unique, Aad::from(KEY), &mut text)
        .map_err(|_| anyhow::anyhow!("failed to seal the keys"))?;
    let [salt, nonce, sealed] = [&salt[..], &nonce, &text].map(|bytes| STANDARD.encode(bytes));
    Ok(serde_json::to_vec(&Sealed { salt, nonce, sealed })?)
}

fn opened(value: &[u8], token: &str) -> anyhow::Result<Files> {
    let read: Sealed = serde_json::from_slice(value).context("the shared keys cannot be read")?;
    let (salt, mut sealed) = (STANDARD.decode(read.salt)?, STANDARD.decode(read.sealed)?);
    let nonce = <[u8; NONCE_LEN]>::try_from(STANDARD.decode(read.nonce)?)
        .map_err(|_| anyhow::anyhow!("the shared keys cannot be read"))?;
    let nonce = Nonce::assume_unique_for_key(nonce);
    let text = key(token, &salt)?
        .open_in_place(nonce, Aad::from(KEY), &mut sealed)
        .map_err(|_| anyhow::anyhow!("the token is not that of this cluster's servers"))?;
    Ok(serde_json::from_slice(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::embedded::Embedded;

    const TOKEN_OF_TEST: &str = "0123456789abcdef";

    fn ca(data: &Path) -> String {
        std::fs::read_to_string(data.join("pki/ca.key")).unwrap()
    }

    #[tokio::test]
    async fn servers_with_the_token_have_the_first_one_s_keys() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Embedded::open(&folder.path().join("store"), Default::default()).unwrap();
        let store = Store::from(engine.clone());
        let [first, second, third] = ["a", "b", "c"].map(|name| folder.path().join(name));
        share(&store, &first, None).await.unwrap();
        let token = std::fs::read_to_string(first.join(TOKEN)).unwrap();
        share(&store, &second, Some(&token)).await.unwrap();
        assert_eq!(ca(&first), ca(&second));
        // Started again, each knows the token.
        share(&store, &first, None).await.unwrap();
        share(&store, &second, None).await.unwrap();

        let refused = |outcome: anyhow::Result<()>| format!("{:#}", outcome.unwrap_err());
        assert!(refused(share(&store, &third, None).await).contains("pass --token"));
        assert!(refused(share(&store, &third, Some("short")).await).contains("16 letters"));
        let wrong = refused(share(&store, &third, Some(TOKEN_OF_TEST)).await);
        assert_eq!(wrong, "the token is not that of this cluster's servers");
        // Who has keys of another cluster keeps them.
        Pki::open(&third.join("pki")).unwrap();
        let before = ca(&third);
        assert!(refused(share(&store, &third, Some(&token)).await).contains("of another cluster"));
        assert_eq!(ca(&third), before);
        // The store has nothing that is of use without the token.
        let kept = store.get(KEY.as_bytes()).await.unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&kept.value).contains("PRIVATE"));
        engine.close().await;
    }

    #[tokio::test]
    async fn of_two_that_start_at_once_one_gives_the_keys() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Embedded::open(&folder.path().join("store"), Default::default()).unwrap();
        let store = Store::from(engine.clone());
        let folders = ["a", "b", "c"].map(|name| folder.path().join(name));
        let all = folders.iter().map(|folder| share(&store, folder, Some(TOKEN_OF_TEST)));
        for outcome in futures_util::future::join_all(all).await {
            outcome.unwrap();
        }
        assert!(folders.iter().all(|folder| ca(folder) == ca(&folders[0])));
        engine.close().await;
    }
}
