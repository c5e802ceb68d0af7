//! Where the keys of values come from, once a plugin has opened it.
use super::SourceType;
use crate::state::encryption::ciphers::{self, Cipher, random};
use ring::hmac;

/// Bytes that a value's key is derived from.
const INFO: usize = 32;

pub enum Source {
    /// The key itself, as older servers wrote.
    Key(Box<dyn Cipher>),
    Seed(hmac::Key),
}

impl Source {
    pub fn new(kind: SourceType, key: &[u8]) -> Result<Source, String> {
        let length = || format!("invalid seed length {} used for key generation", key.len());
        match kind {
            SourceType::AesGcmKey => ciphers::aesgcm(key).map(Source::Key).ok_or_else(length),
            _ if key.len() < 32 => Err(length()),
            _ => Ok(Source::Seed(hmac::Key::new(hmac::HMAC_SHA256, key))),
        }
    }

    /// HKDF's expansion to one block, which is as long as the key.
    fn derive(seed: &hmac::Key, info: &[u8]) -> Result<Box<dyn Cipher>, String> {
        let mut context = hmac::Context::with_key(seed);
        context.update(info);
        context.update(&[1]);
        let key = context.sign();
        ciphers::aesgcm(key.as_ref()).ok_or_else(|| "failed to derive a key".into())
    }

    pub fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Source::Key(cipher) => cipher.seal(place, plain, out),
            Source::Seed(seed) => {
                let info = random::<INFO>()?;
                out.extend_from_slice(&info);
                Source::derive(seed, &info)?.seal(place, plain, out)
            }
        }
    }

    pub fn open(&self, place: &[u8], data: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Source::Key(cipher) => cipher.open(place, data),
            Source::Seed(seed) => {
                let (info, rest) = data
                    .split_at_checked(INFO)
                    .ok_or("the stored data was shorter than the required size")?;
                Source::derive(seed, info)?.open(place, rest)
            }
        }
    }
}
