//! `config`: the options of `/etc/crictl.yaml`.
use super::Command;
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, list, switch, text};
use crate::print::{self, WIDE};
use crate::session::Session;
use crate::settings::{File, OPTIONS, io_text};
use api::quote::Quoted;
use std::path::Path;

static FLAGS: &[Flag] = &[
    text("get", "Show the option value"),
    list("set", "Set options: opt1=val1,opt2=val2; may be repeated"),
    switch("list", "Show all option value"),
];

pub static COMMAND: Command = Command {
    name: "config",
    about: "Get, set and list crictl configuration options",
    usage: "[OPTION VALUE]",
    flags: &[FLAGS],
    run: |session, arguments| Box::pin(async move { run(session, &arguments) }),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let path = session.settings.file.clone();
    if !path.exists() {
        write(&path, &File::default())?;
    }
    let mut file = File::read(&path).during(|| "load config file".to_owned())?;
    if arguments.given("get") {
        let name = arguments.text("get");
        let row = OPTIONS.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| format!("no configuration option named {name}"))?;
        return Ok(writeln!(session.out, "{}", (row.show)(&file))?);
    }
    if arguments.given("set") {
        for option in arguments.list("set") {
            match option.split_once('=') {
                Some((name, value)) if !value.contains('=') => file.set(name, value)?,
                _ => return Err(format!("incorrectly specified option: {option}").into()),
            }
        }
        return write(&path, &file);
    }
    if arguments.is("list") {
        let mut rows = vec![vec!["KEY".to_owned(), "VALUE".to_owned()]];
        rows.extend(OPTIONS.iter().map(|row| vec![row.name.to_owned(), (row.show)(&file)]));
        return Ok(session.out.write_all(print::table(&rows, WIDE).as_bytes())?);
    }
    let Some(name) = arguments.words.first().filter(|name| !name.is_empty()) else {
        return Err(Failure::Help);
    };
    let value = arguments.words.get(1).map_or("", String::as_str);
    let (shown, to) = (Quoted(name), Quoted(value));
    let text = format!("No --get, --set or --list provided, setting key {shown} to value {to}");
    session.log(Level::Info, &text)?;
    file.set(name, value).during(|| format!("set {shown} to {to}"))?;
    write(&path, &file)
}

/// Whole or not at all.
fn write(path: &Path, file: &File) -> Outcome {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let named = |error| Failure::Said(format!("open {}: {}", path.display(), io_text(&error)));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(named)?;
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let _ = std::fs::remove_file(&new);
    let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    options.and_then(|mut to| to.write_all(file.to_text().as_bytes())).map_err(named)?;
    std::fs::rename(&new, path).map_err(named)
}
