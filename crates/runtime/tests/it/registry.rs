//! Pulling from registries: Debian's `docker-registry` on loopback, open, with a password, over
//! TLS; and one of our own that does what real ones do on bad days.
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use runtime::image::{Credentials, Images, RegistriesConfig};
use tempfile::TempDir;
use testkit::image::{append, hex, write_busybox};

use crate::machine::until;

/// `me:secret`, as the registry wants it.
const PASSWORDS: &str = "me:$2y$05$a1eqU4qukUKP0s7Ehb4MkuSVfyN1rSRtRfLqKjrBiLcM6lVmSujF.\n";

struct Registry {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default, Clone, Copy)]
struct Setup {
    password: bool,
    tls: bool,
}

impl Registry {
    async fn start(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        // Taken for a moment to learn a free port.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp:\n  addr: {address}\n",
            at("data")
        );
        if setup.tls {
            let key = rcgen::KeyPair::generate().unwrap();
            let names = vec!["127.0.0.1".to_owned()];
            let certificate =
                rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
            fs::write(at("cert.pem"), certificate.pem()).unwrap();
            fs::write(at("key.pem"), key.serialize_pem()).unwrap();
            let (cert, key) = (at("cert.pem"), at("key.pem"));
            config += &format!("  tls: {{certificate: {cert}, key: {key}}}\n");
        }
        if setup.password {
            fs::write(at("passwords"), PASSWORDS).unwrap();
            config += &format!("auth: {{htpasswd: {{realm: r, path: {}}}}}\n", at("passwords"));
        }
        fs::write(at("config.yml"), config).unwrap();
        let program = testkit::tools::program("docker-registry", "docker-registry");
        let process = Command::new(program)
            .args(["serve", &at("config.yml")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until(|| async { TcpStream::connect(address).ok() }).await;
        Registry { process, address, folder }
    }

    /// Puts blobs and a manifest into the registry's storage, as an upload would.
    fn store(&self, repository: &str, tag: &str, image: &Sample) {
        let root = self.folder.path().join("data/docker/registry/v2");
        let blobs = root.join("blobs/sha256");
        let repository = root.join("repositories").join(repository);
        for bytes in image.blobs() {
            let digest = hex(bytes);
            let folder = blobs.join(&digest[..2]).join(&digest);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("data"), bytes).unwrap();
            link(&repository.join("_layers/sha256").join(&digest), &digest);
        }
        let digest = hex(&image.manifest);
        link(&repository.join("_manifests/revisions/sha256").join(&digest), &digest);
        let tags = repository.join("_manifests/tags").join(tag);
        link(&tags.join("current"), &digest);
        link(&tags.join("index/sha256").join(&digest), &digest);
    }
}

fn link(folder: &Path, digest: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("link"), format!("sha256:{digest}")).unwrap();
}

/// A small image with two layers, one gzip, one zstd.
struct Sample {
    layers: [Vec<u8>; 2],
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Sample {
    fn new() -> Self {
        let layer = |name: &str, text: &[u8]| {
            let mut archive = tar::Builder::new(Vec::new());
            append(&mut archive, name, tar::EntryType::Regular, 0o644, text).unwrap();
            archive.into_inner().unwrap()
        };
        let random: Vec<u8> = (0..300_000).map(|_| fastrand::u8(..)).collect();
        let plain = [layer("one", &random), layer("two", b"two")];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain[0]).unwrap();
        let layers = [gzip.finish().unwrap(), zstd::encode_all(&plain[1][..], 1).unwrap()];
        let diffs = plain.each_ref().map(|layer| format!("sha256:{}", hex(layer)));
        let config = serde_json::json!({
            "architecture": "amd64",
            "os": "linux",
            "config": { "User": "7:8" },
            "rootfs": { "type": "layers", "diff_ids": diffs },
        });
        let config = config.to_string().into_bytes();
        let descriptor = |kind: &str, bytes: &[u8]| {
            let digest = format!("sha256:{}", hex(bytes));
            serde_json::json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [
                descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layers[0]),
                descriptor("application/vnd.oci.image.layer.v1.tar+zstd", &layers[1]),
            ],
        });
        let manifest = manifest.to_string().into_bytes();
        Sample { layers, config, manifest }
    }

    fn blobs(&self) -> [&Vec<u8>; 4] {
        [&self.layers[0], &self.layers[1], &self.config, &self.manifest]
    }
}

