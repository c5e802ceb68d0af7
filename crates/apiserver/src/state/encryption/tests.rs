//! Configurations as text, and a plugin of our own.
use super::kms::proto::key_management_service_server::{
    KeyManagementService, KeyManagementServiceServer,
};
use super::kms::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const KEY: &[u8] = b"/registry/secrets/default/s";
const PLAIN: &str = r#"{"metadata":{"name":"s"},"data":{"a":"dG9wIHNlY3JldA=="}}"#;

/// A configuration with these rules: `RESOURCE,…: PROVIDER[ KEY-NAME…] | …`.
fn configuration(rules: &[&str]) -> String {
    let secret = |name: &str, length: usize| {
        STANDARD.encode(name.bytes().cycle().take(length).collect::<Vec<_>>())
    };
    let mut out =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for rule in rules {
        let (resources, providers) = rule.split_once(": ").unwrap_or((rule, ""));
        let quoted: Vec<String> = resources.split(',').map(|r| format!("\"{r}\"")).collect();
        out += &format!("- resources: [{}]\n  providers:\n", quoted.join(","));
        for provider in providers.split(" | ") {
            let (provider, keys) = provider.split_once(' ').unwrap_or((provider, ""));
            let (provider, length) = provider.split_once('/').unwrap_or((provider, "32"));
            match keys {
                "" => out += &format!("  - {provider}: {{}}\n"),
                keys => {
                    out += &format!("  - {provider}:\n      keys:\n");
                    for key in keys.split(' ') {
                        let secret = secret(key, length.parse().expect("a length"));
                        out += &format!("      - {{name: {key}, secret: {secret}}}\n");
                    }
                }
            }
        }
    }
    out
}

async fn rules(text: &str) -> Result<Rules, Error> {
    let parsed = config::parse(Path::new("f"), text.as_bytes(), false)?;
    config::build(&parsed, text.as_bytes()).await
}

async fn encryption(all: &[&str]) -> Encryption {
    let rules = rules(&configuration(all)).await.expect("a valid configuration");
    Encryption { rules: RwLock::new(Arc::new(rules)) }
}

fn seal(encryption: &Encryption, key: &[u8]) -> Bytes {
    let plain = Bytes::from_static(PLAIN.as_bytes());
    encryption.seal(key, &plain).expect("it can be written").unwrap_or(plain)
}

#[tokio::test]
async fn every_cipher_reads_what_it_wrote_and_shows_nothing_of_it() {
    for (provider, prefix) in [
        ("aescbc/16 a", "k8s:enc:aescbc:v1:a:"),
        ("aescbc/24 a", "k8s:enc:aescbc:v1:a:"),
        ("aescbc/32 a", "k8s:enc:aescbc:v1:a:"),
        ("aesgcm/16 a", "k8s:enc:aesgcm:v1:a:"),
        ("aesgcm/24 a", "k8s:enc:aesgcm:v1:a:"),
        ("aesgcm/32 a", "k8s:enc:aesgcm:v1:a:"),
        ("secretbox a", "k8s:enc:secretbox:v1:a:"),
    ] {
        let encryption = encryption(&[&format!("secrets: {provider}")]).await;
        let kept = seal(&encryption, KEY);
        assert!(kept.starts_with(prefix.as_bytes()), "{kept:?}");
        assert!(!kept.windows(8).any(|w| PLAIN.as_bytes().windows(8).any(|p| p == w)));
        assert!(!encryption.is_plain(KEY, &kept));
        let opened = encryption.open(KEY, &kept).await.expect("it can be read");
        assert_eq!((&*opened.value, opened.stale), (PLAIN.as_bytes(), false), "{provider}");
        let mut broken = kept.to_vec();
        *broken.last_mut().expect("some bytes") ^= 1;
        // Nothing but its padding tells that blocks were changed.
        let authenticated = !provider.starts_with("aescbc");
        let read = encryption.open(KEY, &broken.into()).await;
        assert!(read.is_err() || !authenticated, "{provider}");
        for length in prefix.len()..kept.len() {
            let read = encryption.open(KEY, &kept.slice(..length)).await;
            assert!(read.is_err() || !authenticated, "{provider}");
        }
    }
}

#[tokio::test]
async fn a_value_of_aesgcm_that_was_moved_is_not_read() {
    let encryption = encryption(&["secrets: aesgcm a"]).await;
    let kept = seal(&encryption, KEY);
    let elsewhere = b"/registry/secrets/default/t";
    let failure = encryption.open(elsewhere, &kept).await.expect_err("it was moved");
    assert_eq!(failure, "cipher: message authentication failed");
}

