//! Which addresses the server connects to for its clients: never those that mean its own machine or
//! its own wire, where it is trusted more than they are.
use api::status::Status;
use std::net::{IpAddr, SocketAddr};

/// Whether an address may be that of a pod or node: what Go calls global unicast. An IPv4 address in
/// IPv6's clothes is what it is inside.
pub fn is_allowed(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_near = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(is_near || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

pub fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

/// The addresses of a host, all of which are allowed. Whoever connects takes these and asks for no
/// others: a name may mean something else a moment later.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Status> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| Status::bad_request(format!("lookup {host}: {error}")))?;
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() {
        return Err(Status::bad_request("no addresses for hostname"));
    }
    match found.iter().all(|address| is_allowed(address.ip())) {
        true => Ok(found),
        false => Err(not_allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_machine_and_wire_are_out_of_reach() {
        for address in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::ffff:255.255.255.255",
        ] {
            assert!(!is_allowed(address.parse().expect("an address")), "{address}");
        }
        for address in ["10.0.0.1", "192.0.2.1", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert!(is_allowed(address.parse().expect("an address")), "{address}");
        }
    }

    #[tokio::test]
    async fn a_name_is_as_good_as_all_its_addresses() {
        for host in ["localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "2130706433", "0x7f.1"] {
            assert!(resolve(host, 1).await.is_err(), "{host}");
        }
        assert!(resolve("192.0.2.1", 1).await.is_ok());
    }
}
