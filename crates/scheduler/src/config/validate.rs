//! What may stand in a file: upstream's rules, in its words (`pkg/scheduler/apis/config/validation`).
use super::file::{
    DynamicResourcesArgs, Extender, File, LeaderElection, NodeResourcesFitArgs,
    PodTopologySpreadArgs, Profile, ResourceSpec, ScoringStrategy, ShapePoint,
};
use api::field::{BadValue, Error, ErrorList, Path};
use api::names::qualified_name;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorTerm};
use std::collections::{BTreeSet, HashMap};

/// Plugins that were taken away.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
const VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// Everything but what is said to plugins, which is judged where it is read.
pub fn file(file: &File, mut of_plugins: Vec<ErrorList>, errors: &mut ErrorList) {
    if file.client_connection.burst < 0 {
        let path = Path::new("clientConnection.burst");
        errors.push(Error::invalid(&path, file.client_connection.burst, "must be non-negative"));
    }
    leader_election(&file.leader_election, errors);
    let parallelism = file.parallelism.unwrap_or(16);
    if parallelism <= 0 {
        let text = "should be an integer value greater than zero";
        errors.push(Error::invalid(&Path::new("parallelism"), parallelism, text));
    }
    let profiles = Path::new("profiles");
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (index, profile) in file.profiles.iter().enumerate() {
        let path = profiles.index(index);
        let name = profile.scheduler_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            errors.push(Error::required(&path.child("schedulerName"), ""));
        }
        percentage(
            &path.child("percentageOfNodesToScore"),
            profile.percentage_of_nodes_to_score,
            errors,
        );
        plugins(&path, profile, errors);
        if let Some(own) = of_plugins.get_mut(index) {
            errors.append(own);
        }
        if let Some(first) = names.insert(name, index) {
            let other = profiles.index(first).child("schedulerName").to_string();
            errors.push(Error::duplicate(
                &path.child("schedulerName"),
                BadValue::verbatim(format!("{other:?}")),
            ));
        }
    }
    queue_sort(&profiles, &file.profiles, errors);
    percentage(&Path::new("percentageOfNodesToScore"), file.percentage_of_nodes_to_score, errors);
    let initial = file.pod_initial_backoff_seconds.unwrap_or(1);
    if initial <= 0 {
        let path = Path::new("podInitialBackoffSeconds");
        errors.push(Error::invalid(&path, initial, "must be greater than 0"));
    }
    let longest = file.pod_max_backoff_seconds.unwrap_or(10);
    if longest < initial {
        let text = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.push(Error::invalid(&Path::new("podMaxBackoffSeconds"), longest, text));
    }
    extenders(&file.extenders, errors);
}

fn percentage(path: &Path<'_>, value: Option<i32>, errors: &mut ErrorList) {
    if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
        errors.push(Error::invalid(path, value, "not in valid range [0-100]"));
    }
}

fn leader_election(election: &LeaderElection, errors: &mut ErrorList) {
    if election.leader_elect == Some(false) {
        return;
    }
    let path = Path::new("leaderElection");
    let nanos = |text: &str, usual: i64| {
        let parsed = api::duration::Duration::parse(text).map_or(0, |it| it.nanos);
        if parsed == 0 { usual * 1_000_000_000 } else { parsed }
    };
    let shown = |text: &str, usual: &str| -> BadValue {
        if matches!(text, "" | "0s") { usual.into() } else { text.into() }
    };
    let lease = nanos(&election.lease_duration, 15);
    let renew = nanos(&election.renew_deadline, 10);
    let retry = nanos(&election.retry_period, 2);
    for (name, nanos, text) in [
        ("leaseDuration", lease, &election.lease_duration),
        ("renewDeadline", renew, &election.renew_deadline),
        ("retryPeriod", retry, &election.retry_period),
    ] {
        if nanos <= 0 {
            let value = shown(text, "0s");
            errors.push(Error::invalid(&path.child(name), value, "must be greater than zero"));
        }
    }
    if lease <= renew {
        let value = shown(&election.renew_deadline, "10s");
        let text = "must be greater than `RenewDeadline`";
        errors.push(Error::invalid(&path.child("leaseDuration"), value, text));
    }
    if !matches!(election.resource_lock.as_str(), "" | "leases") {
        let text = "resourceLock value must be \"leases\"";
        errors.push(Error::invalid(&path.child("resourceLock"), &election.resource_lock, text));
    }
}

