//! Signals by name: an image says `SIGQUIT` or `3`, CRI has an enumeration of such names.
use crate::cri::v1::Signal;

#[rustfmt::skip]
const NAMES: &[(&str, i32)] = &[
    ("HUP", 1), ("INT", 2), ("QUIT", 3), ("ILL", 4), ("TRAP", 5), ("ABRT", 6), ("IOT", 6),
    ("BUS", 7), ("FPE", 8), ("KILL", 9), ("USR1", 10), ("SEGV", 11), ("USR2", 12), ("PIPE", 13),
    ("ALRM", 14), ("TERM", 15), ("STKFLT", 16), ("CHLD", 17), ("CLD", 17), ("CONT", 18),
    ("STOP", 19), ("TSTP", 20), ("TTIN", 21), ("TTOU", 22), ("URG", 23), ("XCPU", 24),
    ("XFSZ", 25), ("VTALRM", 26), ("PROF", 27), ("WINCH", 28), ("IO", 29), ("POLL", 29),
    ("PWR", 30), ("SYS", 31),
];
/// The first and last real-time signals a program can have.
const REAL_TIME: (i32, i32) = (34, 64);

/// What stops a container: what CRI says, what its image says, or SIGTERM.
pub fn stop_signal(asked: Signal, image: &str) -> i32 {
    let named = asked.as_str_name().strip_prefix("SIGNAL_").and_then(number);
    named.or_else(|| number(image)).unwrap_or(libc::SIGTERM)
}

fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return (1..=REAL_TIME.1).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let name = &name.replace("MINPLUS", "MIN+").replace("MAXMINUS", "MAX-");
    let (low, high) = REAL_TIME;
    let real_time = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(""), _) => Some(low),
        (_, Some("")) => Some(high),
        (Some(rest), _) => rest.strip_prefix('+')?.parse::<i32>().ok().map(|n| low + n),
        (_, Some(rest)) => rest.strip_prefix('-')?.parse::<i32>().ok().map(|n| high - n),
        _ => None,
    };
    real_time
        .filter(|number| (low..=high).contains(number))
        .or_else(|| NAMES.iter().find(|(known, _)| known == name).map(|(_, number)| *number))
}

/// CRI's word for a signal.
pub fn to_cri(number: i32) -> Signal {
    let name = NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name);
    name.and_then(|name| Signal::from_str_name(&format!("SIGNAL_SIG{name}")))
        .unwrap_or(Signal::RuntimeDefault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_in_many_ways() {
        for (text, expected) in [
            ("SIGTERM", Some(15)),
            ("quit", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGRTMINPLUS3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGRTMAXMINUS1", Some(63)),
            ("RTMIN+99", None),
            ("99", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
        assert_eq!(stop_signal(Signal::RuntimeDefault, "SIGUSR1"), 10);
        assert_eq!(stop_signal(Signal::Sigint, "SIGUSR1"), 2);
        assert_eq!(stop_signal(Signal::RuntimeDefault, ""), 15);
    }
}
