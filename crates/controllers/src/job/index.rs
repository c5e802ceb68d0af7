//! Pods of an indexed job: each does the part of the work that its number says.
use super::count::Count;
use super::is_tracked;
use super::policy::{self, Failure};
use crate::pods;
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use std::collections::BTreeSet;
use std::sync::Arc;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How often the pods of an index have failed before, and how often that did not count.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

pub fn of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// The indexes that are done: those that were said to be, and those of pods that ended well.
pub fn completed(status: &JobStatus, pods: &[Arc<Pod>], spec: &JobSpec) -> BTreeSet<i32> {
    let wanted = spec.completions.unwrap_or_default();
    let mut done = parse(status.completed_indexes.as_deref().unwrap_or_default());
    let well = pods.iter().filter(|pod| pods::phase(pod) == "Succeeded" && is_tracked(pod));
    done.extend(well.filter_map(|pod| of(pod)));
    done.retain(|index| (0..wanted).contains(index));
    done
}

/// The indexes that are given up: those that were said to be, and those of pods that failed once
/// too often.
pub fn failed(status: &JobStatus, pods: &[Arc<Pod>], spec: &JobSpec) -> BTreeSet<i32> {
    let (limit, wanted) = (spec.backoff_limit_per_index, spec.completions.unwrap_or_default());
    let mut failed = parse(status.failed_indexes.as_deref().unwrap_or_default());
    let is_over = |pod: &&Arc<Pod>| {
        is_tracked(pod)
            && policy::has_failed(spec, pod)
            && match policy::failure(spec, pod) {
                Failure::FailsIndex => true,
                Failure::Ignored => false,
                _ => limit.is_some_and(|limit| number(pod, FAILURES) >= limit),
            }
    };
    failed.extend(pods.iter().filter(is_over).filter_map(|pod| of(pod)));
    failed.retain(|index| (0..wanted).contains(index));
    failed
}

fn number(pod: &Pod, annotation: &str) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(annotation)?.parse().ok()).unwrap_or_default()
}

/// How often the index of a failed pod has failed by now.
pub fn failures(pod: &Pod) -> i32 {
    number(pod, FAILURES) + number(pod, IGNORED) + 1
}

/// The pod that comes after another of its index knows how often that has failed.
pub fn put_failures(pod: &mut Pod, before: Option<&Pod>, spec: &JobSpec) {
    let (mut failures, mut ignored) =
        before.map_or((0, 0), |before| (number(before, FAILURES), number(before, IGNORED)));
    match before.map(|before| policy::failure(spec, before)) {
        None => {}
        Some(Failure::Ignored) => ignored += 1,
        Some(_) => failures += 1,
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(FAILURES.to_owned(), failures.to_string());
    if ignored > 0 {
        annotations.insert(IGNORED.to_owned(), ignored.to_string());
    }
}

/// Indexes that nobody works on, the lowest first.
pub fn free<'a>(count: &'a Count, spec: &JobSpec) -> impl Iterator<Item = i32> + 'a {
    let leaving = count.leaving.iter().filter(|_| policy::replaces_failed_only(spec));
    let taken: BTreeSet<i32> =
        count.active.iter().chain(leaving).filter_map(|pod| of(pod)).collect();
    (0..spec.completions.unwrap_or_default()).filter(move |index| {
        let is_over = count.completed.contains(index) || count.failed_indexes.contains(index);
        !taken.contains(index) && !is_over
    })
}

/// The pod knows its index from its label, its annotation, its name and its environment.
pub fn put(pod: &mut Pod, job: &str, index: i32) {
    let metadata = &mut pod.metadata;
    metadata.generate_name = Some(format!("{job}-{index}-"));
    for map in [&mut metadata.labels, &mut metadata.annotations] {
        map.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    }
    let Some(spec) = &mut pod.spec else { return };
    spec.hostname = Some(format!("{job}-{index}"));
    let path = format!("metadata.labels['{INDEX}']");
    let source = ObjectFieldSelector { field_path: path, api_version: None };
    let variable = EnvVar {
        name: "JOB_COMPLETION_INDEX".to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(source), ..EnvVarSource::default() }),
    };
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        let env = container.env.get_or_insert_default();
        if !env.iter().any(|it| it.name == variable.name) {
            env.push(variable.clone());
        }
    }
}

/// `1,3-5,7`.
pub fn format(indexes: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let text = |(first, last): &(i32, i32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

/// What cannot be read is left out.
pub fn parse(text: &str) -> BTreeSet<i32> {
    let run = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(run).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_in_runs() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7,8"] {
            assert_eq!(format(&parse(text)), text);
        }
        assert_eq!(format(&parse("x,2,-")), "2");
    }
}
