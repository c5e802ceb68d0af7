//! Shuffle sharding: a flow is dealt a few queues out of many, so that two flows hardly ever share
//! all of theirs.
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Of this process' own: nobody can choose a name that shares another's queues.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

pub fn hash(schema: &str, flow: &str) -> u64 {
    HASHER.hash_one((schema, flow))
}

/// `size` different cards out of `deck`.
pub fn hand(mut hash: u64, deck: usize, size: usize) -> Vec<usize> {
    let mut dealt: Vec<usize> = Vec::with_capacity(size);
    for left in (1..=deck).rev().take(size) {
        let mut card = (hash % left as u64) as usize;
        hash /= left as u64;
        // The card-th of those that are left.
        let mut taken = dealt.clone();
        taken.sort_unstable();
        for taken in taken {
            if card >= taken {
                card += 1;
            }
        }
        dealt.push(card);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::hand;
    use std::collections::HashSet;

    #[test]
    fn a_hand_has_different_cards_of_the_deck() {
        for seed in 0..2000_u64 {
            let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for (deck, size) in [(1, 1), (8, 8), (64, 6), (128, 6)] {
                let cards = hand(hash, deck, size);
                let different: HashSet<_> = cards.iter().collect();
                assert_eq!((cards.len(), different.len()), (size, size));
                assert!(cards.iter().all(|card| *card < deck));
            }
        }
    }
}
