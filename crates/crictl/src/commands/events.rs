//! `events`: what becomes of containers, as it happens.
use super::Command;
use crate::failure::{Failure, Outcome, While};
use crate::flags::{Arguments, Flag, text};
use crate::session::Session;
use crate::{message, print};
use api::quote::Quoted;
use futures_util::StreamExt;
use runtime::cri::Cri as _;

static FLAGS: &[Flag] = &[
    text("output", "Output format, One of: json|yaml|go-template").or("o").default("json"),
    text("template", "The template, in Go's words, for the output go-template"),
];

pub static COMMAND: Command = Command {
    name: "events",
    aliases: &["event"],
    about: "Stream the events of containers",
    flags: &[FLAGS],
    run: |session, arguments| Box::pin(run(session, arguments)),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err(Failure::Help);
    }
    let (format, template) = (arguments.text("output"), arguments.text("template"));
    match format.as_str() {
        "json" | "yaml" if !template.is_empty() => {
            return Err(format!("template can't be used with {} format", Quoted(&format)).into());
        }
        "json" | "yaml" => {}
        "go-template" => {
            let read = print::check_template(&template);
            read.during(|| "failed to parse go-template".to_owned())?;
        }
        _ => return Err(format!("don't support {} format", Quoted(&format)).into()),
    }
    let runtime = session.runtime().await?;
    let doing = || "getting container events".to_owned();
    let mut events = runtime.container_events().await.during(doing)?;
    while let Some(event) = events.next().await {
        let event = event.during(doing)?;
        if !print::answer(session, &format, "ContainerEventResponse", &event)? {
            let value = message::to_value("ContainerEventResponse", &event)?;
            let text = print::execute(&template, &value)?;
            session.out.write_all(&text)?;
            writeln!(session.out)?;
        }
        session.flush()?;
    }
    Ok(())
}
