//! Which devices a group's processes may use. On v1 that is a list of rules in a file; a v2 group has
//! a small program in the kernel instead, made from the same rules.
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::{Group, hierarchies};
use crate::shim::sys;
use crate::users;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRule {
    /// `c`, `b`, or `a` for both.
    pub kind: char,
    /// None is any.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Some of `rwm`.
    pub access: String,
}

impl DeviceRule {
    fn line(&self) -> String {
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        format!("{} {}:{} {}", self.kind, number(self.major), number(self.minor), self.access)
    }
}

/// Denies everything but `allowed`. In a user namespace nobody can make a device, and there are only those
/// of the host that the container was given.
pub fn restrict_devices(group: &Group, allowed: &[DeviceRule]) -> io::Result<()> {
    if !users::is_initial() {
        return Ok(());
    }
    let found = |fits: fn(&super::Hierarchy) -> bool| {
        hierarchies().iter().find(|h| fits(h)).map(|h| h.root.join(&group.path))
    };
    match (found(|h| h.has("devices")), found(super::Hierarchy::is_v2)) {
        (Some(folder), _) => {
            fs::write(folder.join("devices.deny"), "a")?;
            for rule in allowed {
                fs::write(folder.join("devices.allow"), rule.line())?;
            }
            Ok(())
        }
        (None, Some(folder)) => attach(&folder, allowed),
        (None, None) => Err(io::Error::other("there is no control group for devices")),
    }
}

fn attach(folder: &Path, allowed: &[DeviceRule]) -> io::Result<()> {
    sys::attach_device_program(File::open(folder)?.as_fd(), &program(allowed))
}

/// Registers: what the kernel tells in 1, then kind, access, major, minor.
const CONTEXT: u64 = 1;
const ACCESS: u64 = 2;
const KIND: u64 = 3;
const MAJOR: u64 = 4;
const MINOR: u64 = 5;

/// The program: for each rule, leave it if something does not fit, else allow; deny at the end.
fn program(allowed: &[DeviceRule]) -> Vec<u64> {
    let mut program = vec![
        load_word(ACCESS, CONTEXT, 0),
        load_word(MAJOR, CONTEXT, 4),
        load_word(MINOR, CONTEXT, 8),
        // One word holds the access wanted above and the kind of device below.
        instruction(MOVE, KIND, ACCESS, 0, 0),
        instruction(AND_NUMBER, KIND, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT_NUMBER, ACCESS, 0, 0, 16),
    ];
    for rule in allowed {
        let mut checks: Vec<(u64, u32)> = Vec::new();
        match rule.kind {
            'b' => checks.push((KIND, 1)),
            'c' => checks.push((KIND, 2)),
            _ => {}
        }
        checks.extend(rule.major.map(|major| (MAJOR, major)));
        checks.extend(rule.minor.map(|minor| (MINOR, minor)));
        let bits = rule.access.chars().map(|access| match access {
            'm' => 1,
            'r' => 2,
            'w' => 4,
            _ => 0,
        });
        let mask: u32 = bits.sum();
        let mut part: Vec<u64> = Vec::new();
        // After the checks: three instructions about access, two to allow.
        for (at, (register, value)) in checks.iter().enumerate() {
            let ahead = checks.len() - at - 1 + 5;
            part.push(instruction(JUMP_NOT_NUMBER, *register, 0, ahead as u64, *value));
        }
        part.push(instruction(MOVE, CONTEXT, ACCESS, 0, 0));
        part.push(instruction(AND_NUMBER, CONTEXT, 0, 0, mask));
        part.push(instruction(JUMP_NOT, CONTEXT, ACCESS, 2, 0));
        part.extend(answer(1));
        program.extend(part);
    }
    program.extend(answer(0));
    program
}

fn answer(value: u32) -> [u64; 2] {
    [instruction(MOVE_NUMBER, 0, 0, 0, value), instruction(EXIT, 0, 0, 0, 0)]
}

const LOAD_WORD: u64 = 0x61;
const MOVE: u64 = 0xbc;
const MOVE_NUMBER: u64 = 0xb4;
const AND_NUMBER: u64 = 0x54;
const SHIFT_RIGHT_NUMBER: u64 = 0x74;
const JUMP_NOT: u64 = 0x5d;
const JUMP_NOT_NUMBER: u64 = 0x55;
const EXIT: u64 = 0x95;

fn load_word(to: u64, from: u64, offset: u64) -> u64 {
    instruction(LOAD_WORD, to, from, offset, 0)
}

/// The kernel's layout: operation, registers, offset, number.
fn instruction(operation: u64, to: u64, from: u64, offset: u64, number: u32) -> u64 {
    operation | to << 8 | from << 12 | offset << 16 | u64::from(number) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn rule(kind: char, major: u32, minor: u32, access: &str) -> DeviceRule {
        DeviceRule { kind, major: Some(major), minor: Some(minor), access: access.to_owned() }
    }

    #[test]
    fn a_v2_group_allows_what_the_rules_say_and_nothing_else() {
        let v2 = hierarchies().iter().find(|h| h.is_v2()).expect("some v2 hierarchy is mounted");
        let folder = v2.root.join(format!("skiff/device-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let rules = [rule('c', 1, 3, "rwm"), rule('c', 1, 5, "r"), rule('b', 1, 9, "rwm")];
        attach(&folder, &rules).unwrap();
        let script = format!(
            "echo $$ > {}/cgroup.procs; \
             echo x > /dev/null && echo null; head -c 1 /dev/zero | wc -c; \
             (echo x > /dev/zero) 2>/dev/null || echo no zero; \
             head -c 1 /dev/urandom 2>/dev/null || echo no random; \
             echo $$ > {}/cgroup.procs",
            folder.display(),
            v2.root.display()
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        fs::remove_dir(&folder).unwrap();
        let seen = String::from_utf8_lossy(&output.stdout);
        assert_eq!(seen, "null\n1\nno zero\nno random\n", "{output:?}");
    }

    #[test]
    fn rules_are_written_as_v1_wants_them() {
        let any = DeviceRule { kind: 'a', major: None, minor: None, access: "rwm".to_owned() };
        assert_eq!(any.line(), "a *:* rwm");
        assert_eq!(rule('c', 1, 3, "r").line(), "c 1:3 r");
    }
}
