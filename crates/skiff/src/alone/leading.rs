//! One of several acts: upstream's flags for the election.
use super::duration;
use anyhow::anyhow;
use client::leader::{Election, Elector, End};
use client::{Client, Context, Source};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Default, clap::Args)]
pub struct Leading {
    /// Whether several of us agree on one that acts.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        action = clap::ArgAction::Set)]
    pub leader_elect: Option<bool>,
    /// After how long without a word another may lead: 15s unless told otherwise.
    #[arg(long, value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// How long a leader tries to say that it still leads: 10s.
    #[arg(long, value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// How often everybody tries: 2s.
    #[arg(long, value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    /// The lease, if not the component's usual one.
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
    /// Where the lease is: in kube-system.
    #[arg(long)]
    pub leader_elect_resource_namespace: Option<String>,
}

impl Leading {
    /// Upstream's usual times, if one of several is to act.
    pub fn usual(leader_elect: bool) -> Leading {
        Leading { leader_elect: Some(leader_elect), ..Leading::default() }
    }

    pub fn is_one_of_several(&self) -> bool {
        self.leader_elect != Some(false)
    }

    /// Works for as long as it may: while it leads, or from now on if nobody has to.
    pub async fn work<F>(
        &self,
        context: &Context,
        source: Arc<dyn Source>,
        component: &str,
        work: impl FnOnce(Context) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.leader_elect == Some(false) {
            work(context.clone()).await;
            return Ok(());
        }
        let name = self.leader_elect_resource_name.as_deref().unwrap_or(component);
        let namespace = self.leader_elect_resource_namespace.as_deref().unwrap_or("kube-system");
        let seconds = |given: Option<Duration>, usual| given.unwrap_or(Duration::from_secs(usual));
        let election = Election {
            lease_duration: seconds(self.leader_elect_lease_duration, 15),
            renew_deadline: seconds(self.leader_elect_renew_deadline, 10),
            retry_period: seconds(self.leader_elect_retry_period, 2),
            ..Election::new(context, namespace, name, &super::hostname())
        };
        let client = Client::new(source).managed_by(component);
        let elector = Elector::new(context, client, election).map_err(|error| anyhow!(error))?;
        match elector.run(work).await {
            End::Stopped => Ok(()),
            // Whoever restarts us starts with nothing half known.
            End::Lost => Err(anyhow!("leaderelection lost")),
        }
    }
}
