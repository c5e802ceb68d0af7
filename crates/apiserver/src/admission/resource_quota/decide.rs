//! Whether the quotas of a namespace have room for an object, and what they hold after it.
use super::configuration::Limited;
use super::evaluator::Evaluator;
use super::scope::{self, Selector};
use crate::admission::resource_list::{self, ResourceList, add, printed};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// What is written.
pub struct Request<'a> {
    pub object: &'a Value,
    /// What it was; none when it is new.
    pub old: Option<&'a Value>,
    pub part: &'a str,
    /// Group and plural.
    pub resource: (&'a str, &'a str),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Forbidden(String),
    /// Upstream forgets to make this one a refusal.
    Plain(String),
}

use Refusal::{Forbidden, Plain};

/// The new usage of each quota that is charged.
pub fn decide(
    evaluator: &Evaluator,
    quotas: &[Value],
    request: &Request<'_>,
    limited: &[Limited],
    now: Timestamp,
) -> Result<Vec<Option<ResourceList>>, Refusal> {
    let unchanged = || Ok(vec![None; quotas.len()]);
    let usage = evaluator.usage(request.object, now);
    let scopes = limited.iter().flat_map(|limited| &limited.match_scopes);
    let Ok(needed_scopes) = in_scope(evaluator, scopes, request.object) else { return unchanged() };
    let covering = covering(evaluator, quotas, request.object)?;
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| &**name).collect();
    if !negative.is_empty() {
        let negative = negative.join(",");
        return Err(Forbidden(format!("quota usage is negative for resource(s): {negative}")));
    }
    let grown = request.old.map(|old| growth(&usage, &evaluator.usage(old, now)));
    let whole = without_zeros(&usage);
    let mut charges = Vec::new();
    for i in covering.quotas {
        let charge = match (request.old, &grown) {
            // A quota that the object comes under only now is charged all of it.
            (Some(old), Some(grown)) if is_under(evaluator, &quotas[i], old)? => grown,
            _ => &whole,
        };
        charges.push((i, charge));
    }
    let nothing = match charges.is_empty() {
        true => grown.as_ref().unwrap_or(&whole).is_empty(),
        false => charges.iter().all(|(_, charge)| charge.is_empty()),
    };
    if nothing {
        return unchanged();
    }
    check_covered(request, limited, &usage, &covering.resources)?;
    let uncovered: Vec<String> = needed_scopes
        .iter()
        .filter(|needed| !covering.scopes.contains(&needed.scope_name))
        .map(ToString::to_string)
        .collect();
    if evaluator.has_scopes() && !uncovered.is_empty() {
        let uncovered = uncovered.join(" ");
        return Err(Plain(format!("insufficient quota to match these scopes: [{uncovered}]")));
    }
    let mut usages = vec![None; quotas.len()];
    for (i, charge) in charges {
        usages[i] = charge_quota(&quotas[i], charge, request.part == "status")?;
    }
    Ok(usages)
}

/// The quotas that an object is under, and what they cover together.
#[derive(Default)]
struct Covering {
    quotas: Vec<usize>,
    resources: BTreeSet<String>,
    scopes: Vec<String>,
}

fn covering(evaluator: &Evaluator, quotas: &[Value], object: &Value) -> Result<Covering, Refusal> {
    let mut covering = Covering::default();
    for (i, quota) in quotas.iter().enumerate() {
        let name = quota["metadata"]["name"].as_str().unwrap_or_default();
        let selectors = scope::of_quota(quota);
        let mine = in_scope(evaluator, &selectors, object).map_err(|error| {
            Plain(format!("error matching scopes of quota {name}, err: {error}"))
        })?;
        let all = mine.len() == selectors.len();
        covering.scopes.extend(mine.iter().map(|selector| selector.scope_name.clone()));
        let (hard, used) = amounts(quota);
        let resources: Vec<&str> =
            hard.keys().map(String::as_str).filter(|name| evaluator.is_mine(name)).collect();
        if resources.is_empty() || !all {
            continue;
        }
        evaluator
            .check(&resources, object)
            .map_err(|error| Forbidden(format!("failed quota: {name}: {error}")))?;
        if resources.iter().any(|resource| !used.contains_key(*resource)) {
            let resources = resources.join(",");
            return Err(Forbidden(format!(
                "status unknown for quota: {name}, resources: {resources}"
            )));
        }
        covering.resources.extend(resources.iter().map(|resource| (*resource).to_owned()));
        covering.quotas.push(i);
    }
    Ok(covering)
}

