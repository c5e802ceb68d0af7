//! JSON Web Tokens of others, and the keys they publish.
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::signature::{
    self, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

/// How a token may be signed. It names one, and only a key of that kind is tried: no token can
/// choose a weaker way.
enum Algorithm {
    Rsa(&'static RsaParameters),
    Elliptic(&'static str, &'static EcdsaVerificationAlgorithm),
}

/// Those of upstream's list that are supported here.
pub const ALGORITHMS: &[&str] =
    &["RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "PS384", "PS512"];

fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "RS256" => Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
        "RS384" => Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
        "RS512" => Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
        "PS256" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
        "PS384" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
        "PS512" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
        "ES256" => Algorithm::Elliptic("P-256", &signature::ECDSA_P256_SHA256_FIXED),
        "ES384" => Algorithm::Elliptic("P-384", &signature::ECDSA_P384_SHA384_FIXED),
        _ => return None,
    })
}

/// A token that is taken apart, and not yet believed.
pub struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Value,
    pub claims: Value,
}

impl<'a> Token<'a> {
    pub fn parse(token: &'a str) -> Option<Token<'a>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| serde_json::from_slice(&BASE64.decode(part).ok()?).ok();
        Some(Token {
            signed,
            signature: BASE64.decode(signature).ok()?,
            header: decode(header)?,
            claims: decode(claims)?,
        })
    }

    pub fn algorithm(&self) -> &str {
        self.header["alg"].as_str().unwrap_or_default()
    }

    /// Whether one of the keys has signed it.
    pub fn is_signed_by(&self, keys: &[Value]) -> bool {
        let Some(algorithm) = algorithm(self.algorithm()) else { return false };
        let id = self.header["kid"].as_str().unwrap_or_default();
        let fits =
            |key: &&Value| id.is_empty() || key["kid"].as_str().is_none_or(|known| known == id);
        keys.iter().filter(fits).any(|key| self.accepts(key, &algorithm) == Some(true))
    }

    fn accepts(&self, key: &Value, algorithm: &Algorithm) -> Option<bool> {
        let number = |field: &str| BASE64.decode(key[field].as_str()?).ok();
        let signed = self.signed.as_bytes();
        let is_for_signing = key["use"].as_str().is_none_or(|purpose| purpose == "sig");
        let says_otherwise = key["alg"].as_str().is_some_and(|alg| alg != self.algorithm());
        if !is_for_signing || says_otherwise {
            return None;
        }
        Some(match algorithm {
            Algorithm::Rsa(parameters) if key["kty"] == "RSA" => {
                let parts = RsaPublicKeyComponents { n: number("n")?, e: number("e")? };
                parts.verify(parameters, signed, &self.signature).is_ok()
            }
            Algorithm::Elliptic(curve, algorithm) if key["kty"] == "EC" && key["crv"] == *curve => {
                // An uncompressed point: 4, x, y.
                let point = [vec![4], number("x")?, number("y")?].concat();
                UnparsedPublicKey::new(*algorithm, point).verify(signed, &self.signature).is_ok()
            }
            _ => return None,
        })
    }
}
