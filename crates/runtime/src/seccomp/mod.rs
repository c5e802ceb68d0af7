//! System call filters: profiles, and the programs the kernel runs.
//!
//! A profile is a list of rules, ours ([`default`]) or a file's ([`profile`]); [`compile`] turns it
//! into a program. The compiler is ours because a profile may say different things about different
//! calls (allow, fail with this error, log, kill), which the libraries without C do not express.
//!
//! A call by another instruction set (a 32-bit program, x32) fails as if the kernel did not know
//! it: one list of numbers is enough then.
mod default;
mod profile;

pub use default::default_profile;
pub use profile::{InvalidProfile, parse};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Allow,
    Errno(u16),
    Log,
    Trap,
    KillThread,
    KillProcess,
    Trace(u16),
}

impl Action {
    fn value(self) -> u32 {
        match self {
            Action::KillProcess => 0x8000_0000,
            Action::KillThread => 0,
            Action::Trap => 0x0003_0000,
            Action::Errno(number) => 0x0005_0000 | u32::from(number),
            Action::Trace(number) => 0x7ff0_0000 | u32::from(number),
            Action::Log => 0x7ffc_0000,
            Action::Allow => 0x7fff_0000,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    LessOrEqual(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    /// Mask, then value.
    Masked(u64, u64),
}

/// All conditions on arguments must hold.
#[derive(Debug, Clone)]
pub struct Rule {
    pub names: Vec<String>,
    pub action: Action,
    pub arguments: Vec<(u32, Comparison)>,
}

#[derive(Debug, Clone)]
pub struct Profile {
    pub default: Action,
    pub rules: Vec<Rule>,
}

#[derive(Debug, thiserror::Error)]
#[error("the profile is too long: {0} instructions")]
pub struct TooLong(usize);

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Calls of the x32 kind have this bit.
const X32: u32 = 0x4000_0000;
/// The kernel's own limit.
const LENGTH_LIMIT: usize = 4096;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Where the kernel puts a call's number, instruction set and arguments.
const AT_NUMBER: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
const AT_ARGUMENTS: u32 = 16;

#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    on_true: Jump,
    on_false: Jump,
    value: u32,
}

#[derive(Debug, Clone, Copy)]
enum Jump {
    Ahead(u8),
    /// To the end of the rule: it does not apply.
    Fail,
}

fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, on_true: Jump::Ahead(0), on_false: Jump::Ahead(0), value }
}

fn branch(code: u16, value: u32, on_true: Jump, on_false: Jump) -> Instruction {
    Instruction { code, on_true, on_false, value }
}

/// The program, eight bytes an instruction. Calls that this kernel's tables do not name are left to
/// the default action.
pub fn compile(profile: &Profile) -> Result<Vec<u8>, TooLong> {
    use std::collections::BTreeMap;
    let mut calls: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in &profile.rules {
        for name in &rule.names {
            if let Ok(number) = name.parse::<syscalls::Sysno>() {
                calls.entry(number.id() as u32).or_default().push(rule);
            }
        }
    }
    let unknown = Action::Errno(libc::ENOSYS as u16).value();
    let mut program = vec![
        plain(LOAD, AT_ARCHITECTURE),
        branch(JUMP_EQUAL, ARCHITECTURE, Jump::Ahead(1), Jump::Ahead(0)),
        plain(RETURN, unknown),
        plain(LOAD, AT_NUMBER),
        branch(JUMP_GREATER_OR_EQUAL, X32, Jump::Ahead(0), Jump::Ahead(1)),
        plain(RETURN, unknown),
    ];
    for (number, rules) in calls {
        let block = block(&rules, profile.default);
        let length = u8::try_from(block.len()).map_err(|_| TooLong(block.len()))?;
        program.push(branch(JUMP_EQUAL, number, Jump::Ahead(0), Jump::Ahead(length)));
        program.extend(block);
    }
    program.push(plain(RETURN, profile.default.value()));
    if program.len() > LENGTH_LIMIT {
        return Err(TooLong(program.len()));
    }
    Ok(program.iter().flat_map(|instruction| bytes(*instruction)).collect())
}

