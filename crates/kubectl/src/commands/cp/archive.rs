//! The archive that goes to a container or comes from it, piece by piece.
//!
//! What comes is somebody else's: nothing of it leaves the place that it is for, links are left out, and no
//! name is longer than names are.
use super::pipe::Reader;
use crate::failure::{Failure, Outcome};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// The longest name or set of attributes that an archive may give a file.
const LONGEST_NAME: u64 = 64 << 10;

/// Writes a file or folder under a name. A folder is there through what is in it; an empty one is itself.
pub fn pack(from: &Path, name: &str, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    add(&mut archive, from, name)?;
    archive.into_inner()?.flush()
}

fn add(archive: &mut Builder<impl Write>, from: &Path, name: &str) -> io::Result<()> {
    let named = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("{}: {error}", from.display())),
    };
    let metadata = fs::symlink_metadata(from).map_err(named)?;
    let mut header = Header::new_gnu();
    header.set_metadata(&metadata);
    if metadata.is_dir() {
        let mut entries: Vec<_> =
            fs::read_dir(from).map_err(named)?.collect::<io::Result<_>>().map_err(named)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        if entries.is_empty() {
            header.set_size(0);
            return archive.append_data(&mut header, name, io::empty()).map_err(named);
        }
        return entries.iter().try_for_each(|entry| {
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            add(archive, &entry.path(), &name)
        });
    }
    if metadata.is_symlink() {
        header.set_size(0);
        let target = fs::read_link(from).map_err(named)?;
        return archive.append_link(&mut header, name, target).map_err(named);
    }
    if !metadata.is_file() {
        return Err(named(io::Error::other("only files, folders and links can be copied")));
    }
    // A file that grows or shrinks meanwhile would take the archive with it.
    let size = metadata.len();
    let mut data = File::open(from).map_err(named)?.take(size);
    archive.append_data(&mut header, name, &mut data).map_err(named)?;
    match data.limit() {
        0 => Ok(()),
        _ => Err(named(io::Error::other("it became shorter while it was read"))),
    }
}

/// How an archive ended, or what is known of its end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// With its mark, or before it where something was wrong.
    Marked,
    /// With the stream.
    Cut,
}

/// What is said of files that are left out.
pub struct Warnings {
    /// A command that would bring links too; said once.
    hint: Option<String>,
    #[cfg(test)]
    pub said: Vec<String>,
}

impl Warnings {
    pub fn new(hint: String) -> Warnings {
        Warnings {
            hint: Some(hint),
            #[cfg(test)]
            said: Vec::new(),
        }
    }

    fn outside(&mut self, path: &str) {
        self.say(format!("warning: file {path:?} is outside target destination, skipping"));
    }

    fn link(&mut self, path: &str, target: &str) {
        let hint = match self.hint.take() {
            Some(hint) => format!(" (consider using \"{hint}\")"),
            None => String::new(),
        };
        self.say(format!("warning: skipping symlink: {path:?} -> {target:?}{hint}"));
    }

    /// Straight to the terminal: whoever receives the archive has the session meanwhile.
    #[cfg(not(test))]
    fn say(&mut self, text: String) {
        eprintln!("{text}");
    }

    #[cfg(test)]
    fn say(&mut self, text: String) {
        self.said.push(text);
    }
}

/// Takes an archive apart below a place: how far it came, and what was wrong.
pub fn unpack(mut from: Reader, path: &str, to: &Path, warnings: &mut Warnings) -> (End, Outcome) {
    let outcome = read(&mut from, path, to, warnings);
    (if from.ended() { End::Cut } else { End::Marked }, outcome)
}

