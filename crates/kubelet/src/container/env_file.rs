//! Variables that an init container left in a file of a volume (`pkg/kubelet/util/env`): a line is
//! `NAME='VALUE'`, a value may go over several lines, `#` begins a comment.
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

/// Longest file that is read: whoever wrote it is not to fill our memory.
const LONGEST: u64 = 1 << 20;

/// What a file of a volume says of a key; nothing, if it does not say it.
pub fn read(volume: &Path, path: &str, key: &str) -> Result<Option<String>, String> {
    value(&text(volume, path).map_err(|error| error.to_string())?, key)
}

/// Links may not lead out of the volume: a container can have put them there.
fn text(volume: &Path, path: &str) -> std::io::Result<String> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(volume, folder, Mode::empty())?;
    // Nobody is to wait for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(root.as_fd(), path, flags, Mode::empty(), inside)?);
    let found = file.metadata()?;
    if !found.is_file() || found.len() > LONGEST {
        let why = format!("{path} is no file of at most {LONGEST} bytes");
        return Err(std::io::Error::other(why));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn value(text: &str, key: &str) -> Result<Option<String>, String> {
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let wrong =
            |why: &str| Err(format!("invalid environment variable format at line {number}: {why}"));
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = line.split_once('=') else { return wrong("missing '='") };
        if name.trim_end_matches([' ', '\t']).is_empty() {
            return wrong("empty variable name");
        }
        if name.ends_with([' ', '\t']) {
            return wrong("whitespace before '=' is not allowed");
        }
        // As a shell reads it: nothing is assigned, what follows is another word.
        if rest.starts_with([' ', '\t']) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let Some(first) = rest.strip_prefix('\'') else {
            return wrong("value must be enclosed in single quotes");
        };
        let mut value = String::new();
        let mut part = first;
        let after = loop {
            if let Some((end, after)) = part.split_once('\'') {
                value.push_str(end);
                break after;
            }
            value.push_str(part);
            value.push('\n');
            match lines.next() {
                Some((_, next)) => part = next,
                None => {
                    return Err(format!(
                        "invalid environment variable format starting at line {number}: unclosed single quote"
                    ));
                }
            }
        };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return wrong("unexpected content after closing quote");
        }
        if name == key {
            return Ok(Some(value).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let said = match value(text, "KEY") {
            Ok(found) => found.unwrap_or_else(|| "nothing".to_owned()),
            Err(why) => why,
        };
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn lines_are_names_and_quoted_values() {
        check("# said\n\n  A='1'\nKEY='a b' # why\n", "a b");
        check("KEY='one\ntwo'", "one\ntwo");
        check("A='1'", "nothing");
        check("KEY= 'x'", "nothing");
        check("KEY=''", "nothing");
        let wrong = "invalid environment variable format at line 1: ";
        check("KEY", &format!("{wrong}missing '='"));
        check("='x'", &format!("{wrong}empty variable name"));
        check("KEY ='x'", &format!("{wrong}whitespace before '=' is not allowed"));
        check("KEY=x", &format!("{wrong}value must be enclosed in single quotes"));
        check("KEY='x'y", &format!("{wrong}unexpected content after closing quote"));
        check(
            "KEY='x",
            "invalid environment variable format starting at line 1: unclosed single quote",
        );
    }

    #[test]
    fn links_do_not_lead_out_of_the_volume() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("v");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(folder.path().join("secret"), "KEY='secret'").unwrap();
        std::fs::write(volume.join("own"), "KEY='own'").unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("up")).unwrap();
        std::os::unix::fs::symlink("/own", volume.join("root")).unwrap();
        assert_eq!(read(&volume, "own", "KEY"), Ok(Some("own".to_owned())));
        // The volume is the root: what leads up or to the root stays in it.
        assert_eq!(read(&volume, "root", "KEY"), Ok(Some("own".to_owned())));
        assert!(read(&volume, "up", "KEY").is_err());
        assert!(read(&volume, "../secret", "KEY").is_err());
        assert!(read(&volume, ".", "KEY").is_err());
    }
}