/// What is done about one call: its rules in order, then the default.
fn block(rules: &[&Rule], default: Action) -> Vec<Instruction> {
    let mut block = Vec::new();
    for rule in rules {
        let mut part = Vec::new();
        for (index, comparison) in &rule.arguments {
            part.extend(condition(*index, *comparison));
        }
        part.push(plain(RETURN, rule.action.value()));
        let end = part.len();
        for (at, instruction) in part.iter_mut().enumerate() {
            for jump in [&mut instruction.on_true, &mut instruction.on_false] {
                if matches!(jump, Jump::Fail) {
                    *jump = Jump::Ahead((end - at - 1) as u8);
                }
            }
        }
        block.extend(part);
        if rule.arguments.is_empty() {
            return block;
        }
    }
    block.push(plain(RETURN, default.value()));
    block
}

/// Goes on if the argument fits, else jumps to the rule's end.
fn condition(index: u32, comparison: Comparison) -> Vec<Instruction> {
    use Jump::{Ahead, Fail};
    let low = plain(LOAD, AT_ARGUMENTS + 8 * index);
    let high = plain(LOAD, AT_ARGUMENTS + 8 * index + 4);
    let parts = |value: u64| ((value >> 32) as u32, value as u32);
    match comparison {
        Comparison::Equal(value) => {
            let (h, l) = parts(value);
            vec![
                high,
                branch(JUMP_EQUAL, h, Ahead(0), Fail),
                low,
                branch(JUMP_EQUAL, l, Ahead(0), Fail),
            ]
        }
        Comparison::NotEqual(value) => {
            let (h, l) = parts(value);
            vec![
                high,
                branch(JUMP_EQUAL, h, Ahead(0), Ahead(2)),
                low,
                branch(JUMP_EQUAL, l, Fail, Ahead(0)),
            ]
        }
        Comparison::Masked(mask, value) => {
            let ((mask_high, mask_low), (h, l)) = (parts(mask), parts(value));
            vec![
                high,
                plain(AND, mask_high),
                branch(JUMP_EQUAL, h, Ahead(0), Fail),
                low,
                plain(AND, mask_low),
                branch(JUMP_EQUAL, l, Ahead(0), Fail),
            ]
        }
        Comparison::Greater(value) | Comparison::GreaterOrEqual(value) => {
            let (h, l) = parts(value);
            let last = match comparison {
                Comparison::Greater(_) => JUMP_GREATER,
                _ => JUMP_GREATER_OR_EQUAL,
            };
            vec![
                high,
                branch(JUMP_GREATER, h, Ahead(3), Ahead(0)),
                branch(JUMP_EQUAL, h, Ahead(0), Fail),
                low,
                branch(last, l, Ahead(0), Fail),
            ]
        }
        Comparison::Less(value) | Comparison::LessOrEqual(value) => {
            let (h, l) = parts(value);
            let last = match comparison {
                Comparison::Less(_) => JUMP_GREATER_OR_EQUAL,
                _ => JUMP_GREATER,
            };
            vec![
                high,
                branch(JUMP_GREATER, h, Fail, Ahead(0)),
                branch(JUMP_EQUAL, h, Ahead(0), Ahead(2)),
                low,
                branch(last, l, Fail, Ahead(0)),
            ]
        }
    }
}

