//! Signing and verifying JSON Web Tokens, with elliptic (ES256) or RSA (RS256) keys.
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("failed to read {path}")]
    Read { path: String, source: rustls::pki_types::pem::Error },
    #[error("{path} holds no key that can sign tokens: {cause}")]
    Unfit { path: String, cause: String },
}

/// The key that signs, and all that are believed.
pub struct Keys {
    signer: Signer,
    verifiers: Vec<Verifier>,
}

enum Signer {
    Elliptic(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// A public key and the name that tokens know it by.
struct Verifier {
    id: String,
    algorithm: Algorithm,
    /// A point of the curve, or PKCS #1.
    key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

impl Keys {
    /// Signs with the private key of a file, and believes it and the public keys of others.
    pub fn read(signing: &Path, believed: &[&Path]) -> Result<Keys, KeysError> {
        let unfit = |path: &Path, cause: &dyn std::fmt::Display| KeysError::Unfit {
            path: path.display().to_string(),
            cause: cause.to_string(),
        };
        let signer = Signer::read(signing)?;
        let mut verifiers =
            vec![signer.verifier().ok_or_else(|| unfit(signing, &"its public half is missing"))?];
        for path in believed {
            match Signer::read(path) {
                Ok(private) => verifiers.extend(private.verifier()),
                Err(_) => {
                    let public = public(path)?;
                    if public.is_empty() {
                        return Err(unfit(path, &"unknown kind of key"));
                    }
                    verifiers.extend(public);
                }
            }
        }
        Ok(Keys { signer, verifiers })
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, ring::error::Unspecified> {
        let own = &self.verifiers[0];
        let header = json!({ "alg": own.algorithm.name(), "kid": own.id });
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let random = SystemRandom::new();
        let signature = match &self.signer {
            Signer::Elliptic(key) => key.sign(&random, signed.as_bytes())?.as_ref().to_vec(),
            Signer::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature)?;
                signature
            }
        };
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// The claims of a token that one of the keys has signed. The algorithm is the key's: what the
    /// token says of it must agree, so that no token can choose a weaker one.
    pub fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = decode(header)?;
        let signature = BASE64.decode(signature).ok()?;
        let fits = |verifier: &&Verifier| {
            header["alg"] == verifier.algorithm.name()
                && header["kid"].as_str().is_none_or(|id| id.is_empty() || id == verifier.id)
        };
        let verified = self
            .verifiers
            .iter()
            .filter(fits)
            .any(|verifier| verifier.accepts(signed.as_bytes(), &signature));
        if verified { decode(claims) } else { None }
    }

    /// The public halves, as a JSON Web Key Set.
    pub fn jwks(&self) -> Value {
        let mut keys: Vec<Value> = self.verifiers.iter().filter_map(Verifier::jwk).collect();
        keys.dedup();
        json!({ "keys": keys })
    }
}

impl Signer {
    fn read(path: &Path) -> Result<Signer, KeysError> {
        let shown = path.display().to_string();
        let der = PrivateKeyDer::from_pem_file(path)
            .map_err(|source| KeysError::Read { path: shown.clone(), source })?;
        let unfit = |cause: ring::error::KeyRejected| KeysError::Unfit {
            path: shown.clone(),
            cause: cause.to_string(),
        };
        match &der {
            PrivateKeyDer::Pkcs1(der) => {
                let key = RsaKeyPair::from_der(der.secret_pkcs1_der()).map_err(unfit)?;
                Ok(Signer::Rsa(Box::new(key)))
            }
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                match elliptic(der) {
                    Ok(key) => Ok(key),
                    Err(_) => {
                        let key = RsaKeyPair::from_pkcs8(der).map_err(unfit)?;
                        Ok(Signer::Rsa(Box::new(key)))
                    }
                }
            }
            PrivateKeyDer::Sec1(der) => {
                elliptic(&pkcs8_of_p256(der.secret_sec1_der())).map_err(unfit)
            }
            _ => Err(KeysError::Unfit {
                path: shown,
                cause: "convert it to PKCS #8: openssl pkcs8 -topk8 -nocrypt".into(),
            }),
        }
    }

    fn verifier(&self) -> Option<Verifier> {
        let (algorithm, key) = match self {
            Signer::Elliptic(key) => (Algorithm::Es256, key.public_key().as_ref()),
            Signer::Rsa(key) => (Algorithm::Rs256, key.public_key().as_ref()),
        };
        Some(Verifier::new(algorithm, key.to_vec()))
    }
}

fn elliptic(pkcs8: &[u8]) -> Result<Signer, ring::error::KeyRejected> {
    let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    Ok(Signer::Elliptic(Box::new(EcdsaKeyPair::from_pkcs8(kind, pkcs8, &random)?)))
}

/// A key of the curve P-256 as OpenSSL and Go write it (`EC PRIVATE KEY`), as PKCS #8 has it: a version,
/// what the key is of, and the key. That it is of this curve is checked by who reads it.
fn pkcs8_of_p256(sec1: &[u8]) -> Vec<u8> {
    const VERSION: &[u8] = &[2, 1, 0];
    wrapped(0x30, &[VERSION, OF_P256, &wrapped(4, sec1)].concat())
}

/// ecPublicKey, prime256v1.
#[rustfmt::skip]
const OF_P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
];

