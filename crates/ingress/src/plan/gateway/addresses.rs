//! Where a Gateway is found: at the nodes' addresses, as all others are, or at one of the pool that is its own.
use super::types::{Address, Custom, GatewaySpec};
use api::names::NamespacedName;
use api::pool::Pool;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// A Gateway's addresses, and what is wrong with those that it asks for.
#[derive(Debug, Default, PartialEq)]
pub struct Given {
    /// Of the pool; `None`: it shares those of the nodes.
    pub own: Option<BTreeSet<IpAddr>>,
    pub wrong: Option<Wrong>,
}

#[derive(Debug, PartialEq)]
pub enum Wrong {
    /// Nobody here has such addresses.
    Unsupported(String),
    /// It is somebody else's, or nobody's.
    Unusable(String),
}

/// What each of these Gateways, the oldest first, is given. Who has an address according to its status keeps
/// it, so that all who read the same objects come to the same, and nobody moves when somebody else comes.
pub fn give(
    gateways: &[(&NamespacedName, &Arc<Custom<GatewaySpec>>)],
    pool: &Pool,
    nodes: &[IpAddr],
) -> Vec<Given> {
    let wishes: Vec<Wish> = gateways.iter().map(|(_, object)| Wish::of(object, pool)).collect();
    let mut taken = BTreeSet::new();
    let mut own: Vec<BTreeSet<IpAddr>> = vec![BTreeSet::new(); wishes.len()];
    for (wish, own) in wishes.iter().zip(&mut own) {
        own.extend(wish.kept.iter().copied().filter(|address| taken.insert(*address)));
    }
    for (wish, own) in wishes.iter().zip(&mut own) {
        let new = wish.asked.iter().copied().filter(|one| pool.contains(*one));
        own.extend(new.filter(|address| taken.insert(*address)));
    }
    for (_, own) in wishes.iter().zip(&mut own).filter(|(wish, _)| wish.is_open) {
        for is_ipv4 in [true, false] {
            if !own.iter().any(|address| address.is_ipv4() == is_ipv4) {
                let free = pool.free(is_ipv4, |address| taken.contains(&address));
                own.extend(free.filter(|address| taken.insert(*address)));
            }
        }
    }
    let given = wishes.into_iter().zip(own);
    given.map(|(wish, own)| wish.given(own, pool, nodes)).collect()
}

struct Wish {
    unsupported: Option<String>,
    asked: Vec<IpAddr>,
    /// What it had, and may still have.
    kept: Vec<IpAddr>,
    /// Any of the pool will do.
    is_open: bool,
}

impl Wish {
    fn of(object: &Custom<GatewaySpec>, pool: &Pool) -> Wish {
        let all = &object.spec.addresses;
        let is_ip = |one: &&Address| one.r#type.as_deref().unwrap_or("IPAddress") == "IPAddress";
        let named = || all.iter().filter(is_ip).filter(|one| !one.value.is_empty());
        let asked: Vec<IpAddr> = named().filter_map(|one| one.value.parse().ok()).collect();
        let unsupported = match all.iter().find(|one| !is_ip(one)) {
            Some(_) => Some("only addresses of type IPAddress are known".to_owned()),
            None if asked.len() < named().count() => Some("that is no IP address".to_owned()),
            None => None,
        };
        let had = object.status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let had = had.iter().filter_map(|one| one["value"].as_str()?.parse::<IpAddr>().ok());
        let is_kept =
            |one: &IpAddr| pool.contains(*one) && (asked.is_empty() || asked.contains(one));
        let kept = match unsupported {
            Some(_) => Vec::new(),
            None => had.filter(is_kept).collect(),
        };
        let is_open = !pool.is_empty() && asked.is_empty() && unsupported.is_none();
        Wish { unsupported, asked, kept, is_open }
    }

    fn given(self, own: BTreeSet<IpAddr>, pool: &Pool, nodes: &[IpAddr]) -> Given {
        if let Some(why) = self.unsupported {
            return Given { own: None, wrong: Some(Wrong::Unsupported(why)) };
        }
        let is_own = self.is_open || self.asked.iter().any(|one| pool.contains(*one));
        let missing = self.asked.iter().find(|one| match is_own {
            true => !own.contains(one),
            false => !nodes.contains(one),
        });
        let wrong = missing.map(|one| match pool.contains(*one) {
            true => format!("another Gateway has the address {one}"),
            false => format!("no node has the address {one}"),
        });
        Given { own: is_own.then_some(own), wrong: wrong.map(Wrong::Unusable) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Each Gateway as addresses that it asks for and addresses that its status has.
    fn check(pool: &str, gateways: &[(&str, &str)], expected: &[&str]) {
        let list = |text: &str| -> Vec<Value> {
            text.split_whitespace().map(|one| json!({ "value": one })).collect()
        };
        let object = |(i, (asked, had)): (usize, &(&str, &str))| {
            let spec = json!({ "addresses": list(asked) });
            let object = Custom {
                generation: 1,
                created: 0,
                spec: serde_json::from_value::<GatewaySpec>(spec).expect("a Gateway"),
                status: json!({ "addresses": list(had) }),
            };
            (NamespacedName::new("default", &format!("gate-{i}")), Arc::new(object))
        };
        let objects: Vec<_> = gateways.iter().enumerate().map(object).collect();
        let all: Vec<_> = objects.iter().map(|(key, object)| (key, object)).collect();
        let node = ["192.0.2.1".parse().expect("an address")];
        let given = give(&all, &pool.parse().expect("a pool"), &node);
        let shown: Vec<String> = given.iter().map(shown).collect();
        assert_eq!(shown, expected);
    }

    fn shown(given: &Given) -> String {
        let own = given.own.as_ref().map_or_else(
            || "shared".to_owned(),
            |own| own.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        );
        match &given.wrong {
            None => own,
            Some(Wrong::Unsupported(why)) => format!("{own} ({why})"),
            Some(Wrong::Unusable(why)) => format!("{own} [{why}]"),
        }
    }

    #[test]
    fn without_a_pool_all_share_the_nodes_addresses() {
        check(
            "",
            &[("", ""), ("192.0.2.1", ""), ("192.0.2.9", ""), ("nonsense", ""), ("", "10.0.0.1")],
            &[
                "shared",
                "shared",
                "shared [no node has the address 192.0.2.9]",
                "shared (that is no IP address)",
                "shared",
            ],
        );
    }

    #[test]
    fn with_a_pool_each_has_one_of_each_family_until_there_are_none() {
        let pool = "10.0.0.1-10.0.0.2,fd00::1";
        check(pool, &[("", ""), ("", ""), ("", "")], &["10.0.0.1 fd00::1", "10.0.0.2", ""]);
    }

    #[test]
    fn who_has_an_address_keeps_it_whoever_else_wants_it() {
        check(
            "10.0.0.1-10.0.0.3",
            &[("10.0.0.2", ""), ("", ""), ("", "10.0.0.2"), ("10.0.0.3", "10.0.0.1")],
            &[" [another Gateway has the address 10.0.0.2]", "10.0.0.1", "10.0.0.2", "10.0.0.3"],
        );
    }

    #[test]
    fn one_may_ask_for_the_nodes_addresses_nevertheless_but_not_for_both() {
        check(
            "10.0.0.1-10.0.0.3",
            &[("192.0.2.1", ""), ("10.0.0.1 192.0.2.1", ""), ("192.0.2.1", "10.0.0.2")],
            &["shared", "10.0.0.1 [no node has the address 192.0.2.1]", "shared"],
        );
    }
}
