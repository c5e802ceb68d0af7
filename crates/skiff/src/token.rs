//! `skiff token`: who may join the cluster of this machine.
//!
//! A token is a bootstrap token of Kubernetes, a Secret in kube-system, with the hash of the cluster's CA
//! before it: whoever joins with it knows whom to trust.
use crate::up::join::{self, Token};
use anyhow::Context as _;
use client::https::{Config, Https};
use client::source::{Collection, Delete, Page};
use client::{ApiResource, Client, Context};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir(), global = true)]
    data_dir: PathBuf,
    /// The administrator's kubeconfig, if `skiff up` was told to write it elsewhere.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a token, and print what to type on the machine that joins.
    Create {
        /// How long it is good for, in hours; 0: for ever.
        #[arg(long, default_value_t = 24)]
        ttl_hours: u32,
        #[arg(long, default_value = "")]
        description: String,
        /// Leave out the hash of the cluster's CA: what kubeadm knows as a token. The cluster is then known by
        /// a signature that it makes with the token.
        #[arg(long)]
        short: bool,
    },
    /// List tokens, without their secrets.
    List,
    /// Remove a token.
    Delete { id: String },
}

const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const GROUP: &str = "system:bootstrappers:skiff:default-node-token";

pub async fn run(options: Options) -> anyhow::Result<()> {
    let usual = || options.data_dir.join("kubeconfig");
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(usual);
    let config = Config::from_kubeconfig(&kubeconfig, None)
        .context("no cluster of this machine was found: run `skiff up` first")?;
    let context = Context::new();
    let client = Client::new(Arc::new(Https::new(&context, config)?)).managed_by("skiff");
    match options.command {
        Command::Create { ttl_hours, description, short } => {
            let pem = std::fs::read(options.data_dir.join("pki/ca.crt"))?;
            let ca = api::pem::blocks(&pem).next().context("ca.crt holds no certificate")?;
            let authority = if short { None } else { Some(join::hash(&ca.bytes)?) };
            let token = Token { authority, ..random() };
            let secret = secret(&token, ttl_hours, &description, context.now());
            client.create(&secret).await.map_err(told)?;
            println!("{token}");
        }
        Command::List => {
            let of = Collection::all(ApiResource::of::<Secret>()).in_namespace(NAMESPACE);
            let list = client.source().list(of, Page::default()).await.map_err(told)?;
            println!("{:<10}{:<28}DESCRIPTION", "TOKEN", "EXPIRES");
            for object in list.items {
                let secret = object.typed::<Secret>()?;
                let text = |key: &str| {
                    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
                    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
                };
                if let Some(id) = text("token-id") {
                    let ends = text("expiration").unwrap_or_else(|| "never".to_owned());
                    println!("{id:<10}{ends:<28}{}", text("description").unwrap_or_default());
                }
            }
        }
        Command::Delete { id } => {
            // A whole token is understood as well: its secret is its last part.
            let parts: Vec<&str> = id.split('.').collect();
            let id = parts.iter().rev().nth(1).copied().unwrap_or(&id);
            let name = format!("{PREFIX}{id}");
            client.delete::<Secret>(NAMESPACE, &name, Delete::default()).await.map_err(told)?;
            println!("token {id} is no more");
        }
    }
    Ok(())
}

fn told(status: api::status::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message)
}

fn random() -> Token {
    Token { authority: None, id: letters(6), secret: letters(16) }
}

/// What nobody guesses.
pub fn secret_word() -> String {
    letters(48)
}

fn letters(count: usize) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    // Bytes that would make some letters likelier than others are thrown away.
    let mut letters = String::new();
    while letters.len() < count {
        let mut byte = [0];
        let drawn = rustix::rand::getrandom(&mut byte[..], rustix::rand::GetRandomFlags::empty());
        if drawn == Ok(1) && byte[0] < 252 {
            letters.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    letters
}

fn secret(token: &Token, hours: u32, description: &str, now: Timestamp) -> Secret {
    let mut data = BTreeMap::from([
        ("token-id".to_owned(), token.id.clone()),
        ("token-secret".to_owned(), token.secret.clone()),
        ("usage-bootstrap-authentication".to_owned(), "true".to_owned()),
        ("usage-bootstrap-signing".to_owned(), "true".to_owned()),
        ("auth-extra-groups".to_owned(), GROUP.to_owned()),
    ]);
    if hours > 0 {
        let end = now.saturating_add(SignedDuration::from_hours(hours.into())).unwrap_or(now);
        data.insert("expiration".to_owned(), api::time::format(end.as_second()));
    }
    if !description.is_empty() {
        data.insert("description".to_owned(), description.to_owned());
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("{PREFIX}{}", token.id)),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        string_data: Some(data),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_end() {
        let (one, other) = (random(), random());
        assert_ne!((&one.id, &one.secret), (&other.id, &other.secret));
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let ends = |hours| secret(&one, hours, "", at).string_data.unwrap().remove("expiration");
        assert_eq!((ends(0), ends(24).as_deref()), (None, Some("2026-01-02T00:00:00Z")));
    }
}
