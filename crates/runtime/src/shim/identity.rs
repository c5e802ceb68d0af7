//! Who a process is: names looked up in the container's own `/etc/passwd` and `/etc/group`. The
//! files are the image's, so they are read with care: regular files of bounded size only.
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::spec::{Identity, UserSpec};

const FILE_LIMIT: u64 = 8 << 20;

pub fn resolve(spec: &UserSpec, root: &Path) -> io::Result<Identity> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let passwd = read(&root, "etc/passwd")?;
    let group = read(&root, "etc/group")?;
    resolve_in(spec, &passwd, &group)
}

/// The largest number of a user or group. Above it the kernel's -1 is near, which changes nothing when
/// it is set: who asked for it would stay root. Upstream's runtimes have the same limit.
const ID_LIMIT: u32 = i32::MAX as u32;

fn resolve_in(spec: &UserSpec, passwd: &str, group: &str) -> io::Result<Identity> {
    let identity = look_up(spec, passwd, group)?;
    for id in [identity.uid, identity.gid].iter().chain(&identity.groups) {
        if *id > ID_LIMIT {
            return Err(out_of_range(&id.to_string()));
        }
    }
    Ok(identity)
}

fn out_of_range(id: &str) -> io::Error {
    let text = format!("uids and gids must be in range 0-{ID_LIMIT}, not {id}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// A number, or nothing if it is a name. A number that is none of the kernel's is no name either.
fn number(text: &str) -> io::Result<Option<u32>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| out_of_range(text))
}

fn look_up(spec: &UserSpec, passwd: &str, group: &str) -> io::Result<Identity> {
    let name = if spec.user.is_empty() { "0" } else { &spec.user };
    let number_of_user = number(name)?;
    let entry = passwd.lines().map(fields).find(|line| {
        line.len() >= 6
            && match number_of_user {
                Some(number) => line[2].parse() == Ok(number),
                None => line[0] == name,
            }
    });
    let missing = |what, name: &str| {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("no {what} {name:?} in the image")))
    };
    let (uid, own_gid, home, login) = match (&entry, number_of_user) {
        (Some(line), _) => {
            let uid = line[2].parse().map_err(io::Error::other)?;
            let gid = line[3].parse().map_err(io::Error::other)?;
            (uid, gid, line[5], Some(line[0]))
        }
        (None, Some(number)) => (number, 0, "/", None),
        (None, None) => return missing("user", name),
    };
    let gid = match spec.group.as_deref() {
        None => own_gid,
        Some(text) => match number(text)? {
            Some(gid) => gid,
            None => {
                let found =
                    group.lines().map(fields).find(|line| line.len() >= 3 && line[0] == text);
                match found.and_then(|line| line[2].parse().ok()) {
                    Some(gid) => gid,
                    None => return missing("group", text),
                }
            }
        },
    };
    let mut groups = vec![gid];
    groups.extend(&spec.supplemental);
    if spec.merge_groups
        && let Some(login) = login
    {
        let member = |line: &Vec<&str>| line.len() >= 4 && line[3].split(',').any(|m| m == login);
        groups.extend(
            group.lines().map(fields).filter(member).filter_map(|line| line[2].parse::<u32>().ok()),
        );
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(Identity { uid, gid, groups, home: home.to_owned() })
}

fn fields(line: &str) -> Vec<&str> {
    line.trim().split(':').collect()
}

/// A file's text; an image without it has no names.
fn read(root: &OwnedFd, path: &str) -> io::Result<String> {
    // A pipe or a device must not make us wait, a link not lead out of the root.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("/{path} is not a file")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nweb:x:101:102::/srv:/bin/sh\nbroken\n\
                          huge:x:4294967295:0::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nweb:x:102:\nlogs:x:200:other,web\n";

    fn check(user: &str, group: Option<&str>, merge: bool, expected: &str) {
        let spec = UserSpec {
            user: user.to_owned(),
            group: group.map(str::to_owned),
            supplemental: vec![9],
            merge_groups: merge,
        };
        let found = match resolve_in(&spec, PASSWD, GROUP) {
            Ok(i) => format!("{}:{} {:?} {}", i.uid, i.gid, i.groups, i.home),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn names_and_numbers_are_looked_up() {
        check("", None, true, "0:0 [0, 9] /root");
        check("web", None, true, "101:102 [9, 102, 200] /srv");
        check("web", None, false, "101:102 [9, 102] /srv");
        check("101", Some("7"), true, "101:7 [7, 9, 200] /srv");
        check("4242", None, true, "4242:0 [0, 9] /");
        check("web", Some("logs"), false, "101:200 [9, 200] /srv");
        check("nobody", None, true, r#"no user "nobody" in the image"#);
        check("web", Some("none"), true, r#"no group "none" in the image"#);
    }

    #[test]
    fn numbers_that_the_kernel_takes_for_nothing_are_refused() {
        let refused = |id: &str| format!("uids and gids must be in range 0-2147483647, not {id}");
        for id in ["4294967295", "2147483648", "4294967296", "99999999999999999999", "-1"] {
            check(id, None, true, &refused(id));
            check("web", Some(id), true, &refused(id));
        }
        check("2147483647", Some("2147483647"), true, "2147483647:2147483647 [9, 2147483647] /");
        check("huge", None, true, &refused("4294967295"));
        let spec = UserSpec { supplemental: vec![u32::MAX], ..UserSpec::default() };
        assert!(resolve_in(&spec, "", "").is_err());
    }
}