fn is_under(evaluator: &Evaluator, quota: &Value, object: &Value) -> Result<bool, Refusal> {
    let selectors = scope::of_quota(quota);
    let mine = in_scope(evaluator, &selectors, object).map_err(Plain)?;
    Ok(mine.len() == selectors.len())
}

fn amounts(quota: &Value) -> (ResourceList, ResourceList) {
    let part = |part: &str| resource_list::of(&quota["status"][part]);
    (part("hard"), part("used"))
}

fn in_scope<'s>(
    evaluator: &Evaluator,
    selectors: impl IntoIterator<Item = &'s Selector>,
    object: &Value,
) -> Result<Vec<&'s Selector>, String> {
    let mut found = Vec::new();
    for selector in selectors {
        if evaluator.is_in_scope(selector, object)? {
            found.push(selector);
        }
    }
    Ok(found)
}

fn without_zeros(list: &ResourceList) -> ResourceList {
    list.iter()
        .filter(|(_, amount)| !amount.is_zero())
        .map(|(n, a)| (n.clone(), a.clone()))
        .collect()
}

/// What is used more than before; what is used less is given back by the controller.
fn growth(new: &ResourceList, old: &ResourceList) -> ResourceList {
    let mut growth = new.clone();
    for (name, amount) in &mut growth {
        if let Some(before) = old.get(name) {
            *amount -= before;
        }
    }
    growth.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    growth
}

/// Refuses what the configuration limits and no quota covers.
fn check_covered(
    request: &Request<'_>,
    limited: &[Limited],
    usage: &ResourceList,
    covered: &BTreeSet<String>,
) -> Result<(), Refusal> {
    let (group, plural) = request.resource;
    let mut uncovered = BTreeSet::new();
    for limited in limited.iter().filter(|l| l.api_group == group && l.resource == plural) {
        for (name, amount) in usage {
            let limited = limited.match_contains.iter().any(|part| name.contains(part.as_str()));
            if limited && !amount.is_zero() && !amount.is_negative() && !covered.contains(name) {
                uncovered.insert(name.as_str());
            }
        }
    }
    if uncovered.is_empty() {
        return Ok(());
    }
    let uncovered: Vec<&str> = uncovered.into_iter().collect();
    Err(Forbidden(format!("insufficient quota to consume: {}", uncovered.join(","))))
}

/// What a quota holds with the charge in it; none if it limits nothing of it. What has happened
/// already (a status) is not refused.
fn charge_quota(
    quota: &Value,
    charge: &ResourceList,
    happened: bool,
) -> Result<Option<ResourceList>, Refusal> {
    let (hard, mut used) = amounts(quota);
    let before = used.clone();
    let masked = |list: &ResourceList, names: &dyn Fn(&str) -> bool| -> ResourceList {
        list.iter().filter(|(name, _)| names(name)).map(|(n, a)| (n.clone(), a.clone())).collect()
    };
    let requested = masked(charge, &|name| hard.contains_key(name));
    if requested.is_empty() {
        return Ok(None);
    }
    add(&mut used, &requested);
    let exceeded = |name: &str| {
        requested.contains_key(name)
            && used.get(name).zip(hard.get(name)).is_some_and(|(used, hard)| used > hard)
    };
    if !happened && hard.keys().any(|name| exceeded(name)) {
        return Err(Forbidden(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota["metadata"]["name"].as_str().unwrap_or_default(),
            printed(&masked(&requested, &exceeded)),
            printed(&masked(&before, &exceeded)),
            printed(&masked(&hard, &exceeded)),
        )));
    }
    Ok(Some(used))
}

#[cfg(test)]
mod tests;
