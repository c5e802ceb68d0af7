//! Which plugins a profile has: one row per plugin, and how a file's sets change the usual ones.
use super::file::{Plugin, PluginSet, Plugins};

/// Where plugins are asked: upstream's extension points, and what Go calls their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    PreBind,
    Bind,
}

use Point::{
    Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};

const POINTS: [Point; 10] =
    [PreFilter, Filter, PostFilter, Reserve, PreScore, Score, PreBind, Bind, PreEnqueue, QueueSort];

struct Row {
    name: &'static str,
    /// Of its score, unless a file says otherwise.
    weight: Option<i32>,
    points: &'static [Point],
}

const fn row(name: &'static str, weight: Option<i32>, points: &'static [Point]) -> Row {
    Row { name, weight, points }
}

/// Every plugin, in the order in which profiles have them.
static PLUGINS: &[Row] = &[
    row("SchedulingGates", None, &[PreEnqueue]),
    row("PrioritySort", None, &[QueueSort]),
    row("NodeName", None, &[Filter]),
    row("NodeUnschedulable", None, &[Filter]),
    row("TaintToleration", Some(3), &[Filter, PreScore, Score]),
    row("NodeAffinity", Some(2), &[PreFilter, Filter, PreScore, Score]),
    row("NodePorts", None, &[PreFilter, Filter]),
    row("NodeResourcesFit", Some(1), &[PreFilter, Filter, PreScore, Score]),
    row("VolumeRestrictions", None, &[PreFilter, Filter]),
    row("NodeVolumeLimits", None, &[PreFilter, Filter]),
    row("VolumeBinding", None, &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    row("VolumeZone", None, &[PreFilter, Filter]),
    row("PodTopologySpread", Some(2), &[PreFilter, Filter, PreScore, Score]),
    row("InterPodAffinity", Some(2), &[PreFilter, Filter, PreScore, Score]),
    row(
        "DynamicResources",
        Some(2),
        &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind],
    ),
    row("DefaultPreemption", None, &[PreEnqueue, PostFilter]),
    row("NodeResourcesBalancedAllocation", Some(1), &[PreScore, Score]),
    row("ImageLocality", Some(1), &[Score]),
    row("DefaultBinder", None, &[Bind]),
    row("NodeDeclaredFeatures", None, &[PreFilter, Filter]),
];

/// What a profile runs, point by point, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chosen {
    pub pre_enqueue: Vec<&'static str>,
    pub pre_filter: Vec<&'static str>,
    pub filter: Vec<&'static str>,
    pub post_filter: Vec<&'static str>,
    pub score: Vec<(&'static str, i64)>,
    pub reserve: Vec<&'static str>,
    pub pre_bind: Vec<&'static str>,
}

fn usual() -> PluginSet {
    let plugin = |row: &Row| Plugin { name: row.name.to_owned(), weight: row.weight };
    PluginSet { enabled: PLUGINS.iter().map(plugin).collect(), disabled: Vec::new() }
}

/// The usual plugins, changed as a file says (upstream's `mergePluginSet`): what it names again takes
/// the usual one's place, what is new comes after.
fn merge(usual: PluginSet, custom: &PluginSet) -> PluginSet {
    let is_disabled = |name: &str| custom.disabled.iter().any(|it| it.name == name);
    let mut replaced = Vec::new();
    let mut enabled = Vec::new();
    if !is_disabled("*") {
        for plugin in usual.enabled.into_iter().filter(|plugin| !is_disabled(&plugin.name)) {
            match custom.enabled.iter().rposition(|it| it.name == plugin.name) {
                Some(at) => {
                    replaced.push(at);
                    enabled.push(custom.enabled[at].clone());
                }
                None => enabled.push(plugin),
            }
        }
    }
    let rest = custom.enabled.iter().enumerate().filter(|(at, _)| !replaced.contains(at));
    enabled.extend(rest.map(|(_, plugin)| plugin.clone()));
    PluginSet { enabled, disabled: custom.disabled.clone() }
}

/// All sets of a profile, with the usual ones in them.
pub fn complete(custom: Option<&Plugins>) -> Plugins {
    let mut plugins = custom.cloned().unwrap_or_default();
    plugins.multi_point = merge(usual(), &plugins.multi_point);
    plugins
}

fn set_of(plugins: &Plugins, point: Point) -> &PluginSet {
    match point {
        PreEnqueue => &plugins.pre_enqueue,
        QueueSort => &plugins.queue_sort,
        PreFilter => &plugins.pre_filter,
        Filter => &plugins.filter,
        PostFilter => &plugins.post_filter,
        PreScore => &plugins.pre_score,
        Score => &plugins.score,
        Reserve => &plugins.reserve,
        PreBind => &plugins.pre_bind,
        Bind => &plugins.bind,
    }
}

