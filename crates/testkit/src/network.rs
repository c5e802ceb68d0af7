//! A machine's network in a namespace of its own: several clusters run beside each other, and nothing
//! that they send leaves it.
use netlink::route::Route;
use netlink::{Family, NetlinkError, Socket};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

pub use netlink::testing::Held;

/// The machine's address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// The same of IPv6.
pub const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// A machine that has addresses of both families.
pub fn dual_machine() -> Held {
    let network = machine();
    add_ipv6(&network);
    network
}

/// A machine without IPv4, but for loopback.
pub fn ipv6_machine() -> Held {
    let network = Held::new();
    let prepare = || -> Result<(), NetlinkError> {
        let mut socket = Socket::open(Family::Route)?;
        let own = socket.link("lo")?.expect("every network has it").index;
        socket.set_link_up(own)?;
        let card = socket.ensure_bridge("card0", 1500)?;
        socket.set_link_up(card)
    };
    netlink::namespace::within(&network.path, prepare).expect("entered").expect("a network");
    add_ipv6(&network);
    network
}

fn add_ipv6(network: &Held) {
    let prepare = || -> Result<(), NetlinkError> {
        let mut socket = Socket::open(Family::Route)?;
        let card = socket.link("card0")?.expect("a machine has one").index;
        socket.add_address(card, ADDRESS6.into(), 64)?;
        let gateway = Some(Ipv6Addr::from(u128::from(ADDRESS6) - 1).into());
        let destination = (Ipv6Addr::UNSPECIFIED.into(), 0);
        socket.set_route(&Route { destination, link: card, gateway })
    };
    netlink::namespace::within(&network.path, prepare).expect("entered").expect("a network");
}

/// Loopback, a network card with an address, and a way out that leads nowhere.
pub fn machine() -> Held {
    let network = Held::new();
    let prepare = || -> Result<(), NetlinkError> {
        let mut socket = Socket::open(Family::Route)?;
        let own = socket.link("lo")?.expect("every network has it").index;
        socket.set_link_up(own)?;
        // A bridge without ports stands for the card.
        let card = socket.ensure_bridge("card0", 1500)?;
        socket.add_address(card, ADDRESS.into(), 24)?;
        socket.set_link_up(card)?;
        let gateway = Some(Ipv4Addr::from(u32::from(ADDRESS) - 1).into());
        let destination = (Ipv4Addr::UNSPECIFIED.into(), 0);
        socket.set_route(&Route { destination, link: card, gateway })
    };
    netlink::namespace::within(&network.path, prepare).expect("entered").expect("a network");
    network
}

/// A program, in a network of its own if there is one.
pub fn within(network: Option<&Held>, program: &Path) -> Command {
    let Some(network) = network else { return Command::new(program) };
    let mut command = Command::new(crate::tools::program("nsenter", "util-linux"));
    command.arg(format!("--net={}", network.path.display())).arg(program);
    command
}
