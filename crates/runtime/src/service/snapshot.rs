//! How an image's layers become a container's root: shown by overlayfs, or copied where it cannot.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::image;
use crate::shim::spec::{ContainerSpec, Source};
use crate::shim::sys;
use crate::users;

/// Named as containerd names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snapshotter {
    /// Overlayfs if it works here.
    #[default]
    Auto,
    Overlayfs,
    /// Copies: slow, and at home everywhere.
    Native,
}

impl Snapshotter {
    /// Finds out whether overlayfs works on `root`, unless it was said what to use; makes there what
    /// it needs.
    pub(super) fn open(self, root: &Path) -> io::Result<Self> {
        let chosen = self.resolve(root);
        if chosen == Snapshotter::Overlayfs {
            make_places(&root.join(PLACES))?;
        }
        Ok(chosen)
    }

    fn resolve(self, root: &Path) -> Self {
        match self {
            Snapshotter::Auto => match probe(&root.join("overlay-probe")) {
                Ok(()) => Snapshotter::Overlayfs,
                Err(error) => {
                    tracing::warn!("overlayfs does not work here, layers are copied: {error}");
                    Snapshotter::Native
                }
            },
            chosen => chosen,
        }
    }

    /// Brings a container's layers where the shim is told they are.
    pub(super) fn prepare(self, spec: &mut ContainerSpec) -> io::Result<()> {
        if self != Snapshotter::Native {
            // A start that was cut short has left its mark there, and overlayfs refuses a second.
            match fs::remove_dir_all(&spec.root.work) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            for folder in [&spec.root.upper, &spec.root.work] {
                fs::create_dir_all(folder)?;
            }
            spec.root.lower.push(format!("../{PLACES}"));
            return Ok(());
        }
        let stack = |layers: &Path, lower: &[String]| -> Vec<PathBuf> {
            lower.iter().map(|layer| layers.join(layer)).collect()
        };
        image::merge(&stack(&spec.root.layers, &spec.root.lower), &spec.root.upper)?;
        spec.root.lower.clear();
        for (number, mount) in spec.mounts.iter_mut().enumerate() {
            if let Source::Layers { layers, lower, .. } = &mut mount.source
                && lower.len() > 1
            {
                let name = format!("image-{number}");
                image::merge(&stack(layers, lower), &spec.folder.join(&name))?;
                (*layers, *lower) = (spec.folder.clone(), vec![name]);
            }
        }
        Ok(())
    }
}

/// A layer below all others with the places that every container's mounts need, and images often
/// lack: each would otherwise have to be made for each container. It lies beside the layers.
const PLACES: &str = "places";

fn make_places(folder: &Path) -> io::Result<()> {
    for name in ["dev", "etc", "proc", "sys"] {
        fs::create_dir_all(folder.join(name))?;
    }
    for name in ["etc/hostname", "etc/hosts", "etc/resolv.conf"] {
        fs::File::create(folder.join(name))?;
    }
    Ok(())
}

/// Mounts a small overlay, attached nowhere, so that it is gone at once.
fn probe(folder: &Path) -> io::Result<()> {
    let names = ["lower", "upper", "work"];
    for name in names {
        fs::create_dir_all(folder.join(name))?;
    }
    let options = names.map(|name| format!("{name}dir={}", folder.join(name).display()));
    let options = options.join(",") + users::overlay_option();
    let mounted = sys::new_filesystem("overlay", &options, 0).map(drop);
    let _ = fs::remove_dir_all(folder);
    mounted
}