#[tokio::test]
async fn any_provider_reads_and_what_the_first_did_not_write_is_stale() {
    let old = encryption(&["secrets: aescbc a"]).await;
    // One in 256 opens with a wrong key too, for all that CBC knows: not that one.
    let wrong = encryption(&["secrets: aescbc/16 a"]).await;
    let kept = loop {
        let kept = seal(&old, KEY);
        if wrong.open(KEY, &kept).await.is_err() {
            break kept;
        }
    };
    for (providers, expected) in [
        ("aescbc a", "fresh"),
        ("aescbc b a", "stale"),
        ("secretbox s | aescbc a", "stale"),
        ("identity | aescbc a", "stale"),
        // The same prefix, another key: the next one is tried.
        ("aescbc/16 a | aescbc a", "stale"),
        ("secretbox s", "no matching prefix found"),
        ("aescbc b", "no matching key was found for the provided AES transformer"),
        ("identity", "no matching prefix found"),
    ] {
        let now = encryption(&[&format!("secrets: {providers}")]).await;
        let found = match now.open(KEY, &kept).await {
            Ok(opened) if opened.stale => "stale".to_owned(),
            Ok(_) => "fresh".to_owned(),
            Err(cause) => cause,
        };
        assert_eq!(found, expected, "{providers}");
    }
    let none = Encryption::default();
    let failure = none.open(KEY, &kept).await.expect_err("there is no key");
    assert_eq!(failure, "identity transformer tried to read encrypted data");
    let plain = Bytes::from_static(PLAIN.as_bytes());
    assert!(none.is_plain(KEY, &plain));
    let failure = old.open(KEY, &plain).await.expect_err("it is not encrypted");
    assert_eq!(failure, "no matching prefix found");
}

#[tokio::test]
async fn resources_are_named_one_by_one_by_group_or_all_at_once() {
    let encryption =
        encryption(&["secrets,things.example.com: aesgcm a", "*.apps: aesgcm b", "*.*: aesgcm c"])
            .await;
    for (key, with) in [
        ("/registry/secrets/default/s", "a"),
        ("/registry/deployments/default/d", "b"),
        ("/registry/configmaps/default/c", "c"),
        ("/registry/example.com/things/default/t", "a"),
        ("/registry/example.com/others/default/t", "c"),
        // What is no resource is never encrypted.
        ("/registry/masterleases/10.0.0.1", ""),
        ("/registry/ranges/serviceips", ""),
    ] {
        let kept = seal(&encryption, key.as_bytes());
        match with {
            "" => assert_eq!(kept, PLAIN, "{key}"),
            name => {
                assert!(kept.starts_with(format!("k8s:enc:aesgcm:v1:{name}:").as_bytes()), "{key}")
            }
        }
    }
}

