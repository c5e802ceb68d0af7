//! Images made on the spot: busybox with its applets, in a docker archive.
use std::fs;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

/// What scripts in tests use.
const APPLETS: &str = "cat chmod cp date dd dmesg echo env false grep head hostname id kill ln ls \
                       mkdir mknod mount nc od printf ps pwd readlink rm seq sh sleep stat stty \
                       sync tail tar tee test touch tr true tty umount unshare wc yes";

/// Writes an archive of an image called `name`: busybox, and some files besides.
pub fn write_busybox(path: &Path, name: &str, files: &[(&str, &str)]) -> io::Result<()> {
    write_archive(path, name, &[busybox(files)?], &["sh"])
}

/// The same as an image that waits until it is killed, for runtimes that want one for their sandboxes.
pub fn write_pause(path: &Path, name: &str) -> io::Result<()> {
    write_archive(path, name, &[busybox(&[])?], &["/bin/sleep", "1000000"])
}

/// The same in `depth` layers: each says its number in `/number`, and adds a file to `/layers`.
pub fn write_deep_busybox(path: &Path, name: &str, depth: usize) -> io::Result<()> {
    let mut layers = Vec::new();
    for number in 1..=depth {
        let (number, own) = (number.to_string() + "\n", format!("layers/{number}"));
        let files = [("number", number.as_str()), (own.as_str(), "")];
        layers.push(match layers.is_empty() {
            true => busybox(&files)?,
            false => {
                let mut layer = tar::Builder::new(Vec::new());
                for (name, text) in files {
                    append(&mut layer, name, tar::EntryType::Regular, 0o644, text.as_bytes())?;
                }
                layer.into_inner()?
            }
        });
    }
    write_archive(path, name, &layers, &["sh"])
}

/// A layer of busybox with its applets, and some files besides.
fn busybox(files: &[(&str, &str)]) -> io::Result<Vec<u8>> {
    let busybox = crate::tools::program("busybox", "busybox-static");
    let mut layer = tar::Builder::new(Vec::new());
    for folder in ["bin", "etc", "tmp", "root", "home", "home/web"] {
        let mode = if folder == "tmp" { 0o1777 } else { 0o755 };
        append(&mut layer, folder, tar::EntryType::Directory, mode, &[])?;
    }
    let plain = tar::EntryType::Regular;
    append(&mut layer, "bin/busybox", plain, 0o755, &fs::read(busybox)?)?;
    for applet in APPLETS.split_whitespace() {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    for (name, text) in files {
        append(&mut layer, name, plain, 0o644, text.as_bytes())?;
    }
    layer.into_inner()
}

fn write_archive(path: &Path, name: &str, layers: &[Vec<u8>], command: &[&str]) -> io::Result<()> {
    let digests: Vec<String> =
        layers.iter().map(|layer| format!("sha256:{}", hex(layer))).collect();
    let names: Vec<String> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    let plain = tar::EntryType::Regular;
    let config = serde_json::json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Env": ["FROM_IMAGE=yes"], "Cmd": command },
        "rootfs": { "type": "layers", "diff_ids": digests },
    });
    let manifest = serde_json::json!([
        { "Config": "config.json", "RepoTags": [name], "Layers": names }
    ]);
    let mut archive = tar::Builder::new(fs::File::create(path)?);
    for (name, layer) in names.iter().zip(layers) {
        append(&mut archive, name, plain, 0o644, layer)?;
    }
    append(&mut archive, "config.json", plain, 0o644, config.to_string().as_bytes())?;
    append(&mut archive, "manifest.json", plain, 0o644, manifest.to_string().as_bytes())?;
    archive.into_inner().map(drop)
}

/// Adds one entry, owned by root.
pub fn append(
    archive: &mut tar::Builder<impl io::Write>,
    name: &str,
    kind: tar::EntryType,
    mode: u32,
    bytes: &[u8],
) -> io::Result<()> {
    archive.append_data(&mut header(kind, mode, bytes.len() as u64), name, bytes)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// A SHA-256 digest in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
