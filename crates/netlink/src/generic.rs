//! Families of messages that have a name instead of a number (`linux/genetlink.h`): who talks to one asks
//! for its number first, which is another after every start of the machine.
use crate::message::attribute;
use crate::{Attributes, Message, NetlinkError, Socket};

/// The family that knows the others: its number alone is fixed.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `struct genlmsghdr`.
pub(crate) const HEADER: usize = 4;

impl Socket {
    /// The number of a family. A kernel that has it as a module loads it.
    pub(crate) fn family(&mut self, name: &str) -> Result<u16, NetlinkError> {
        let what = format!("find the netlink family {name}");
        let question = Attributes::new().text(FAMILY_NAME, name);
        let answer = self.get(&what, message(CONTROLLER, GET_FAMILY, question))?;
        number_of(&answer).ok_or(NetlinkError::Silent { what })
    }
}

/// A command to a family.
pub(crate) fn message(family: u16, command: u8, attributes: Attributes) -> Message {
    const VERSION: u8 = 1;
    let header: [u8; HEADER] = [command, VERSION, 0, 0];
    Message::new(family, 0, &header, attributes)
}

fn number_of(answer: &[u8]) -> Option<u16> {
    let id = attribute(answer.get(HEADER..)?, FAMILY_ID)?;
    Some(u16::from_ne_bytes(id.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn a_family_is_found_by_its_name() {
        let mut socket = Socket::open(Family::Generic).unwrap();
        assert_eq!(socket.family("nlctrl").unwrap(), CONTROLLER);
        assert!(socket.family("nobody").unwrap_err().is_missing());
    }
}
