//! Where a list that was cut short goes on: upstream's `continue` token.
use api::status::Status;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use base64::{DecodeError, Engine as _};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// None: whatever is there now.
    pub revision: Option<u64>,
    /// What follows the list's own prefix in the next key.
    pub start: String,
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: String,
    /// Minus one: whatever is there now.
    rv: i64,
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

impl Token {
    pub fn written(&self) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let token = Written { v: VERSION.into(), rv, start: self.start.clone() };
        BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    pub fn read(text: &str) -> Result<Token, Status> {
        let bad = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let decoded = BASE64.decode(text).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                DecodeError::InvalidLength(length) => length - length % 4,
                DecodeError::InvalidPadding => text.len(),
            };
            bad(&format!("illegal base64 data at input byte {at}"))
        })?;
        let Written { v, rv, start } =
            serde_json::from_slice(&decoded).map_err(|error| bad(&error.to_string()))?;
        // A token is the client's word: it may not lead out of what was listed.
        let leads_out = start.split('/').any(|part| matches!(part, ".." | "." | ""));
        match () {
            () if v != VERSION => {
                Err(bad(&format!("server does not recognize this encoded version {v}")))
            }
            () if rv == 0 => {
                Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))
            }
            () if start.is_empty() => Err(bad("encoded start key empty (version meta.k8s.io/v1)")),
            () if leads_out => Err(bad(&start)),
            () => Ok(Token { revision: u64::try_from(rv).ok(), start }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stays_within_what_was_listed() {
        let token = |start: &str| Token { revision: Some(5), start: start.into() };
        for start in ["../secrets/a", "a//b", "./a", ""] {
            assert!(Token::read(&token(start).written()).is_err(), "{start}");
        }
        assert!(Token::read("%").is_err());
        for kept in [token("a\0"), Token { revision: None, ..token("a") }] {
            assert_eq!(Token::read(&kept.written()).expect("a token"), kept);
        }
    }
}
