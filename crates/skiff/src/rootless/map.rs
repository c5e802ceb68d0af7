//! Which users of the machine are users in a namespace of one of them.
//!
//! The user is root there. Of the numbers that the machine sets aside for a user (`/etc/subuid`,
//! `/etc/subgid`) the others are made, by two programs that may do what no user may. Without them there is
//! nobody but root: containers that want to be somebody else do not start.
use std::io;
use std::process::Command;

/// Numbers that follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    first: u32,
    count: u32,
}

/// A user, or a group, of the machine.
struct Kind {
    own: u32,
    set_aside: &'static str,
    program: &'static str,
    file: &'static str,
}

/// Writes who the process's users are; whether there is more than one.
pub fn write(pid: u32) -> io::Result<bool> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let kinds = [
        Kind { own: uid, set_aside: "/etc/subuid", program: "newuidmap", file: "uid_map" },
        Kind { own: gid, set_aside: "/etc/subgid", program: "newgidmap", file: "gid_map" },
    ];
    let name = name_of(uid, &std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let ranges = kinds.each_ref().map(|kind| {
        let text = std::fs::read_to_string(kind.set_aside).unwrap_or_default();
        set_aside(&text, name.as_deref(), uid)
    });
    if let [Some(users), Some(groups)] = ranges {
        let mut all = kinds.iter().zip([users, groups]);
        match all.try_for_each(|(kind, range)| by_program(kind, pid, range)) {
            Ok(()) => return Ok(true),
            // Without the programs; one that refuses has its reasons, which are said.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // Who could give up groups could get at what is kept from them: whoever writes a map of their own
    // gives up that.
    std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    for kind in &kinds {
        std::fs::write(format!("/proc/{pid}/{}", kind.file), format!("0 {} 1", kind.own))?;
    }
    Ok(false)
}

fn by_program(kind: &Kind, pid: u32, range: Range) -> io::Result<()> {
    let numbers = [pid, 0, kind.own, 1, 1, range.first, range.count];
    let output = Command::new(kind.program).args(numbers.map(|n| n.to_string())).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{}: {}", kind.program, said.trim())))
        }
    }
}

/// `name:x:1000:1000:…`
fn name_of(uid: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// `name:100000:65536`, or by number. A range that has no place beside root is none.
fn set_aside(text: &str, name: Option<&str>, uid: u32) -> Option<Range> {
    text.lines().find_map(|line| {
        let (who, range) = line.trim().split_once(':')?;
        let (first, count) = range.split_once(':')?;
        let range = Range { first: first.parse().ok()?, count: count.parse().ok()? };
        let is_theirs = Some(who) == name || who.parse() == Ok(uid);
        let fits = range.count > 0 && range.first.checked_add(range.count).is_some();
        (is_theirs && fits && range.count < u32::MAX).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_set_aside_are_found_by_name_and_by_number() {
        let text = "ann:100000:65536\n# bob:1:1\n1001:165536:65536\nbroken:x:1\ntoo:4294967295:9\n";
        let find = |name, uid| set_aside(text, name, uid).map(|range| (range.first, range.count));
        assert_eq!(find(Some("ann"), 1000), Some((100000, 65536)));
        assert_eq!(find(Some("bob"), 1001), Some((165536, 65536)));
        assert_eq!(find(None, 1002), None);
        assert_eq!(find(Some("broken"), 1003), None);
        assert_eq!(find(Some("too"), 1004), None);
    }

    #[test]
    fn a_user_s_name_is_in_the_third_field() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, passwd).as_deref(), Some("ann"));
        assert_eq!(name_of(1001, passwd), None);
    }
}
