//! `cpuManagerPolicyOptions`: how the static policy gives processors away, and what cannot be had together
//! (`pkg/kubelet/cm/cpumanager/policy_options.go`).

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    /// `full-pcpus-only`: nobody shares a core with a container that has processors for itself.
    pub whole_cores: bool,
    /// `strict-cpu-reservation`: what is reserved is not shared by pods either.
    pub strict_reservation: bool,
    /// `distribute-cpus-across-numa`: where one NUMA node is not enough, all give the same.
    pub across_numa: bool,
    /// `distribute-cpus-across-cores`: processors of different cores rather than whole cores.
    pub across_cores: bool,
    /// `align-by-socket`: what is on one socket is near enough.
    pub by_socket: bool,
    /// `prefer-align-cpus-by-uncorecache`: processors that share a cache, if it can be.
    pub by_cache: bool,
}

/// An option: its name, whether it is one of those that a gate keeps, and its place.
struct Row {
    name: &'static str,
    is_alpha: bool,
    place: fn(&mut Options) -> &mut bool,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "full-pcpus-only", is_alpha: false, place: |all| &mut all.whole_cores },
    Row { name: "distribute-cpus-across-numa", is_alpha: false, place: |all| &mut all.across_numa },
    Row { name: "align-by-socket", is_alpha: true, place: |all| &mut all.by_socket },
    Row { name: "distribute-cpus-across-cores", is_alpha: true, place: |all| &mut all.across_cores },
    Row { name: "strict-cpu-reservation", is_alpha: false, place: |all| &mut all.strict_reservation },
    Row { name: "prefer-align-cpus-by-uncorecache", is_alpha: false, place: |all| &mut all.by_cache },
];

/// What cannot be had together.
const APART: &[(&str, &str)] = &[
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
];

impl Options {
    /// `NAME=true`; `alpha` is the gate `CPUManagerPolicyAlphaOptions`.
    pub fn parse(options: &[String], alpha: bool) -> Result<Options, String> {
        let mut parsed = Options::default();
        let mut on = Vec::new();
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(row) = ROWS.iter().find(|row| row.name == name) else {
                return Err(format!("unknown CPU Manager Policy option: {name:?}"));
            };
            if row.is_alpha && !alpha {
                return Err(format!(
                    "CPU Manager Policy Alpha-level Options not enabled, but option {name:?} provided"
                ));
            }
            let is_on = go_bool(value).ok_or_else(|| {
                format!(
                    "bad value for option {name:?}: strconv.ParseBool: parsing {value:?}: invalid syntax"
                )
            })?;
            *(row.place)(&mut parsed) = is_on;
            on.extend(Some(name).filter(|_| is_on));
        }
        for (one, other) in APART {
            if on.contains(one) && on.contains(other) {
                return Err(format!(
                    "static policy options {one} and {other} can not be used at the same time"
                ));
            }
        }
        Ok(parsed)
    }
}

/// As Go's `strconv.ParseBool` reads it.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, alpha: bool, expected: Result<Options, &str>) {
        let given: Vec<String> = given.split(',').map(str::to_owned).collect();
        assert_eq!(Options::parse(&given, alpha), expected.map_err(str::to_owned), "{given:?}");
    }

    #[test]
    fn options_are_upstreams() {
        let usual = Options::default();
        check("full-pcpus-only=true", false, Ok(Options { whole_cores: true, ..usual }));
        check("strict-cpu-reservation=1", false, Ok(Options { strict_reservation: true, ..usual }));
        check("distribute-cpus-across-numa=T", false, Ok(Options { across_numa: true, ..usual }));
        check("prefer-align-cpus-by-uncorecache=t", false, Ok(Options { by_cache: true, ..usual }));
        check("distribute-cpus-across-numa=false", false, Ok(usual));
        check("align-by-socket=true", true, Ok(Options { by_socket: true, ..usual }));
        let both = Options { whole_cores: true, across_numa: true, ..usual };
        check("full-pcpus-only=true,distribute-cpus-across-numa=true", false, Ok(both));
        check(
            "align-by-socket=true",
            false,
            Err(
                "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided",
            ),
        );
        check("x=true", true, Err("unknown CPU Manager Policy option: \"x\""));
        check(
            "full-pcpus-only",
            false,
            Err(
                "bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"\": invalid syntax",
            ),
        );
    }

    #[test]
    fn some_cannot_be_had_together() {
        for (one, other) in APART {
            let said =
                format!("static policy options {one} and {other} can not be used at the same time");
            check(&format!("{other}=true,{one}=true"), true, Err(&said));
            assert!(
                Options::parse(&[format!("{one}=false"), format!("{other}=true")], true).is_ok()
            );
        }
    }
}