fn images(folder: &TempDir, config: &str) -> Images {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let path = folder.path().join("registries.yaml");
    fs::write(&path, config).unwrap();
    Images::open(folder.path(), RegistriesConfig::read(&path).unwrap()).unwrap()
}

/// Every file of every layer, by name.
fn unpacked(images: &Images) -> Vec<String> {
    let layers = fs::read_dir(images.layers_root()).unwrap().flatten();
    let files = layers.flat_map(|layer| fs::read_dir(layer.path()).unwrap().flatten());
    let mut names: Vec<String> =
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_registry_is_pulled_from_by_tag_and_digest() {
    let registry = Registry::start(Setup::default()).await;
    let sample = Sample::new();
    registry.store("team/app", "v1", &sample);
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, "{}");
    let seen = Arc::new(Mutex::new(HashMap::new()));
    let telling = seen.clone();
    let progress = move |p: runtime::image::Progress| {
        telling.lock().unwrap().insert(p.digest, (p.received, p.size));
    };
    let name = format!("{}/team/app:v1", registry.address);
    let image = images.pull(&name, None, Some(Arc::new(progress))).await.unwrap();
    assert_eq!(image.tags.iter().collect::<Vec<_>>(), [&name]);
    assert_eq!(image.defaults.user, "7:8");
    assert_eq!(unpacked(&images), ["one", "two"]);
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() == 3 && seen.values().all(|(received, size)| received == size), "{seen:?}");

    let digest = format!("{}/team/app@sha256:{}", registry.address, hex(&sample.manifest));
    let same = images.pull(&digest, None, None).await.unwrap();
    assert_eq!((same.id, &same.digests), (image.id, &image.digests));
    for name in [&name, &digest, &image.id.to_string(), &image.id.hex()[..12].to_owned()] {
        assert_eq!(images.find(name).unwrap().id, image.id, "{name}");
    }
    let missing = format!("{}/team/app:v2", registry.address);
    let error = images.pull(&missing, None, None).await.unwrap_err();
    assert!(format!("{error:?}").contains("NotFound"), "{error:?}");

    // What was fetched survives a restart; what nobody needs is collected.
    drop(images);
    let images = self::images(&folder, "{}");
    assert_eq!(images.find(&name).unwrap().id, image.id);
    images.remove(&name).unwrap();
    images.collect(|| image.layers[..1].iter().copied().collect()).unwrap();
    assert_eq!(unpacked(&images), ["one"], "what a container uses stays");
    images.collect(Default::default).unwrap();
    assert!(unpacked(&images).is_empty());
    assert_eq!(fs::read_dir(folder.path().join("blobs/sha256")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_and_a_certificate_checked() {
    let registry = Registry::start(Setup { password: true, tls: true }).await;
    registry.store("app", "latest", &Sample::new());
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{}/app", registry.address);
    let config = |tls: &str| format!("configs: {{\"{}\": {{tls: {tls}}}}}", registry.address);
    let credentials = |password: &str| Credentials {
        username: "me".to_owned(),
        password: password.to_owned(),
        ..Credentials::default()
    };
    let strangers = images(&folder, &config("{}"));
    let error = strangers.pull(&name, Some(credentials("secret")), None).await.unwrap_err();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    let ca = registry.folder.path().join("cert.pem").display().to_string();
    let images = images(&folder, &config(&format!("{{ca_file: \"{ca}\"}}")));
    for wrong in [None, Some(credentials("guess"))] {
        let error = images.pull(&name, wrong, None).await.unwrap_err();
        assert!(format!("{error:?}").contains("Unauthorized"), "{error:?}");
    }
    images.pull(&name, Some(credentials("secret")), None).await.unwrap();
    assert_eq!(unpacked(&images), ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_asked_first() {
    let registry = Registry::start(Setup::default()).await;
    registry.store("library/thing", "latest", &Sample::new());
    let folder = tempfile::tempdir().unwrap();
    let config = format!("mirrors: {{docker.io: {{endpoint: [\"http://{}\"]}}}}", registry.address);
    let images = images(&folder, &config);
    let image = images.pull("thing", None, None).await.unwrap();
    assert_eq!(image.tags.first().unwrap(), "docker.io/library/thing:latest");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_fetched_and_broken_transfers_resumed() {
    let sample = Arc::new(Sample::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (serving, log) = (sample.clone(), requests.clone());
    std::thread::spawn(move || {
        let mut broken = false;
        for stream in listener.incoming().flatten() {
            answer(stream, address, &serving, &log, &mut broken);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, "{}");
    images.pull(&format!("{address}/app"), None, None).await.unwrap();
    assert_eq!(unpacked(&images), ["one", "two"]);
    let requests = requests.lock().unwrap();
    let token = "/token?service=s&scope=repository%3aapp%3apull";
    assert_eq!(requests.iter().filter(|line| *line == token).count(), 1, "one token is enough");
    assert!(requests.iter().any(|line| line.ends_with("bytes=1000-")), "{requests:?}");
}

/// A registry that wants a token, redirects to its blobs, and breaks off the first transfer.
fn answer(
    mut stream: TcpStream,
    address: SocketAddr,
    sample: &Sample,
    log: &Mutex<Vec<String>>,
    broken: &mut bool,
) {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        request.push(byte[0]);
    }
    let request = String::from_utf8_lossy(&request).to_lowercase();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let range = request.lines().find_map(|line| line.strip_prefix("range: ")).unwrap_or_default();
    log.lock().unwrap().push(format!("{path}{range}"));
    let authorized = request.contains("authorization: bearer good");
    let mut reply = |head: String, body: &[u8], announced: usize| {
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {announced}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    };
    if path.starts_with("/token") {
        let body = br#"{"token":"good"}"#;
        return reply("200 OK".to_owned(), body, body.len());
    }
    if path.starts_with("/elsewhere/") {
        assert!(!authorized, "credentials do not follow a redirect");
        let blob = sample.blobs().into_iter().find(|blob| path.ends_with(&hex(blob))).unwrap();
        let from: usize =
            range.strip_prefix("bytes=").map_or(0, |r| r.trim_end_matches('-').parse().unwrap());
        let rest = &blob[from..];
        if blob.len() > 100_000 && !*broken {
            *broken = true;
            return reply("200 OK".to_owned(), &rest[..1000], rest.len());
        }
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        return reply(status.to_owned(), rest, rest.len());
    }
    if !authorized {
        let realm = format!("Bearer realm=\"http://{address}/token\",service=\"s\"");
        return reply(format!("401 Unauthorized\r\nWWW-Authenticate: {realm}"), b"", 0);
    }
    if let Some((_, digest)) = path.split_once("/blobs/sha256:") {
        return reply(format!("307 Temporary Redirect\r\nLocation: /elsewhere/{digest}"), b"", 0);
    }
    reply("200 OK".to_owned(), &sample.manifest, sample.manifest.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_can_be_imported() {
    let folder = tempfile::tempdir().unwrap();
    let images = images(&folder, "{}");
    let archive = folder.path().join("in.tar");
    write_busybox(&archive, "a/b:c", &[("hello", "world")]).unwrap();
    let first = images.import(&archive, None).await.unwrap().remove(0);
    let exported = folder.path().join("out.tar");
    images.export("a/b:c", fs::File::create(&exported).unwrap()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let others = self::images(&other, "{}");
    let second = others.import(&exported, None).await.unwrap().remove(0);
    assert_eq!((second.id, &second.layers, &second.tags), (first.id, &first.layers, &first.tags));
    let nothing = other.path().join("nothing.tar");
    fs::write(&nothing, [0; 1024]).unwrap();
    let error = others.import(&nothing, None).await.unwrap_err();
    assert!(error.to_string().contains("neither an OCI layout nor a docker archive"), "{error}");
}
