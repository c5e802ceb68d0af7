//! The container's file systems: its root, what is mounted on it, its devices, what is hidden.
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::child::{Failure, Step};
use super::inside;
use super::spec::{ContainerSpec, Device, Mount, Propagation, RootSpec, Source};
use super::sys::{self, MountAttributes};

/// A source that was opened before the root changed.
pub struct Opened {
    tree: Option<OwnedFd>,
    is_folder: bool,
}

/// Everything that was opened: in the order of the mounts, and of the devices.
pub struct Sources {
    mounts: Vec<Opened>,
    devices: Vec<OwnedFd>,
    /// The host's null device, once for each path to be masked, if the container's may not be one.
    nulls: Vec<OwnedFd>,
}

/// What the kernel takes as mount options in one call.
const OPTIONS_LIMIT: usize = 4095;

/// Opens what comes from the host, while the host can still be seen. Clones keep the host's
/// propagation, so binds come before anything is made a slave. With a user namespace, the container's or
/// our own, devices are the host's, for none can be made in it.
pub fn open_sources(
    spec: &ContainerSpec,
    users: Option<BorrowedFd<'_>>,
) -> Result<Sources, Failure> {
    let open = |mount: &Mount| match &mount.source {
        Source::Bind(path) => open_bind(path),
        _ => Ok(Opened { tree: None, is_folder: true }),
    };
    let failed = |mount: &Mount| format!("open the source of mount {:?}", mount.destination);
    let mut mounts = Vec::with_capacity(spec.mounts.len());
    for mount in &spec.mounts {
        mounts.push(open(mount).step(|| failed(mount))?);
    }
    let mut devices = Vec::new();
    if users.is_some() || !crate::users::is_initial() {
        for device in &spec.devices {
            let opened = sys::c_path(&device.host).and_then(|path| sys::open_tree(&path, false));
            devices.push(opened.step(|| format!("open device {:?}", device.path))?);
        }
    }
    let mut nulls = Vec::new();
    if !own_devices(spec) {
        for _ in &spec.masked_paths {
            nulls.push(sys::open_tree(c"/dev/null", false).step(|| "open /dev/null".to_owned())?);
        }
    }
    sys::mount("", c"/", "", libc::MS_SLAVE | libc::MS_REC, "")
        .step(|| "make mounts private".to_owned())?;
    for (number, (mount, source)) in spec.mounts.iter().zip(&mut mounts).enumerate() {
        if let Source::Layers { layers, lower, path } = &mount.source {
            let links = spec.folder.join(format!("lower-{number}"));
            *source = open_layers((layers, lower), path, &spec.root.upper, &links)
                .step(|| failed(mount))?;
        }
        if let (Some(users), Some(tree), true) = (users, &source.tree, mount.mapped) {
            sys::map_owners(tree.as_fd(), users)
                .step(|| format!("map the owners of mount {:?}", mount.destination))?;
        }
    }
    Ok(Sources { mounts, devices, nulls })
}

/// Whether `/dev` is a new file system, for us to fill. If somebody brings a volume for it what is in
/// there is theirs: nothing is made in it, and nothing in it is believed.
fn own_devices(spec: &ContainerSpec) -> bool {
    let is_volume = |mount: &Mount| {
        matches!(mount.source, Source::Bind(_) | Source::Layers { .. })
            && matches!(mount.destination.as_str(), "/dev" | "/dev/null")
    };
    !spec.mounts.iter().any(is_volume)
}

