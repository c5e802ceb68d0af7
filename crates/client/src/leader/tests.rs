use super::*;
use crate::events::Reporter;
use crate::testing::World;
use k8s_openapi::api::core::v1::Event;
use parking_lot::Mutex;

struct Stage {
    world: World,
    context: Context,
    /// Who began and ended to lead, and at which second.
    journal: Arc<Mutex<Vec<String>>>,
    began: Instant,
}

impl Stage {
    fn new() -> Stage {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let world = World::new(&context);
        Stage { world, context, journal: Arc::default(), began: Instant::now() }
    }

    /// A candidate that leads until it has to stop.
    fn candidate(&self, name: &'static str) -> (Context, tokio::task::JoinHandle<End>) {
        let context = self.context.part();
        let mut election = Election::new(&context, "kube-system", "test", name);
        election.identity = name.to_owned();
        let elector = Elector::new(&context, self.world.client(), election).unwrap();
        let (journal, began) = (self.journal.clone(), self.began);
        let note = move |what: &str| {
            journal.lock().push(format!("{name} {what} at {}", began.elapsed().as_secs()));
        };
        let run = tokio::spawn(elector.run(|term| async move {
            note("leads");
            term.stopped().await;
            note("stops");
        }));
        (context, run)
    }

    fn lease(&self) -> LeaseSpec {
        let lease = self.world.get::<Lease>("kube-system", "test").expect("there is a lease");
        lease.spec.clone().unwrap()
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_next_follows_at_once_when_it_stops() {
    let stage = Stage::new();
    let (first, first_run) = stage.candidate("a");
    stage.pass(1).await;
    let (_second, _) = stage.candidate("b");
    stage.pass(60).await;
    assert_eq!(*stage.journal.lock(), ["a leads at 0"]);
    let held = stage.lease();
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("a"), Some(0)));
    assert_eq!(held.lease_duration_seconds, Some(15));
    first.stop();
    assert_eq!(first_run.await.unwrap(), End::Stopped);
    assert_eq!(stage.lease().holder_identity.as_deref(), Some(""));
    stage.pass(6).await;
    assert_eq!(stage.journal.lock()[1], "a stops at 61");
    assert!(stage.journal.lock()[2].starts_with("b leads at 6"), "{:?}", stage.journal.lock());
    assert_eq!(stage.lease().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_when_its_lease_has_not_changed_for_long() {
    let stage = Stage::new();
    let (_first, run) = stage.candidate("a");
    stage.pass(20).await;
    run.abort();
    stage.pass(100).await;
    // By the wall clock the lease is long over; but the candidate has only just seen it.
    let (_second, _) = stage.candidate("b");
    stage.pass(14).await;
    assert_eq!(stage.journal.lock().len(), 1);
    stage.pass(7).await;
    assert!(stage.journal.lock()[1].starts_with("b leads at 13"), "{:?}", stage.journal.lock());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_gives_up_before_another_may_lead() {
    let stage = Stage::new();
    let (_first, run) = stage.candidate("a");
    stage.pass(5).await;
    stage.world.refuse(|_| Some(Status::service_unavailable("down")));
    let cut = stage.began.elapsed().as_secs();
    assert_eq!(run.await.unwrap(), End::Lost);
    let given_up = stage.began.elapsed().as_secs() - cut;
    assert!((10..=12).contains(&given_up), "{given_up}");
    assert!(stage.journal.lock()[1].starts_with("a stops"));
    // It could not say so: the lease is still its own.
    stage.world.refuse_nothing();
    assert_eq!(stage.lease().holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn two_at_once_are_never_both_leaders() {
    let stage = Stage::new();
    let runs: Vec<_> = ["a", "b", "c"].map(|name| stage.candidate(name)).into();
    stage.pass(120).await;
    assert_eq!(stage.journal.lock().len(), 1, "{:?}", stage.journal.lock());
    drop(runs);
}

#[tokio::test(start_paused = true)]
async fn who_leads_is_an_event_of_the_lease() {
    let stage = Stage::new();
    let mut election = Election::new(&stage.context, "kube-system", "test", "host");
    election.identity = "host_1".to_owned();
    let recorder =
        Recorder::core(&stage.context, stage.world.client(), Reporter::new("tester", ""));
    let elector = Elector::new(&stage.context, stage.world.client(), election).unwrap();
    let term = Duration::from_secs(1);
    elector.recording(recorder).run(|_| tokio::time::sleep(term)).await;
    stage.pass(1).await;
    let events = stage.world.all::<Event>();
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let about = &event.involved_object;
            [&about.kind, &about.name, &event.reason, &event.message]
                .map(|text| text.clone().unwrap_or_default())
                .join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "Lease test LeaderElection host_1 became leader",
            "Lease test LeaderElection host_1 stopped leading"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn durations_that_cannot_work_are_refused() {
    let stage = Stage::new();
    let good = Election::new(&stage.context, "n", "l", "h");
    let refused = |election: Election| {
        Elector::new(&stage.context, stage.world.client(), election).err().unwrap_or_default()
    };
    let second = Duration::from_secs(1);
    assert_eq!(refused(good.clone()), "");
    assert_eq!(
        refused(Election { lease_duration: second, ..good.clone() }),
        "leaseDuration must be greater than renewDeadline"
    );
    assert_eq!(
        refused(Election { retry_period: second * 9, ..good.clone() }),
        "renewDeadline must be greater than retryPeriod*JitterFactor"
    );
    assert_eq!(refused(Election { identity: String::new(), ..good }), "Lock identity is empty");
}
