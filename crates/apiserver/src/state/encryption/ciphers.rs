//! The ciphers whose keys are in the file, with upstream's layouts.
//!
//! | provider | layout | authenticates the place |
//! | --- | --- | --- |
//! | aescbc | IV (16), blocks padded as in PKCS #7 | no |
//! | aesgcm | nonce (12), text, tag (16) | yes |
//! | secretbox | nonce (24), tag (16), text | no |
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockCipher, BlockDecryptMut, BlockEncryptMut, InnerIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{AeadCore, AeadInPlace, Tag, consts::U12};
use aes_gcm::{AesGcm, KeyInit};
use crypto_secretbox::XSalsa20Poly1305;
use ring::rand::{SecureRandom, SystemRandom};

/// `place` is where the value is kept: a cipher that can, makes sure that it was not moved.
pub trait Cipher: Send + Sync {
    /// Appends what to keep of a value.
    fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String>;
    fn open(&self, place: &[u8], kept: &[u8]) -> Result<Vec<u8>, String>;
}

/// How a cipher is made of a key.
pub type Make = fn(&[u8]) -> Option<Box<dyn Cipher>>;

/// Nothing if the key has a length that the cipher does not know.
pub fn aescbc(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Cbc(Aes128::new_from_slice(key).ok()?)),
        24 => Box::new(Cbc(Aes192::new_from_slice(key).ok()?)),
        _ => Box::new(Cbc(Aes256::new_from_slice(key).ok()?)),
    })
}

pub fn aesgcm(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(match key.len() {
        16 => Box::new(Gcm(AesGcm::<Aes128, U12>::new_from_slice(key).ok()?)),
        24 => Box::new(Gcm(AesGcm::<Aes192, U12>::new_from_slice(key).ok()?)),
        _ => Box::new(Gcm(AesGcm::<Aes256, U12>::new_from_slice(key).ok()?)),
    })
}

pub fn secretbox(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(Box::new(SecretBox(XSalsa20Poly1305::new_from_slice(key).ok()?)))
}

/// Bytes that nobody can foretell.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "unable to read sufficient random bytes".to_owned())?;
    Ok(bytes)
}

const SHORT: &str = "the stored data was shorter than the required size";

struct Cbc<B>(B);

impl<B> Cipher for Cbc<B>
where
    B: BlockCipher + BlockEncryptMut + BlockDecryptMut + Clone + Send + Sync,
    cbc::Encryptor<B>: InnerIvInit<Inner = B> + BlockEncryptMut,
    cbc::Decryptor<B>: InnerIvInit<Inner = B> + BlockDecryptMut,
{
    fn seal(&self, _: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let iv = random::<16>()?;
        let encryptor = cbc::Encryptor::inner_iv_slice_init(self.0.clone(), &iv);
        let encryptor = encryptor.map_err(|error| error.to_string())?;
        out.extend_from_slice(&iv);
        out.extend_from_slice(&encryptor.encrypt_padded_vec_mut::<Pkcs7>(plain));
        Ok(())
    }

    fn open(&self, _: &[u8], kept: &[u8]) -> Result<Vec<u8>, String> {
        let (iv, blocks) = kept.split_at_checked(16).ok_or(SHORT)?;
        if blocks.len() % 16 != 0 {
            return Err("the stored data is not a multiple of the block size".into());
        }
        let decryptor = cbc::Decryptor::inner_iv_slice_init(self.0.clone(), iv);
        let decryptor = decryptor.map_err(|error| error.to_string())?;
        let plain = decryptor.decrypt_padded_vec_mut::<Pkcs7>(blocks);
        plain.map_err(|_| "invalid padding on input".to_owned())
    }
}

struct Gcm<A>(A);

impl<A: AeadInPlace + AeadCore<NonceSize = U12> + Send + Sync> Cipher for Gcm<A> {
    fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let nonce = random::<12>()?;
        out.extend_from_slice(&nonce);
        let begin = out.len();
        out.extend_from_slice(plain);
        let tag = self.0.encrypt_in_place_detached(&nonce.into(), place, &mut out[begin..]);
        out.extend_from_slice(&tag.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn open(&self, place: &[u8], kept: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, rest) = kept.split_first_chunk::<12>().ok_or(SHORT)?;
        let failed = || "cipher: message authentication failed".to_owned();
        let (text, tag) = rest.split_last_chunk::<16>().ok_or_else(failed)?;
        let mut plain = text.to_vec();
        let nonce = (*nonce).into();
        let tag = Tag::<A>::from_slice(tag);
        let opened = self.0.decrypt_in_place_detached(&nonce, place, &mut plain, tag);
        opened.map(|()| plain).map_err(|_| failed())
    }
}

struct SecretBox(XSalsa20Poly1305);

impl Cipher for SecretBox {
    fn seal(&self, _: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let nonce = random::<24>()?;
        let mut text = plain.to_vec();
        let tag = self.0.encrypt_in_place_detached(&nonce.into(), &[], &mut text);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&tag.map_err(|error| error.to_string())?);
        out.extend_from_slice(&text);
        Ok(())
    }

    fn open(&self, _: &[u8], kept: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, rest) = kept.split_first_chunk::<24>().ok_or(SHORT)?;
        let (tag, text) = rest.split_first_chunk::<16>().ok_or(SHORT)?;
        let mut plain = text.to_vec();
        let opened =
            self.0.decrypt_in_place_detached(&(*nonce).into(), &[], &mut plain, &(*tag).into());
        // Upstream's word for it, whatever it means there.
        let failed = |_| "output array was not large enough for encryption".to_owned();
        opened.map(|()| plain).map_err(failed)
    }
}