fn read(from: &mut Reader, path: &str, to: &Path, warnings: &mut Warnings) -> Outcome {
    let path = path.replace('\\', "/");
    let prefix = without_ways_up(&clean(path.trim_start_matches('/')));
    let to = clean(&to.to_string_lossy());
    // A file goes into a folder that is there under its own name; a folder's content goes there.
    let into = match prefix.rsplit('/').next() {
        Some(name) if !name.is_empty() && Path::new(&to).is_dir() => format!("{to}/{name}"),
        _ => to.clone(),
    };
    let corrupted = || Failure::from("tar contents corrupted");
    let mut archive = tar::Archive::new(from);
    let (mut long_name, mut long_link) = (None, None);
    let mut is_folder = false;
    // Raw: whatever goes before a file is read here, where there is a limit.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry.map_err(|error| Failure::Plain(error.to_string()))?;
        let kind = entry.header().entry_type();
        let is_about_next = matches!(
            kind,
            EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XHeader
                | EntryType::XGlobalHeader
        );
        if is_about_next {
            if entry.size() > LONGEST_NAME {
                return Err(corrupted());
            }
            match kind {
                EntryType::GNULongName => long_name = Some(text(&mut entry)?),
                EntryType::GNULongLink => long_link = Some(text(&mut entry)?),
                EntryType::XHeader => {
                    for pair in entry.pax_extensions()?.into_iter().flatten() {
                        let pair = pair?;
                        let value = String::from_utf8_lossy(pair.value_bytes()).into_owned();
                        match pair.key_bytes() {
                            b"path" => long_name = Some(value),
                            b"linkpath" => long_link = Some(value),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            continue;
        }
        let shown = |path: Option<std::borrow::Cow<'_, Path>>| {
            path.map(|path| String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned())
        };
        let name = long_name.take().or_else(|| shown(entry.path().ok())).unwrap_or_default();
        let link = long_link.take().or_else(|| shown(entry.link_name().ok().flatten()));
        let Some(rest) = name.strip_prefix(&prefix).filter(|_| !name.contains('\0')) else {
            return Err(corrupted());
        };
        let rest = rest.replace('\\', "/");
        // An archive of one file is that file alone; a folder's begins with itself, or with what is in it.
        is_folder |= kind.is_dir() || !rest.trim_matches('/').is_empty();
        let base = if is_folder { &to } else { &into };
        let target = clean(&format!("{base}/{rest}"));
        if !is_below(&target, base) {
            warnings.outside(&target);
            continue;
        }
        let target_path = Path::new(&target);
        if kind.is_dir() {
            fs::create_dir_all(target_path).map_err(|error| about("mkdir", &target, &error))?;
            continue;
        }
        if let Some(folder) = target_path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let shown = folder.display().to_string();
            fs::create_dir_all(folder).map_err(|error| about("mkdir", &shown, &error))?;
        }
        // A link could lead anywhere, and a file that has two names comes as a link.
        if kind.is_symlink() || kind.is_hard_link() {
            warnings.link(&target, &link.unwrap_or_default());
            continue;
        }
        let mut file = File::create(target_path).map_err(|error| about("open", &target, &error))?;
        let size = entry.size();
        let copied =
            io::copy(&mut entry, &mut file).map_err(|error| about("write", &target, &error))?;
        if copied < size {
            return Err("unexpected EOF".into());
        }
    }
    Ok(())
}

fn text(entry: &mut impl Read) -> Outcome<String> {
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn about(what: &str, path: &str, error: &io::Error) -> Failure {
    let cause = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    };
    Failure::Plain(format!("{what} {path}: {cause}"))
}

/// Go's `path.Clean`.
pub fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_rooted => {}
            part => parts.push(part),
        }
    }
    match (is_rooted, parts.join("/")) {
        (true, rest) => format!("/{rest}"),
        (false, rest) if rest.is_empty() => ".".to_owned(),
        (false, rest) => rest,
    }
}

/// A clean path without what leads out of where it begins.
fn without_ways_up(path: &str) -> String {
    let mut rest = path;
    while let Some(shorter) = rest.strip_prefix("../") {
        rest = shorter;
    }
    if matches!(rest, "." | "..") { String::new() } else { rest.to_owned() }
}

