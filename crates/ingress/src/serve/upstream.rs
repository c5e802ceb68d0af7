//! A service's pods, and who of them is asked next: of two taken by chance the one that has less to do.
use super::endpoint::Endpoint;
use crate::table::Destination;
use parking_lot::RwLock;
use std::net::SocketAddr;
use std::sync::Arc;

pub struct Upstream {
    destination: Arc<Destination>,
    endpoints: RwLock<Arc<[Arc<Endpoint>]>>,
}

impl Upstream {
    pub fn new(destination: Arc<Destination>) -> Upstream {
        Upstream { destination, endpoints: RwLock::new(Arc::default()) }
    }

    /// Those that stay keep their connections; those that go finish what they have.
    pub fn set(&self, addresses: &[SocketAddr]) {
        let known = self.endpoints.read().clone();
        if known.iter().map(|endpoint| endpoint.address).eq(addresses.iter().copied()) {
            return;
        }
        let endpoint = |address: &SocketAddr| {
            let same = known.iter().find(|endpoint| endpoint.address == *address);
            let new = || Arc::new(Endpoint::new(*address, &self.destination));
            same.cloned().unwrap_or_else(new)
        };
        *self.endpoints.write() = addresses.iter().map(endpoint).collect();
    }

    /// Somebody who has not been tried.
    pub fn choose(&self, tried: &[SocketAddr]) -> Option<Arc<Endpoint>> {
        let all = self.endpoints.read().clone();
        let is_new = |endpoint: &&Arc<Endpoint>| !tried.contains(&endpoint.address);
        if tried.is_empty() && all.len() > 2 {
            let (one, two) = (fastrand::usize(..all.len()), fastrand::usize(..all.len() - 1));
            let two = if two < one { two } else { two + 1 };
            return less_busy(&all[one], &all[two]);
        }
        let left: Vec<&Arc<Endpoint>> = all.iter().filter(is_new).collect();
        match left[..] {
            [] => None,
            [one] => Some(one.clone()),
            [one, two] => less_busy(one, two),
            _ => left.get(fastrand::usize(..left.len())).map(|one| (*one).clone()),
        }
    }

    pub fn has(&self, address: SocketAddr) -> bool {
        self.endpoints.read().iter().any(|endpoint| endpoint.address == address)
    }

    pub fn sweep(&self) {
        self.endpoints.read().iter().for_each(|endpoint| endpoint.sweep());
    }
}

fn less_busy(one: &Arc<Endpoint>, two: &Arc<Endpoint>) -> Option<Arc<Endpoint>> {
    let is_first = match one.busy().cmp(&two.busy()) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal => fastrand::bool(),
    };
    Some(if is_first { one.clone() } else { two.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Protocol;
    use api::names::NamespacedName;
    use std::collections::BTreeMap;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn upstream(addresses: &[SocketAddr]) -> Upstream {
        let upstream = Upstream::new(Arc::new(Destination {
            service: NamespacedName::new("default", "web"),
            port: 80,
            protocol: Protocol::Http1,
            tls: None,
        }));
        upstream.set(addresses);
        upstream
    }

    #[test]
    fn who_is_busy_is_asked_less() {
        let upstream = upstream(&[address(1), address(2), address(3)]);
        let busy = upstream.choose(&[address(2), address(3)]).unwrap();
        let _working: Vec<_> = (0..10).map(|_| busy.begin()).collect();
        let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for _ in 0..300 {
            *counts.entry(upstream.choose(&[]).unwrap().address).or_default() += 1;
        }
        assert_eq!(counts.get(&address(1)), None, "{counts:?}");
        assert!(counts.values().all(|count| *count > 75), "{counts:?}");
    }

    #[test]
    fn nobody_is_tried_twice_and_who_stays_is_the_same() {
        let upstream = upstream(&[address(1), address(2)]);
        let first = upstream.choose(&[]).unwrap();
        let second = upstream.choose(&[first.address]).unwrap();
        assert_ne!(first.address, second.address);
        assert!(upstream.choose(&[address(1), address(2)]).is_none());
        upstream.set(&[second.address, address(3)]);
        let same = upstream.choose(&[address(3)]).unwrap();
        assert!(Arc::ptr_eq(&same, &second));
        upstream.set(&[]);
        assert!(upstream.choose(&[]).is_none());
    }
}
