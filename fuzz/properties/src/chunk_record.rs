//! Records of stored chunks.

use arbitrary::{Arbitrary, Result, Unstructured};
use wire::DecodeError;
use wire::stored_block::ChunkRecord;

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// Bytes of a record.
#[derive(Debug, Clone)]
pub struct Input(Vec<u8>);

#[derive(Debug, Arbitrary)]
struct Parts {
    member: u32,
    set: (u64, u64),
    stripe: u64,
    stamp: (u64, u64),
    compressed_size: u32,
    checksum: u32,
    damage: Vec<Damage>,
}

/// One byte selects the kind and the remaining bytes are the content, so that a chunk can be used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=1)? {
            0 => Self(rest(u)?),
            _ => u.arbitrary::<Parts>()?.input(),
        })
    }
}

impl Parts {
    fn input(&self) -> Input {
        let record = ChunkRecord {
            member: self.member % 4,
            set_high: self.set.0,
            set_low: self.set.1,
            stripe: self.stripe,
            epoch: self.stamp.0,
            number: self.stamp.1,
            compressed_size: self.compressed_size,
            checksum: self.checksum,
        };
        let mut bytes = record.emit().to_vec();
        if record.member < 3 {
            assert_eq!(ChunkRecord::parse(&bytes), Ok(record));
        }
        spoil(&mut bytes, &self.damage);
        Input(bytes)
    }
}

/// A record is accepted if and only if it has a valid magic number, member and reserved bytes, and it encodes to the same
/// bytes.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(Input(bytes): &Input) {
    let counting = Counting::of("chunk record");
    let parsed = harness::within_memory(0, "reading a chunk record", || ChunkRecord::parse(bytes));
    let record = bytes.get(..ChunkRecord::SIZE);
    let right = record.is_some_and(|record| {
        record.starts_with(b"CHK2")
            && record[4..7] == [0; 3]
            && record[7] < 3
            && record[52..60] == [0; 8]
    });
    match &parsed {
        Ok(parsed) => {
            assert!(right, "{bytes:?}");
            assert_eq!(Some(&parsed.emit()[..]), record);
        }
        Err(refused) => {
            assert!(!right, "{refused}");
            let is_short = matches!(refused, DecodeError::Truncated { .. });
            assert!(!is_short || record.is_none(), "{refused}");
        }
    }
    counting.done(parsed.is_ok());
}
