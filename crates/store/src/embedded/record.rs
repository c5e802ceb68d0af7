//! How the log is written down: frames of records.
//!
//! A frame is what one group commit appends: `length, checksum, segment, durable, payload`, all
//! little endian. The checksum covers everything after itself, so a frame is whole or nothing. The
//! segment's number keeps bytes of another file from passing for this one's. `durable` says up to
//! which offset of this segment a sync had succeeded when the frame was written: it tells a torn
//! tail (nothing after the damage relies on it) from damage to acknowledged data.
//!
//! The payload is a sequence of [`Record`]s. A file of zeros holds no frames.
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{Event, Key, KeyValue, LeaseId, Revision};

/// Bytes before a frame's payload.
pub const FRAME_HEADER: usize = 4 + 4 + 8 + 8;

/// Raised when the meaning of the bytes changes.
pub const FORMAT_VERSION: u32 = 1;

/// One fact of the log, borrowing from the file's bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<'a> {
    Put(PutRecord<'a>),
    Delete {
        key: &'a [u8],
        revision: Revision,
    },
    Grant {
        lease: LeaseId,
        ttl: u64,
    },
    Revoke {
        lease: LeaseId,
    },
    Compact {
        revision: Revision,
    },
    /// What a segment begins with: all that the segments before it said, but the keys.
    Checkpoint(Checkpoint),
    /// Segments up to this one hold nothing that is still needed.
    Dropped {
        segment: u64,
    },
    /// The engine was closed properly: everything acknowledged is synced.
    Closed,
    /// The last record of a backup.
    End {
        records: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PutRecord<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub create_revision: Revision,
    pub mod_revision: Revision,
    pub version: u64,
    pub lease: LeaseId,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checkpoint {
    /// The segment this one follows, and how much of it counts.
    pub previous: u64,
    pub previous_end: u64,
    /// The oldest segment still needed.
    pub oldest: u64,
    pub revision: Revision,
    pub compacted: Revision,
    pub boot_id: u128,
    pub leases: Vec<(LeaseId, u64)>,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Zeros: the end of what was written.
    End,
    Damaged,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const GRANT: u8 = 3;
const REVOKE: u8 = 4;
const COMPACT: u8 = 5;
const CHECKPOINT: u8 = 6;
const CLOSED: u8 = 7;
const DROPPED: u8 = 8;
const END: u8 = 9;

/// Bytes a version takes in the log.
pub fn stored_bytes(kv: &KeyValue) -> u64 {
    (1 + 4 + 4 + 8 * 4 + kv.key.len() + kv.value.len()) as u64
}

pub fn encode(record: &Record<'_>, out: &mut Vec<u8>) {
    match record {
        Record::Put(put) => {
            out.push(PUT);
            out.extend_from_slice(&(put.key.len() as u32).to_le_bytes());
            out.extend_from_slice(&(put.value.len() as u32).to_le_bytes());
            for number in [put.create_revision, put.mod_revision, put.version, put.lease as u64] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(put.key);
            out.extend_from_slice(put.value);
        }
        Record::Delete { key, revision } => {
            out.push(DELETE);
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&revision.to_le_bytes());
            out.extend_from_slice(key);
        }
        Record::Grant { lease, ttl } => numbers(out, GRANT, &[*lease as u64, *ttl]),
        Record::Revoke { lease } => numbers(out, REVOKE, &[*lease as u64]),
        Record::Compact { revision } => numbers(out, COMPACT, &[*revision]),
        Record::Dropped { segment } => numbers(out, DROPPED, &[*segment]),
        Record::Closed => out.push(CLOSED),
        Record::End { records } => numbers(out, END, &[*records]),
        Record::Checkpoint(c) => {
            let boot = [c.boot_id as u64, (c.boot_id >> 64) as u64];
            let head = [c.previous, c.previous_end, c.oldest, c.revision, c.compacted];
            out.push(CHECKPOINT);
            out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
            for number in head.iter().chain(&boot).chain(&[c.leases.len() as u64]) {
                out.extend_from_slice(&number.to_le_bytes());
            }
            for (lease, ttl) in &c.leases {
                out.extend_from_slice(&lease.to_le_bytes());
                out.extend_from_slice(&ttl.to_le_bytes());
            }
        }
    }
}

fn numbers(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub fn encode_version(kv: &KeyValue, out: &mut Vec<u8>) {
    let record = if kv.is_tombstone() {
        Record::Delete { key: &kv.key, revision: kv.mod_revision }
    } else {
        Record::Put(PutRecord {
            key: &kv.key,
            value: &kv.value,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
        })
    };
    encode(&record, out);
}

pub fn encode_events(events: &[Event], out: &mut Vec<u8>) {
    for event in events {
        encode_version(&event.kv, out);
    }
}

impl PutRecord<'_> {
    /// Gives the version its own memory, so that the file's can go.
    pub fn to_version(self, key: Key) -> Arc<KeyValue> {
        Arc::new(KeyValue {
            key,
            value: Bytes::copy_from_slice(self.value),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
            slot: Default::default(),
        })
    }
}

pub fn tombstone(key: Key, revision: Revision) -> Arc<KeyValue> {
    Arc::new(KeyValue {
        key,
        value: Bytes::new(),
        create_revision: 0,
        mod_revision: revision,
        version: 0,
        lease: 0,
        slot: Default::default(),
    })
}

/// Wraps a payload, which must begin with [`FRAME_HEADER`] spare bytes, into a frame.
pub fn seal_frame(frame: &mut [u8], segment: u64, durable: u64) {
    let length = (frame.len() - FRAME_HEADER) as u32;
    frame[0..4].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&segment.to_le_bytes());
    frame[16..24].copy_from_slice(&durable.to_le_bytes());
    let checksum = checksum(length, &frame[8..]);
    frame[4..8].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(length: u32, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

/// The frame at the start of `bytes`: its payload and the `durable` offset it vouches for.
pub fn read_frame(bytes: &[u8], segment: u64) -> Result<(&[u8], u64), Flaw> {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER>() else {
        return Err(if bytes.iter().all(|b| *b == 0) { Flaw::End } else { Flaw::Damaged });
    };
    if header.iter().all(|b| *b == 0) {
        return Err(Flaw::End);
    }
    let mut reader = Reader(header);
    let fields = (reader.u32(), reader.u32(), reader.u64(), reader.u64());
    let (Some(length), Some(sum), Some(owner), Some(durable)) = fields else {
        return Err(Flaw::Damaged);
    };
    let end = FRAME_HEADER + length as usize;
    if owner != segment || end > bytes.len() || checksum(length, &bytes[8..end]) != sum {
        return Err(Flaw::Damaged);
    }
    Ok((&bytes[FRAME_HEADER..end], durable))
}

/// The records of a payload, whose checksum held; nothing if they make no sense all the same.
pub fn decode(payload: &[u8]) -> Option<Vec<Record<'_>>> {
    let mut reader = Reader(payload);
    let mut records = Vec::new();
    while !reader.0.is_empty() {
        records.push(reader.record()?);
    }
    Some(records)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn record(&mut self) -> Option<Record<'a>> {
        Some(match self.take(1)?[0] {
            PUT => {
                let (key, value) = (self.u32()? as usize, self.u32()? as usize);
                Record::Put(PutRecord {
                    create_revision: self.u64()?,
                    mod_revision: self.u64()?,
                    version: self.u64()?,
                    lease: self.u64()? as i64,
                    key: self.take(key)?,
                    value: self.take(value)?,
                })
            }
            DELETE => {
                let key = self.u32()? as usize;
                Record::Delete { revision: self.u64()?, key: self.take(key)? }
            }
            GRANT => Record::Grant { lease: self.u64()? as i64, ttl: self.u64()? },
            REVOKE => Record::Revoke { lease: self.u64()? as i64 },
            COMPACT => Record::Compact { revision: self.u64()? },
            DROPPED => Record::Dropped { segment: self.u64()? },
            CLOSED => Record::Closed,
            END => Record::End { records: self.u64()? },
            CHECKPOINT => Record::Checkpoint(self.checkpoint()?),
            _ => return None,
        })
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        if self.u32()? != FORMAT_VERSION {
            return None;
        }
        let mut checkpoint = Checkpoint {
            previous: self.u64()?,
            previous_end: self.u64()?,
            oldest: self.u64()?,
            revision: self.u64()?,
            compacted: self.u64()?,
            boot_id: u128::from(self.u64()?) | u128::from(self.u64()?) << 64,
            leases: Vec::new(),
        };
        for _ in 0..self.u64()? {
            checkpoint.leases.push((self.u64()? as i64, self.u64()?));
        }
        Some(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record<'static>> {
        vec![
            Record::Checkpoint(Checkpoint {
                previous: 1,
                previous_end: 2,
                oldest: 1,
                revision: 3,
                compacted: 2,
                boot_id: u128::MAX - 5,
                leases: vec![(-4, 60)],
            }),
            Record::Put(PutRecord {
                key: b"k",
                value: b"value",
                create_revision: 1,
                mod_revision: 9,
                version: 4,
                lease: -1,
            }),
            Record::Delete { key: b"", revision: 10 },
            Record::Grant { lease: 5, ttl: 6 },
            Record::Revoke { lease: 5 },
            Record::Compact { revision: 7 },
            Record::Dropped { segment: 8 },
            Record::Closed,
            Record::End { records: 3 },
        ]
    }

    fn frame() -> Vec<u8> {
        let mut frame = vec![0; FRAME_HEADER];
        for record in samples() {
            encode(&record, &mut frame);
        }
        seal_frame(&mut frame, 7, 99);
        frame
    }

    #[test]
    fn records_survive_the_round_trip() {
        let frame = frame();
        let (payload, durable) = read_frame(&frame, 7).unwrap();
        assert_eq!((decode(payload).unwrap(), durable), (samples(), 99));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let whole = frame();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(read_frame(&flipped, 7).is_err(), "flip at {at}");
            assert!(read_frame(&whole[..at], 7).is_err(), "cut at {at}");
        }
        assert_eq!(read_frame(&whole, 8), Err(Flaw::Damaged), "another segment's frame");
        assert_eq!(read_frame(&[0; 100], 7), Err(Flaw::End));
    }

    #[test]
    fn nonsense_with_a_good_checksum_is_refused() {
        for cut in 1..frame().len() - FRAME_HEADER {
            let whole = frame();
            let cut = &whole[FRAME_HEADER..FRAME_HEADER + cut];
            // Either a shorter list of whole records, or none at all; never a panic.
            if let Some(records) = decode(cut) {
                assert_eq!(records, samples()[..records.len()]);
            }
        }
        assert_eq!(decode(&[200]), None);
    }
}
