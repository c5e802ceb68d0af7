//! A machine's network in a namespace of its own: several clusters run beside each other, and nothing
//! that they send leaves it.
use netlink::route::{Route, Veth};
use netlink::{Family, NetlinkError, Socket};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
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
        // A bridge without ports stands for the card.
        Socket::open(Family::Route)?.ensure_bridge("card0", 1500)?;
        furnish(ADDRESS)
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

/// Machines on one link: a bridge in a place of its own, whose ports lead to the machines' cards. A card
/// that was the bridge itself would do with frames what no card does: where the kernel shows bridged
/// frames to packet rules, what a service sends back to where it came from never leaves.
pub struct Machines {
    pub all: Vec<Held>,
    /// Where the bridge is: it goes with this.
    pub switch: Held,
}

/// So many machines, the first with [`ADDRESS`], the others with those that follow.
pub fn machines(count: u8) -> Machines {
    let machines = Machines { all: (0..count).map(|_| Held::new()).collect(), switch: Held::new() };
    let connect = || -> Result<(), NetlinkError> {
        let mut socket = Socket::open(Family::Route)?;
        let bridge = socket.ensure_bridge("switch0", 1500)?;
        for (number, machine) in machines.all.iter().enumerate() {
            let namespace = std::fs::File::open(&machine.path).expect("it is held");
            let (name, namespace) = (format!("port{number}"), namespace.as_fd());
            let veth = Veth { name: &name, peer: "card0", mtu: 1500, master: bridge, namespace };
            socket.create_veth(&veth)?;
        }
        Ok(())
    };
    netlink::namespace::within(&machines.switch.path, connect).expect("entered").expect("links");
    for (machine, number) in machines.all.iter().zip(0..) {
        let furnish = || furnish(address_of(number));
        netlink::namespace::within(&machine.path, furnish).expect("entered").expect("a network");
    }
    machines
}

/// One more address of a machine, of which no other knows where it is.
pub fn add_private(machine: &Held, address: Ipv4Addr) {
    let add = || -> Result<(), NetlinkError> {
        let mut socket = Socket::open(Family::Route)?;
        let own = socket.link("lo")?.expect("every network has it").index;
        socket.add_address(own, address.into(), 32)
    };
    netlink::namespace::within(&machine.path, add).expect("entered").expect("an address");
}

/// The address of one of several machines, counted from 0.
pub fn address_of(number: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(ADDRESS) + u32::from(number))
}

/// Loopback, an address, and a way out that leads nowhere.
fn furnish(address: Ipv4Addr) -> Result<(), NetlinkError> {
    let mut socket = Socket::open(Family::Route)?;
    let own = socket.link("lo")?.expect("every network has it").index;
    socket.set_link_up(own)?;
    let card = socket.link("card0")?.expect("it was made").index;
    socket.add_address(card, address.into(), 24)?;
    socket.set_link_up(card)?;
    let gateway = Some(Ipv4Addr::from(u32::from(ADDRESS) - 1).into());
    let destination = (Ipv4Addr::UNSPECIFIED.into(), 0);
    socket.set_route(&Route { destination, link: card, gateway })
}