/// Whether a clean path is another one, or below it.
fn is_below(path: &str, base: &str) -> bool {
    match base {
        "/" => path.starts_with('/'),
        "." => !path.starts_with('/') && path != ".." && !path.starts_with("../"),
        base => {
            path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe::from_container;
    use super::*;

    /// Unpacks bytes below a place: how it ended, and what was said.
    fn taken(bytes: &[u8], path: &str, to: &Path) -> (String, Vec<String>) {
        let (mut writer, reader) = from_container();
        let bytes = bytes.to_vec();
        // It may end before it has read everything.
        let thread = std::thread::spawn(move || drop(writer.write_all(&bytes)));
        let mut warnings = Warnings::new("tar".to_owned());
        let outcome = unpack(reader, path, to, &mut warnings);
        thread.join().unwrap();
        let place = to.display().to_string();
        let said = warnings.said.iter().map(|text| text.replace(&place, "TO")).collect();
        match outcome {
            (end, Ok(())) => (format!("{end:?}"), said),
            (_, Err(failure)) => (failure.message().replace(&place, "TO"), said),
        }
    }

    fn packed(from: &Path, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(from, name, &mut bytes).unwrap();
        bytes
    }

    /// Everything below a folder.
    fn below(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() {
                let inner = below(&entry.path());
                found.push(format!("{name}/"));
                found.extend(inner.iter().map(|inner| format!("{name}/{inner}")));
            } else {
                found.push(format!("{name}={}", fs::read_to_string(entry.path()).unwrap()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        let long = "n".repeat(150);
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::write(from.join("sub/a"), "x").unwrap();
        fs::write(from.join(&long), "long").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let to = folder.path().join("to");
        let (end, said) = taken(&packed(&from, "data"), "/data", &to);
        assert_eq!(end, "Marked");
        assert_eq!(
            said,
            ["warning: skipping symlink: \"TO/link\" -> \"/etc/passwd\" (consider using \"tar\")"]
        );
        let all = [format!("{long}=long"), "empty/".into(), "sub/".into(), "sub/a=x".into()];
        let mut all = all.to_vec();
        all.sort();
        assert_eq!(below(&to), all);
        // A file under another name, and into a folder that is there.
        let file = packed(&from.join("sub/a"), "b");
        let other = folder.path().join("other");
        assert_eq!(taken(&file, "b", &other).0, "Marked");
        assert_eq!(fs::read_to_string(&other).unwrap(), "x");
        let place = folder.path().join("place");
        fs::create_dir(&place).unwrap();
        assert_eq!(taken(&file, "../b/", &place).0, "Marked");
        assert_eq!(below(&place), ["b=x"]);
    }

    /// An archive of files with these names and kinds, as somebody who means no good makes it.
    fn forged(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (name, kind, data) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            header.set_size(data.len() as u64);
            // The field itself: the library would refuse such names.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, data.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn check(entries: &[(&str, EntryType, &str)], expected: &str, files: &[&str], said: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        let found = taken(&forged(entries), "/data", &to);
        assert_eq!(found.0, expected, "{entries:?}");
        assert_eq!(found.1, said, "{entries:?}");
        let there = if to.exists() { below(folder.path()) } else { Vec::new() };
        assert_eq!(there, files, "{entries:?}");
    }

    #[test]
    fn nothing_leaves_its_place() {
        use EntryType::{Directory, Link, Regular, Symlink};
        check(&[("etc/passwd", Regular, "x")], "error: tar contents corrupted", &[], &[]);
        check(&[("/data/a", Regular, "x")], "error: tar contents corrupted", &[], &[]);
        check(&[("../data/a", Regular, "x")], "error: tar contents corrupted", &[], &[]);
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        let entries = [
            ("data/../../evil", Regular, "x"),
            ("data/ok/../../evil", Regular, "x"),
            ("data/a", Regular, "x"),
        ];
        let (end, said) = taken(&forged(&entries), "data", &to);
        assert_eq!((&*end, said.len()), ("Marked", 2), "{said:?}");
        assert!(said[0].ends_with("evil\" is outside target destination, skipping"), "{said:?}");
        assert_eq!(below(folder.path()), ["to/", "to/a=x"]);
        // A link is never made, so that nothing can go through it.
        check(
            &[
                ("data", Directory, ""),
                ("data/l", Symlink, ""),
                ("data/l/x", Regular, "in"),
                ("data/h", Link, ""),
            ],
            "Marked",
            &["to/", "to/l/", "to/l/x=in"],
            &[
                "warning: skipping symlink: \"TO/l\" -> \"\" (consider using \"tar\")",
                "warning: skipping symlink: \"TO/h\" -> \"\"",
            ],
        );
    }

    #[test]
    fn names_have_an_end() {
        let long = "x".repeat(LONGEST_NAME as usize + 1);
        let named =
            [("././@LongLink", EntryType::GNULongName, &*long), ("data", EntryType::Regular, "")];
        check(&named, "error: tar contents corrupted", &[], &[]);
        let attributes = [("x", EntryType::XHeader, &*long), ("data", EntryType::Regular, "")];
        check(&attributes, "error: tar contents corrupted", &[], &[]);
        let renamed =
            [("x", EntryType::XHeader, "16 path=data/ab\n"), ("data/c", EntryType::Regular, "y")];
        check(&renamed, "Marked", &["to/", "to/ab=y"], &[]);
    }

    #[test]
    fn what_breaks_off_is_told_from_what_ends() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        let whole = forged(&[("data", EntryType::Regular, "x")]);
        assert_eq!(taken(&whole[..1024], "data", &to).0, "Cut");
        assert_eq!(taken(&whole[..513 - 1], "data", &to).0, "error: unexpected EOF");
        assert_eq!(taken(b"", "data", &to).0, "Cut");
        assert_eq!(taken(&[0; 1024], "data", &to).0, "Marked");
        assert!(taken(&[7; 1024], "data", &to).0.starts_with("error: "));
    }

    #[test]
    fn paths_are_cleaned_as_go_cleans_them() {
        for (path, expected) in [
            ("", "."),
            ("/", "/"),
            ("/../a", "/a"),
            ("a/../../b", "../b"),
            ("a//b/.", "a/b"),
            ("./", "."),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
        assert_eq!(without_ways_up("../../a"), "a");
        assert_eq!(without_ways_up(".."), "");
        assert!(is_below("a", ".") && !is_below("../a", ".") && !is_below("/ab", "/a"));
    }
}
