//! Listeners that cannot be served beside each other, because what comes could be for either.
use super::listeners::Why;
use super::types::Listener;

/// Of all listeners of a Gateway, object by object, those that are in somebody's way. What an earlier object has
/// it keeps; of two in the same object that are not to be told apart neither is served, for no order is theirs.
pub fn conflicts(objects: &[&[Listener]]) -> Vec<Vec<Option<Why>>> {
    let mut settled: Vec<&Listener> = Vec::new();
    let mut all = Vec::new();
    for listeners in objects {
        let lost: Vec<Option<Why>> = listeners
            .iter()
            .map(|one| settled.iter().find_map(|other| between(other, one, "another listener")))
            .collect();
        let found: Vec<Option<Why>> = (listeners.iter().zip(&lost))
            .map(|(one, lost_already)| {
                let others = listeners
                    .iter()
                    .zip(&lost)
                    .filter(|(other, lost)| lost.is_none() && !std::ptr::eq(*other, one));
                let beside = others.map(|(other, _)| other);
                let mut beside =
                    beside.map(|other| between(other, one, &format!("listener {}", other.name)));
                lost_already.clone().or_else(|| beside.find_map(|why| why))
            })
            .collect();
        let free = listeners.iter().zip(&found).filter(|(_, why)| why.is_none());
        settled.extend(free.map(|(one, _)| one));
        all.push(found);
    }
    all
}

/// `called`: what the owner of the second may know of the first.
fn between(one: &Listener, other: &Listener, called: &str) -> Option<Why> {
    let (first, second) = (Family::of(one)?, Family::of(other)?);
    let is_udp = |family| family == Family::Datagrams;
    if one.port != other.port || is_udp(first) != is_udp(second) {
        return None;
    }
    if first != second {
        let text = format!("{called} has the same port and another protocol");
        return Some(("ProtocolConflict", text));
    }
    let host = |one: &Listener| match first {
        Family::Connections | Family::Datagrams => String::new(),
        _ => one.hostname.clone().unwrap_or_default().to_ascii_lowercase(),
    };
    let is_same = host(one) == host(other);
    is_same.then(|| ("HostnameConflict", format!("{called} has the same port and host")))
}

/// Protocols that can share a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Plain,
    Tls,
    Connections,
    Datagrams,
}

impl Family {
    fn of(listener: &Listener) -> Option<Family> {
        Some(match listener.protocol.as_str() {
            "HTTP" => Family::Plain,
            "HTTPS" | "TLS" => Family::Tls,
            "TCP" => Family::Connections,
            "UDP" => Family::Datagrams,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects are separated by `|`, their listeners are `PROTOCOL:PORT:HOST`.
    fn check(text: &str, expected: &str) {
        let listener = |text: &str| {
            let mut parts = text.split(':');
            let mut next = || parts.next().unwrap_or_default().to_owned();
            let (protocol, port, host) = (next(), next(), next());
            Listener {
                name: text.to_owned(),
                hostname: (!host.is_empty()).then_some(host),
                port: port.parse().expect("a port"),
                protocol,
                ..Listener::default()
            }
        };
        let objects: Vec<Vec<Listener>> = text
            .split('|')
            .map(|object| object.split_whitespace().map(listener).collect())
            .collect();
        let slices: Vec<&[Listener]> = objects.iter().map(Vec::as_slice).collect();
        let shown: Vec<String> = conflicts(&slices)
            .iter()
            .map(|found| {
                let one = |why: &Option<Why>| why.as_ref().map_or("-", |(reason, _)| *reason);
                found.iter().map(one).collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(shown.join(" | "), expected, "{text}");
    }

    #[test]
    fn what_can_be_told_apart_may_share_a_port() {
        check("HTTP:80 HTTP:80:a.com HTTP:80:*.a.com", "- - -");
        check("HTTPS:443:a.com TLS:443:b.com", "- -");
        check("TCP:53 UDP:53", "- -");
        check("TCP:53 TCP:54", "- -");
        check("ODD:80 HTTP:80", "- -");
    }

    #[test]
    fn in_one_object_neither_of_two_is_served() {
        check("HTTP:80:a.com HTTPS:80:b.com", "ProtocolConflict ProtocolConflict");
        check("HTTPS:443:A.com TLS:443:a.com HTTPS:443", "HostnameConflict HostnameConflict -");
        check("TCP:80 HTTP:80", "ProtocolConflict ProtocolConflict");
        check("UDP:80 UDP:80:x", "HostnameConflict HostnameConflict");
    }

    #[test]
    fn the_earlier_object_keeps_what_it_has() {
        check("HTTP:80:a.com | HTTP:80:a.com HTTP:80:b.com", "- | HostnameConflict -");
        check("HTTP:80:a.com | HTTP:80:b.com TCP:80", "- | - ProtocolConflict");
        // Who has lost is in nobody's way.
        check("HTTP:80 | TCP:80 HTTP:80:b.com | HTTP:80:c.com", "- | ProtocolConflict - | -");
        check("HTTP:80 | TCP:81 HTTP:81 | HTTP:81", "- | ProtocolConflict ProtocolConflict | -");
    }
}
