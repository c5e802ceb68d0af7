//! A registry in the cluster's own network that serves the images made here: some tests pull although an image is there.
//!
//! It reads the archives and answers what a client needs to pull (`GET` and `HEAD` of manifests and
//! blobs), nothing else.
use super::images::Made;
use super::shell::{self, failed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where images' names lead in the place of their own registry.
pub const DOMAIN: &str = "registry.k8s.io";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[derive(Default)]
struct Shelf {
    /// Where a blob is: in which archive, from where, how long.
    blobs: BTreeMap<String, (PathBuf, u64, u64)>,
    /// Digests of manifests, by `REPOSITORY:TAG`.
    tags: BTreeMap<String, String>,
}

/// Serves until the process ends, in this network; answers with the address.
pub fn serve(network: &Path, address: Ipv4Addr, images: &[Made]) -> Result<SocketAddr, String> {
    let mut shelf = Shelf::default();
    for image in images {
        shelf.take(&image.archive).map_err(failed("read", &image.archive))?;
    }
    let bind = || TcpListener::bind((address, 0));
    let listener = netlink::namespace::within(network, bind)
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("a registry: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let shelf = Arc::new(shelf);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shelf = shelf.clone();
            // One that hangs up early is no trouble of ours.
            std::thread::spawn(move || drop(shelf.answer(stream)));
        }
    });
    Ok(address)
}

/// What the runtime is told: this registry first.
pub fn write_configuration(path: &Path, address: SocketAddr) -> Result<(), String> {
    let text = format!("mirrors:\n  {DOMAIN}: {{ endpoint: [\"http://{address}\"] }}\n");
    shell::write(path, text)
}

impl Shelf {
    fn take(&mut self, archive: &Path) -> io::Result<()> {
        let mut tar = tar::Archive::new(File::open(archive)?);
        for entry in tar.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.display().to_string();
            if let Some(digest) = path.strip_prefix("blobs/sha256/") {
                let place = (archive.to_owned(), entry.raw_file_position(), entry.size());
                self.blobs.insert(format!("sha256:{digest}"), place);
            } else if path == "index.json" {
                let mut text = String::new();
                entry.read_to_string(&mut text)?;
                let index: Value = serde_json::from_str(&text)?;
                for manifest in index["manifests"].as_array().into_iter().flatten() {
                    let name = &manifest["annotations"]["io.containerd.image.name"];
                    let name = name.as_str().and_then(|name| name.strip_prefix(DOMAIN));
                    if let (Some(name), Some(digest)) = (name, manifest["digest"].as_str()) {
                        self.tags
                            .insert(name.trim_start_matches('/').to_owned(), digest.to_owned());
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut line = String::from("-");
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
        }
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path == "/v2/" {
            return stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let Some((digest, kind)) = self.find(path) else {
            return stream.write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        };
        let Some((archive, from, length)) = self.blobs.get(digest) else { return Ok(()) };
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        if method == "HEAD" {
            return Ok(());
        }
        let mut file = File::open(archive)?;
        file.seek(SeekFrom::Start(*from))?;
        io::copy(&mut file.take(*length), &mut stream).map(drop)
    }

    /// The digest that a path means, and what it is of.
    fn find<'s>(&'s self, path: &'s str) -> Option<(&'s str, &'static str)> {
        let path = path.strip_prefix("/v2/")?.split('?').next()?;
        if let Some((_, digest)) = path.split_once("/blobs/") {
            return self.blobs.contains_key(digest).then_some((digest, "application/octet-stream"));
        }
        let (repository, reference) = path.split_once("/manifests/")?;
        if self.blobs.contains_key(reference) {
            return Some((reference, MANIFEST));
        }
        let digest = self.tags.get(&format!("{repository}:{reference}"))?;
        Some((digest, MANIFEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_a_digest() {
        let mut shelf = Shelf::default();
        shelf.tags.insert("a/b:1".into(), "sha256:m".into());
        for digest in ["sha256:m", "sha256:l"] {
            shelf.blobs.insert(digest.into(), (PathBuf::new(), 0, 0));
        }
        for (path, digest) in [
            ("/v2/a/b/manifests/1", Some("sha256:m")),
            ("/v2/a/b/manifests/1?ns=registry.k8s.io", Some("sha256:m")),
            ("/v2/a/b/manifests/sha256:m", Some("sha256:m")),
            ("/v2/a/b/blobs/sha256:l", Some("sha256:l")),
            ("/v2/a/b/manifests/2", None),
            ("/v2/a/b/blobs/sha256:x", None),
            ("/", None),
        ] {
            assert_eq!(shelf.find(path).map(|(digest, _)| digest), digest, "{path}");
        }
    }
}
