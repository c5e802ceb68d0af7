//! Profiles in files, as `Localhost` profiles come: OCI's JSON.
use serde::Deserialize;

use super::{Action, Comparison, Profile, Rule};

#[derive(Debug, thiserror::Error)]
pub enum InvalidProfile {
    #[error("the seccomp profile is not valid")]
    Json(#[from] serde_json::Error),
    #[error("the seccomp profile has an unknown {what} {name:?}")]
    Unknown { what: &'static str, name: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    default_action: String,
    default_errno_ret: Option<u16>,
    #[serde(default)]
    syscalls: Vec<Calls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u16>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

pub fn parse(text: &[u8]) -> Result<Profile, InvalidProfile> {
    let file: File = serde_json::from_slice(text)?;
    let mut rules = Vec::new();
    for calls in file.syscalls {
        let mut arguments = Vec::new();
        for argument in calls.args.unwrap_or_default() {
            if argument.index > 5 {
                let name = argument.index.to_string();
                return Err(InvalidProfile::Unknown { what: "argument", name });
            }
            arguments.push((argument.index, comparison(&argument)?));
        }
        let action = action(&calls.action, calls.errno_ret)?;
        rules.push(Rule { names: calls.names, action, arguments });
    }
    Ok(Profile { default: action(&file.default_action, file.default_errno_ret)?, rules })
}

fn action(name: &str, errno: Option<u16>) -> Result<Action, InvalidProfile> {
    let errno = errno.unwrap_or(libc::EPERM as u16);
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_ERRNO" => Action::Errno(errno),
        "SCMP_ACT_LOG" => Action::Log,
        "SCMP_ACT_TRAP" => Action::Trap,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_TRACE" => Action::Trace(errno),
        _ => return Err(InvalidProfile::Unknown { what: "action", name: name.to_owned() }),
    })
}

fn comparison(argument: &Argument) -> Result<Comparison, InvalidProfile> {
    let value = argument.value;
    Ok(match argument.op.as_str() {
        "SCMP_CMP_EQ" => Comparison::Equal(value),
        "SCMP_CMP_NE" => Comparison::NotEqual(value),
        "SCMP_CMP_LT" => Comparison::Less(value),
        "SCMP_CMP_LE" => Comparison::LessOrEqual(value),
        "SCMP_CMP_GT" => Comparison::Greater(value),
        "SCMP_CMP_GE" => Comparison::GreaterOrEqual(value),
        "SCMP_CMP_MASKED_EQ" => Comparison::Masked(value, argument.value_two),
        name => {
            return Err(InvalidProfile::Unknown { what: "comparison", name: name.to_owned() });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_and_mistakes_named() {
        let text = br#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5,
                          "args": [{"index": 1, "value": 2, "op": "SCMP_CMP_EQ"}]}]}"#;
        let profile = parse(text).unwrap();
        assert_eq!(profile.default, Action::Allow);
        assert_eq!(profile.rules[0].action, Action::Errno(5));
        assert_eq!(profile.rules[0].arguments, [(1, Comparison::Equal(2))]);
        let wrong = parse(br#"{"defaultAction": "SCMP_ACT_SING"}"#).unwrap_err();
        assert!(wrong.to_string().contains("SCMP_ACT_SING"), "{wrong}");
    }
}