/// rsaEncryption, without parameters.
#[rustfmt::skip]
const OF_RSA: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

/// A public key as PKIX has it: what it is of, and its bits.
fn pkix(algorithm: Algorithm, key: &[u8]) -> Vec<u8> {
    let of = match algorithm {
        Algorithm::Es256 => OF_P256,
        Algorithm::Rs256 => OF_RSA,
    };
    let no_bits_unused = [&[0], key].concat();
    wrapped(0x30, &[of, &wrapped(3, &no_bits_unused)].concat())
}

/// A value of DER: its tag, its length, its content.
fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    // Two bytes of length will do for any key.
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    match content.len() {
        0..128 => [&[tag, low], content].concat(),
        128..256 => [&[tag, 0x81, low], content].concat(),
        _ => [&[tag, 0x82, high, low], content].concat(),
    }
}

/// The public keys of a file: by themselves, or in certificates, as upstream's `keyutil` takes them.
fn public(path: &Path) -> Result<Vec<Verifier>, KeysError> {
    let failed = |source| KeysError::Read { path: path.display().to_string(), source };
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_file_iter(path).map_err(failed)? {
        let (kind, der) = section.map_err(failed)?;
        let verifier = match kind {
            SectionKind::PublicKey => {
                SubjectPublicKeyInfo::from_der(&der).ok().and_then(|(_, key)| Verifier::of(&key))
            }
            SectionKind::Certificate => {
                let read = X509Certificate::from_der(&der).ok();
                read.and_then(|(_, certificate)| Verifier::of(certificate.public_key()))
            }
            _ => None,
        };
        found.extend(verifier);
    }
    Ok(found)
}

impl Verifier {
    fn of(key: &SubjectPublicKeyInfo<'_>) -> Option<Verifier> {
        let raw = key.subject_public_key.data.to_vec();
        match key.parsed().ok()? {
            PublicKey::EC(_) => Some(Verifier::new(Algorithm::Es256, raw)),
            PublicKey::RSA(_) => Some(Verifier::new(Algorithm::Rs256, raw)),
            _ => None,
        }
    }

    /// Its id is upstream's, so that tokens of either server say the same of the same key
    /// (`keyIDFromPublicKey` in `pkg/serviceaccount/jwt.go`).
    fn new(algorithm: Algorithm, key: Vec<u8>) -> Verifier {
        let id = BASE64.encode(Sha256::digest(pkix(algorithm, &key)));
        Verifier { id, algorithm, key }
    }

    fn accepts(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Es256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.key)
                .verify(signed, signature),
            Algorithm::Rs256 => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.key)
                .verify(signed, signature),
        }
        .is_ok()
    }

    fn jwk(&self) -> Option<Value> {
        let mut jwk = json!({ "use": "sig", "kid": self.id, "alg": self.algorithm.name() });
        match self.algorithm {
            // An uncompressed point: 4, x, y.
            Algorithm::Es256 => {
                let (x, y) = self.key.get(1..)?.split_at_checked(32)?;
                jwk["kty"] = "EC".into();
                jwk["crv"] = "P-256".into();
                jwk["x"] = BASE64.encode(x).into();
                jwk["y"] = BASE64.encode(y).into();
            }
            Algorithm::Rs256 => {
                let (n, e) = integers(&self.key)?;
                jwk["kty"] = "RSA".into();
                jwk["n"] = BASE64.encode(n).into();
                jwk["e"] = BASE64.encode(e).into();
            }
        }
        Some(jwk)
    }
}

/// Modulus and exponent of a PKCS #1 key, without leading zeros.
fn integers(pkcs1: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    use x509_parser::der_parser::der::parse_der;
    let (_, sequence) = parse_der(pkcs1).ok()?;
    let items = sequence.as_sequence().ok()?;
    let number = |i: usize| {
        let bytes = items.get(i)?.as_slice().ok()?;
        Some(bytes.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<u8>>())
    };
    Some((number(0)?, number(1)?))
}

