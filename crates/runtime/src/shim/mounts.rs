//! The container's file systems: its root, what is mounted on it, its devices, what is hidden.
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::child::{Failure, Step};
use super::spec::{ContainerSpec, Device, Mount, Propagation, RootSpec, Source};
use super::sys::{self, MountAttributes};

/// A source that was opened before the root changed.
pub struct Opened {
    tree: Option<OwnedFd>,
    is_folder: bool,
}

/// What the kernel takes as mount options in one call.
const OPTIONS_LIMIT: usize = 4095;

/// Opens what comes from the host, while the host can still be seen. Clones keep the host's
/// propagation, so binds come before anything is made a slave.
pub fn open_sources(mounts: &[Mount], stage: &Path) -> Result<Vec<Opened>, Failure> {
    let open = |mount: &Mount| match &mount.source {
        Source::Bind(path) => open_bind(path),
        _ => Ok(Opened { tree: None, is_folder: true }),
    };
    let failed = |mount: &Mount| format!("open the source of mount {:?}", mount.destination);
    let mut sources = Vec::with_capacity(mounts.len());
    for mount in mounts {
        sources.push(open(mount).step(|| failed(mount))?);
    }
    sys::mount("", c"/", "", libc::MS_SLAVE | libc::MS_REC, "")
        .step(|| "make mounts private".to_owned())?;
    for (mount, source) in mounts.iter().zip(&mut sources) {
        if let Source::Layers { layers, lower, path } = &mount.source {
            *source = open_layers(layers, lower, path, stage).step(|| failed(mount))?;
        }
    }
    Ok(sources)
}

fn open_bind(path: &Path) -> io::Result<Opened> {
    let is_folder = fs::metadata(path)?.is_dir();
    let tree = sys::open_tree(&sys::c_path(path)?, true)?;
    Ok(Opened { tree: Some(tree), is_folder })
}

/// A path inside an image's layers. Several are mounted on `stage` while it is taken.
fn open_layers(layers: &Path, lower: &[String], path: &str, stage: &Path) -> io::Result<Opened> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = sys::c_path(stage)?;
    // Overlayfs wants at least two.
    let root = if let [only] = lower {
        rustix::fs::open(layers.join(only), flags, Mode::empty())?
    } else {
        std::env::set_current_dir(layers)?;
        let options = format!("lowerdir={}", lower.join(":"));
        sys::mount("overlay", &target, "overlay", libc::MS_RDONLY, &options)?;
        rustix::fs::open(stage, flags, Mode::empty())?
    };
    let path = Path::new("/").join(path);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let inside = openat2(&root, &path, flags, Mode::empty(), resolve)?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&inside)?.st_mode);
    let tree =
        sys::open_tree(&sys::c_path(format!("/proc/self/fd/{}", inside.as_raw_fd()))?, false)?;
    if lower.len() > 1 {
        sys::unmount(&target)?;
    }
    Ok(Opened { tree: Some(tree), is_folder: kind.is_dir() })
}

/// Mounts the root where only this namespace sees it, and makes it the process's root.
pub fn enter_root(root: &RootSpec) -> Result<(), Failure> {
    let target = sys::c_path(&root.target).step(|| "name the root".to_owned())?;
    // Relative names keep the options of a deep image short enough.
    std::env::set_current_dir(&root.layers).step(|| "enter the layers' folder".to_owned())?;
    let mut options = format!("lowerdir={}", root.lower.join(":"));
    options.push_str(&format!(
        ",upperdir={},workdir={}",
        root.upper.display(),
        root.work.display()
    ));
    if options.len() > OPTIONS_LIMIT {
        return Err(io::Error::other(format!("{} layers are too many", root.lower.len())))
            .step(|| "mount the root".to_owned());
    }
    sys::mount("overlay", &target, "overlay", 0, &options).step(|| "mount the root".to_owned())?;
    sys::mount("", &target, "", libc::MS_PRIVATE, "")
        .step(|| "make the root private".to_owned())?;
    std::env::set_current_dir(&root.target).step(|| "enter the root".to_owned())?;
    sys::pivot_here().step(|| "change the root".to_owned())?;
    sys::unmount(c".").step(|| "leave the host's root".to_owned())?;
    std::env::set_current_dir("/").step(|| "enter the root".to_owned())
}

