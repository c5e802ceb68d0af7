//! ConfigMaps and Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Seen;
use super::common::{head, labels_and_annotations, pairs, text};
use super::writer::{Writer, put};

pub fn config_map(w: &mut Writer, map: &Value, _: &Seen<'_>) {
    head(w, map, true);
    labels_and_annotations(w, map);
    w.write(0, "\nData\n====\n");
    for (key, value) in pairs(&map["data"]) {
        put!(w, 0, "{key}:\n----\n");
        put!(w, 0, "{value}\n");
        w.write(0, "\n");
    }
    w.write(0, "\nBinaryData\n====\n");
    for (key, value) in pairs(&map["binaryData"]) {
        put!(w, 0, "{key}: {} bytes\n", decoded(value).len());
    }
    w.write(0, "\n");
}

fn decoded(value: &str) -> Vec<u8> {
    STANDARD.decode(value).unwrap_or_default()
}

/// Only a token is shown: it is what people come for.
pub fn secret(w: &mut Writer, secret: &Value, _: &Seen<'_>) {
    head(w, secret, true);
    labels_and_annotations(w, secret);
    let kind = text(&secret["type"]);
    put!(w, 0, "\nType:\t{kind}\n");
    w.write(0, "\nData\n====\n");
    for (key, value) in pairs(&secret["data"]) {
        let value = decoded(value);
        match key == "token" && kind == "kubernetes.io/service-account-token" {
            true => put!(w, 0, "{key}:\t{}\n", String::from_utf8_lossy(&value)),
            false => put!(w, 0, "{key}:\t{} bytes\n", value.len()),
        }
    }
}
