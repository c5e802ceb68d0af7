//! ConfigMaps and Secrets, of files and literals.

use std::collections::BTreeMap;

use api::names;
use api::x509::KeyKind;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureAlgorithm};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Generator, Made, Rim, Source, name, named, quoted};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, each, list, switch, text};

const FROM_FILE: Flag =
    list("from-file", "File, KEY=FILE, or a folder of files, whose content is a value.");
const FROM_LITERAL: Flag = each("from-literal", "KEY=VALUE; may be repeated.");
const FROM_ENV_FILE: Flag = list("from-env-file", "File of lines KEY=VALUE.");
const APPEND_HASH: Flag = switch("append-hash", "Append a hash of the content to the name.");

pub static CONFIG_MAP: Generator = Generator {
    name: "configmap",
    aliases: &["cm"],
    about: "Create a config map from a local file, directory or literal value",
    usage: "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    flags: &[FROM_FILE, FROM_LITERAL, FROM_ENV_FILE, APPEND_HASH],
    refused: "failed to create configmap: ",
    make: config_map,
    ..Generator::EMPTY
};

pub static SECRET_GENERIC: Generator = Generator {
    name: "generic",
    about: "Create a secret from a local file, directory, or literal value",
    usage: "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    flags: &[
        FROM_FILE,
        FROM_LITERAL,
        FROM_ENV_FILE,
        APPEND_HASH,
        text("type", "", "Type of the secret."),
    ],
    refused: "failed to create secret ",
    make: secret_generic,
    ..Generator::EMPTY
};

pub static SECRET_DOCKER: Generator = Generator {
    name: "docker-registry",
    about: "Create a secret for use with a Docker registry",
    usage: "NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] \
            [--from-file=[key=]source] [--dry-run=server|client|none]",
    flags: &[
        text("docker-username", "", "User of the registry."),
        text("docker-password", "", "Password of the registry."),
        text("docker-email", "", "Email for the registry."),
        text("docker-server", "https://index.docker.io/v1/", "Address of the registry."),
        FROM_FILE,
        APPEND_HASH,
    ],
    refused: "failed to create secret ",
    make: secret_docker,
    ..Generator::EMPTY
};

pub static SECRET_TLS: Generator = Generator {
    name: "tls",
    about: "Create a TLS secret",
    usage: "NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
    flags: &[
        text("cert", "", "File of the certificate, in PEM."),
        text("key", "", "File of its key."),
        APPEND_HASH,
    ],
    refused: "failed to create secret ",
    make: secret_tls,
    ..Generator::EMPTY
};

/// Keys and what they hold, with the words for what may not be.
struct Content<'a> {
    kind: &'static str,
    name: &'a str,
    entries: BTreeMap<String, Vec<u8>>,
}

impl<'a> Content<'a> {
    fn new(kind: &'static str, name: &'a str) -> Self {
        Content { kind, name, entries: BTreeMap::new() }
    }

    fn add(&mut self, key: &str, value: Vec<u8>) -> Outcome {
        let faults = names::config_map_key(key);
        if self.kind == "Secret" {
            if !faults.is_empty() {
                return Err(format!(
                    "{} is not valid key name for a Secret {}",
                    quoted(key),
                    faults.join(";")
                )
                .into());
            }
            if self.entries.contains_key(key) {
                return Err(format!(
                    "cannot add key {key}, another key by that name already exists"
                )
                .into());
            }
        } else {
            if !faults.is_empty() {
                let faults = faults.join(",");
                return Err(format!(
                    "{} is not a valid key name for a ConfigMap: {faults}",
                    quoted(key)
                )
                .into());
            }
            if let Some(known) = self.entries.get(key) {
                let part = if std::str::from_utf8(known).is_ok() { "Data" } else { "BinaryData" };
                let (key, name) = (quoted(key), quoted(self.name));
                return Err(format!(
                    "cannot add key {key}, another key by that name already exists in {part} for ConfigMap {name}"
                )
                .into());
            }
        }
        self.entries.insert(key.to_owned(), value);
        Ok(())
    }