fn plugins(path: &Path<'_>, profile: &Profile, errors: &mut ErrorList) {
    let removed = |path: &Path<'_>, name: &str| {
        let text = format!(
            "was invalid in version {VERSION:?} (KubeSchedulerConfiguration is version {VERSION:?})"
        );
        Error::invalid(path, name, text)
    };
    if let Some(plugins) = &profile.plugins {
        let path = path.child("plugins");
        for (name, set) in [
            ("preEnqueue", &plugins.pre_enqueue),
            ("queueSort", &plugins.queue_sort),
            ("preFilter", &plugins.pre_filter),
            ("filter", &plugins.filter),
            ("postFilter", &plugins.post_filter),
            ("preScore", &plugins.pre_score),
            ("score", &plugins.score),
            ("reserve", &plugins.reserve),
            ("permit", &plugins.permit),
            ("preBind", &plugins.pre_bind),
            ("bind", &plugins.bind),
            ("postBind", &plugins.post_bind),
            ("podGroupPostFilter", &plugins.pod_group_post_filter),
        ] {
            let set_path = path.child(name);
            let enabled = set_path.child("enabled");
            for (index, plugin) in set.enabled.iter().enumerate() {
                if REMOVED.contains(&plugin.name.as_str()) {
                    errors.push(removed(&enabled.index(index), &plugin.name));
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    let list = path.child("pluginConfig");
    for (index, config) in profile.plugin_config.iter().enumerate() {
        let path = list.index(index);
        if !seen.insert(&config.name) {
            errors.push(Error::duplicate(&path, &config.name));
        }
        if REMOVED.contains(&config.name.as_str()) {
            errors.push(removed(&path, &config.name));
        }
    }
}

fn queue_sort(path: &Path<'_>, profiles: &[Profile], errors: &mut ErrorList) {
    let set = |profile: &Profile| profile.plugins.clone().unwrap_or_default().queue_sort;
    let Some(first) = profiles.first().map(set) else { return };
    if first.enabled.len() > 1 {
        let path = path.index(0);
        let path = path.child("plugins.queueSort.Enabled");
        let text = "only one queue sort plugin can be enabled";
        errors.push(Error::invalid(&path, first.enabled.len() as i64, text));
    }
    for (index, profile) in profiles.iter().enumerate().skip(1) {
        let own = set(profile);
        if own != first {
            let path = path.index(index);
            let text = "must be the same for all profiles";
            errors.push(Error::invalid(
                &path.child("plugins.queueSort"),
                BadValue::json(&own),
                text,
            ));
        }
    }
}

fn extenders(extenders: &[Extender], errors: &mut ErrorList) {
    let list = Path::new("extenders");
    let mut managed = BTreeSet::new();
    for (index, extender) in extenders.iter().enumerate() {
        let path = list.index(index);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let text = "must have a positive weight applied to it";
            errors.push(Error::invalid(&path.child("weight"), extender.weight, text));
        }
        let resources = path.child("managedResources");
        for (index, resource) in extender.managed_resources.iter().enumerate() {
            let path = resources.index(index);
            let path = path.child("name");
            let faults = qualified_name(&resource.name);
            let is_qualified = faults.is_empty();
            let faults = faults.into_iter();
            errors.extend(faults.map(|fault| Error::invalid(&path, &resource.name, fault)));
            if is_qualified && !is_extended(&resource.name) {
                let text = "is an invalid extended resource name";
                errors.push(Error::invalid(&path, &resource.name, text));
            }
            if !managed.insert(&resource.name) {
                let text = "duplicate extender managed resource name";
                errors.push(Error::invalid(&path, &resource.name, text));
            }
        }
    }
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        errors.push(Error::invalid(&list, found, "only one extender can implement bind"));
    }
}

/// Upstream's `IsExtendedResourceName`.
pub fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

pub fn preemption(path: &Path<'_>, percentage: i32, absolute: i32, errors: &mut ErrorList) {
    let percentage_path = path.child("minCandidateNodesPercentage");
    let absolute_path = path.child("minCandidateNodesAbsolute");
    if !(0..=100).contains(&percentage) {
        let text = "not in valid range [0, 100]";
        errors.push(Error::invalid(&percentage_path, percentage, text));
    }
    if absolute < 0 {
        errors.push(Error::invalid(&absolute_path, absolute, "not in valid range [0, inf)"));
    }
    if percentage == 0 && absolute == 0 {
        let text = "cannot be zero at the same time as minCandidateNodesAbsolute";
        errors.push(Error::invalid(&percentage_path, percentage, text));
        let text = "cannot be zero at the same time as minCandidateNodesPercentage";
        errors.push(Error::invalid(&absolute_path, absolute, text));
    }
}

pub fn hard_pod_affinity_weight(path: &Path<'_>, weight: i32, errors: &mut ErrorList) {
    if !(0..=100).contains(&weight) {
        let path = path.child("hardPodAffinityWeight");
        errors.push(Error::invalid(&path, weight, "not in valid range [0, 100]"));
    }
}

pub fn spread(path: &Path<'_>, args: &PodTopologySpreadArgs, errors: &mut ErrorList) {
    let type_path = path.child("defaultingType");
    match args.defaulting_type.as_str() {
        "System" if !args.default_constraints.is_empty() => {
            let text = "when .defaultConstraints are not empty";
            errors.push(Error::invalid(&type_path, &args.defaulting_type, text));
        }
        "System" | "List" => {}
        other => errors.push(Error::not_supported(&type_path, other, ["System", "List"])),
    }
    let list = path.child("defaultConstraints");
    for (index, constraint) in args.default_constraints.iter().enumerate() {
        let path = list.index(index);
        if constraint.max_skew <= 0 {
            let text = "not in valid range (0, inf)";
            errors.push(Error::invalid(&path.child("maxSkew"), constraint.max_skew, text));
        }
        let key = path.child("topologyKey");
        if constraint.topology_key.is_empty() {
            errors.push(Error::required(&key, "can not be empty"));
        } else {
            let faults = qualified_name(&constraint.topology_key).into_iter();
            errors.extend(faults.map(|text| Error::invalid(&key, &constraint.topology_key, text)));
        }
        let when = path.child("whenUnsatisfiable");
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.push(Error::required(&when, "can not be empty")),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => {
                errors.push(Error::not_supported(
                    &when,
                    other,
                    ["DoNotSchedule", "ScheduleAnyway"],
                ));
            }
        }
        if constraint.label_selector.is_some() {
            let text = "constraint must not define a selector, as they deduced for each pod";
            errors.push(Error::forbidden(&path.child("labelSelector"), text));
        }
        let is_repeated = args.default_constraints[..index].iter().any(|other| {
            other.topology_key == constraint.topology_key
                && other.when_unsatisfiable == constraint.when_unsatisfiable
        });
        if is_repeated {
            let shown =
                format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
            errors.push(Error::duplicate(&path, shown));
        }
    }
}

