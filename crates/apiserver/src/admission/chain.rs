//! The plugins that run, and what each was told.
use super::configuration::{Error, Files};
use super::default_toleration_seconds::TolerationSeconds;
use super::durations::Durations;
use super::manifests::Manifests;
use super::plugins::{Hook, PLUGINS, Plugin, When};
use super::{
    event_rate_limit, image_policy, pod_node_selector, pod_security, pod_toleration_restriction,
    resource_quota, webhook,
};
use api::kinds::Resource;
use std::path::Path;

/// The rows that run, in their order.
pub struct Chain {
    rows: Vec<&'static Plugin>,
    pub settings: Settings,
    pub durations: Durations,
}

/// What flags and the configuration file say to each plugin that can be told something.
#[derive(Default)]
pub struct Settings {
    pub pod_security: pod_security::Configuration,
    pub resource_quota: resource_quota::Configuration,
    pub event_rate_limit: event_rate_limit::Limits,
    pub pod_node_selector: pod_node_selector::Selectors,
    pub pod_toleration_restriction: pod_toleration_restriction::Configuration,
    pub image_policy: Option<image_policy::Webhook>,
    pub toleration_seconds: TolerationSeconds,
    /// As whom webhooks are asked.
    pub webhooks: webhook::AskedAs,
    /// Webhooks and policies that are files beside the server.
    pub manifests: Manifests,
}

impl Default for Chain {
    fn default() -> Self {
        Chain::new(&[], &[], None).expect("the defaults need no configuration")
    }
}

impl Chain {
    /// Upstream's default plugins, those `enable` adds, without those `disable` takes away.
    pub fn new(
        enable: &[String],
        disable: &[String],
        configuration: Option<&Path>,
    ) -> Result<Chain, Error> {
        check_names(enable, disable)?;
        let named = |list: &[String], plugin: &Plugin| list.iter().any(|name| name == plugin.name);
        let runs = |plugin: &&Plugin| match plugin.when {
            When::Always => true,
            When::On => !named(disable, plugin),
            When::Off => named(enable, plugin),
        };
        let rows: Vec<&Plugin> = PLUGINS.iter().filter(runs).collect();
        let files = Files::read(configuration, rows.iter().map(|row| row.name))?;
        let mut settings = Settings::default();
        for row in &rows {
            let Some(configure) = row.configure else { continue };
            let told = files.of(row.name)?;
            configure(told, &mut settings).map_err(|fault| fault.of(row.name))?;
        }
        let durations = Durations::of(&rows);
        Ok(Chain { rows, settings, durations })
    }

    /// The hooks of the rows that are about a resource's kind, each with its place and its plugin's name.
    pub fn rows(
        &self,
        resource: &Resource,
        hook: fn(&Plugin) -> Option<Hook>,
    ) -> impl Iterator<Item = (usize, &'static str, Hook)> {
        let concerns = move |row: &Plugin| {
            let mut kinds = row.kinds.iter();
            row.kinds.is_empty() || kinds.any(|(group, kind)| resource.is(group, kind))
        };
        let rows = self.rows.iter().enumerate().filter(move |(_, row)| concerns(row));
        rows.filter_map(move |(index, row)| Some((index, row.name, hook(row)?)))
    }
}

/// Refuses names that no plugin has, and those in both lists.
fn check_names(enable: &[String], disable: &[String]) -> Result<(), Error> {
    let known = |name: &str| PLUGINS.iter().any(|row| row.name == name && row.when != When::Always);
    let mut causes = Vec::new();
    for (flag, names) in [("enable", enable), ("disable", disable)] {
        let unknown = names.iter().filter(|name| !known(name));
        causes.extend(
            unknown.map(|name| format!("{flag}-admission-plugins plugin {name:?} is unknown")),
        );
    }
    let mut both: Vec<&str> =
        enable.iter().filter(|name| disable.contains(name)).map(String::as_str).collect();
    both.sort_unstable();
    both.dedup();
    if !both.is_empty() {
        causes.push(format!(
            "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
            both.join(" ")
        ));
    }
    match causes.as_slice() {
        [] => Ok(()),
        [one] => Err(Error::Flags(one.clone())),
        several => Err(Error::Flags(format!("[{}]", several.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(enable: &[&str], disable: &[&str]) -> Result<Vec<&'static str>, String> {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chain = Chain::new(&owned(enable), &owned(disable), None);
        chain
            .map(|chain| chain.rows.iter().map(|row| row.name).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn flags_add_and_take_away() {
        let default = names(&[], &[]).unwrap();
        assert!(default.contains(&"LimitRanger") && !default.contains(&"AlwaysDeny"));
        assert_eq!(default.last(), Some(&"ResourceQuota"));
        let chosen = names(&["AlwaysPullImages"], &["LimitRanger"]).unwrap();
        assert!(chosen.contains(&"AlwaysPullImages") && !chosen.contains(&"LimitRanger"));
    }

    #[test]
    fn what_no_plugin_is_called_is_refused() {
        let refused = |enable: &[&str], disable: &[&str]| names(enable, disable).unwrap_err();
        assert_eq!(refused(&["X"], &[]), "enable-admission-plugins plugin \"X\" is unknown");
        assert_eq!(
            refused(&["RBACEscalation", "Priority"], &["Priority"]),
            "[enable-admission-plugins plugin \"RBACEscalation\" is unknown, [Priority] in \
             enable-admission-plugins and disable-admission-plugins overlapped]"
        );
    }

    #[test]
    fn the_image_policy_needs_a_configuration() {
        let text = names(&["ImagePolicyWebhook"], &[]).unwrap_err();
        assert_eq!(
            text,
            "failed to apply admission: couldn't init admission plugin \"ImagePolicyWebhook\": no config specified"
        );
    }

    #[test]
    fn a_row_is_asked_about_its_kinds_only() {
        let chain = Chain::default();
        let asked = |version: &str, kind: &str| -> Vec<&str> {
            let resource = api::kinds::find_kind(version, kind).unwrap();
            chain.rows(resource, |row| row.admit).map(|(_, name, _)| name).collect()
        };
        // Policies and webhooks may be about any kind.
        let (policies, webhooks) = ("MutatingAdmissionPolicy", "MutatingAdmissionWebhook");
        assert_eq!(asked("v1", "ConfigMap"), ["NamespaceLifecycle", policies, webhooks]);
        assert_eq!(
            asked("v1", "Node"),
            ["NamespaceLifecycle", "TaintNodesByCondition", policies, webhooks]
        );
    }
}