    fn literals(&mut self, literals: &[String]) -> Outcome {
        for literal in literals {
            match literal.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some((key, value)) => self.add(key, value.as_bytes().to_vec())?,
                None => {
                    return Err(
                        format!("invalid literal source {literal}, expected key=value").into()
                    );
                }
            }
        }
        Ok(())
    }

    fn files(&mut self, sources: &[String], rim: &Rim<'_>) -> Outcome {
        for source in sources {
            let (key, path) = file_source(source)?;
            match (rim.read)(path).map_err(|error| reading(path, &error))? {
                Source::File(bytes) => self.add(key, bytes)?,
                Source::Folder(_) if source.contains('=') => {
                    return Err("cannot give a key name for a directory path".into());
                }
                Source::Folder(files) => {
                    for (name, bytes) in files {
                        self.add(&name, bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn env_files(&mut self, paths: &[String], rim: &Rim<'_>) -> Outcome {
        for path in paths {
            let Source::File(bytes) = (rim.read)(path).map_err(|error| reading(path, &error))?
            else {
                let kind = if self.kind == "Secret" { "secret" } else { "config" };
                return Err(format!("env {kind} file cannot be a directory").into());
            };
            for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                if let Some((key, value)) = env_line(line, path, at, rim)? {
                    self.add(&key, value.into_bytes())?;
                }
            }
        }
        Ok(())
    }

    fn of(&mut self, arguments: &Arguments, rim: &Rim<'_>) -> Outcome {
        let (files, literals) = (arguments.list("from-file"), arguments.list("from-literal"));
        let env_files = arguments.list("from-env-file");
        if !(env_files.is_empty() || files.is_empty() && literals.is_empty()) {
            return Err("from-env-file cannot be combined with from-file or from-literal".into());
        }
        self.literals(literals)?;
        self.files(files, rim)?;
        self.env_files(env_files, rim)
    }
}

fn reading(path: &str, error: &std::io::Error) -> Failure {
    let cause = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    Failure::Plain(format!("error reading {path}: {cause}"))
}

/// `key=path`, or a path whose last part is the key.
fn file_source(source: &str) -> Outcome<(&str, &str)> {
    let Some((key, path)) = source.split_once('=') else {
        let base = source.trim_end_matches('/').rsplit('/').next().unwrap_or(source);
        return Ok((base, source));
    };
    match (key, path) {
        (_, path) if path.contains('=') => Err("key names or file paths cannot contain '='".into()),
        ("", path) => Err(format!("key name for file path {path} missing").into()),
        (key, "") => Err(format!("file path for key name {key} missing").into()),
        found => Ok(found),
    }
}

/// A line of an environment file: a comment, `KEY=VALUE`, or a key whose value the environment has.
fn env_line(
    line: &[u8],
    path: &str,
    at: usize,
    rim: &Rim<'_>,
) -> Outcome<Option<(String, String)>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(text) = std::str::from_utf8(line) else {
        let bytes: Vec<String> = line.iter().map(u8::to_string).collect();
        let (line, bytes) = (at + 1, bytes.join(" "));
        return Err(format!(
            "env file {path} contains invalid utf8 bytes at line {line}: [{bytes}]"
        )
        .into());
    };
    let text = if at == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
    let text = text.trim_start();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, value.to_owned()),
        None => (text, (rim.variable)(text)),
    };
    let faults = names::env_var_name(key);
    match faults.is_empty() {
        true => Ok(Some((key.to_owned(), value))),
        false => {
            Err(format!("{} is not a valid key name: {}", quoted(key), faults.join(";")).into())
        }
    }
}

fn config_map(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let name = name(arguments)?;
    let mut content = Content::new("ConfigMap", name);
    content.of(arguments, rim)?;
    let mut object = named("v1", "ConfigMap", name);
    for (key, value) in content.entries {
        match String::from_utf8(value) {
            Ok(text) => object["data"][key] = text.into(),
            Err(bytes) => object["binaryData"][key] = STANDARD.encode(bytes.as_bytes()).into(),
        }
    }
    if arguments.is("append-hash") {
        let mut hashed = json!({"kind": "ConfigMap", "name": name, "data": object["data"]});
        if hashed["data"].is_null() {
            hashed["data"] = json!({});
        }
        if object["binaryData"].is_object() {
            hashed["binaryData"] = object["binaryData"].clone();
        }
        append_hash(&mut object, &hashed);
    }
    Ok(object.into())
}

/// The start of a hash, without vowels and digits that could make words or be mistaken.
fn append_hash(object: &mut Value, hashed: &Value) {
    let text = api::quote::go_json(hashed).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let letter = |c| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        c => c,
    };
    let hash: String = hex.chars().take(10).map(letter).collect();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    object["metadata"]["name"] = format!("{name}-{hash}").into();
}

fn secret(content: Content<'_>, kind: &str, arguments: &Arguments) -> Made {
    let mut object = named("v1", "Secret", content.name);
    super::put(&mut object, "type", kind);
    let data: serde_json::Map<String, Value> = content
        .entries
        .iter()
        .map(|(key, value)| (key.clone(), STANDARD.encode(value).into()))
        .collect();
    if arguments.is("append-hash") {
        let hashed = json!({"kind": "Secret", "type": kind, "name": content.name, "data": data});
        append_hash(&mut object, &hashed);
    }
    super::put(&mut object, "data", data);
    object.into()
}

fn secret_generic(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let mut content = Content::new("Secret", name(arguments)?);
    content.of(arguments, rim)?;
    Ok(secret(content, arguments.text("type"), arguments))
}

const DOCKER_CONFIG: &str = ".dockerconfigjson";