fn bytes(instruction: Instruction) -> [u8; 8] {
    let jump = |jump| match jump {
        Jump::Ahead(count) => count,
        Jump::Fail => unreachable!("resolved when its rule was laid out"),
    };
    let [a, b] = instruction.code.to_ne_bytes();
    let [c, d, e, f] = instruction.value.to_ne_bytes();
    [a, b, jump(instruction.on_true), jump(instruction.on_false), c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn run(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_ne_bytes());
        data.extend(architecture.to_ne_bytes());
        data.extend(0u64.to_ne_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let i = &program[at * 8..at * 8 + 8];
            let value = u32::from_ne_bytes([i[4], i[5], i[6], i[7]]);
            let jump = |taken: bool| usize::from(if taken { i[2] } else { i[3] });
            match u16::from_ne_bytes([i[0], i[1]]) {
                LOAD => {
                    let at = value as usize;
                    accumulator = u32::from_ne_bytes(data[at..at + 4].try_into().unwrap());
                }
                AND => accumulator &= value,
                JUMP_EQUAL => at += jump(accumulator == value),
                JUMP_GREATER => at += jump(accumulator > value),
                JUMP_GREATER_OR_EQUAL => at += jump(accumulator >= value),
                RETURN => return value,
                code => panic!("no instruction {code:#x}"),
            }
            at += 1;
        }
    }

    fn number(name: &str) -> u32 {
        name.parse::<syscalls::Sysno>().unwrap().id() as u32
    }

    #[test]
    fn comparisons_see_all_64_bits() {
        let big = 0x1_0000_0005u64;
        for (comparison, value, holds) in [
            (Comparison::Equal(big), big, true),
            (Comparison::Equal(big), 5, false),
            (Comparison::NotEqual(big), 5, true),
            (Comparison::NotEqual(big), big, false),
            (Comparison::Less(big), big, false),
            (Comparison::Less(big), big - 1, true),
            (Comparison::Less(big), 7, true),
            (Comparison::Less(big), 0x2_0000_0000, false),
            (Comparison::LessOrEqual(big), big, true),
            (Comparison::LessOrEqual(big), big + 1, false),
            (Comparison::Greater(big), big, false),
            (Comparison::Greater(big), 0x2_0000_0000, true),
            (Comparison::Greater(big), 6, false),
            (Comparison::GreaterOrEqual(big), big, true),
            (Comparison::Masked(0xf_0000_000f, big), 0xf1_0000_00f5, true),
            (Comparison::Masked(0xf_0000_000f, big), 0xf1_0000_00f4, false),
        ] {
            let profile = Profile {
                default: Action::Errno(1),
                rules: vec![Rule {
                    names: vec!["read".to_owned()],
                    action: Action::Allow,
                    arguments: vec![(2, comparison)],
                }],
            };
            let program = compile(&profile).unwrap();
            let result = run(&program, ARCHITECTURE, number("read"), [0, 0, value, 0, 0, 0]);
            let expected = if holds { Action::Allow } else { Action::Errno(1) };
            assert_eq!(result, expected.value(), "{comparison:?} of {value:#x}");
        }
    }

    #[test]
    fn rules_are_tried_in_order_and_foreign_calls_are_unknown() {
        let rule = |action, arguments: &[(u32, Comparison)]| Rule {
            names: vec!["socket".to_owned(), "no_such_call".to_owned()],
            action,
            arguments: arguments.to_vec(),
        };
        let profile = Profile {
            default: Action::KillProcess,
            rules: vec![
                rule(Action::Errno(22), &[(0, Comparison::Equal(40))]),
                rule(Action::Log, &[(0, Comparison::Equal(1)), (1, Comparison::Equal(2))]),
            ],
        };
        let program = compile(&profile).unwrap();
        let socket = |a, b| run(&program, ARCHITECTURE, number("socket"), [a, b, 0, 0, 0, 0]);
        assert_eq!(socket(40, 2), Action::Errno(22).value());
        assert_eq!(socket(1, 2), Action::Log.value());
        assert_eq!(socket(1, 3), Action::KillProcess.value());
        let unknown = Action::Errno(libc::ENOSYS as u16).value();
        assert_eq!(run(&program, 0x4000_0003, number("socket"), [0; 6]), unknown);
        assert_eq!(run(&program, ARCHITECTURE, number("socket") | X32, [0; 6]), unknown);
    }

    #[test]
    fn the_default_lets_programs_run_and_keeps_the_kernel_s_doors_shut() {
        let verdict = |capabilities: u64, name: &str, arguments| {
            let program = compile(&default_profile(capabilities)).unwrap();
            run(&program, ARCHITECTURE, number(name), arguments)
        };
        let allow = Action::Allow.value();
        for name in ["read", "execve", "futex", "openat", "mmap", "connect", "clock_nanosleep"] {
            assert_eq!(verdict(0, name, [0; 6]), allow, "{name}");
        }
        for name in ["mount", "bpf", "init_module", "kexec_load", "reboot", "unshare"]
            .iter()
            .filter(|name| name.parse::<syscalls::Sysno>().is_ok())
        {
            assert_eq!(verdict(0, name, [0; 6]), Action::Errno(1).value(), "{name}");
        }
        let new_user_namespace = [0x1000_0000, 0, 0, 0, 0, 0];
        assert_eq!(verdict(0, "clone", [0x11, 0, 0, 0, 0, 0]), allow);
        assert_eq!(verdict(0, "clone", new_user_namespace), Action::Errno(1).value());
        assert_eq!(verdict(0, "clone3", [0; 6]), Action::Errno(libc::ENOSYS as u16).value());
        let admin = 1 << 21;
        assert_eq!(verdict(admin, "clone", new_user_namespace), allow);
        assert_eq!(verdict(admin, "mount", [0; 6]), allow);
    }
}