fn encode(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sa.key");
        let pem = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        std::fs::write(&path, pem).expect("written");
        Keys::read(&path, &[]).expect("keys")
    }

    #[test]
    fn a_token_is_believed_by_its_own_keys_only() {
        let (ours, theirs) = (keys(), keys());
        let token = ours.sign(&json!({ "sub": "a" })).expect("a token");
        assert_eq!(ours.verify(&token), Some(json!({ "sub": "a" })));
        assert_eq!(theirs.verify(&token), None);
    }

    #[test]
    fn a_token_cannot_choose_how_it_is_checked() {
        let keys = keys();
        let token = keys.sign(&json!({ "sub": "a" })).expect("a token");
        let parts: Vec<&str> = token.split('.').collect();
        let none = encode(&json!({ "alg": "none" }));
        let hmac = encode(&json!({ "alg": "HS256", "kid": keys.verifiers[0].id }));
        let other = encode(&json!({ "sub": "system:admin" }));
        for forged in [
            format!("{none}.{}.", parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{hmac}.{}.{}", parts[1], parts[2]),
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
            "a.b.c".into(),
        ] {
            assert_eq!(keys.verify(&forged), None, "{forged}");
        }
    }

    #[test]
    fn keys_of_openssl_and_keys_in_certificates_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (key, sec1) = (folder.path().join("sa.key"), folder.path().join("sec1.key"));
        let certificate = folder.path().join("sa.crt");
        // As `openssl ecparam -genkey` writes it, with the same key in a certificate.
        let pair = rcgen::KeyPair::generate().expect("a key");
        let pkcs8 = pair.serialize_der();
        let at = pkcs8.windows(2).position(|bytes| bytes == [0x04, 0x6d]).expect("the inner key");
        let pem = pem_of("EC PRIVATE KEY", &pkcs8[at + 2..]);
        std::fs::write(&sec1, pem).expect("written");
        std::fs::write(&key, pair.serialize_pem()).expect("written");
        let params = rcgen::CertificateParams::default().self_signed(&pair).expect("one");
        std::fs::write(&certificate, params.pem()).expect("written");
        let keys = Keys::read(&sec1, &[&certificate]).expect("keys");
        let token = keys.sign(&json!({ "sub": "a" })).expect("a token");
        let same = Keys::read(&key, &[]).expect("keys");
        assert_eq!(same.verify(&token), Some(json!({ "sub": "a" })));
        assert_eq!(keys.verifiers[0].id, keys.verifiers[1].id);
        std::fs::write(&certificate, "nothing").expect("written");
        assert!(Keys::read(&key, &[&certificate]).is_err());
    }

    fn pem_of(kind: &str, der: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
    }

    /// What `openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary` says of them.
    #[test]
    fn a_key_has_the_id_that_upstream_gives_it() {
        const RSA: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA6sLLQObBEbOI8kfU9MgaPB8t83KjEz5szWmJISTYZUhjZKeI7Db2zu8oRLOBInrRzAe7FWOx0Pz0X/9B1qXUN9vE6rKM2EkXU+fEFxlwtwu9rVYidpHd8U5IV5L1+2ll0GUnt3izFcRWES0l3GM+cDhYbWNLlvredh/Z/jKV8LhQOshQBSAAeEuUOWCLbI9UIRoloFoPFxb/QILU4WVlgIiuqW6IsH1/gglVG3rmGrhbcwpLXESg0cUWWfHOLzvmFg/qLV8EVLiYzrjqXvgcMaWzGWQHYlx7+NVMP8aBTod53FNzlsxPl0Ou/OD7k4tTrcwt6nsNHB48sDFZlFMEywIDAQAB";
        const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYIjMow2xZ+po0TwT81YYhwgaz08JqqdAU87Hwx6sL3jgpUtAS8es4HMgK/sIjjeQZOa7lTw1u1rSwnZxc/iHrQ==";
        let folder = tempfile::tempdir().expect("a folder");
        for (key, id) in [
            (RSA, "-LjrL2LDq_iSrB3GQ_90dXE2txdVyq6PvtBMKRSGMAk"),
            (P256, "T0Wzo20TOchtnpmHz94FA_fjClONOeZGYYE_cIVsRgY"),
        ] {
            let path = folder.path().join("sa.pub");
            let pem = format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n");
            std::fs::write(&path, pem).expect("written");
            let found = public(&path).expect("a key");
            assert_eq!(found.iter().map(|key| &*key.id).collect::<Vec<_>>(), [id]);
        }
    }

    #[test]
    fn the_public_key_is_told() {
        let keys = keys();
        let jwk = &keys.jwks()["keys"][0];
        assert_eq!(
            (&jwk["kty"], &jwk["crv"], &jwk["alg"]),
            (&"EC".into(), &"P-256".into(), &"ES256".into())
        );
        assert_eq!(jwk["x"].as_str().map(str::len), Some(43));
    }
}
