//! A table that its writer knows: how it is changed, and whether the kernel still has what was written.
use super::description::Description;
use super::{AddressFamily, Transaction};
use crate::{NetlinkError, Socket};
use rustix::thread::{MembarrierCommand, membarrier};

/// A change of a table in an order in which no packet that is under way meets half of it: each step happens
/// at once or not at all.
pub struct Steps {
    /// What nothing leads to yet: chains with their rules, and sets that these look into. A chain that came
    /// with the elements that lead to it would be empty to a packet that began before.
    pub(super) ahead: Transaction,
    pub(super) now: Transaction,
    /// What nothing may lead to any more, and whom nothing is to keep from anything: it waits until packets
    /// that began before have gone.
    pub(super) after: Transaction,
}

impl Steps {
    pub(super) fn of(table: Transaction) -> Steps {
        let step = || Transaction::of(table.family, table.protocol, &table.table);
        Steps { ahead: step(), now: step(), after: step() }
    }

    /// All of them say together what the table is to hold.
    fn whole(table: Transaction) -> Steps {
        let steps = Steps::of(table);
        Steps { now: steps.now.recorded(), ..steps }
    }

    fn is_whole(&self) -> bool {
        self.now.description.is_some()
    }

    pub fn ahead(&mut self) -> &mut Transaction {
        if self.is_whole() { &mut self.now } else { &mut self.ahead }
    }

    pub fn now(&mut self) -> &mut Transaction {
        &mut self.now
    }

    pub fn commit(self, socket: &mut Socket) -> Result<(), NetlinkError> {
        self.ahead.commit(socket)?;
        self.now.commit(socket)?;
        if !self.after.is_empty() {
            // The kernel ends a grace period, and with it every packet that was under way when this began.
            // Without it (a kernel that cannot) two changes would have to happen within one packet.
            let _ = membarrier(MembarrierCommand::Global);
        }
        self.after.commit(socket)
    }
}

/// One address family's table.
pub struct Written {
    pub family: AddressFamily,
    table: &'static str,
    /// Nobody knows what the kernel has: it is to be compared.
    is_new: bool,
    /// What the kernel calls the table that was written.
    handle: Option<u64>,
    /// What was written last, by [`Written::make`].
    kept: Option<Description>,
}

impl Written {
    pub fn new(family: AddressFamily, table: &'static str) -> Written {
        Written { family, table, is_new: true, handle: None, kept: None }
    }

    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The next change is to say the whole, with which the kernel's table is compared.
    pub fn renew(&mut self) {
        self.is_new = true;
    }

    fn transaction(&self) -> Transaction {
        Transaction::new(self.family, self.table)
    }

    /// For a change; where nobody knows what the kernel has, for the whole.
    pub fn steps(&self) -> Steps {
        match self.is_new {
            true => Steps::whole(self.transaction()),
            false => Steps::of(self.transaction()),
        }
    }

    /// For saying what the whole is.
    pub fn whole(&self) -> Transaction {
        self.transaction().recorded()
    }

    /// Does it all, or not: then nobody knows any more what is there.
    pub fn commit(&mut self, change: Steps, socket: &mut Socket) -> Result<(), NetlinkError> {
        self.did(change.commit(socket), socket)
    }

    /// The table becomes what is recorded, from what was recorded last.
    pub fn make(
        &mut self,
        mut whole: Transaction,
        socket: &mut Socket,
    ) -> Result<(), NetlinkError> {
        let wanted = whole.description.take();
        let known = self.kept.take().filter(|_| !self.is_new);
        let mut steps = Steps::of(self.transaction());
        let way = known.zip(wanted.as_ref());
        let way = way.and_then(|(known, wanted)| known.way(wanted, &mut steps));
        let committed = match way {
            Some(()) => steps.commit(socket),
            None => {
                whole.description.clone_from(&wanted);
                whole.commit(socket)
            }
        };
        self.kept = wanted;
        self.did(committed, socket)
    }

    fn did(
        &mut self,
        committed: Result<(), NetlinkError>,
        socket: &mut Socket,
    ) -> Result<(), NetlinkError> {
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

/// Whether what was written is still there; what is not is compared the next time. `whole` says what a table
/// should hold; `wholly`: every rule and element is looked at, not only whether it is the same table.
/// `generation`: when everything was there last, in the kernel's count of changes.
pub fn all_stand<T>(
    tables: &mut [T],
    written: impl Fn(&mut T) -> &mut Written,
    whole: impl Fn(&T, Steps) -> Steps,
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
            let empty = Steps::whole(written(table).transaction());
            stands = whole(table, empty).now.holds(socket)?;
        }
        written(table).is_new = !stands;
        all &= stands;
    }
    if all && wholly {
        *generation = now;
    }
    Ok(all)
}
