//! Rules of many services: until they are all there, until one change is, and what a busy cluster costs.
use super::machine::{self, Machine, Process};
use super::{Contender, Options};
use crate::measured::resident;
use crate::report::Report;
use std::time::{Duration, Instant};

/// How often one endpoint changes.
const CHANGES: usize = 21;
/// Beyond so many services upstream's chains take minutes, for each change as well.
const TOO_MANY: usize = 20_000;
const SECOND: Duration = Duration::from_secs(1);

pub fn run(options: &Options, report: &mut Report) {
    for &count in &options.services {
        machine::with(&options.skiff, |machine| {
            machine.create_services(count);
            for contender in Contender::all(options) {
                if contender.name != "ours" && count > TOO_MANY {
                    continue;
                }
                let figures = one(machine, &contender, count, options.long);
                eprintln!("{count} services: {}: {figures:.2?}", contender.name);
                report.row(format!("{count} services: {}", contender.name), &figures);
            }
        });
    }
}

type Figures = [(&'static str, f64); 7];

fn one(machine: &Machine, contender: &Contender, count: usize, long: Duration) -> Figures {
    let (process, load) = machine.proxy(contender, count);
    let memory = resident(&process.id()) as f64 / 1e6;
    let mut changes: Vec<f64> =
        (1..=CHANGES).map(|at| change(machine, count / 2, at % 2)).collect();
    changes.sort_by(f64::total_cmp);
    // So that all begin alike.
    machine.lead([count / 2].into_iter(), 0);
    machine.until_answered(count / 2, "a");
    let share = churn(machine, &process, count, long);
    let busy = resident(&process.id()) as f64 / 1e6;
    machine.clean(contender, process);
    [
        ("load s", load.as_secs_f64()),
        ("change ms", changes[CHANGES / 2]),
        ("worst ms", changes[CHANGES - 1]),
        ("MB", memory),
        ("churn MB", busy),
        ("churn % cpu", share.processor),
        ("behind s", share.behind),
    ]
}

/// One endpoint among all: from before the API is told until a connection arrives there, in milliseconds.
fn change(machine: &Machine, service: usize, pod: usize) -> f64 {
    let begun = Instant::now();
    machine.lead([service].into_iter(), pod);
    machine.until_answered(service, ["a", "b"][pod]);
    begun.elapsed().as_secs_f64() * 1000.0
}

struct Churn {
    /// Of one processor, in percent.
    processor: f64,
    /// How long after the last change it was followed.
    behind: f64,
}

/// Every second another hundredth of the services changes.
fn churn(machine: &Machine, process: &Process, count: usize, long: Duration) -> Churn {
    let (begun, before) = (Instant::now(), process.processor_seconds());
    let (portion, mut first, mut round) = ((count / 100).max(1), 0, 1);
    let mut last = 0;
    while begun.elapsed() < long {
        let turn = Instant::now();
        // Once around, the next pod has its turn.
        machine.lead((first..first + portion).map(|at| at % count), round % 2);
        last = (first + portion - 1) % count;
        first += portion;
        if first >= count {
            (first, round) = (0, round + 1);
        }
        let rest = SECOND.saturating_sub(turn.elapsed());
        machine.runtime.block_on(async { tokio::time::sleep(rest).await });
    }
    let pod = if last + 1 == count { round + 1 } else { round };
    let ended = Instant::now();
    machine.until_answered(last, ["a", "b"][pod % 2]);
    let behind = ended.elapsed().as_secs_f64();
    let processor = (process.processor_seconds() - before) / begun.elapsed().as_secs_f64() * 100.0;
    machine.lead(0..count, 0);
    machine.until_answered(last, "a");
    Churn { processor, behind }
}
