//! What a runtime is and how it is set: `version`, `info`, `runtime-config`, `update-runtime-config`.
use super::{Command, STATUS_OUTPUT};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, switch, text};
use crate::message;
use crate::print::{self, Status};
use crate::session::Session;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;

pub static VERSION: Command = Command {
    name: "version",
    about: "Display runtime version information",
    run: |session, arguments| Box::pin(version(session, arguments)),
    ..Command::EMPTY
};

static INFO_FLAGS: &[Flag] = &[switch("quiet", "Do not show verbose information").or("q")];

pub static INFO: Command = Command {
    name: "info",
    about: "Display information of the container runtime",
    flags: &[INFO_FLAGS, STATUS_OUTPUT],
    run: |session, arguments| Box::pin(info(session, arguments)),
    ..Command::EMPTY
};

pub static CONFIG: Command = Command {
    name: "runtime-config",
    about: "Retrieve the container runtime configuration",
    run: |session, _| Box::pin(config(session)),
    ..Command::EMPTY
};

static CIDR: &[Flag] = &[text("pod-cidr", "The new range of pods' addresses").or("p")];

pub static UPDATE_CONFIG: Command = Command {
    name: "update-runtime-config",
    about: "Update the runtime configuration",
    flags: &[CIDR],
    run: |session, arguments| Box::pin(update_config(session, arguments)),
    ..Command::EMPTY
};

async fn version(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err(Failure::Help);
    }
    let runtime = session.runtime().await?;
    let request = VersionRequest { version: "v1".to_owned() };
    let told = session.within(runtime.version(request)).await;
    let told = told.during(|| "getting the runtime version".to_owned())?;
    for (name, value) in [
        ("Version", &told.version),
        ("RuntimeName", &told.runtime_name),
        ("RuntimeVersion", &told.runtime_version),
        ("RuntimeApiVersion", &told.runtime_api_version),
    ] {
        // Two spaces, as upstream has it.
        writeln!(session.out, "{name}:  {}", print::tame(value))?;
    }
    Ok(())
}

async fn info(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        return Err(Failure::Help);
    }
    let runtime = session.runtime().await?;
    let verbose = !arguments.is("quiet");
    let told = session.within(runtime.status(StatusRequest { verbose })).await;
    let told = told.during(|| "getting status of runtime".to_owned())?;
    let handlers = told.runtime_handlers.iter();
    let handlers: Vec<_> =
        handlers.map(|row| message::to_struct("RuntimeHandler", row)).collect::<Outcome<_>>()?;
    let features = told.features.as_ref();
    let status = Status {
        status: told.status.as_ref().map(|s| message::to_value("RuntimeStatus", s)).transpose()?,
        handlers: (!handlers.is_empty()).then(|| handlers.into()),
        features: features.map(|f| message::to_struct("RuntimeFeatures", f)).transpose()?,
        info: told.info,
    };
    let format = arguments.some("output").unwrap_or_else(|| "json".to_owned());
    print::statuses(session, vec![status], &format, &arguments.text("template"))
}

async fn config(session: &mut Session) -> Outcome {
    let runtime = session.runtime().await?;
    let told = session.within(runtime.runtime_config(RuntimeConfigRequest {})).await;
    let told = told.during(|| "get runtime config: call RuntimeConfig RPC".to_owned())?;
    if let Some(linux) = told.linux {
        let row = vec!["cgroup driver:".to_owned(), linux.cgroup_driver().as_str_name().to_owned()];
        session.out.write_all(print::table(&[row], 10).as_bytes())?;
    }
    Ok(())
}

async fn update_config(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() || !arguments.any() {
        return Err(Failure::Help);
    }
    let runtime = session.runtime().await?;
    let network_config = Some(NetworkConfig { pod_cidr: arguments.text("pod-cidr") });
    let request =
        UpdateRuntimeConfigRequest { runtime_config: Some(RuntimeConfig { network_config }) };
    let done = session.within(runtime.update_runtime_config(request)).await;
    done.during(|| "update runtime config".to_owned())?;
    session.log(Level::Info, "Runtime config successfully updated")
}
