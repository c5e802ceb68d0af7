//! How long programs had to wait for processors, memory or disks: the kernel's pressure files, of a group
//! (v2) or of the machine (`/proc/pressure`).
use std::fs;
use std::path::Path;

/// Of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// All programs waited at once.
    pub full: Stall,
    /// At least one did.
    pub some: Stall,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// Microseconds.
    pub total: u64,
    /// Per cent of the last so many seconds.
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
}

impl Pressure {
    /// Nothing where the kernel does not measure it: the file is missing then, or cannot be read.
    pub fn read(file: &Path) -> Option<Pressure> {
        Pressure::parse(&fs::read_to_string(file).ok()?)
    }

    /// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same with `full`, which older kernels do
    /// not have of processors.
    pub fn parse(text: &str) -> Option<Pressure> {
        let line = |kind: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
            let word = |name: &str| {
                let mut words = rest.split_whitespace().filter_map(|word| word.split_once('='));
                words.find(|(known, _)| *known == name).map(|(_, value)| value)
            };
            let average = |name| word(name).and_then(|value| value.parse().ok()).unwrap_or(0.0);
            Some(Stall {
                total: word("total")?.parse().ok()?,
                avg10: average("avg10"),
                avg60: average("avg60"),
                avg300: average("avg300"),
            })
        };
        Some(Pressure { full: line("full").unwrap_or_default(), some: line("some")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        let text = "some avg10=1.50 avg60=0.20 avg300=0.03 total=123456\n\
                    full avg10=0.50 avg60=0.10 avg300=0.01 total=456\n";
        let some = Stall { total: 123_456, avg10: 1.5, avg60: 0.2, avg300: 0.03 };
        let full = Stall { total: 456, avg10: 0.5, avg60: 0.1, avg300: 0.01 };
        assert_eq!(Pressure::parse(text), Some(Pressure { full, some }));
        let only_some = text.lines().next().unwrap();
        assert_eq!(Pressure::parse(only_some).unwrap().full, Stall::default());
        for broken in ["", "some", "some total=x", "full total=1", "some avg10=1.0"] {
            assert_eq!(Pressure::parse(broken), None, "{broken}");
        }
        assert_eq!(Pressure::read(Path::new("/no/such")), None);
    }
}
