//! The administrator's kubeconfig for whoever called sudo: `sudo skiff up` leaves it where that user may read
//! it, and nobody else. It is kept up to date with its certificate, and `skiff reset` takes it away.
use crate::install::{as_user, write};
use std::io;
use std::path::{Path, PathBuf};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

/// Below the user's home. Not `config`: that may have other clusters.
pub const FILE: &str = ".kube/skiff";
/// In the data directory: to whom it was given.
const RECORD: &str = "kubeconfig-given";

/// Who called sudo, unless that is root, too.
pub fn caller() -> Option<Account> {
    if !rustix::process::geteuid().is_root() || crate::rootless::is_inside() {
        return None;
    }
    let uid = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    account(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
}

fn account(passwd: &str, uid: u32) -> Option<Account> {
    passwd.lines().filter(|_| uid != 0).find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, own, gid, _, home, ..] = fields[..] else { return None };
        let home = Some(home).filter(|home| home.starts_with('/'))?;
        (own.parse() == Ok(uid)).then_some(Account {
            uid,
            gid: gid.parse().ok()?,
            home: home.into(),
        })
    })
}

/// Gives what is in the kubeconfig, and returns where it is now.
pub fn give(data: &Path, kubeconfig: &Path, to: &Account) -> io::Result<PathBuf> {
    let bytes = std::fs::read(kubeconfig)?;
    let target = to.home.join(FILE);
    let Account { uid, gid, .. } = *to;
    // First, so that it is taken away whatever happens.
    let record = format!("{uid}:{gid}:{}\n", target.display());
    write(&data.join(RECORD), record.as_bytes(), 0o600)?;
    let file = target.clone();
    as_user(uid, gid, move || write(&file, &bytes, 0o600))?;
    Ok(target)
}

/// Where it was given to somebody, and as whom it is taken away.
pub fn given(data: &Path) -> Option<(PathBuf, u32, u32)> {
    let text = std::fs::read_to_string(data.join(RECORD)).ok()?;
    let mut fields = text.trim_end().splitn(3, ':');
    let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let path = PathBuf::from(fields.next()?);
    path.symlink_metadata().is_ok().then_some((path, uid, gid))
}

/// What was given once is made again from the kubeconfig in the data directory.
pub fn give_again(data: &Path) -> io::Result<()> {
    let Some((path, uid, gid)) = given(data) else { return Ok(()) };
    let bytes = std::fs::read(data.join("kubeconfig"))?;
    as_user(uid, gid, move || write(&path, &bytes, 0o600))
}

/// With the rights of whose it is: what is in a home may be links that lead anywhere.
pub fn take(data: &Path) -> io::Result<()> {
    let Some((path, uid, gid)) = given(data) else { return Ok(()) };
    as_user(uid, gid, move || {
        std::fs::remove_file(&path)?;
        // It was made for the file, unless something else is in it.
        let _ = path.parent().map(std::fs::remove_dir);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    #[test]
    fn users_are_found_by_their_numbers() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\nbroken\n";
        let ann = Account { uid: 1000, gid: 1001, home: "/home/ann".into() };
        assert_eq!(account(passwd, 1000), Some(ann));
        assert_eq!((account(passwd, 0), account(passwd, 7)), (None, None));
    }

    #[test]
    fn a_user_gets_a_kubeconfig_that_is_taken_away_again() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))
            .expect("open");
        let (data, home) = (place.path().join("data"), place.path().join("home"));
        for folder in [&data, &home] {
            std::fs::create_dir(folder).expect("a folder");
        }
        chown(&home, Some(12345), Some(12346)).expect("root may");
        let kubeconfig = data.join("kubeconfig");
        std::fs::write(&kubeconfig, "keys").expect("a file");
        let ann = Account { uid: 12345, gid: 12346, home };
        // Twice: a renewed one takes the place of the first.
        for _ in 0..2 {
            let path = give(&data, &kubeconfig, &ann).expect("given");
            let made = path.metadata().expect("it is there");
            assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (12345, 12346, 0o600));
            assert_eq!(given(&data), Some((path, 12345, 12346)));
        }
        std::fs::write(&kubeconfig, "others").expect("a file");
        give_again(&data).expect("given");
        let (path, ..) = given(&data).expect("it is there");
        assert_eq!(std::fs::read_to_string(path).expect("a file"), "others");
        take(&data).expect("taken");
        assert_eq!(given(&data), None);
        assert!(!ann.home.join(".kube").exists());
        take(&data).expect("there is nothing");
    }
}
