//! How many requests there were, how many were answered alike, and what differs.
use super::compare::{BUSY, Difference, differences};
use super::known::Known;
use super::server::{Pair, Request, Said};
use std::collections::BTreeMap;

/// So many differences of one kind and family are shown.
const SHOWN: usize = 12;
/// So often their server may answer again, where the order of causes differs: some of it is by
/// chance, because it walks maps.
const TRIES: usize = 60;
/// So often both answer again, where managers differ.
const WAITS: usize = 12;

/// All tries together last longer than a second.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
const MANAGERS: &str = "metadata.managedFields";

#[derive(Default, Clone, Copy)]
struct Count {
    requests: usize,
    equal: usize,
    known: usize,
}

pub struct Report {
    /// The one family that is asked, or none for all.
    only: String,
    known: Known,
    by_kind: BTreeMap<&'static str, Count>,
    by_family: BTreeMap<&'static str, Count>,
    shown: BTreeMap<(&'static str, &'static str), usize>,
    failures: usize,
}

impl Report {
    pub fn new(only: &str) -> Report {
        Report {
            only: only.to_owned(),
            known: Known::read(),
            by_kind: BTreeMap::new(),
            by_family: BTreeMap::new(),
            shown: BTreeMap::new(),
            failures: 0,
        }
    }

    pub fn wants(&self, family: &str) -> bool {
        self.only.is_empty() || self.only == family
    }

    /// Sends a request and counts what comes of it.
    pub async fn ask(
        &mut self,
        family: &'static str,
        kind: &'static str,
        pair: &mut Pair,
        request: &Request,
    ) -> anyhow::Result<()> {
        if !self.wants(family) {
            return Ok(());
        }
        // A server that breaks off has no opinion.
        let (mut ours, Some(theirs)) = pair.ask(request).await? else { return Ok(()) };
        let masked = self.known.masked(kind);
        let compare = |ours: &Said, theirs: &Said| {
            let mut found = differences(ours, theirs, &masked);
            found.retain(|found| !self.known.is_own_value(kind, found));
            found
        };
        let mut found = compare(&ours, &theirs);
        for again in 0..TRIES {
            let unexplained = self.known.unexplained(kind, &found);
            let managers = |found: &&Difference| found.place.starts_with(MANAGERS);
            if again < WAITS && unexplained.iter().any(managers) {
                // Managers are in the order of their times, in seconds: one may just have passed.
                tokio::time::sleep(PAUSE).await;
                let (mine, Some(again)) = pair.ask(request).await? else { break };
                found = compare(&mine, &again);
                ours = mine;
                continue;
            }
            let is_busy = unexplained.iter().any(|found| found.place.starts_with(BUSY));
            if !is_busy && !unexplained.iter().any(|found| may_be_chance(found)) {
                break;
            }
            if is_busy {
                // Its watch cache begins anew once a second.
                tokio::time::sleep(PAUSE).await;
            }
            let Some(again) = pair.ask_theirs(request).await? else { break };
            found = compare(&ours, &again);
        }
        let unexplained = self.known.unexplained(kind, &found);
        let one = match (found.is_empty(), unexplained.is_empty()) {
            (true, _) => Count { requests: 1, equal: 1, known: 0 },
            (false, true) => Count { requests: 1, equal: 0, known: 1 },
            (false, false) => Count { requests: 1, equal: 0, known: 0 },
        };
        self.by_kind.entry(kind).or_default().add(one);
        self.by_family.entry(family).or_default().add(one);
        if !unexplained.is_empty() {
            self.show(family, kind, &request.about, &unexplained);
        }
        Ok(())
    }

    fn show(
        &mut self,
        family: &'static str,
        kind: &'static str,
        about: &str,
        found: &[&Difference],
    ) {
        self.failures += 1;
        let shown = self.shown.entry((kind, family)).or_default();
        *shown += 1;
        if *shown <= SHOWN || std::env::var_os("ORACLE_ALL").is_some() {
            println!("{kind}: {about}");
            found.iter().for_each(|difference| println!("    {difference}"));
        }
    }

    /// An object that could not be stored on both servers: what was not asked is not equal.
    pub fn missing(&mut self, kind: &'static str) {
        println!("{kind}: not stored, so nothing could be asked about it");
        self.failures += 1;
    }

    pub fn print(self) -> anyhow::Result<()> {
        let mut all = Count::default();
        for (title, counts) in [("family", &self.by_family), ("kind", &self.by_kind)] {
            println!("{title:<36}{:>9}{:>9}{:>9}{:>9}", "requests", "equal", "known", "differ");
            counts.iter().for_each(|(name, count)| count.print(name));
            all = Count::default();
            counts.values().for_each(|count| all.add(*count));
        }
        all.print("all");
        anyhow::ensure!(self.failures == 0, "{} answers differ", self.failures);
        Ok(())
    }
}

impl Count {
    fn add(&mut self, other: Count) {
        self.requests += other.requests;
        self.equal += other.equal;
        self.known += other.known;
    }

    fn print(&self, name: &str) {
        let Count { requests, equal, known } = self;
        println!("{name:<36}{requests:>9}{equal:>9}{known:>9}{:>9}", requests - equal - known);
    }
}

/// What comes out of maps comes in any order.
fn may_be_chance(found: &Difference) -> bool {
    matches!(found.place.as_str(), "order" | "warnings" | "message")
}
