//! Commands that change a field or two of each object: what changes is theirs, the rest is here.
use crate::builder::Info;
use crate::change;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::print::Telling;
use crate::session::Session;
use crate::write::DryRun;
use client::source::Write;
use serde_json::Value;

pub struct Editing<'a> {
    pub cluster: &'a Cluster,
    pub write: Write,
    pub dry_run: DryRun,
    pub local: bool,
    /// What was done: `image updated`.
    pub done: &'a str,
    /// What is said where nothing changes; nothing if it is empty.
    pub unchanged: &'a str,
    pub telling: Telling,
}

impl Editing<'_> {
    /// Changes each object, sends what differs, and tells it.
    pub async fn each(
        &mut self,
        session: &mut Session,
        infos: &[Info],
        mut edit: impl FnMut(&mut Value) -> Outcome,
    ) -> Outcome {
        let mut failures = Vec::new();
        for info in infos {
            let mut wanted = info.object.clone();
            if let Err(failure) = edit(&mut wanted) {
                failures.push(about(info, failure));
                continue;
            }
            if let Err(failure) = self.send(session, info, wanted).await {
                failures.push(failure);
            }
        }
        Failure::of_all(failures)
    }

    async fn send(&mut self, session: &mut Session, info: &Info, wanted: Value) -> Outcome {
        let patch = change::patch(info.api(), &info.object, &wanted)?;
        if change::is_empty(&patch) {
            if !self.unchanged.is_empty() {
                self.telling.tell(&info.object, self.unchanged, &mut session.out)?;
            }
            return Ok(());
        }
        let object = match self.local || self.dry_run == DryRun::Client {
            true => wanted,
            false => {
                let place = (&*info.namespace, &*info.name, "");
                self.cluster.patch(info.api(), place, patch, &self.write).await?
            }
        };
        self.telling.tell(&object, self.done, &mut session.out)
    }
}

/// `error: deployments.apps "web" is already paused`
fn about(info: &Info, failure: Failure) -> Failure {
    match failure {
        Failure::Plain(text) if text.starts_with("is ") || text.starts_with("can't ") => {
            let name = info.resource.full_name();
            Failure::Plain(format!("error: {name} \"{}\" {text}", info.name))
        }
        other => other,
    }
}
