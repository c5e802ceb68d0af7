//! What the kernel says of its tables as such.
use super::description::HEADER;
use super::{AddressFamily, SUBSYSTEM};
use crate::message::{Message, attribute};
use crate::{Attributes, NetlinkError, Socket};

const GET_TABLE: u16 = 1;
const GET_GENERATION: u16 = 16;

impl Socket {
    /// A number that changes with every change of any table.
    pub fn generation(&mut self) -> Result<u32, NetlinkError> {
        let message =
            Message::new(SUBSYSTEM << 8 | GET_GENERATION, 0, &[0; HEADER], Attributes::new());
        let body = self.get("read the generation of packet rules", message)?;
        let number = body.get(HEADER..).and_then(|own| attribute(own, 1)?.try_into().ok());
        Ok(number.map_or(0, u32::from_be_bytes))
    }

    /// What tells a table from another of its name that came after it; `None`: there is none.
    pub fn table(
        &mut self,
        family: AddressFamily,
        name: &str,
    ) -> Result<Option<u64>, NetlinkError> {
        let attributes = Attributes::new().text(1, name);
        let header = [family.number(), 0, 0, 0];
        let message = Message::new(SUBSYSTEM << 8 | GET_TABLE, 0, &header, attributes);
        match self.get("look at a table of packet rules", message) {
            Ok(body) => {
                let handle = body.get(HEADER..).and_then(|own| attribute(own, 4)?.try_into().ok());
                Ok(handle.map(u64::from_be_bytes))
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
