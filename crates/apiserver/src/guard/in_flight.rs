//! How many requests may be under way at once, so that a flood is turned away and not queued: first
//! come, first served, where priority and fairness is off.
use api::kinds::Verb;
use api::status::Status;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub struct InFlight {
    reads: Limit,
    writes: Limit,
}

#[derive(Debug)]
struct Limit {
    most: usize,
    seats: Arc<Semaphore>,
}

/// A request's place; given back when it is dropped.
pub struct Seat {
    _permit: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    pub fn new(reads: usize, writes: usize) -> InFlight {
        InFlight { reads: Limit::new(reads), writes: Limit::new(writes) }
    }

    /// A place for a request, or what to tell a client when there is none.
    pub fn seat(&self, verb: Verb) -> Result<Seat, Status> {
        let limit = if reads(verb) { &self.reads } else { &self.writes };
        if limit.most == 0 {
            return Ok(Seat { _permit: None });
        }
        match limit.seats.clone().try_acquire_owned() {
            Ok(permit) => Ok(Seat { _permit: Some(permit) }),
            Err(_) => {
                let text = "Too many requests, please try again later.";
                Err(Status::too_many_requests(text, 1))
            }
        }
    }

    /// How many read and how many write now.
    pub fn now(&self) -> (i64, i64) {
        (self.reads.taken() as i64, self.writes.taken() as i64)
    }
}

pub fn reads(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::List | Verb::Watch)
}

impl Limit {
    fn new(most: usize) -> Limit {
        Limit { most, seats: Arc::new(Semaphore::new(most)) }
    }

    fn taken(&self) -> usize {
        self.most - self.seats.available_permits().min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_writes_leaves_room_for_reads() {
        let limit = InFlight::new(1, 1);
        let seat = limit.seat(Verb::Create).expect("the first");
        let refused = limit.seat(Verb::Delete).err().expect("no more");
        assert_eq!((refused.code, refused.suggests_client_delay()), (429, Some(1)));
        assert!(limit.seat(Verb::List).is_ok());
        assert_eq!(limit.now(), (0, 1));
        drop(seat);
        assert!(limit.seat(Verb::Patch).is_ok());
    }

    #[test]
    fn zero_is_no_limit() {
        assert!(InFlight::new(0, 0).seat(Verb::Get).is_ok());
    }
}