fn shape(path: &Path<'_>, points: &[ShapePoint], errors: &mut ErrorList) {
    if points.is_empty() {
        errors.push(Error::required(path, "at least one point must be specified"));
        return;
    }
    let falling = points.windows(2).position(|two| two[0].utilization >= two[1].utilization);
    if let Some(at) = falling.map(|at| at + 1) {
        let text = "values must be sorted in increasing order";
        let point = path.index(at);
        errors.push(Error::invalid(&point.child("utilization"), points[at].utilization, text));
    }
    for (index, point) in points.iter().enumerate() {
        let path = path.index(index);
        if !(0..=100).contains(&point.utilization) {
            let text = "not in valid range [0, 100]";
            errors.push(Error::invalid(&path.child("utilization"), point.utilization, text));
        }
        if !(0..=10).contains(&point.score) {
            let text = "not in valid range [0, 10]";
            errors.push(Error::invalid(&path.child("score"), point.score, text));
        }
    }
}

pub fn balanced(path: &Path<'_>, resources: &[ResourceSpec], errors: &mut ErrorList) {
    let list = path.child("resources");
    let mut seen = BTreeSet::new();
    for (index, resource) in resources.iter().enumerate() {
        let path = list.index(index);
        if !seen.insert(&resource.name) {
            errors.push(Error::duplicate(&path.child("name"), &resource.name));
        }
        if resource.weight != 1 {
            errors.push(Error::invalid(&path.child("weight"), resource.weight, "must be 1"));
        }
    }
}

pub fn fit(
    path: &Path<'_>,
    args: &NodeResourcesFitArgs,
    strategy: &ScoringStrategy,
    errors: &mut ErrorList,
) {
    let ignored = path.child("ignoredResources");
    for (index, name) in args.ignored_resources.iter().enumerate() {
        let faults = qualified_name(name).into_iter();
        errors.extend(faults.map(|text| Error::invalid(&ignored.index(index), name, text)));
    }
    let groups = path.child("ignoredResourceGroups");
    for (index, group) in args.ignored_resource_groups.iter().enumerate() {
        let path = groups.index(index);
        if group.contains('/') {
            errors.push(Error::invalid(&path, group, "resource group name can't contain '/'"));
        }
        let faults = qualified_name(group).into_iter();
        errors.extend(faults.map(|text| Error::invalid(&path, group, text)));
    }
    let path = path.child("scoringStrategy");
    const TYPES: [&str; 3] = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    if !TYPES.contains(&strategy.type_.as_str()) {
        errors.push(Error::not_supported(&path.child("type"), &strategy.type_, TYPES));
    }
    let list = path.child("resources");
    for (index, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let text = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            let path = list.index(index);
            errors.push(Error::invalid(&path.child("weight"), resource.weight, text));
        }
    }
    let ratio = path.child("requestedToCapacityRatio");
    match (&strategy.requested_to_capacity_ratio, strategy.type_.as_str()) {
        (None, "RequestedToCapacityRatio") => {
            let text = "must be specified when type is RequestedToCapacityRatio";
            errors.push(Error::required(&ratio, text));
        }
        (Some(given), "RequestedToCapacityRatio") => {
            shape(&ratio.child("shape"), &given.shape, errors);
        }
        (Some(_), _) => {
            let text = "must be nil when type is not RequestedToCapacityRatio";
            errors.push(Error::forbidden(&ratio, text));
        }
        (None, _) => {}
    }
}