#[tokio::test]
async fn what_a_configuration_may_not_say() {
    for (text, expected) in [
        (
            configuration(&[]).replace("resources:\n", ""),
            "resources: Required value: at least one resources is required",
        ),
        (
            configuration(&["Secrets: identity"]),
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters",
        ),
        (
            configuration(&["*: identity"]),
            "resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
        (
            configuration(&["secrets,*.: identity"]),
            "resources[0].resources: Invalid value: [\"secrets\",\"*.\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        ),
        (
            configuration(&["secrets,secrets: identity"]),
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
        ),
        (
            configuration(&["pods.*: identity"]),
            "resources[0].resources[0]: Invalid value: \"pods.*\": encrypting the same resource across groups is not supported",
        ),
        (
            configuration(&["secrets: aescbc/15 a"]),
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 15, expected one of [16 24 32]",
        ),
        (
            configuration(&["secrets: secretbox/16 a"]),
            "resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]",
        ),
        (
            configuration(&["secrets: aesgcm"]),
            "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required",
        ),
        (
            configuration(&["*.: identity", "secrets: identity"]),
            "resource \"secrets\" is masked by earlier rule \"*.\"",
        ),
        (
            configuration(&["secrets: kms"]),
            "resources[0].providers[0].kms.name: Required value: name is a mandatory field for a provider",
        ),
    ] {
        let failure = rules(&text).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(failure.contains(expected), "{text}\n{failure}");
    }
    let secret =
        configuration(&["secrets: aescbc a | identity"]).replace("  - identity", "    identity");
    let failure = rules(&secret).await.err().expect("two at once").to_string();
    assert!(
        failure.contains("more than one provider specified") && !failure.contains("YWFh"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_changed_file_takes_effect_and_a_broken_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, configuration(&["secrets: aescbc a"])).expect("a file");
    let encryption = Encryption::open(&file, true).await.expect("a configuration");
    let kept = seal(&encryption, KEY);
    assert!(!encryption.reload(&file).await.expect("nothing new"));
    std::fs::write(&file, "nonsense").expect("a file");
    assert!(encryption.reload(&file).await.is_err());
    assert!(!encryption.open(KEY, &kept).await.expect("the old one is in force").stale);
    std::fs::write(&file, configuration(&["secrets: secretbox b | aescbc a"])).expect("a file");
    assert!(encryption.reload(&file).await.expect("a configuration"));
    assert!(encryption.open(KEY, &kept).await.expect("it is still read").stale);
    assert!(seal(&encryption, KEY).starts_with(b"k8s:enc:secretbox:v1:b:"));
}

/// A plugin that holds one key: what it encrypts is the text backwards, with the key's name.
#[derive(Clone)]
struct Vault(Arc<std::sync::Mutex<String>>);

#[tonic::async_trait]
impl KeyManagementService for Vault {
    async fn status(
        &self,
        _: tonic::Request<StatusRequest>,
    ) -> Result<tonic::Response<StatusResponse>, tonic::Status> {
        let key_id = self.0.lock().expect("nobody panicked").clone();
        let (version, healthz) = ("v2".into(), "ok".into());
        Ok(tonic::Response::new(StatusResponse { version, healthz, key_id }))
    }

    async fn encrypt(
        &self,
        request: tonic::Request<EncryptRequest>,
    ) -> Result<tonic::Response<EncryptResponse>, tonic::Status> {
        let key_id = self.0.lock().expect("nobody panicked").clone();
        let ciphertext = request.into_inner().plaintext.into_iter().rev().collect();
        let annotations = [("vault.example.com".to_owned(), key_id.clone().into_bytes())].into();
        Ok(tonic::Response::new(EncryptResponse { ciphertext, key_id, annotations }))
    }

    async fn decrypt(
        &self,
        request: tonic::Request<DecryptRequest>,
    ) -> Result<tonic::Response<DecryptResponse>, tonic::Status> {
        let request = request.into_inner();
        assert_eq!(request.annotations["vault.example.com"], request.key_id.as_bytes());
        let plaintext = request.ciphertext.into_iter().rev().collect();
        Ok(tonic::Response::new(DecryptResponse { plaintext }))
    }
}

#[tokio::test]
async fn a_plugin_holds_the_key_and_changes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("kms.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let vault = Vault(Arc::new(std::sync::Mutex::new("1".into())));
    let service = KeyManagementServiceServer::new(vault.clone());
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
    );
    let text = configuration(&["secrets: kms"]).replace(
        "kms: {}",
        &format!("kms: {{apiVersion: v2, name: vault, endpoint: \"unix://{}\"}}", socket.display()),
    );
    let start = async || {
        let rules = rules(&text).await.expect("a valid configuration");
        Encryption { rules: RwLock::new(Arc::new(rules)) }
    };
    let encryption = start().await;
    let kept = seal(&encryption, KEY);
    assert!(kept.starts_with(b"k8s:enc:kms:v2:vault:"), "{kept:?}");
    assert!(!encryption.open(KEY, &kept).await.expect("it is read").stale);
    assert!(encryption.open(b"/registry/secrets/default/t", &kept).await.is_err(), "it was moved");
    assert_eq!(encryption.check().await, Ok(()));
    // Another server, or this one after a restart, has another seed.
    let other = start().await;
    let opened = other.open(KEY, &kept).await.expect("the plugin is asked");
    assert_eq!((&*opened.value, opened.stale), (PLAIN.as_bytes(), false));
    *vault.0.lock().expect("nobody panicked") = "2".into();
    let plugin = encryption.rules().plugins[0].clone();
    plugin.rotate("2").await.expect("the plugin has it");
    assert!(encryption.open(KEY, &kept).await.expect("it is still read").stale);
    let again = seal(&encryption, KEY);
    assert!(!encryption.open(KEY, &again).await.expect("it is read").stale);
    assert!(
        plugin.rotate("3").await.expect_err("it has no such key").contains("failed to rotate DEK")
    );
}

#[tokio::test]
async fn a_plugin_that_is_away_is_unhealthy_and_not_fatal() {
    let text = configuration(&["secrets: kms"]).replace(
        "kms: {}",
        "kms: {apiVersion: v2, name: vault, endpoint: \"unix:///nowhere.sock\"}",
    );
    let rules = rules(&text).await.expect("the server starts");
    let encryption = Encryption { rules: RwLock::new(Arc::new(rules)) };
    assert!(encryption.is_checked());
    let failure = encryption.check().await.expect_err("nobody is there");
    assert!(failure.starts_with("kms-provider-0: failed to perform status section of the healthz check for KMS Provider vault, error: "), "{failure}");
    let plain = Bytes::from_static(PLAIN.as_bytes());
    assert!(encryption.seal(KEY, &plain).is_err());
}

#[test]
fn a_clusters_own_key_is_made_once_and_for_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = own_configuration(folder.path()).expect("a file");
    let first = std::fs::read(&file).expect("it is there");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    config::parse(&file, &first, true).expect("a valid configuration");
    own_configuration(folder.path()).expect("the same file");
    assert_eq!(std::fs::read(&file).expect("it is there"), first);
}
