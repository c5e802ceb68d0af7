//! How many seats a request takes: one, unless it is a list of much.
//!
//! Upstream's estimate: what a list holds in memory at once, a seat for each hundred kilobytes. A
//! list from the cache is streamed, so it holds no more than a megabyte however long it is.

const BYTES_PER_SEAT: u64 = 100_000;
const STREAMED: u64 = 1_000_000;

/// What is known about a list before it is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct List {
    pub objects: u64,
    /// Of one, on average.
    pub bytes: u64,
    /// 0: all.
    pub limit: u64,
    /// It names one object.
    pub single: bool,
}

/// At most `most`, at least one.
pub fn of_list(list: List, most: u32) -> u32 {
    let objects = match list.limit {
        _ if list.single => 1,
        0 => list.objects,
        limit => limit.min(list.objects),
    };
    let bytes = objects.saturating_mul(list.bytes).min(STREAMED);
    u32::try_from(bytes.div_ceil(BYTES_PER_SEAT)).unwrap_or(u32::MAX).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_seats_by_what_it_holds() {
        let list = List { objects: 5000, bytes: 1000, limit: 0, single: false };
        for (list, most, expected) in [
            (list, 100, 10),
            (list, 4, 4),
            (List { limit: 500, ..list }, 100, 5),
            (List { limit: 10, ..list }, 100, 1),
            (List { single: true, ..list }, 100, 1),
            (List { objects: 0, ..list }, 100, 1),
            (List { objects: 250, ..list }, 100, 3),
        ] {
            assert_eq!(of_list(list, most), expected, "{list:?}");
        }
    }
}
