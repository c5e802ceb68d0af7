//! A table that its writer knows: whether the kernel still has what was written.
use super::{AddressFamily, Transaction};
use crate::{NetlinkError, Socket};

/// One address family's table.
pub struct Written {
    pub family: AddressFamily,
    table: &'static str,
    /// Nobody knows what the kernel has: it is to be written whole.
    is_new: bool,
    /// What the kernel calls the table that was written.
    handle: Option<u64>,
}

impl Written {
    pub fn new(family: AddressFamily, table: &'static str) -> Written {
        Written { family, table, is_new: true, handle: None }
    }

    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The next change is to write it whole.
    pub fn renew(&mut self) {
        self.is_new = true;
    }

    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.family, self.table)
    }

    /// Does it all, or nothing: then nobody knows any more what is there.
    pub fn commit(&mut self, change: Transaction, socket: &mut Socket) -> Result<(), NetlinkError> {
        let committed = change.commit(socket);
        let was_new = std::mem::replace(&mut self.is_new, committed.is_err());
        committed?;
        if was_new {
            self.handle = socket.table(self.family, self.table)?;
        }
        Ok(())
    }

    /// Whether the kernel's table of that name is the one that was written.
    fn is_there(&self, socket: &mut Socket) -> Result<bool, NetlinkError> {
        let handle = socket.table(self.family, self.table)?;
        Ok(handle.is_some() && handle == self.handle)
    }
}

/// Whether what was written is still there; what is not is written whole the next time. `whole` adds to
/// a transaction what a table should hold; `wholly`: every rule and element is looked at, not only whether
/// it is the same table. `generation`: when everything was there last, in the kernel's count of changes.
pub fn all_stand<T>(
    tables: &mut [T],
    written: impl Fn(&mut T) -> &mut Written,
    whole: impl Fn(&T, Transaction) -> Transaction,
    wholly: bool,
    generation: &mut Option<u32>,
    socket: &mut Socket,
) -> Result<bool, NetlinkError> {
    let now = Some(socket.generation()?);
    if now == *generation {
        return Ok(true);
    }
    let mut all = true;
    for table in tables {
        if written(table).is_new {
            continue;
        }
        let mut stands = written(table).is_there(socket)?;
        if stands && wholly {
            let empty = written(table).transaction().recorded();
            stands = whole(table, empty).holds(socket)?;
        }
        written(table).is_new = !stands;
        all &= stands;
    }
    if all && wholly {
        *generation = now;
    }
    Ok(all)
}
