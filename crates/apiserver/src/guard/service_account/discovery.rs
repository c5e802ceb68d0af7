//! What others need to check our tokens: the OpenID documents.
use super::Issuer;
use serde_json::{Value, json};

pub fn configuration(issuer: &Issuer) -> Value {
    let name = issuer.name();
    json!({
        "issuer": name,
        "jwks_uri": format!("{}/openid/v1/jwks", name.trim_end_matches('/')),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms(issuer),
    })
}

fn algorithms(issuer: &Issuer) -> Vec<Value> {
    let keys = issuer.keys.jwks();
    let mut all: Vec<Value> =
        keys["keys"].as_array().into_iter().flatten().map(|key| key["alg"].clone()).collect();
    all.dedup();
    all
}

pub fn jwks(issuer: &Issuer) -> Value {
    issuer.keys.jwks()
}
