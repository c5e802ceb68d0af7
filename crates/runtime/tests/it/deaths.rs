//! The daemon is killed at random moments while fifty containers start and stop. Whatever it had
//! acknowledged is there when it comes back, what ran runs on, and in the end nothing is left.
//!
//! `DEATHS` is how often it is killed; a few dozen times unless somebody has more patience.
use std::time::Duration;

use parking_lot::Mutex;
use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::machine::{Machine, list_processes};

const PODS: usize = 10;
const CONTAINERS: usize = 5;

/// What the daemon has told us of a thing, as long as no request about it is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Told {
    #[default]
    Nothing,
    Created,
    Running,
    /// A request was not answered.
    Unsure,
}

#[derive(Debug, Default)]
struct Thing {
    id: Option<String>,
    told: Told,
}

#[derive(Default)]
struct Pod {
    sandbox: Mutex<Thing>,
    containers: [Mutex<Thing>; CONTAINERS],
}

#[tokio::test(flavor = "multi_thread")]
async fn deaths_at_random_moments_lose_and_leak_nothing() {
    let rounds = std::env::var("DEATHS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut machine = Machine::new().await;
    let kept = machine.sandbox().await;
    let kept = machine.run(&kept, "sleep 10000", |_| {}).await;
    let pods: [Pod; PODS] = Default::default();
    // What a sleeper is told tells it from those of other tests.
    let command = format!("sleep {}", fastrand::u32(1_000_000_000..));
    let mut running = 0;
    let mut longest = Duration::from_millis(200);
    for round in 0..rounds {
        let work = pods.iter().map(|pod| live(&machine, pod, &command));
        let moment = Duration::from_micros(500) + longest.mul_f64(fastrand::f64());
        let _ = tokio::time::timeout(moment, futures_util::future::join_all(work)).await;
        machine.kill_daemon();
        machine.start_daemon().await;
        let state = machine.status(&kept).await.state();
        assert_eq!(state, ContainerState::ContainerRunning, "round {round}");
        let ran = check(&machine, &pods, round).await;
        running += ran;
        if ran == 0 {
            // A slow machine needs longer to have something to lose.
            longest = (longest * 2).min(Duration::from_secs(5));
        }
    }
    assert!(running > 0, "nothing ran whenever the daemon died");
    // The next daemon finds nothing that it does not know.
    machine.kill_daemon();
    machine.start_daemon().await;
    let known = machine.service.list_containers(Default::default()).await.unwrap().containers;
    let folders = std::fs::read_dir(machine.path("root/containers")).unwrap().count();
    assert_eq!(folders, known.len());
    machine.finish().await;
    assert_eq!(list_processes(&command), Vec::<String>::new());
}

/// Makes a pod, its containers, and removes them again, for ever, or until a request fails.
async fn live(machine: &Machine, pod: &Pod, command: &str) -> Option<()> {
    loop {
        if pod.sandbox.lock().told == Told::Nothing {
            pod.sandbox.lock().told = Told::Unsure;
            let id = try_sandbox(machine).await?;
            *pod.sandbox.lock() = Thing { id: Some(id), told: Told::Running };
        }
        let sandbox = pod.sandbox.lock().id.clone()?;
        // All of them run for a moment, then all of them go.
        for wanted in [Told::Running, Told::Nothing] {
            let steps = pod.containers.iter().map(|thing| async {
                while thing.lock().told != wanted {
                    step(machine, &sandbox, thing, command).await?;
                }
                Some(())
            });
            let done = futures_util::future::join_all(steps).await;
            done.into_iter().collect::<Option<Vec<()>>>()?;
        }
        pod.sandbox.lock().told = Told::Unsure;
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox };
        machine.service.remove_pod_sandbox(request).await.ok()?;
        *pod.sandbox.lock() = Thing::default();
    }
}

