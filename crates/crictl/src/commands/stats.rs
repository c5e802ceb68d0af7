//! `stats` and `statsp`: what containers and sandboxes use; time of processors between two looks.
use super::Command;
use crate::failure::{Failure, Outcome, While};
use crate::flags::{Arguments, Flag, list, number, switch, text};
use crate::human;
use crate::print::{self, WIDE, truncated};
use crate::session::{Session, wait};
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::collections::HashMap;
use std::time::Duration;

static FLAGS: &[Flag] = &[
    text("id", "Filter by id"),
    list("label", "Filter by key=value label"),
    text("output", "Output format, One of: json|yaml|table").or("o"),
    number("seconds", "Sample duration for CPU usage in seconds").or("s").default("1"),
    switch("watch", "Watch resources").or("w"),
];

static OF_CONTAINERS: &[Flag] = &[
    switch("all", "Show all containers (default shows just running)").or("a"),
    text("pod", "Filter by pod id").or("p"),
];

pub static CONTAINERS: Command = Command {
    name: "stats",
    about: "List container(s) resource usage statistics",
    usage: "[ID]",
    flags: &[FLAGS, OF_CONTAINERS],
    run: |session, arguments| Box::pin(containers(session, arguments)),
    ..Command::EMPTY
};

pub static PODS: Command = Command {
    name: "statsp",
    about: "List pod statistics",
    usage: "[ID]",
    flags: &[FLAGS],
    run: |session, arguments| Box::pin(pods(session, arguments)),
    ..Command::EMPTY
};

/// A screen that begins anew.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";
/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(500);

fn id(arguments: &Arguments) -> Outcome<String> {
    match &arguments.words[..] {
        [] => Ok(arguments.text("id")),
        [word] => Ok(arguments.some("id").unwrap_or_else(|| word.clone())),
        _ => Err(Failure::Help),
    }
}

fn sample(arguments: &Arguments) -> Duration {
    Duration::from_secs(u64::try_from(arguments.number("seconds")).unwrap_or_default())
}