/// Works out who is asked where (upstream's `NewFramework` and `expandMultiPointPlugins`).
pub fn choose(scheduler_name: &str, plugins: &Plugins) -> Result<Chosen, String> {
    let find = |name: &str, point: Point| {
        PLUGINS
            .iter()
            .find(|row| row.name == name)
            .ok_or_else(|| format!("{point:?}Plugin {name:?} does not exist"))
    };
    let mut chosen = Chosen::default();
    for point in POINTS {
        let set = set_of(plugins, point);
        let mut own: Vec<&Row> = Vec::new();
        for plugin in &set.enabled {
            let row = find(&plugin.name, point)?;
            if !row.points.contains(&point) {
                return Err(format!(
                    "plugin {:?} does not extend {point:?}Plugin plugin",
                    row.name
                ));
            }
            if own.iter().any(|it| it.name == row.name) {
                return Err(format!(
                    "plugin {:?} already registered as \"{point:?}Plugin\"",
                    row.name
                ));
            }
            own.push(row);
        }
        let is_disabled = |name: &str| set.disabled.iter().any(|it| it.name == name);
        let mut everywhere: Vec<&Row> = Vec::new();
        let mut overriding: Vec<&str> = Vec::new();
        if !is_disabled("*") {
            for plugin in &plugins.multi_point.enabled {
                let row = find(&plugin.name, point)?;
                if !row.points.contains(&point) || is_disabled(row.name) {
                    continue;
                }
                if own.iter().any(|it| it.name == row.name) {
                    overriding.push(row.name);
                    continue;
                }
                if everywhere.iter().any(|it| it.name == row.name) {
                    return Err(format!(
                        "plugin {:?} already registered as \"{point:?}Plugin\"",
                        row.name
                    ));
                }
                everywhere.push(row);
            }
        }
        let (first, last): (Vec<&Row>, Vec<&Row>) =
            own.iter().copied().partition(|row| overriding.contains(&row.name));
        let names: Vec<&'static str> =
            first.into_iter().chain(everywhere).chain(last).map(|row| row.name).collect();
        match point {
            PreEnqueue => chosen.pre_enqueue = names,
            QueueSort if names.len() != 1 => {
                let count = names.len();
                return Err(format!(
                    "only one queue sort plugin required for profile with scheduler name {scheduler_name:?}, but got {count}"
                ));
            }
            PreFilter => chosen.pre_filter = names,
            Filter => chosen.filter = names,
            PostFilter => chosen.post_filter = names,
            Score => chosen.score = weighted(plugins, names),
            Reserve => chosen.reserve = names,
            PreBind => chosen.pre_bind = names,
            Bind if names.is_empty() => {
                return Err(format!(
                    "at least one bind plugin is needed for profile with scheduler name {scheduler_name:?}"
                ));
            }
            QueueSort | PreScore | Bind => {}
        }
    }
    Ok(chosen)
}

/// What is said of scoring alone counts before what is said of the plugin; nothing counts as one.
fn weighted(plugins: &Plugins, names: Vec<&'static str>) -> Vec<(&'static str, i64)> {
    let weight = |name: &'static str| {
        let mut said = plugins.score.enabled.iter().chain(&plugins.multi_point.enabled);
        let weight = said.find(|it| it.name == name).and_then(|it| it.weight);
        (name, i64::from(weight.filter(|weight| *weight != 0).unwrap_or(1)))
    };
    names.into_iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn chosen(plugins: Value) -> Result<Chosen, String> {
        let plugins: Plugins = serde_json::from_value(plugins).expect("plugins");
        choose("s", &complete(Some(&plugins)))
    }

    #[test]
    fn without_a_word_a_profile_has_all_in_order() {
        let usual = chosen(json!({})).expect("the usual ones");
        assert_eq!(usual.filter.len(), 14);
        assert_eq!(usual.filter[0], "NodeName");
        assert_eq!(usual.post_filter, ["DynamicResources", "DefaultPreemption"]);
        assert_eq!(usual.score.iter().map(|(_, weight)| weight).sum::<i64>(), 15);
    }

    #[test]
    fn a_file_takes_away_adds_and_weighs() {
        let without = chosen(json!({ "filter": { "disabled": [{ "name": "NodePorts" }] } }));
        let without = without.expect("some");
        assert!(
            !without.filter.contains(&"NodePorts") && without.pre_filter.contains(&"NodePorts")
        );
        let only = chosen(json!({
            "score": { "disabled": [{ "name": "*" }],
                "enabled": [{ "name": "ImageLocality" }, { "name": "NodeAffinity", "weight": 7 }] },
        }));
        assert_eq!(only.expect("some").score, [("ImageLocality", 1), ("NodeAffinity", 7)]);
        // What is named again comes first where it is named, with its own weight.
        let again = chosen(
            json!({ "score": { "enabled": [{ "name": "NodeResourcesFit", "weight": 9 }] } }),
        );
        assert_eq!(again.expect("some").score[0], ("NodeResourcesFit", 9));
        let everywhere =
            chosen(json!({ "multiPoint": { "disabled": [{ "name": "InterPodAffinity" }],
            "enabled": [{ "name": "TaintToleration", "weight": 5 }] } }));
        let everywhere = everywhere.expect("some");
        assert!(!everywhere.filter.contains(&"InterPodAffinity"));
        assert_eq!(everywhere.score[0], ("TaintToleration", 5));
    }

    #[test]
    fn what_cannot_be_is_refused_in_upstreams_words() {
        for (plugins, expected) in [
            (
                json!({ "multiPoint": { "enabled": [{ "name": "Mine" }] } }),
                "PreFilterPlugin \"Mine\" does not exist",
            ),
            (
                json!({ "filter": { "enabled": [{ "name": "ImageLocality" }] } }),
                "plugin \"ImageLocality\" does not extend FilterPlugin plugin",
            ),
            (
                json!({ "bind": { "disabled": [{ "name": "*" }] } }),
                "at least one bind plugin is needed for profile with scheduler name \"s\"",
            ),
            (
                json!({ "queueSort": { "disabled": [{ "name": "*" }] } }),
                "only one queue sort plugin required for profile with scheduler name \"s\", but got 0",
            ),
        ] {
            assert_eq!(chosen(plugins).expect_err("refused"), expected);
        }
    }
}
