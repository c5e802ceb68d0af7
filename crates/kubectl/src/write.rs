//! What commands that write have in common: `--dry-run`, `--field-manager`, `--validate`.
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, text};
use api::codec::FieldValidation;
use client::source::Write;

pub static DRY_RUN: &[Flag] = &[text(
    "dry-run",
    "none",
    "none, client (only print what would be sent), or server (send it, store nothing).",
)
.bare("unchanged")];

pub static VALIDATE: &[Flag] = &[text(
    "validate",
    "strict",
    "What becomes of fields that the server does not know: strict (true), warn, or ignore (false).",
)
.bare("strict")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    None,
    Client,
    Server,
}

impl DryRun {
    pub fn of(arguments: &Arguments) -> Outcome<DryRun> {
        match arguments.text("dry-run") {
            "none" | "false" => Ok(DryRun::None),
            "client" | "true" => Ok(DryRun::Client),
            "server" => Ok(DryRun::Server),
            "unchanged" => {
                eprintln!("W --dry-run is deprecated and can be replaced with --dry-run=client.");
                Ok(DryRun::Client)
            }
            other => Err(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            )
            .into()),
        }
    }

    pub fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }
}

/// The options of a write as flags say them.
pub fn options(arguments: &Arguments, dry_run: DryRun) -> Outcome<Write> {
    let mut write = Write { dry_run: dry_run == DryRun::Server, ..Write::default() };
    if arguments.knows("field-manager") {
        write.field_manager = arguments.text("field-manager").to_owned();
    }
    if arguments.knows("validate") {
        write.field_validation = Some(validation(arguments)?);
    }
    Ok(write)
}

fn validation(arguments: &Arguments) -> Outcome<FieldValidation> {
    let word = match arguments.text("validate") {
        "true" | "strict" => "Strict",
        "warn" => "Warn",
        "false" | "ignore" => "Ignore",
        other => {
            return Err(format!(
                "invalid value {other:?} for --validate, must be one of: true, strict, warn, false, ignore"
            )
            .into());
        }
    };
    Ok(FieldValidation::parse(word).unwrap_or_default())
}
