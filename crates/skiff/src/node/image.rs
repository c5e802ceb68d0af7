//! `skiff image`: the image store, worked on directly. A runtime that runs on the same folders sees
//! every change at once, and the other way round.
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use clap::Subcommand;
use runtime::builtin;
use runtime::image::{Image, Images, Progress, RegistriesConfig};

use super::Places;

#[derive(Subcommand)]
pub enum Command {
    /// List images.
    Ls,
    /// Fetch an image from its registry.
    Pull { name: String },
    /// Bring in an OCI layout or a docker archive.
    Import {
        path: PathBuf,
        /// A name for images that have none in the archive.
        #[arg(long)]
        name: Option<String>,
    },
    /// Write an image to a file that is both an OCI layout and a docker archive.
    Export { name: String, path: PathBuf },
    /// Remove images.
    Rm { names: Vec<String> },
    /// Show an image's record and configuration.
    Inspect { name: String },
}

pub async fn run(places: &Places, command: Command) -> anyhow::Result<()> {
    let images = Images::open(&places.root, RegistriesConfig::read(&places.registries)?)?;
    let wants_builtin = match &command {
        Command::Ls => true,
        Command::Pull { name } | Command::Export { name, .. } | Command::Inspect { name } => {
            builtin::is_builtin(name)
        }
        Command::Import { .. } | Command::Rm { .. } => false,
    };
    if wants_builtin {
        builtin::ensure(&images, &std::env::current_exe()?).await?;
    }
    match command {
        Command::Ls => {
            println!("{:<56}{:<16}{:>10}", "IMAGE", "ID", "SIZE");
            images.list().iter().for_each(|image| print(image));
        }
        Command::Pull { name } if builtin::is_builtin(&name) => {
            let image = images.find(&name).with_context(|| format!("no image {name}"))?;
            print(&image);
        }
        Command::Pull { name } => {
            let bar = Arc::new(Bar::default());
            let showing = bar.clone();
            let tell = move |progress| showing.show(progress);
            let pulled = images.pull(&name, None, Some(Arc::new(tell))).await;
            bar.end();
            let image = pulled?;
            print(&image);
        }
        Command::Import { path, name } => {
            images.import(&path, name.as_deref()).await?.iter().for_each(|image| print(image));
        }
        Command::Export { name, path } => {
            let file = std::fs::File::create(&path)
                .with_context(|| format!("failed to create {}", path.display()))?;
            images.export(&name, std::io::BufWriter::new(file))?;
        }
        Command::Rm { names } => {
            for name in names {
                anyhow::ensure!(images.find(&name).is_some(), "no image {name}");
                images.remove(&name)?;
            }
            images.collect(|| runtime::layers_in_use(&places.root))?;
        }
        Command::Inspect { name } => {
            let image = images.find(&name).with_context(|| format!("no image {name}"))?;
            let mut shown = serde_json::to_value(&*image)?;
            shown["config"] = serde_json::from_slice(&images.config(&image)?)?;
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
    }
    Ok(())
}

fn print(image: &Image) {
    let none = "<none>".to_owned();
    let names = image.tags.iter().chain(if image.tags.is_empty() { &image.digests } else { &NONE });
    let mut names: Vec<&String> = names.collect();
    if names.is_empty() {
        names.push(&none);
    }
    for name in names {
        println!("{name:<56}{:<16}{:>10}", &image.id.hex()[..12], size(image.size));
    }
}

static NONE: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1}kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}MB", bytes as f64 / 1e6),
        _ => format!("{:.2}GB", bytes as f64 / 1e9),
    }
}

/// One line on a terminal, rewritten as bytes come in; nothing elsewhere.
#[derive(Default)]
struct Bar {
    blobs: Mutex<BTreeMap<String, (u64, u64)>>,
}

const WIDTH: usize = 40;

impl Bar {
    fn show(&self, progress: Progress) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let mut blobs = self.blobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        blobs.insert(progress.digest.hex(), (progress.received, progress.size));
        let (received, total) =
            blobs.values().fold((0, 0), |sum, blob| (sum.0 + blob.0, sum.1 + blob.1));
        let filled = (WIDTH as u64 * received / total.max(1)) as usize;
        let bar: String = (0..WIDTH).map(|at| if at < filled { '█' } else { '·' }).collect();
        let mut stderr = std::io::stderr().lock();
        // A terminal that is gone is no reason to stop.
        let _ = write!(stderr, "\r{bar} {} of {}\x1b[K", size(received), size(total));
        let _ = stderr.flush();
    }

    fn end(&self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}
