//! What is going on, for people: tables under `/debug/api_priority_and_fairness`.
use super::Fairness;
use super::level::{Kind, Refusal};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// A row per level.
pub fn priority_levels(fairness: &Fairness) -> String {
    let head = "PriorityLevelName ActiveQueues IsIdle IsQuiescing WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect::<Vec<_>>()];
    let counters = fairness.counters.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (name, level) in &fairness.current().levels {
        let of_level = || counters.iter().filter(|((_, level), _)| level == name);
        let dispatched: u64 = of_level().map(|(_, c)| c.dispatched.load(Relaxed)).sum();
        let refused = |reason: Refusal| -> u64 {
            of_level().map(|(_, c)| c.rejected[reason as usize].load(Relaxed)).sum()
        };
        let rejected = refused(Refusal::ConcurrencyLimit) + refused(Refusal::QueueFull);
        let waiting = level.room.waiting.load(Relaxed);
        let executing = level.room.executing.load(Relaxed);
        let active = with_queues(level, |queues| {
            queues.all().iter().filter(|queue| !queue.waiting.is_empty()).count()
        });
        rows.push(vec![
            name.clone(),
            active.to_string(),
            (waiting + executing == 0).to_string(),
            "false".into(),
            waiting.to_string(),
            executing.to_string(),
            dispatched.to_string(),
            rejected.to_string(),
            refused(Refusal::TimeOut).to_string(),
            "0".into(),
        ]);
    }
    table(&rows)
}

/// A row per queue.
pub fn queues(fairness: &Fairness) -> String {
    let head = "PriorityLevelName Index PendingRequests ExecutingRequests SeatsInUse NextDispatchR InitialSeatsSum MaxSeatsSum TotalWorkSum";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect::<Vec<_>>()];
    for (name, level) in &fairness.current().levels {
        let Kind::Limited(Some(shape)) = level.kind else { continue };
        with_queues(level, |queues| {
            // Queues are made when they are needed.
            for i in 0..shape.queues.max(queues.all().len()) {
                let queue = queues.all().get(i);
                let seats: u32 = queue.map_or(0, |q| q.waiting.iter().map(|w| w.width).sum());
                rows.push(vec![
                    name.clone(),
                    i.to_string(),
                    queue.map_or(0, |queue| queue.waiting.len()).to_string(),
                    queue.map_or(0, |queue| queue.executing).to_string(),
                    queue.map_or(0, |queue| queue.seats).to_string(),
                    format!("{:.8}ss", queue.map_or(0.0, |queue| queue.next)),
                    seats.to_string(),
                    seats.to_string(),
                    format!("{:.8}ss", queue.map_or(0.0, super::queues::Queue::work_waiting)),
                ]);
            }
        });
    }
    table(&rows)
}

/// A row per request that waits.
pub fn requests(fairness: &Fairness) -> String {
    let head = "PriorityLevelName FlowSchemaName QueueIndex RequestIndexInQueue FlowDistingsher ArriveTime InitialSeats FinalSeats AdditionalLatency StartTime";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect::<Vec<_>>()];
    for (name, level) in &fairness.current().levels {
        with_queues(level, |queues| {
            for (i, queue) in queues.all().iter().enumerate() {
                for (j, waiting) in queue.waiting.iter().enumerate() {
                    rows.push(vec![
                        name.clone(),
                        waiting.what.schema.name.clone(),
                        i.to_string(),
                        j.to_string(),
                        waiting.what.flow.clone(),
                        waiting.what.arrived.to_string(),
                        waiting.width.to_string(),
                        "0".into(),
                        "0s".into(),
                        "0001-01-01T00:00:00Z".into(),
                    ]);
                }
            }
        });
    }
    table(&rows)
}

fn with_queues<R>(
    level: &super::Level,
    read: impl FnOnce(&super::queues::Queues<super::level::Waiter>) -> R,
) -> R {
    read(&level.room.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Columns of at least eight characters, with a comma and a space between them.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count() + 2).max().unwrap_or(0).max(8)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (i, cell) in row.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = match i + 1 < columns {
                true => write!(out, "{:<width$}", format!("{cell},"), width = widths[i]),
                false => writeln!(out, "{cell}"),
            };
        }
    }
    out
}
