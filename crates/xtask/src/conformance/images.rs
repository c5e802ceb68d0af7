//! The suite's images, put together from recipes and packed as OCI archives.
//!
//! ```text
//! recipe ─► a folder with the image's root ─► a layer (tar) ─► an archive (OCI layout in a tar)
//! ```
//! Everything is sorted and dated alike, so that the same parts give the same digests.
use super::recipe::{self, Recipe, Step};
use super::shell::{self, failed};
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::image::{append, hex};

/// Where images come from and go to.
pub struct Kitchen<'a> {
    pub recipes: &'a Path,
    /// Programs built from the Go module.
    pub programs: &'a Path,
    /// Upstream's module in Go's cache.
    pub upstream: &'a Path,
    /// What is made: roots, layers, archives, downloaded packages.
    pub folder: &'a Path,
}

/// Every image, ready to be imported.
pub struct Made {
    pub archive: PathBuf,
    pub recipe: Recipe,
}

pub fn make(kitchen: &Kitchen<'_>) -> Result<Vec<Made>, String> {
    let recipes = read_all(kitchen.recipes)?;
    recipes
        .iter()
        .map(|recipe| make_one(kitchen, &recipes, recipe))
        .collect::<Result<Vec<PathBuf>, String>>()
        .map(|archives| {
            let pairs = archives.into_iter().zip(recipes);
            pairs.map(|(archive, recipe)| Made { archive, recipe }).collect()
        })
}

fn read_all(folder: &Path) -> Result<Vec<Recipe>, String> {
    let entries = fs::read_dir(folder).map_err(failed("list", folder))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let title = path.file_stem().unwrap_or_default().to_string_lossy();
        recipe::parse(&title, &shell::read(path)?)
    };
    paths.iter().map(read).collect()
}

/// The archive of an image; made again when its recipe or that of its base is newer.
fn make_one(kitchen: &Kitchen<'_>, all: &[Recipe], recipe: &Recipe) -> Result<PathBuf, String> {
    let archive = kitchen.folder.join(format!("{}.tar", recipe.title));
    let chain = chain(all, recipe)?;
    if chain.iter().all(|recipe| is_newer(&archive, &source(kitchen, recipe))) {
        return Ok(archive);
    }
    eprintln!("making {}", recipe.names.join(", "));
    let layers: Vec<PathBuf> =
        chain.iter().map(|recipe| layer(kitchen, recipe)).collect::<Result<_, _>>()?;
    pack(&archive, recipe, &layers)?;
    Ok(archive)
}

fn source(kitchen: &Kitchen<'_>, recipe: &Recipe) -> PathBuf {
    kitchen.recipes.join(format!("{}.txt", recipe.title))
}

/// A recipe and those it starts from, the lowest first.
fn chain<'a>(all: &'a [Recipe], recipe: &'a Recipe) -> Result<Vec<&'a Recipe>, String> {
    let Some(base) = &recipe.from else { return Ok(vec![recipe]) };
    let base = all
        .iter()
        .find(|other| other.title == *base && other.from.is_none())
        .ok_or_else(|| format!("{}: no recipe {base} that starts from nothing", recipe.title))?;
    Ok(vec![base, recipe])
}

fn is_newer(made: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    matches!((time(made), time(source)), (Some(made), Some(source)) if made > source)
}

/// A recipe's own layer; several images can start from it.
fn layer(kitchen: &Kitchen<'_>, recipe: &Recipe) -> Result<PathBuf, String> {
    let layer = kitchen.folder.join(format!("{}.layer", recipe.title));
    if is_newer(&layer, &source(kitchen, recipe)) {
        return Ok(layer);
    }
    let root = kitchen.folder.join("roots").join(&recipe.title);
    if root.exists() {
        fs::remove_dir_all(&root).map_err(failed("remove", &root))?;
    }
    shell::make_folder(&root)?;
    for package in packages(kitchen, recipe)? {
        shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    }
    for step in &recipe.steps {
        take(kitchen, &root, step)?;
    }
    // Under another name until it is whole.
    let unfinished = layer.with_extension("unfinished-layer");
    let file = File::create(&unfinished).map_err(failed("create", &unfinished))?;
    let mut tar = tar::Builder::new(file);
    tar.follow_symlinks(false);
    add_folder(&mut tar, &root, Path::new("")).map_err(failed("pack", &root))?;
    tar.into_inner().map_err(failed("write", &unfinished))?;
    fs::rename(&unfinished, &layer).map_err(failed("rename", &unfinished))?;
    Ok(layer)
}

/// The packages' files and those of everything they depend on, downloaded once.
fn packages(kitchen: &Kitchen<'_>, recipe: &Recipe) -> Result<Vec<PathBuf>, String> {
    if recipe.packages.is_empty() {
        return Ok(Vec::new());
    }
    // As if nothing was installed, so that every dependency is named.
    let planned = shell::output(
        Command::new("apt-get")
            .args(["-s", "-o", "Dir::State::status=/dev/null"])
            .args(["install", "--no-install-recommends"])
            .args(&recipe.packages),
    )?;
    let names: Vec<&str> = planned
        .lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
        .collect();
    let folder = kitchen.folder.join("packages");
    shell::make_folder(&folder)?;
    // `_apt` may not write here, and apt warns about it: the download is done as root.
    let root = ["-q", "-o", "APT::Sandbox::User=root", "download"];
    let missing: Vec<&&str> =
        names.iter().filter(|name| downloaded(&folder, name).is_none()).collect();
    if !missing.is_empty() {
        let mut download = Command::new("apt-get");
        shell::output(download.current_dir(&folder).args(root).args(missing))?;
    }
    names
        .iter()
        .map(|name| downloaded(&folder, name).ok_or_else(|| format!("apt did not bring {name}")))
        .collect()
}

