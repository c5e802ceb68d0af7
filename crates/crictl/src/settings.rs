//! Which sockets are meant and how long to wait: the command line, then the environment, then the file
//! (`/etc/crictl.yaml`), then what is usual.
use crate::failure::{Outcome, While};
use crate::flags::{Arguments, is_true};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long is waited for an answer if nobody says how long.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub file: PathBuf,
    pub runtime_endpoint: String,
    pub image_endpoint: String,
    pub timeout: Duration,
    pub debug: bool,
    /// How often a socket is tried again; negative: for ever.
    pub retries: i64,
    pub pull_image_on_create: bool,
    pub disable_pull_on_run: bool,
}

/// The file's options: one row each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct File {
    pub runtime_endpoint: String,
    pub image_endpoint: String,
    pub timeout: i64,
    pub debug: bool,
    pub pull_image_on_create: bool,
    pub disable_pull_on_run: bool,
    pub max_retries: i64,
}

/// An option by its name, and how it is shown and set.
pub struct Row {
    pub name: &'static str,
    pub show: fn(&File) -> String,
    set: fn(&mut File, &str) -> Option<()>,
}

pub static OPTIONS: &[Row] = &[
    Row {
        name: "runtime-endpoint",
        show: |file| file.runtime_endpoint.clone(),
        set: |file, value| {
            value.clone_into(&mut file.runtime_endpoint);
            Some(())
        },
    },
    Row {
        name: "image-endpoint",
        show: |file| file.image_endpoint.clone(),
        set: |file, value| {
            value.clone_into(&mut file.image_endpoint);
            Some(())
        },
    },
    Row {
        name: "timeout",
        show: |file| file.timeout.to_string(),
        set: |file, value| value.parse().ok().map(|number| file.timeout = number),
    },
    Row {
        name: "debug",
        show: |file| file.debug.to_string(),
        set: |file, value| is_true(value).map(|is| file.debug = is),
    },
    Row {
        name: "pull-image-on-create",
        show: |file| file.pull_image_on_create.to_string(),
        set: |file, value| is_true(value).map(|is| file.pull_image_on_create = is),
    },
    Row {
        name: "disable-pull-on-run",
        show: |file| file.disable_pull_on_run.to_string(),
        set: |file, value| is_true(value).map(|is| file.disable_pull_on_run = is),
    },
    Row {
        name: "max-retries",
        show: |file| file.max_retries.to_string(),
        set: |file, value| value.parse().ok().map(|number| file.max_retries = number),
    },
];

impl File {
    pub fn read(path: &Path) -> Outcome<File> {
        let named = |error| format!("open {}: {}", path.display(), io_text(&error));
        let bytes = std::fs::read(path).map_err(named)?;
        File::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Outcome<File> {
        let mut file = File::default();
        let read = api::codec::yaml::decode_untyped(bytes);
        let fields = match read.map_err(|error| error.to_string())?.value {
            Value::Null => return Ok(file),
            Value::Object(fields) => fields,
            _ => return Err("the config is no list of options".into()),
        };
        for (name, value) in &fields {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => return Err(format!("parsing config option '{name}': it is no scalar").into()),
            };
            let row = OPTIONS.iter().find(|row| row.name == name);
            let row = row.ok_or_else(|| format!("Config option '{name}' is not valid"))?;
            (row.set)(&mut file, &value).ok_or_else(|| {
                format!(
                    "parsing config option '{name}': invalid syntax in \"{}\"",
                    value.escape_debug()
                )
            })?;
        }
        Ok(file)
    }

    pub fn set(&mut self, name: &str, value: &str) -> Outcome {
        let row = OPTIONS.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| format!("no configuration option named {name}"))?;
        Ok((row.set)(self, value)
            .ok_or_else(|| format!("parse {name} value '{value}': invalid syntax"))?)
    }

    /// The options as the file has them.
    pub fn to_text(&self) -> String {
        let line = |row: &Row| {
            let value = (row.show)(self);
            let shown = match row.name.ends_with("endpoint") {
                // Quoted, since a person may have put anything there.
                true => Value::from(value).to_string(),
                false => value,
            };
            format!("{}: {shown}\n", row.name)
        };
        OPTIONS.iter().map(line).collect()
    }
}

