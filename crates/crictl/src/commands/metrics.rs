//! `metricsp` and `metricdescs`.
use super::Command;
use crate::failure::{Failure, Outcome, While};
use crate::flags::{Arguments, Flag, switch, text};
use crate::print;
use crate::session::Session;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;

static OUTPUT: &[Flag] =
    &[text("output", "Output format, One of: json|yaml").or("o").default("json")];
static WATCH: &[Flag] = &[switch("watch", "Watch pod metrics").or("w")];

pub static METRICS: Command = Command {
    name: "metricsp",
    about: "List pod metrics, as they replace those of cAdvisor",
    flags: &[OUTPUT, WATCH],
    run: |session, arguments| Box::pin(metrics(session, arguments)),
    ..Command::EMPTY
};

pub static DESCRIPTORS: Command = Command {
    name: "metricdescs",
    about: "List what metrics there are through the CRI",
    flags: &[OUTPUT],
    run: |session, arguments| Box::pin(descriptors(session, arguments)),
    ..Command::EMPTY
};

fn format(arguments: &Arguments) -> Outcome<String> {
    let format = arguments.some("output").unwrap_or_else(|| "json".to_owned());
    match arguments.words.is_empty() && matches!(format.as_str(), "json" | "yaml") {
        true => Ok(format),
        false => Err(Failure::Help),
    }
}

async fn metrics(session: &mut Session, arguments: Arguments) -> Outcome {
    let format = format(&arguments)?;
    let runtime = session.runtime().await?;
    loop {
        let asked = runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {});
        let told = session.within(asked).await;
        let told = told.during(|| "get pod metrics: list pod sandbox metrics".to_owned())?;
        print::answer(session, &format, "ListPodSandboxMetricsResponse", &told)?;
        if !arguments.is("watch") {
            return Ok(());
        }
        session.flush()?;
        tokio::time::sleep(super::stats::PAUSE).await;
    }
}

async fn descriptors(session: &mut Session, arguments: Arguments) -> Outcome {
    let format = format(&arguments)?;
    let runtime = session.runtime().await?;
    let asked = runtime.list_metric_descriptors(ListMetricDescriptorsRequest {});
    let told = session.within(asked).await;
    let told = told.during(|| "get metric descriptors: list metric descriptors".to_owned())?;
    print::answer(session, &format, "ListMetricDescriptorsResponse", &told).map(|_| ())
}
