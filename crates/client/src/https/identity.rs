//! Who we are, kept current: tokens are read again, programs asked again.
use super::config::{Config, Proof, Token};
use super::policy::{Folders, Policy};
use crate::http::tls::{self, Believed, Files, Tls};
use ::http::HeaderValue;
use api::kubeconfig::Exec;
use api::status::Status;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A token that was read is good for so long: well within the time for which kubelets keep the
/// old one valid.
const FRESH: Duration = Duration::from_secs(60);

pub(super) struct Identity {
    proof: Proof,
    token: Mutex<Option<(HeaderValue, Instant)>>,
    program: Option<Arc<Program>>,
}

impl Identity {
    pub fn new(config: &Config) -> Identity {
        let proof = config.proof.clone();
        let program = proof.exec.clone().map(|exec| {
            let (said, policy) = (tokio::sync::Mutex::default(), proof.policy.clone());
            Arc::new(Program { exec, policy, said, certificate: Mutex::default() })
        });
        Identity { proof, token: Mutex::default(), program }
    }

    /// What connections are made with.
    pub fn tls(&self, config: &Config) -> Shown {
        let files = Files::new(config.believed.clone(), self.proof.certificate.clone());
        Shown { believed: config.believed.clone(), files, program: self.program.clone() }
    }

    /// The value of the `Authorization` header.
    pub async fn authorization(&self) -> Result<Option<HeaderValue>, Status> {
        let header = match (&self.proof.token, &self.proof.basic, &self.program) {
            (Some(Token::Given(token)), ..) => sensitive(format!("Bearer {token}"))?,
            (Some(Token::File(path)), ..) => self.read_token(path)?,
            (None, Some((name, password)), _) => {
                sensitive(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))?
            }
            (None, None, Some(program)) => {
                let Some(token) = program.ask().await?.token else { return Ok(None) };
                sensitive(format!("Bearer {token}"))?
            }
            (None, None, None) => return Ok(None),
        };
        Ok(Some(header))
    }

    fn read_token(&self, path: &Path) -> Result<HeaderValue, Status> {
        let mut held = self.token.lock();
        if let Some((header, read)) = &*held
            && read.elapsed() < FRESH
        {
            return Ok(header.clone());
        }
        match std::fs::read_to_string(path) {
            Ok(text) if !text.trim().is_empty() => {
                let header = sensitive(format!("Bearer {}", text.trim()))?;
                *held = Some((header.clone(), Instant::now()));
                Ok(header)
            }
            read => {
                let cause = read.err().map_or("it is empty".to_owned(), |error| error.to_string());
                // What there was may still be good.
                match &*held {
                    Some((header, _)) => Ok(header.clone()),
                    None => Err(Status::unauthorized(&format!(
                        "failed to read the token in {}: {cause}",
                        path.display()
                    ))),
                }
            }
        }
    }

    /// The server does not believe us: what was remembered is forgotten. False if there is
    /// nothing newer to be had.
    pub fn refresh(&self) -> bool {
        if let Some(program) = &self.program {
            program.forget();
        }
        self.token.lock().take().is_some() || self.program.is_some()
    }
}

fn sensitive(text: String) -> Result<HeaderValue, Status> {
    let mut header = HeaderValue::try_from(text)
        .map_err(|_| Status::unauthorized("a token holds what no header may"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// TLS with the certificate of files, or the one that a program gave.
pub(super) struct Shown {
    believed: Believed,
    files: Files,
    program: Option<Arc<Program>>,
}

impl Tls for Shown {
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let Some(program) = &self.program else { return self.files.config() };
        let mut certificate = program.certificate.lock();
        let Some(shown) = &mut *certificate else { return self.files.config() };
        if let Some(config) = &shown.config {
            return Ok(config.clone());
        }
        let config = Arc::new(tls::client_config(&self.believed, Some(shown.pem.clone()))?);
        shown.config = Some(config.clone());
        Ok(config)
    }
}

/// A program that says who we are, and for how long.
pub(super) struct Program {
    exec: Exec,
    policy: Policy,
    said: tokio::sync::Mutex<Option<Said>>,
    certificate: Mutex<Option<Certificate>>,
}

struct Certificate {
    pem: (Vec<u8>, Vec<u8>),
    config: Option<Arc<ClientConfig>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl Said {
    fn is_over(&self) -> bool {
        let until = self.expiration_timestamp.as_deref().and_then(|text| text.parse().ok());
        until.is_some_and(|until: Timestamp| until <= Timestamp::now())
    }
}

impl Program {
    async fn ask(&self) -> Result<Said, Status> {
        let mut held = self.said.lock().await;
        if let Some(said) = held.as_ref().filter(|said| !said.is_over()) {
            return Ok(said.clone());
        }
        let (exec, policy) = (self.exec.clone(), self.policy.clone());
        let run = tokio::task::spawn_blocking(move || run(&exec, &policy)).await;
        let said = run
            .map_err(Status::internal_error)?
            .map_err(|cause| Status::unauthorized(&format!("getting credentials: {cause}")))?;
        if let (Some(certificate), Some(key)) =
            (&said.client_certificate_data, &said.client_key_data)
        {
            let pem = (certificate.clone().into_bytes(), key.clone().into_bytes());
            let mut shown = self.certificate.lock();
            if shown.as_ref().is_none_or(|shown| shown.pem != pem) {
                *shown = Some(Certificate { pem, config: None });
            }
        }
        *held = Some(said.clone());
        Ok(said)
    }

    fn forget(&self) {
        // Whoever asks just now gets something new anyway.
        if let Ok(mut held) = self.said.try_lock() {
            *held = None;
        }
    }
}

/// What users are told who have a kubeconfig and not its program: the words they will look for.
const NOT_INSTALLED: &str = "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\n\
     To learn more about this feature, consult the documentation available at:\n      \
     https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

/// Runs the program and reads the `ExecCredential` that it prints.
fn run(exec: &Exec, policy: &Policy) -> Result<Said, String> {
    let program = policy.allow(&exec.command, &Folders::of(std::env::var_os("PATH")))?;
    let info = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version,
        "spec": { "interactive": false } });
    let mut command = Command::new(&program);
    command.arg0(&exec.command);
    command.args(exec.args.iter().flatten());
    command.envs(exec.env.iter().flatten().map(|variable| (&variable.name, &variable.value)));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if !exec.command.contains('/') => {
            let hint = exec.install_hint.as_deref().filter(|hint| !hint.is_empty());
            let hint = hint.map(|hint| format!("\n\n{hint}")).unwrap_or_default();
            format!("exec: executable {} not found{NOT_INSTALLED}{hint}", exec.command)
        }
        _ => format!("exec: {error}"),
    })?;
    if !output.status.success() {
        let code = output.status.code().unwrap_or(-1);
        return Err(format!("exec: executable {} failed with exit code {code}", exec.command));
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ExecCredential {
        api_version: String,
        status: Option<Said>,
    }
    let credential: ExecCredential = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("decoding stdout: {error}"))?;
    if credential.api_version != exec.api_version {
        let (wanted, said) = (&exec.api_version, &credential.api_version);
        return Err(format!(
            "exec plugin is configured to use API version {wanted}, plugin returned version {said}"
        ));
    }
    let said = credential.status.ok_or("exec plugin didn't return a status field")?;
    if said.token.is_none() && said.client_certificate_data.is_none() {
        return Err("exec plugin didn't return a token or cert/key pair".to_owned());
    }
    Ok(said)
}