/// Attaches what was opened where `place` says, for somebody else to mount it.
pub fn stage(
    spec: &ContainerSpec,
    sources: Sources,
    place: impl Fn(usize) -> PathBuf,
) -> Result<(), Failure> {
    let attach = |mount: &Mount, place: &Path, opened: Opened| -> io::Result<()> {
        let Some(tree) = opened.tree else { return Ok(()) };
        if opened.is_folder {
            fs::create_dir_all(place)?;
        } else {
            fs::File::create(place)?;
        }
        if mount.propagation == Propagation::Private {
            let plain = MountAttributes { propagation: libc::MS_PRIVATE, ..Default::default() };
            sys::mount_setattr(tree.as_fd(), true, plain)?;
        }
        if mount.recursive_readonly {
            let set = MountAttributes { set: sys::MOUNT_ATTR_RDONLY, ..Default::default() };
            sys::mount_setattr(tree.as_fd(), true, set)?;
        }
        let target = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        sys::move_mount(tree.as_fd(), target.as_fd())
    };
    for (number, (mount, opened)) in spec.mounts.iter().zip(sources.mounts).enumerate() {
        attach(mount, &place(number), opened)
            .step(|| format!("prepare mount {:?}", mount.destination))?;
    }
    Ok(())
}

/// Makes the file systems that are new, in the namespaces they show.
pub fn open_filesystems(mounts: &[Mount], sources: &mut Sources) -> Result<(), Failure> {
    for (mount, source) in mounts.iter().zip(&mut sources.mounts) {
        if let Source::Filesystem { kind, options } = &mount.source {
            let readonly = if mount.readonly { sys::MOUNT_ATTR_RDONLY } else { 0 };
            let made = sys::new_filesystem(kind, options, mount.attributes | readonly);
            source.tree = Some(made.step(|| format!("make {kind} for {:?}", mount.destination))?);
        }
    }
    Ok(())
}

fn open_bind(path: &Path) -> io::Result<Opened> {
    let is_folder = fs::metadata(path)?.is_dir();
    let tree = sys::open_tree(&sys::c_path(path)?, true)?;
    Ok(Opened { tree: Some(tree), is_folder })
}