async fn containers(session: &mut Session, arguments: Arguments) -> Outcome {
    let filter = ContainerStatsFilter {
        id: id(&arguments)?,
        pod_sandbox_id: arguments.text("pod"),
        label_selector: arguments.pairs("label")?,
    };
    loop {
        let shown = show_containers(session, &arguments, &filter).await;
        shown.during(|| "get container stats".to_owned())?;
        if !arguments.is("watch") {
            return Ok(());
        }
        session.flush()?;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn container_stats(
    session: &mut Session,
    filter: &ContainerStatsFilter,
) -> Outcome<Vec<ContainerStats>> {
    let runtime = session.runtime().await?;
    let request = ListContainerStatsRequest { filter: Some(filter.clone()) };
    // A node full of containers takes its time.
    let mut stats = wait(None, runtime.list_container_stats(request)).await?.stats;
    stats.sort_by(|one, other| attribute(one).cmp(attribute(other)));
    Ok(stats)
}

fn attribute(stats: &ContainerStats) -> &str {
    stats.attributes.as_ref().map_or("", |attributes| &attributes.id)
}

/// A moment and how much time of processors had been used.
fn cpu(usage: Option<&CpuUsage>) -> (i64, u64) {
    let used = usage.and_then(|usage| usage.usage_core_nano_seconds.as_ref());
    (usage.map_or(0, |usage| usage.timestamp), used.map_or(0, |used| used.value))
}

/// How much of a processor, in hundredths.
fn percent(before: (i64, u64), now: (i64, u64)) -> Outcome<String> {
    if now.1 == 0 {
        return Ok("0.00".to_owned());
    }
    match now.0.saturating_sub(before.0) {
        0 => Err("cpu stat is not updated during sample".into()),
        span => Ok(format!("{:.2}", now.1.saturating_sub(before.1) as f64 / span as f64 * 100.0)),
    }
}

async fn show_containers(
    session: &mut Session,
    arguments: &Arguments,
    filter: &ContainerStatsFilter,
) -> Outcome {
    let stats = container_stats(session, filter).await?;
    let output = arguments.text("output");
    let answer = ListContainerStatsResponse { stats };
    if print::answer(session, &output, "ListContainerStatsResponse", &answer)? {
        return Ok(());
    }
    let before: HashMap<String, _> = answer
        .stats
        .iter()
        .map(|stats| (attribute(stats).to_owned(), cpu(stats.cpu.as_ref())))
        .collect();
    tokio::time::sleep(sample(arguments)).await;
    let columns = ["CONTAINER", "NAME", "CPU %", "MEM", "DISK", "INODES", "SWAP"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    for stats in container_stats(session, filter).await? {
        let value = |value: Option<&UInt64Value>| value.map_or(0, |value| value.value);
        let layer = stats.writable_layer.as_ref();
        let memory = value(stats.memory.as_ref().and_then(|m| m.working_set_bytes.as_ref()));
        let now = cpu(stats.cpu.as_ref());
        if !arguments.is("all") && now.1 == 0 && memory == 0 {
            continue;
        }
        let Some(before) = before.get(attribute(&stats)) else { continue };
        let metadata = stats.attributes.as_ref().and_then(|a| a.metadata.as_ref());
        rows.push(vec![
            truncated(attribute(&stats), ""),
            metadata.map_or(String::new(), |metadata| metadata.name.clone()),
            percent(*before, now)?,
            human::size(memory, 4),
            human::size(value(layer.and_then(|layer| layer.used_bytes.as_ref())), 4),
            value(layer.and_then(|layer| layer.inodes_used.as_ref())).to_string(),
            human::size(value(stats.swap.as_ref().and_then(|s| s.swap_usage_bytes.as_ref())), 4),
        ]);
    }
    session.out.write_all(CLEAR)?;
    Ok(session.out.write_all(print::table(&rows, WIDE).as_bytes())?)
}

async fn pods(session: &mut Session, arguments: Arguments) -> Outcome {
    let filter =
        PodSandboxStatsFilter { id: id(&arguments)?, label_selector: arguments.pairs("label")? };
    loop {
        let shown = show_pods(session, &arguments, &filter).await;
        shown.during(|| "get pod stats".to_owned())?;
        if !arguments.is("watch") {
            return Ok(());
        }
        session.flush()?;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn pod_stats(
    session: &mut Session,
    filter: &PodSandboxStatsFilter,
) -> Outcome<Vec<PodSandboxStats>> {
    let runtime = session.runtime().await?;
    let request = ListPodSandboxStatsRequest { filter: Some(filter.clone()) };
    let listed = session.within(runtime.list_pod_sandbox_stats(request)).await;
    let mut stats = listed.during(|| "list pod sandbox stats".to_owned())?.stats;
    stats.sort_by(|one, other| pod_id(one).cmp(pod_id(other)));
    Ok(stats)
}

fn pod_id(stats: &PodSandboxStats) -> &str {
    stats.attributes.as_ref().map_or("", |attributes| &attributes.id)
}

fn pod_cpu(stats: &PodSandboxStats) -> (i64, u64) {
    cpu(stats.linux.as_ref().and_then(|linux| linux.cpu.as_ref()))
}

async fn show_pods(
    session: &mut Session,
    arguments: &Arguments,
    filter: &PodSandboxStatsFilter,
) -> Outcome {
    let answer = ListPodSandboxStatsResponse { stats: pod_stats(session, filter).await? };
    let output = arguments.text("output");
    if print::answer(session, &output, "ListPodSandboxStatsResponse", &answer)? {
        return Ok(());
    }
    let before: HashMap<String, _> =
        answer.stats.iter().map(|stats| (pod_id(stats).to_owned(), pod_cpu(stats))).collect();
    tokio::time::sleep(sample(arguments)).await;
    let mut rows = vec![["POD", "POD ID", "CPU %", "MEM"].map(str::to_owned).to_vec()];
    for stats in pod_stats(session, filter).await? {
        let memory = stats.linux.as_ref().and_then(|linux| linux.memory.as_ref());
        let memory = memory.and_then(|m| m.working_set_bytes.as_ref()).map_or(0, |used| used.value);
        let now = pod_cpu(&stats);
        let Some(before) = before.get(pod_id(&stats)) else { continue };
        if now.1 == 0 && memory == 0 {
            continue;
        }
        let metadata = stats.attributes.as_ref().and_then(|a| a.metadata.as_ref());
        rows.push(vec![
            metadata.map_or(String::new(), |metadata| metadata.name.clone()),
            truncated(pod_id(&stats), ""),
            percent(*before, now)?,
            human::size(memory, 4),
        ]);
    }
    session.out.write_all(CLEAR)?;
    Ok(session.out.write_all(print::table(&rows, WIDE).as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_processors_is_between_two_looks() {
        assert_eq!(percent((0, 0), (1_000_000_000, 500_000_000)).unwrap(), "50.00");
        assert_eq!(percent((5, 7), (5, 0)).unwrap(), "0.00");
        assert!(percent((5, 7), (5, 9)).is_err());
        // A container that began anew has used less than before.
        assert_eq!(percent((0, 9), (10, 1)).unwrap(), "0.00");
    }
}
