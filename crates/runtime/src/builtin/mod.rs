//! What is built in, so that a first cluster needs no registry: images made of the very
//! executable that runs, and the programs in them.
//!
//! All of them share one layer: the executable as `/skiff`, and the libraries that the loader gave
//! it. The files are linked into the layer, or cloned where the file system can, or else copied;
//! the archive that a layer ordinarily comes in is never stored, only digested (and written anew
//! when somebody exports the image). It is made when it is first asked for, and made again when the
//! executable is another.
mod demo;
mod layer;
pub mod volume;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::image::digest::Digest;
use crate::image::manifest::{Descriptor, Manifest, architecture, media};
use crate::image::{ImageError, Images, Reference};
use crate::users;

pub use crate::shim::sys::pause;
pub use demo::serve as demo;
pub(crate) use layer::pack;

/// One built-in image.
struct Builtin {
    name: &'static str,
    description: &'static str,
    /// What it runs of ours.
    command: &'static str,
    ports: &'static [&'static str],
}

static IMAGES: &[Builtin] = &[
    Builtin {
        name: "localhost/skiff/pause",
        description: "Does nothing, and collects orphans as the first process of a sandbox.",
        command: "pause",
        ports: &[],
    },
    Builtin {
        name: "localhost/skiff/demo",
        description: "A web server that says where it runs and what it was asked.",
        command: "demo",
        ports: &["8080/tcp"],
    },
    Builtin {
        name: "localhost/skiff/volume",
        description: "Makes and removes the folders of local volumes.",
        command: "volume",
        ports: &[],
    },
];

/// Every image has these tags: one that a kubelet pulls always, one that it does not.
const TAGS: [&str; 2] = ["latest", concat!("v", env!("CARGO_PKG_VERSION"))];
/// Nobody in particular; what upstream's pause runs as.
const USER: u32 = 65535;
/// The executable's place in the layer.
const PROGRAM: &str = "skiff";

/// Which executable the images that are here were made of.
#[derive(PartialEq, Serialize, Deserialize)]
struct Made {
    executable: String,
    images: Vec<Digest>,
}

/// Whether a name is of a built-in image: one that no registry is asked for.
pub fn is_builtin(name: &str) -> bool {
    let Ok(reference) = name.parse::<Reference>() else { return false };
    IMAGES.iter().any(|image| image.name == reference.name())
}

/// Makes the images of `executable`, which must be the one that runs, unless they are here.
pub async fn ensure(images: &Images, executable: &Path) -> Result<(), ImageError> {
    let _fetching = images.fetching().await?;
    let path = images.root().join("builtin.json");
    let failed = |source| ImageError::Io { operation: "read", path: executable.to_owned(), source };
    let identity = layer::identity(executable).map_err(failed)?;
    let known: Option<Made> =
        std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(made) = &known {
        let here = made.images.iter().all(|id| images.find(&id.to_string()).is_some());
        if made.executable == identity && here {
            return Ok(());
        }
    }
    let made = Made { executable: identity, images: make(images, executable).await? };
    for old in known.into_iter().flat_map(|known| known.images) {
        if !made.images.contains(&old) {
            images.remove(&old.to_string())?;
        }
    }
    let bytes = serde_json::to_vec(&made).map_err(io::Error::from);
    bytes
        .and_then(|bytes| crate::files::write_durably(&path, &bytes))
        .map_err(|source| ImageError::Io { operation: "write", path, source })
}

async fn make(images: &Images, executable: &Path) -> Result<Vec<Digest>, ImageError> {
    let files = layer::files(executable);
    let libraries = layer::library_path(&files);
    let (diff, size) = images.add_folder(move |folder| layer::fill(folder, &files)).await?;
    // Where there is nobody but root, root is nobody in particular.
    let user = match users::has_group(USER) {
        true => format!("{USER}:{USER}"),
        false => String::new(),
    };
    let mut ids = Vec::new();
    for builtin in IMAGES {
        let mut environment = vec!["PATH=/".to_owned()];
        environment.extend(libraries.clone());
        let ports: BTreeMap<_, _> =
            builtin.ports.iter().map(|port| (port, BTreeMap::<(), ()>::new())).collect();
        let config = serde_json::json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": user,
                "Env": environment,
                "Entrypoint": [format!("/{PROGRAM}"), builtin.command],
                "ExposedPorts": ports,
                "Labels": {
                    "org.opencontainers.image.title": builtin.name,
                    "org.opencontainers.image.description": builtin.description,
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                },
            },
            "rootfs": { "type": "layers", "diff_ids": [diff] },
        });
        let config = images.put(media::OCI_CONFIG, config.to_string().as_bytes())?;
        let layer = Descriptor::new(media::OCI_LAYER, diff, size);
        let manifest = Manifest {
            schema_version: 2,
            media_type: media::OCI_MANIFEST.to_owned(),
            config,
            layers: vec![layer],
        };
        for tag in TAGS {
            let name = format!("{}:{tag}", builtin.name);
            ids.push(images.adopt(&manifest, name).await?);
        }
    }
    ids.dedup();
    Ok(ids)
}