/// A path inside an image's layers. Several are mounted on `stage` while it is taken; if need be
/// they are given short names in `links`.
fn open_layers(
    (layers, lower): (&Path, &[String]),
    path: &str,
    stage: &Path,
    links: &Path,
) -> io::Result<Opened> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = sys::c_path(stage)?;
    // Overlayfs wants at least two.
    let root = if let [only] = lower {
        rustix::fs::open(layers.join(only), flags, Mode::empty())?
    } else {
        let lower = name_layers(layers, lower, links)?;
        let options = format!("lowerdir={}{}", lower.join(":"), crate::users::overlay_option());
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

/// Mounts the root where only this namespace sees it.
pub fn mount_root(root: &RootSpec, users: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
    if root.lower.is_empty() {
        return take_root(&root.upper, users).step(|| "mount the root".to_owned());
    }
    let links = root.upper.with_file_name("lower");
    let lower = match users {
        None => name_layers(&root.layers, &root.lower, &links)
            .step(|| "enter the layers' folder".to_owned())?,
        Some(users) => {
            map_layers(root, &links, users).step(|| "map the layers' owners".to_owned())?
        }
    };
    let options = format!(
        "lowerdir={},upperdir={},workdir={}{}",
        lower.join(":"),
        root.upper.display(),
        root.work.display(),
        crate::users::overlay_option()
    );
    if options.len() + ",volatile".len() > OPTIONS_LIMIT {
        return Err(io::Error::other(format!("{} layers are too many", lower.len())))
            .step(|| "mount the root".to_owned());
    }
    let target = sys::c_path(&root.upper).step(|| "name the root".to_owned())?;
    // What a container wrote is of no use after a power cut, for then there is no container: it is
    // not brought to the disk when the last process ends, which takes longer than to start it.
    sys::mount("overlay", &target, "overlay", 0, &(options.clone() + ",volatile"))
        .or_else(|_| sys::mount("overlay", &target, "overlay", 0, &options))
        .step(|| "mount the root".to_owned())
}

/// A folder that is the root already becomes a mount of its own.
fn take_root(target: &Path, users: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let tree = sys::open_tree(&sys::c_path(target)?, false)?;
    if let Some(users) = users {
        sys::map_owners(tree.as_fd(), users)?;
    }
    let place = rustix::fs::open(target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::move_mount(tree.as_fd(), place.as_fd())
}

/// The layers by names that are short enough together, and the folder they are valid in. A deep
/// image's layers are linked to by number in `links`: overlayfs takes 500, by their own names there
/// is room for sixty.
fn name_layers(layers: &Path, lower: &[String], links: &Path) -> io::Result<Vec<String>> {
    if lower.iter().map(|name| name.len() + 1).sum::<usize>() < OPTIONS_LIMIT / 2 {
        std::env::set_current_dir(layers)?;
        return Ok(lower.to_vec());
    }
    fs::create_dir_all(links)?;
    std::env::set_current_dir(links)?;
    let mut names = Vec::new();
    for (number, layer) in lower.iter().enumerate() {
        let name = number.to_string();
        let _ = fs::remove_file(&name);
        symlink(layers.join(layer), &name)?;
        names.push(name);
    }
    Ok(names)
}

/// Mounts each layer with its owners mapped, in a folder of its own, and names them from there.
fn map_layers(root: &RootSpec, folder: &Path, users: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    std::env::set_current_dir(folder)?;
    let mut names = Vec::new();
    for (number, layer) in root.lower.iter().enumerate() {
        let name = number.to_string();
        fs::create_dir_all(&name)?;
        let tree = sys::open_tree(&sys::c_path(root.layers.join(layer))?, false)?;
        sys::map_owners(tree.as_fd(), users)?;
        let target = rustix::fs::open(&name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        sys::move_mount(tree.as_fd(), target.as_fd())?;
        names.push(name);
    }
    Ok(names)
}

/// Makes what was mounted the process's root.
pub fn enter_root(root: &RootSpec, own_users: bool) -> Result<(), Failure> {
    let target = sys::c_path(&root.upper).step(|| "name the root".to_owned())?;
    if own_users {
        // What came from outside the user namespace cannot become a root; a copy made inside can.
        sys::mount(&root.upper.to_string_lossy(), &target, "", libc::MS_BIND | libc::MS_REC, "")
            .step(|| "take over the root".to_owned())?;
    }
    sys::mount("", &target, "", libc::MS_PRIVATE, "")
        .step(|| "make the root private".to_owned())?;
    std::env::set_current_dir(&root.upper).step(|| "enter the root".to_owned())?;
    sys::pivot_here().step(|| "change the root".to_owned())?;
    sys::unmount(c".").step(|| "leave the host's root".to_owned())?;
    std::env::set_current_dir("/").step(|| "enter the root".to_owned())
}

/// Attaches everything, parents before children; devices go where the others have made room. What
/// must not be seen or changed is hidden last.
pub fn attach(spec: &ContainerSpec, sources: Sources) -> Result<(), Failure> {
    let mut ordered: Vec<(&Mount, Opened)> = spec.mounts.iter().zip(sources.mounts).collect();
    // Stable: of two on one place the later covers the earlier.
    ordered.sort_by_cached_key(|(mount, _)| Path::new(&mount.destination).components().count());
    // The file system that we have put on /dev: another may be led there by a link of the image.
    let mut own = None;
    for (mount, opened) in ordered {
        attach_one(spec, mount, opened).step(|| format!("mount {:?}", mount.destination))?;
        if mount.destination == "/dev" && matches!(mount.source, Source::Filesystem { .. }) {
            own = file_system_of(Path::new("/dev"));
            dev_links().step(|| "make links in /dev".to_owned())?;
        }
    }
    let is_own = own.is_some() && file_system_of(Path::new("/dev")) == own;
    let mut opened = sources.devices.into_iter();
    for device in &spec.devices {
        let tree = opened.next();
        // What somebody brings in its place is theirs.
        let is_covered = spec.mounts.iter().any(|mount| mount.destination == device.path);
        if is_covered || !is_own && Path::new(&device.path).starts_with("/dev") {
            continue;
        }
        let made = match tree {
            Some(tree) => make_place(&device.path, false)
                .and_then(|place| sys::move_mount(tree.as_fd(), place.as_fd())),
            None => make_device(device),
        };
        made.step(|| format!("make device {:?}", device.path))?;
    }
    hide(&spec.masked_paths, &spec.readonly_paths, sources.nulls)
}

/// The number of the file system that a path is on, if it is a real folder.
fn file_system_of(path: &Path) -> Option<u64> {
    let folder = inside::place(path, OFlags::DIRECTORY | OFlags::NOFOLLOW).ok()?;
    Some(rustix::fs::fstat(&folder).ok()?.st_dev)
}

fn attach_one(spec: &ContainerSpec, mount: &Mount, opened: Opened) -> io::Result<()> {
    match (&mount.source, opened.tree) {
        (Source::Filesystem { .. }, Some(tree)) => {
            make_place(&mount.destination, true)?;
            let target = real_folder(&mount.destination)?;
            sys::move_mount(tree.as_fd(), target.as_fd())
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
    let place = match inside::place(path, OFlags::empty()) {
        Ok(place) => place,
        Err(rustix::io::Errno::NOENT) => {
            if is_folder {
                inside::make_folders(path)?;
            } else {
                if let Some(parent) = path.parent() {
                    inside::make_folders(parent)?;
                }
                inside::make_file(path)?;
            }
            inside::place(path, OFlags::empty())?
        }
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fstatfs(&place)?.f_type as i64 == PROC {
        return Err(io::Error::other("it is in /proc"));
    }
    Ok(place)
}

/// Kernel file systems are mounted on real folders only: behind a link they would be masked in the
/// wrong place.
fn real_folder(destination: &str) -> io::Result<OwnedFd> {
    let found = openat2(
        CWD,
        destination,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    found.map_err(|_| io::Error::other("it is not a real folder"))
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

fn make_device(device: &Device) -> io::Result<()> {
    use rustix::fs::{AtFlags, FileType, Gid, Uid, chownat, mknodat, statat, unlinkat};
    let path = Path::new(&device.path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it has no name"));
    };
    inside::make_folders(parent)?;
    let folder = inside::place(parent, OFlags::DIRECTORY)?;
    if let Ok(found) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        && !FileType::from_raw_mode(found.st_mode).is_dir()
    {
        unlinkat(&folder, name, AtFlags::empty())?;
    }
    let (kind, mode) = (FileType::from_raw_mode(device.mode), Mode::from_raw_mode(device.mode));
    sys::umask(0);
    let made = mknodat(&folder, name, kind, mode, device.number);
    sys::umask(0o022);
    made?;
    // What was made is opened by its name, which nobody else had the time to give away: in a volume
    // that others use somebody may have, and then it is not a device of this number.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&made)?;
    if found.st_rdev != device.number || FileType::from_raw_mode(found.st_mode) != kind {
        return Err(io::Error::other("somebody has changed it"));
    }
    let (user, group) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    chownat(&made, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    Ok(())
}

/// Masks what must not be seen and freezes what must not be changed. `nulls` are for the masks, if
/// the container's own null device is not to be believed.
fn hide(masked: &[String], readonly: &[String], nulls: Vec<OwnedFd>) -> Result<(), Failure> {
    for path in readonly {
        freeze(path).step(|| format!("make {path:?} read-only"))?;
    }
    let mut nulls = nulls.into_iter();
    for path in masked {
        mask(path, nulls.next()).step(|| format!("mask {path:?}"))?;
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

fn mask(path: &str, null: Option<OwnedFd>) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_dir() {
        let target = sys::c_path(path)?;
        return sys::mount("tmpfs", &target, "tmpfs", libc::MS_RDONLY, "size=0k");
    }
    let null = match null {
        Some(null) => null,
        None => sys::open_tree(c"/dev/null", false)?,
    };
    // What is shown instead is nothing, and not what an image has put there under that name.
    let found = rustix::fs::fstat(&null)?;
    let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
    if !kind.is_char_device() || found.st_rdev != rustix::fs::makedev(1, 3) {
        return Err(io::Error::other("/dev/null is not the null device"));
    }
    cover(null, path)
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