fn downloaded(folder: &Path, package: &str) -> Option<PathBuf> {
    let prefix = format!("{package}_");
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(named)
}

fn take(kitchen: &Kitchen<'_>, root: &Path, step: &Step) -> Result<(), String> {
    match step {
        Step::Program { name, path, mode } => {
            copy(&kitchen.programs.join(name), &root.join(path), *mode)
        }
        Step::File { source, path } => {
            copy(&kitchen.upstream.join(source), &root.join(path), 0o644)
        }
        Step::Compile { source, path } => shell::run(
            Command::new("cc")
                .args(["-Os", "-static", "-s", "-DVERSION=skiff", "-o"])
                .arg(root.join(path))
                .arg(kitchen.upstream.join(source)),
        ),
        Step::Applets => applets(root),
        Step::Folder { path, mode } => {
            let path = root.join(path);
            shell::make_folder(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(*mode)).map_err(failed("set", &path))
        }
        Step::Link { path, target } => link(&root.join(path), target),
        Step::Line { path, text } => {
            let path = root.join(path);
            let before = if path.exists() { shell::read(&path)? } else { String::new() };
            shell::write(&path, format!("{before}{text}\n"))
        }
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    if let Some(folder) = to.parent() {
        shell::make_folder(folder)?;
    }
    fs::copy(from, to).map_err(failed("copy", from))?;
    fs::set_permissions(to, Permissions::from_mode(mode)).map_err(failed("set", to))
}

fn link(path: &Path, target: &str) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        shell::make_folder(folder)?;
    }
    symlink(target, path).map_err(failed("link", path))
}

/// Names of busybox that no package has put anywhere on the path.
fn applets(root: &Path) -> Result<(), String> {
    const FOLDERS: [&str; 5] = ["bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin"];
    let listed = shell::output(Command::new(root.join("bin/busybox")).arg("--list"))?;
    let taken = |name: &str| {
        FOLDERS.iter().any(|folder| root.join(folder).join(name).symlink_metadata().is_ok())
    };
    listed
        .lines()
        .filter(|name| !taken(name))
        .try_for_each(|name| link(&root.join("bin").join(name), "/bin/busybox"))
}

/// Everything below a folder, owned by root, in the order of names.
fn add_folder(
    tar: &mut tar::Builder<File>,
    root: &Path,
    below: &Path,
) -> Result<(), std::io::Error> {
    let mut entries: Vec<_> = fs::read_dir(root.join(below))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let (name, data) = (below.join(entry.file_name()), entry.path().symlink_metadata()?);
        let mut header = tar::Header::new_gnu();
        header.set_mode(data.permissions().mode() & 0o7777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        if data.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, &name, fs::read_link(entry.path())?)?;
        } else if data.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, &name, std::io::empty())?;
            add_folder(tar, root, &name)?;
        } else {
            header.set_size(data.len());
            tar.append_data(&mut header, &name, File::open(entry.path())?)?;
        }
    }
    Ok(())
}

/// An OCI layout in a tar: one descriptor for each of the image's names.
fn pack(archive: &Path, recipe: &Recipe, layers: &[PathBuf]) -> Result<(), String> {
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let unfinished = archive.with_extension("unfinished");
    let file = File::create(&unfinished).map_err(failed("create", &unfinished))?;
    let mut tar = tar::Builder::new(file);
    let mut blob = |kind: &str, bytes: &[u8]| -> Result<Value, String> {
        let digest = hex(bytes);
        let name = format!("blobs/sha256/{digest}");
        append(&mut tar, &name, tar::EntryType::Regular, 0o644, bytes)
            .map_err(failed("write", &unfinished))?;
        Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
    };
    let mut described = Vec::new();
    for layer in layers {
        let bytes = fs::read(layer).map_err(failed("read", layer))?;
        described.push(blob("application/vnd.oci.image.layer.v1.tar", &bytes)?);
    }
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": recipe.entrypoint,
            "Cmd": recipe.command,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": described.iter().map(|layer| &layer["digest"]).collect::<Vec<_>>(),
        },
    });
    let config = blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": described,
        "annotations": {
            "org.opencontainers.image.title": format!("stand-in for {}", recipe.names[0]),
            "org.opencontainers.image.description": recipe.note,
        },
    });
    let manifest = blob(MANIFEST, manifest.to_string().as_bytes())?;
    let named = recipe.names.iter().map(|name| {
        let mut named = manifest.clone();
        named["annotations"] = json!({"io.containerd.image.name": name});
        named
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": named.collect::<Vec<_>>(),
    });
    for (name, value) in
        [("oci-layout", json!({"imageLayoutVersion": "1.0.0"})), ("index.json", index)]
    {
        append(&mut tar, name, tar::EntryType::Regular, 0o644, value.to_string().as_bytes())
            .map_err(failed("write", &unfinished))?;
    }
    tar.into_inner().map_err(failed("write", &unfinished))?;
    fs::rename(&unfinished, archive).map_err(failed("rename", &unfinished))
}