fn secret_docker(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let mut content = Content::new("Secret", name(arguments)?);
    let field = |name: &str| arguments.text(name);
    let (user, password, server) =
        (field("docker-username"), field("docker-password"), field("docker-server"));
    let files = arguments.list("from-file");
    if files.is_empty() {
        if user.is_empty() || password.is_empty() || server.is_empty() {
            return Err("either --from-file or the combination of --docker-username, --docker-password and \
                 --docker-server is required"
                .into());
        }
        content.add(
            DOCKER_CONFIG,
            docker_config(user, password, field("docker-email"), server).into_bytes(),
        )?;
    }
    let named: Vec<String> = files
        .iter()
        .map(
            |file| {
                if file.contains('=') { file.clone() } else { format!("{DOCKER_CONFIG}={file}") }
            },
        )
        .collect();
    content.files(&named, rim)?;
    Ok(secret(content, "kubernetes.io/dockerconfigjson", arguments))
}

/// Docker's file, with its fields in the order in which Go writes them.
fn docker_config(user: &str, password: &str, email: &str, server: &str) -> String {
    let auth = STANDARD.encode(format!("{user}:{password}"));
    let fields = [("username", user), ("password", password), ("email", email), ("auth", &auth)];
    let text = |text: &str| api::quote::go_json(text).unwrap_or_default();
    let fields: Vec<String> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{}:{}", text(name), text(value)))
        .collect();
    format!("{{\"auths\":{{{}:{{{}}}}}}}", text(server), fields.join(","))
}

fn secret_tls(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let mut content = Content::new("Secret", name(arguments)?);
    let (cert, key) = (arguments.text("cert"), arguments.text("key"));
    if cert.is_empty() || key.is_empty() {
        return Err("key and cert must be specified".into());
    }
    let file = |path: &str| match (rim.read)(path) {
        Ok(Source::File(bytes)) => Ok(bytes),
        Ok(Source::Folder(_)) => {
            Err(format!("Cannot read file {path}, read {path}: is a directory"))
        }
        Err(error) => {
            let cause = crate::print::io_text(path, &error);
            Err(format!("Cannot read file {path}, {cause}"))
        }
    };
    let (cert, key) = (file(cert)?, file(key)?);
    check_pair(&cert, &key)?;
    content.add("tls.crt", cert)?;
    content.add("tls.key", key)?;
    Ok(secret(content, "kubernetes.io/tls", arguments))
}

/// Whether certificate and key belong together, in the words of Go's `tls.X509KeyPair`.
fn check_pair(cert: &[u8], key: &[u8]) -> Outcome {
    let certs: Vec<CertificateDer<'_>> = api::pem::blocks(cert)
        .filter(|block| block.kind == "CERTIFICATE")
        .map(|block| block.bytes.into())
        .collect();
    let Some(leaf) = certs.first() else {
        return Err(no_certificate(&kinds(cert)).into());
    };
    let found = api::pem::blocks(key).find_map(|block| match block.kind.as_str() {
        "PRIVATE KEY" => Some(PrivateKeyDer::Pkcs8(block.bytes.into())),
        "RSA PRIVATE KEY" => Some(PrivateKeyDer::Pkcs1(block.bytes.into())),
        "EC PRIVATE KEY" => Some(PrivateKeyDer::Sec1(block.bytes.into())),
        _ => None,
    });
    let Some(found) = found else {
        return Err(no_key(&kinds(key)).into());
    };
    let public = api::x509::certificate(leaf)?.key.kind;
    let Ok(private) = any_supported_type(&found) else {
        return Err("tls: failed to parse private key".into());
    };
    let alike = match private.algorithm() {
        SignatureAlgorithm::RSA => matches!(public, KeyKind::Rsa(_)),
        SignatureAlgorithm::ECDSA => matches!(public, KeyKind::Elliptic(_)),
        SignatureAlgorithm::ED25519 => public == KeyKind::Ed25519,
        _ => true,
    };
    if !alike {
        return Err("tls: private key type does not match public key type".into());
    }
    match CertifiedKey::new(certs, private).keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err("tls: private key does not match public key".into())
        }
        _ => Ok(()),
    }
}

/// What a file in PEM holds.
fn kinds(text: &[u8]) -> Vec<String> {
    api::pem::blocks(text).map(|block| block.kind).collect()
}

fn no_certificate(found: &[String]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [kind] if kind.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, \
             but did find a private key; PEM inputs may have been switched"
                .to_owned()
        }
        kinds => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            kinds.join(" ")
        ),
    }
}

fn no_key(found: &[String]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [kind] if kind == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        kinds => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
             blocks of the following types: [{}]",
            kinds.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_mistaken_for_others_are_told() {
        let kinds =
            |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>();
        assert!(no_certificate(&kinds(&[])).ends_with("any PEM data in certificate input"));
        assert!(
            no_certificate(&kinds(&["EC PRIVATE KEY"]))
                .ends_with("PEM inputs may have been switched")
        );
        assert!(no_certificate(&kinds(&["A", "B"])).ends_with("following types: [A B]"));
        assert!(no_key(&kinds(&[])).ends_with("any PEM data in key input"));
        assert!(
            no_key(&kinds(&["CERTIFICATE"]))
                .starts_with("tls: found a certificate rather than a key")
        );
        assert!(no_key(&kinds(&["A"])).ends_with("following types: [A]"));
    }
}