pub fn volume_binding(
    path: &Path<'_>,
    seconds: i64,
    points: &[ShapePoint],
    errors: &mut ErrorList,
) {
    if seconds < 0 {
        let text = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.push(Error::invalid(&path.child("bindTimeoutSeconds"), seconds, text));
    }
    // Without a shape the usual one counts.
    if !points.is_empty() {
        shape(&path.child("shape"), points, errors);
    }
}

pub fn dynamic_resources(path: &Path<'_>, args: &DynamicResourcesArgs, errors: &mut ErrorList) {
    let nanos = |text: &Option<String>| {
        let parsed = api::duration::Duration::parse(text.as_deref()?).ok()?;
        Some(parsed.nanos)
    };
    let shown = |text: &Option<String>| text.clone().unwrap_or_default();
    if nanos(&args.filter_timeout).is_some_and(|nanos| nanos < 0) {
        let path = path.child("filterTimeout");
        errors.push(Error::invalid(&path, shown(&args.filter_timeout), "must be zero or positive"));
    }
    if nanos(&args.binding_timeout).is_some_and(|nanos| nanos < 1_000_000_000) {
        let path = path.child("bindingTimeout");
        let value = shown(&args.binding_timeout);
        errors.push(Error::invalid(&path, value, "must be at least 1 second"));
    }
}

pub fn added_affinity(path: &Path<'_>, added: &NodeAffinity, errors: &mut ErrorList) {
    if let Some(required) = &added.required_during_scheduling_ignored_during_execution {
        let path = path.child("addedAffinity.requiredDuringSchedulingIgnoredDuringExecution");
        let list = path.child("nodeSelectorTerms");
        for (index, of) in required.node_selector_terms.iter().enumerate() {
            term(&list.index(index), of, errors);
        }
    }
    let preferred = added.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    let list = path.child("addedAffinity.preferredDuringSchedulingIgnoredDuringExecution");
    for (index, of) in preferred.enumerate() {
        // Upstream names the item, not its field `preference`.
        term(&list.index(index), &of.preference, errors);
    }
}

fn term(path: &Path<'_>, term: &NodeSelectorTerm, errors: &mut ErrorList) {
    let list = path.child("matchExpressions");
    for (index, it) in term.match_expressions.iter().flatten().enumerate() {
        let path = list.index(index);
        let values = it.values.as_deref().unwrap_or_default();
        let values_path = path.child("values");
        let faults = qualified_name(&it.key).into_iter();
        errors.extend(faults.map(|text| Error::invalid(&path.child("key"), &it.key, text)));
        match it.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let text = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(Error::invalid(&values_path, BadValue::json(values), text));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let text = "values set must be empty for exists and does not exist";
                errors.push(Error::invalid(&values_path, BadValue::json(values), text));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let text = "for 'Gt', 'Lt' operators, exactly one value is required";
                errors.push(Error::invalid(&values_path, BadValue::json(values), text));
            }
            "Gt" | "Lt" if values[0].parse::<i64>().is_err() => {
                let text = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(Error::invalid(&values_path.index(0), &values[0], text));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.push(Error::not_supported(
                &path.child("operator"),
                other,
                ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
            )),
        }
    }
    let list = path.child("matchFields");
    for (index, it) in term.match_fields.iter().flatten().enumerate() {
        let path = list.index(index);
        if it.key != "metadata.name" {
            errors.push(Error::invalid(
                &path.child("key"),
                &it.key,
                "not a valid field selector key",
            ));
        }
        let values = it.values.as_deref().unwrap_or_default();
        match it.operator.as_str() {
            "In" | "NotIn" if values.len() != 1 => {
                let text = "must have one element";
                errors.push(Error::invalid(&path.child("values"), BadValue::json(values), text));
            }
            "In" | "NotIn" => {}
            other => {
                errors.push(Error::not_supported(&path.child("operator"), other, ["In", "NotIn"]))
            }
        }
    }
}
