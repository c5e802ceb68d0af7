//! Answers of other servers, for as long as they said, and no longer than the rules say.
use crate::wire::{HEADER, Query, Records, word};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

const ENTRIES: usize = 10_000;
const OPT: u16 = 41;
const SOA: u16 = 6;

/// Asked with these bytes (in lower case), by a client that takes so much.
type Key = (Vec<u8>, usize);

#[derive(Default)]
pub struct Cache {
    answers: HashMap<Key, Kept>,
    /// The oldest go first.
    order: VecDeque<Key>,
}

struct Kept {
    bytes: Vec<u8>,
    since: Instant,
    until: Instant,
}

impl Cache {
    /// The answer to the question as it came, with what is left of its time.
    pub fn get(&self, query: &Query<'_>, limit: usize, now: Instant) -> Option<Vec<u8>> {
        let kept = self.answers.get(&key(query, limit)).filter(|kept| now < kept.until)?;
        let mut bytes = kept.bytes.clone();
        let age = now.duration_since(kept.since).as_secs() as u32;
        for (at, seconds) in lifetimes(&kept.bytes) {
            let left = seconds.saturating_sub(age);
            bytes[at..at + 4].copy_from_slice(&left.to_be_bytes());
        }
        bytes[..2].copy_from_slice(&query.id.to_be_bytes());
        bytes.get_mut(HEADER..HEADER + query.question.len())?.copy_from_slice(query.question);
        Some(bytes)
    }

    pub fn put(
        &mut self,
        query: &Query<'_>,
        limit: usize,
        bytes: &[u8],
        longest: u32,
        now: Instant,
    ) {
        let Some(seconds) = lasts(bytes, longest).filter(|seconds| *seconds > 0) else { return };
        let key = key(query, limit);
        let until = now + Duration::from_secs(seconds.into());
        let kept = Kept { bytes: bytes.to_vec(), since: now, until };
        if self.answers.insert(key.clone(), kept).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > ENTRIES {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.answers.remove(&oldest));
        }
    }

    /// Names that there are, and names that there are not.
    pub fn len(&self) -> (usize, usize) {
        let is_denial = |kept: &&Kept| word(&kept.bytes, 2).is_ok_and(|flags| flags & 0xf == 3);
        let denials = self.answers.values().filter(is_denial).count();
        (self.answers.len() - denials, denials)
    }
}

fn key(query: &Query<'_>, limit: usize) -> Key {
    (query.question.to_ascii_lowercase(), limit + usize::from(query.takes.is_some()))
}

/// Places and values of the times to live in an answer.
fn lifetimes(bytes: &[u8]) -> Vec<(usize, u32)> {
    records(bytes)
        .filter(|record| record.kind != OPT)
        .filter_map(|record| {
            let at = record.seconds_at;
            let seconds = bytes.get(at..at + 4)?.try_into().ok()?;
            Some((at, u32::from_be_bytes(seconds)))
        })
        .collect()
}

fn records(bytes: &[u8]) -> Records<'_> {
    let counts = (6..=10).step_by(2).filter_map(|at| word(bytes, at).ok());
    let left = counts.map(usize::from).sum();
    // Behind the question's name, which is never compressed.
    let mut at = HEADER;
    while let Some(size) = bytes.get(at).filter(|size| **size != 0) {
        at += 1 + usize::from(*size);
    }
    Records { bytes, at: at + 5, left }
}

/// For how many seconds an answer may be kept; `None`: not at all.
fn lasts(bytes: &[u8], longest: u32) -> Option<u32> {
    let flags = word(bytes, 2).ok()?;
    let (truncated, code) = (flags & 0x0200 != 0, flags & 0xf);
    // There is such a name, or there is none. All else is trouble, which may be over at once.
    if truncated || ![0, 3].contains(&code) {
        return None;
    }
    let shortest = lifetimes(bytes).iter().map(|(_, seconds)| *seconds).min()?;
    let negative = records(bytes).find(|record| record.kind == SOA).and_then(|record| {
        let end = record.data_at + usize::from(word(bytes, record.data_at - 2).ok()?);
        let minimum = bytes.get(end.checked_sub(4)?..end)?.try_into().ok()?;
        Some(u32::from_be_bytes(minimum))
    });
    Some(shortest.min(negative.unwrap_or(longest)).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Data, Kind, Record, question};
    use crate::{Answer, Code};

    const LONGEST: u32 = 30;

    fn answered(asked: &[u8], seconds: u32, code: Code) -> Vec<u8> {
        let data = Data::Address("192.0.2.1".parse().unwrap());
        let records = vec![Record { name: None, seconds, data }];
        let mut bytes = Vec::new();
        let answer = Answer { records, ..Answer::only(code) };
        Query::read(asked).unwrap().write(&answer, 512, &mut bytes);
        bytes
    }

    #[test]
    fn an_answer_ages_and_goes() {
        let (now, mut cache) = (Instant::now(), Cache::default());
        let asked = question(7, "Example.org", Kind::A, Some(1232));
        let query = Query::read(&asked).unwrap();
        cache.put(&query, 1232, &answered(&asked, 20, Code::NoError), LONGEST, now);
        let again = question(9, "exAmple.org", Kind::A, Some(1232));
        let query = Query::read(&again).unwrap();
        let later = |seconds| now + Duration::from_secs(seconds);
        let got = cache.get(&query, 1232, later(5)).unwrap();
        assert_eq!((got[1], &got[13..20]), (9, &b"exAmple"[..]), "one's own letters");
        assert_eq!(lifetimes(&got).iter().map(|(_, left)| *left).collect::<Vec<_>>(), [15]);
        assert!(cache.get(&query, 1232, later(20)).is_none());
        assert!(cache.get(&query, 512, later(5)).is_none(), "who takes less gets less");
    }

    #[test]
    fn trouble_is_not_kept_and_memory_ends() {
        let (now, mut cache) = (Instant::now(), Cache::default());
        for (code, kept) in [(Code::ServerFailure, false), (Code::NameError, true)] {
            let asked = question(7, "example.org", Kind::A, None);
            let query = Query::read(&asked).unwrap();
            cache.put(&query, 512, &answered(&asked, 20, code), LONGEST, now);
            assert_eq!(cache.get(&query, 512, now).is_some(), kept, "{code:?}");
        }
        for number in 0..ENTRIES + 10 {
            let asked = question(7, &format!("{number}.example.org"), Kind::A, None);
            let query = Query::read(&asked).unwrap();
            cache.put(&query, 512, &answered(&asked, 100, Code::NoError), LONGEST, now);
        }
        assert_eq!(cache.len(), (ENTRIES, 0));
        for length in 0..40 {
            let asked = question(7, "example.org", Kind::A, None);
            let bytes = answered(&asked, 20, Code::NoError);
            lasts(&bytes[..length], LONGEST);
        }
    }
}