impl Settings {
    /// `lenient`: a file that is missing or broken is none.
    pub fn read(global: &Arguments, endpoint: &str, lenient: bool) -> Outcome<Settings> {
        let path = PathBuf::from(global.text("config"));
        let file = match File::read(&path) {
            Ok(file) => Some(file),
            Err(error) if global.given("config") && !lenient => {
                return Err(error).during(|| "get server config".to_owned());
            }
            // Upstream does not mind either, unless the file was named: but a default that is
            // there and broken would silently lead to another runtime.
            Err(error) if path.exists() && !lenient => {
                return Err(error).during(|| format!("get server config {}", path.display()));
            }
            Err(_) => None,
        };
        Ok(Settings::of(global, endpoint, path, file.as_ref()))
    }

    fn of(global: &Arguments, endpoint: &str, path: PathBuf, file: Option<&File>) -> Settings {
        let text = |name: &str, of_file: fn(&File) -> &String| match global.given(name) {
            true => Some(global.text(name)),
            false => file.map(of_file).cloned().filter(|text| !text.is_empty()),
        };
        let runtime = text("runtime-endpoint", |file| &file.runtime_endpoint);
        let retries = match (&runtime, file) {
            (None, _) => 0,
            (Some(_), Some(file)) if !global.given("max-retries") => file.max_retries,
            _ => global.number("max-retries"),
        };
        let of_file = file.and_then(|file| u64::try_from(file.timeout).ok()).filter(|s| *s > 0);
        let timeout = match (global.given("timeout"), of_file) {
            (false, Some(seconds)) => Duration::from_secs(seconds),
            _ => global.span("timeout").unwrap_or(TIMEOUT),
        };
        let runtime_endpoint = runtime.unwrap_or_else(|| endpoint.to_owned());
        Settings {
            image_endpoint: text("image-endpoint", |file| &file.image_endpoint)
                .unwrap_or_else(|| runtime_endpoint.clone()),
            runtime_endpoint,
            file: path,
            timeout,
            debug: match global.given("debug") {
                true => global.is("debug"),
                false => file.is_some_and(|file| file.debug),
            },
            retries,
            pull_image_on_create: file.is_some_and(|file| file.pull_image_on_create),
            disable_pull_on_run: file.is_some_and(|file| file.disable_pull_on_run),
        }
    }
}

/// An error of a file in Go's words.
pub fn io_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::GLOBAL;

    fn settings(line: &str, file: Option<&str>) -> Settings {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let global = Arguments::parse(&[GLOBAL], &words).unwrap();
        let file = file.map(|text| File::parse(text.as_bytes()).unwrap());
        Settings::of(&global, "unix:///ours", PathBuf::new(), file.as_ref())
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let bare = settings("ps", None);
        assert_eq!(
            (&*bare.runtime_endpoint, &*bare.image_endpoint),
            ("unix:///ours", "unix:///ours")
        );
        assert_eq!((bare.timeout, bare.retries), (TIMEOUT, 0));
        let text = "runtime-endpoint: unix:///a\ntimeout: 7\ndebug: true\nmax-retries: 1\n";
        let of_file = settings("ps", Some(text));
        assert_eq!((&*of_file.image_endpoint, of_file.timeout.as_secs()), ("unix:///a", 7));
        assert!(of_file.debug && of_file.retries == 1);
        let both = settings("-r unix:///b -t 0s --debug=false ps", Some(text));
        assert_eq!(
            (&*both.runtime_endpoint, both.timeout, both.debug),
            ("unix:///b", TIMEOUT, false)
        );
        assert_eq!(settings("-r unix:///b ps", None).retries, 3);
    }

    #[test]
    fn a_broken_file_is_told() {
        for (text, fault) in [
            ("bogus: 1", "Config option 'bogus' is not valid"),
            ("timeout: soon", "parsing config option 'timeout': invalid syntax in \"soon\""),
            ("debug: [1]", "parsing config option 'debug': it is no scalar"),
            ("- a", "the config is no list of options"),
        ] {
            assert_eq!(File::parse(text.as_bytes()).unwrap_err().message().unwrap(), fault);
        }
        assert!(File::parse(b"a: {").is_err() && File::parse(&[0xff, 0xfe]).is_err());
        assert_eq!(File::parse(b"").unwrap(), File::default());
    }

    #[test]
    fn what_is_set_is_read_again() {
        let mut file = File::default();
        for (name, value) in
            [("runtime-endpoint", "unix:///x # \"y\""), ("timeout", "5"), ("debug", "true")]
        {
            file.set(name, value).unwrap();
        }
        assert_eq!(File::parse(file.to_text().as_bytes()).unwrap(), file);
        assert!(file.set("debug", "maybe").is_err() && file.set("no", "1").is_err());
    }
}