/// Attaches everything, parents before children.
pub fn attach(spec: &ContainerSpec, sources: Vec<Opened>) -> Result<(), Failure> {
    let mut ordered: Vec<(&Mount, Opened)> = spec.mounts.iter().zip(sources).collect();
    // Stable: of two on one place the later covers the earlier.
    ordered.sort_by_key(|(mount, _)| Path::new(&mount.destination).components().count());
    for (mount, opened) in ordered {
        attach_one(spec, mount, opened).step(|| format!("mount {:?}", mount.destination))?;
        if mount.destination == "/dev" {
            dev_links().step(|| "make links in /dev".to_owned())?;
        }
    }
    Ok(())
}

fn attach_one(spec: &ContainerSpec, mount: &Mount, opened: Opened) -> io::Result<()> {
    match (&mount.source, opened.tree) {
        (Source::Filesystem { kind, options }, _) => {
            make_place(&mount.destination, true)?;
            let target = real_folder(&mount.destination)?;
            sys::mount(kind, &target, kind, kernel_flags(mount), options)
        }
        (Source::Cgroups, _) => {
            make_place(&mount.destination, true)?;
            real_folder(&mount.destination)?;
            mount_cgroups(spec, mount)
        }
        (_, Some(tree)) => {
            let target = make_place(&mount.destination, opened.is_folder)?;
            let propagation = match mount.propagation {
                Propagation::Private => libc::MS_PRIVATE,
                Propagation::HostToContainer => libc::MS_SLAVE,
                Propagation::Bidirectional => libc::MS_SHARED,
            };
            sys::move_mount(tree.as_fd(), target.as_fd())?;
            let plain = MountAttributes { propagation, ..MountAttributes::default() };
            sys::mount_setattr(tree.as_fd(), true, plain)?;
            let readonly = if mount.readonly { sys::MOUNT_ATTR_RDONLY } else { 0 };
            let attributes =
                MountAttributes { set: readonly | mount.attributes, ..MountAttributes::default() };
            if attributes.set != 0 {
                sys::mount_setattr(tree.as_fd(), mount.recursive_readonly, attributes)?;
            }
            Ok(())
        }
        (_, None) => Err(io::Error::other("the source was not opened")),
    }
}

fn kernel_flags(mount: &Mount) -> libc::c_ulong {
    let mut flags = 0;
    for (attribute, flag) in [
        (sys::MOUNT_ATTR_NOSUID, libc::MS_NOSUID),
        (sys::MOUNT_ATTR_NODEV, libc::MS_NODEV),
        (sys::MOUNT_ATTR_NOEXEC, libc::MS_NOEXEC),
    ] {
        if mount.attributes & attribute != 0 {
            flags |= flag;
        }
    }
    if mount.readonly { flags | libc::MS_RDONLY } else { flags }
}

/// A folder per v1 hierarchy, or the one of v2, as seen from the container's own group.
fn mount_cgroups(spec: &ContainerSpec, mount: &Mount) -> io::Result<()> {
    let target = sys::c_path(&mount.destination)?;
    let readonly = if spec.cgroup_writable { 0 } else { libc::MS_RDONLY };
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RELATIME;
    if spec.cgroup_controllers.is_empty() {
        return sys::mount("cgroup", &target, "cgroup2", flags | readonly, "");
    }
    sys::mount("tmpfs", &target, "tmpfs", flags, "mode=755")?;
    for controller in &spec.cgroup_controllers {
        let name = controller.strip_prefix("name=").unwrap_or(controller);
        let folder = Path::new(&mount.destination).join(name);
        fs::create_dir(&folder)?;
        sys::mount("cgroup", &sys::c_path(&folder)?, "cgroup", flags | readonly, controller)?;
    }
    if readonly != 0 {
        sys::mount("", &target, "", flags | readonly | libc::MS_REMOUNT, "mode=755")?;
    }
    Ok(())
}