/// The next step in a container's life.
async fn step(machine: &Machine, sandbox: &str, thing: &Mutex<Thing>, command: &str) -> Option<()> {
    let (id, told) = {
        let mut thing = thing.lock();
        (thing.id.clone(), std::mem::replace(&mut thing.told, Told::Unsure))
    };
    let next = match (told, id) {
        (Told::Nothing, _) => {
            let id = machine.create(sandbox, command, |_| {}).await.ok()?;
            Thing { id: Some(id), told: Told::Created }
        }
        (Told::Created, Some(id)) => {
            machine.start(&id).await.ok()?;
            Thing { id: Some(id), told: Told::Running }
        }
        (_, Some(id)) => {
            let request = RemoveContainerRequest { container_id: id };
            machine.service.remove_container(request).await.ok()?;
            Thing::default()
        }
        (_, None) => return None,
    };
    *thing.lock() = next;
    Some(())
}

/// Compares what we were told with what the daemon has found, and removes what we are not sure of.
/// Returns how many ran.
async fn check(machine: &Machine, pods: &[Pod], round: usize) -> usize {
    let sandboxes = machine.service.list_pod_sandbox(Default::default()).await.unwrap().items;
    let containers = machine.service.list_containers(Default::default()).await.unwrap().containers;
    let mut running = 0;
    for pod in pods {
        let mut sandbox = pod.sandbox.lock();
        let found = sandboxes.iter().find(|found| Some(&found.id) == sandbox.id.as_ref());
        if sandbox.told == Told::Running {
            let state = found.map(|found| found.state());
            assert_eq!(state, Some(PodSandboxState::SandboxReady), "round {round}: {sandbox:?}");
        }
        let gone = sandbox.told == Told::Unsure;
        if gone {
            *sandbox = Thing::default();
        }
        for thing in &pod.containers {
            let mut thing = thing.lock();
            let found = containers.iter().find(|found| Some(&found.id) == thing.id.as_ref());
            let state = found.map(|found| found.state());
            match thing.told {
                // Its sandbox was about to go.
                _ if gone => *thing = Thing::default(),
                Told::Unsure => *thing = Thing::default(),
                Told::Nothing => assert_eq!(state, None, "round {round}: {thing:?}"),
                Told::Created => {
                    let expected = Some(ContainerState::ContainerCreated);
                    assert_eq!(state, expected, "round {round}: {thing:?}");
                }
                Told::Running => {
                    running += 1;
                    let expected = Some(ContainerState::ContainerRunning);
                    assert_eq!(state, expected, "round {round}: {thing:?}");
                }
            }
        }
    }
    let known = |id: &String| pods.iter().any(|pod| pod.sandbox.lock().id.as_ref() == Some(id));
    let wanted = |id: &String| {
        let mut things = pods.iter().flat_map(|pod| &pod.containers);
        things.any(|thing| thing.lock().id.as_ref() == Some(id))
    };
    let ours = |pod: &str| {
        let found = sandboxes.iter().find(|sandbox| sandbox.id == pod);
        let metadata = found.and_then(|sandbox| sandbox.metadata.as_ref());
        metadata.is_some_and(|metadata| metadata.name.starts_with("busy-"))
    };
    for container in &containers {
        if ours(&container.pod_sandbox_id) && !wanted(&container.id) {
            machine.remove(&container.id).await;
        }
    }
    for sandbox in &sandboxes {
        if ours(&sandbox.id) && !known(&sandbox.id) {
            machine.remove_sandbox(&sandbox.id).await;
        }
    }
    running
}

async fn try_sandbox(machine: &Machine) -> Option<String> {
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: format!("busy-{:016x}", fastrand::u64(..)),
            ..PodSandboxMetadata::default()
        }),
        log_directory: machine.path("logs").display().to_string(),
        ..PodSandboxConfig::default()
    };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    Some(Box::pin(machine.service.run_pod_sandbox(request)).await.ok()?.pod_sandbox_id)
}