/// The place for a mount, made if it is not there. Links on the way are followed inside the root;
/// a place in `/proc` is nobody's to cover.
fn make_place(destination: &str, is_folder: bool) -> io::Result<OwnedFd> {
    const PROC: i64 = 0x9fa0;
    let path = Path::new(destination);
    let open = || {
        openat2(
            CWD,
            path,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
    };
    let place = match open() {
        Ok(place) => place,
        Err(rustix::io::Errno::NOENT) => {
            if is_folder {
                make_folders(path, 0)?;
            } else {
                if let Some(parent) = path.parent() {
                    make_folders(parent, 0)?;
                }
                fs::File::options().create(true).append(true).open(path)?;
            }
            open()?
        }
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fstatfs(&place)?.f_type as i64 == PROC {
        return Err(io::Error::other("it is in /proc"));
    }
    Ok(place)
}

/// Makes a folder with its parents, also where links lead that lead nowhere yet. The root is the
/// container's, so wherever that is, it is inside.
fn make_folders(path: &Path, links: u32) -> io::Result<()> {
    const LINK_LIMIT: u32 = 40;
    let mut at = PathBuf::from("/");
    for component in path.components().skip(1) {
        at.push(component);
        match (fs::metadata(&at), fs::read_link(&at)) {
            (Ok(_), _) => {}
            (Err(error), _) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            (Err(error), Ok(_)) if links >= LINK_LIMIT => return Err(error),
            (Err(_), Ok(target)) => {
                let parent = at.parent().unwrap_or(Path::new("/"));
                make_folders(&parent.join(target), links + 1)?;
            }
            (Err(_), Err(_)) => fs::create_dir(&at)?,
        }
    }
    Ok(())
}

/// Kernel file systems are mounted on real folders only: behind a link they would be masked in the
/// wrong place.
fn real_folder(destination: &str) -> io::Result<std::ffi::CString> {
    let found = openat2(
        CWD,
        destination,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    found.map_err(|_| io::Error::other("it is not a real folder"))?;
    sys::c_path(destination)
}

fn dev_links() -> io::Result<()> {
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/core", "/proc/kcore"),
        ("/dev/ptmx", "pts/ptmx"),
    ] {
        symlink(target, link)?;
    }
    Ok(())
}

pub fn make_devices(devices: &[Device]) -> Result<(), Failure> {
    for device in devices {
        make_device(device).step(|| format!("make device {:?}", device.path))?;
    }
    Ok(())
}

fn make_device(device: &Device) -> io::Result<()> {
    let path = Path::new(&device.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_dir() => fs::remove_file(path)?,
        Ok(_) | Err(_) => {}
    }
    sys::mknod(&sys::c_path(path)?, device.mode, device.number)?;
    fs::set_permissions(path, fs::Permissions::from_mode(device.mode & 0o7777))?;
    chown(path, Some(device.uid), Some(device.gid))
}

/// Masks what must not be seen and freezes what must not be changed.
pub fn hide(masked: &[String], readonly: &[String]) -> Result<(), Failure> {
    for path in readonly {
        freeze(path).step(|| format!("make {path:?} read-only"))?;
    }
    for path in masked {
        mask(path).step(|| format!("mask {path:?}"))?;
    }
    Ok(())
}

fn freeze(path: &str) -> io::Result<()> {
    let tree = match sys::open_tree(&sys::c_path(path)?, true) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        tree => tree?,
    };
    let set = MountAttributes { set: sys::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
    sys::mount_setattr(tree.as_fd(), true, set)?;
    cover(tree, path)
}

fn mask(path: &str) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_dir() {
        let target = sys::c_path(path)?;
        return sys::mount("tmpfs", &target, "tmpfs", libc::MS_RDONLY, "size=0k");
    }
    cover(sys::open_tree(c"/dev/null", false)?, path)
}

fn cover(tree: OwnedFd, path: &str) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = rustix::fs::open(path, flags, Mode::empty())?;
    sys::move_mount(tree.as_fd(), target.as_fd())
}

pub fn make_root_readonly() -> Result<(), Failure> {
    let make = || {
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let set = MountAttributes { set: sys::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
        sys::mount_setattr(root.as_fd(), false, set)
    };
    make().step(|| "make the root read-only".to_owned())
}
