//! The oracle: the permitted results of reads, according to SECURITY.md alone. It has its own decoder for stored
//! chunks, written from `proto/stored_block.proto`, and does not depend on the engine.

use std::ops::Range;

/// Size of a chunk in bytes.
pub(super) const CHUNK: usize = 192;
/// Size of a chunk's payload in bytes.
pub(super) const PAYLOAD: usize = CHUNK - RECORD;
/// Size of a block in bytes, as seen by the client.
pub(super) const LOGICAL: usize = 2 * PAYLOAD;
const RECORD: usize = 64;

// The decoder.

/// A member's bytes of a stripe, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoded {
    /// Zeros, because it was never written.
    Unwritten,
    /// A chunk with this epoch and number.
    Chunk(u64, u64),
    /// The contents are not a valid chunk of this place.
    Invalid,
}

/// The chunk that belongs to a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) set: u128,
    pub(super) stripe: u64,
    pub(super) member: usize,
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 != 0 { 0x82F6_3B78 } else { 0 });
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0, |crc, &byte| {
        CRC[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}

fn places(member: usize) -> (Range<usize>, Range<usize>) {
    match member {
        0 => (0..RECORD, RECORD..CHUNK),
        _ => (PAYLOAD..CHUNK, 0..PAYLOAD),
    }
}

/// The payload of a member's chunk.
pub(super) fn payload(chunk: &[u8], member: usize) -> &[u8] {
    &chunk[places(member).1]
}

pub(super) fn decode(chunk: &[u8], expected: Expected) -> Decoded {
    if chunk.iter().all(|&byte| byte == 0) {
        return Decoded::Unwritten;
    }
    let (record, payload) = places(expected.member);
    let (record, payload) = (&chunk[record], &chunk[payload]);
    let word = |at: usize| {
        u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    let set = u128::from(long(8)) << 64 | u128::from(long(16));
    let is_there = word(0) == 0x4348_4B32
        && word(60) == crc32c(payload.iter().chain(&record[..60]))
        && word(4) as usize == expected.member
        && set == expected.set
        && long(24) == expected.stripe
        && long(52) == 0;
    if is_there {
        Decoded::Chunk(long(32), long(40))
    } else {
        Decoded::Invalid
    }
}

// Parity, from the published matrices: coefficients of the two data chunks.

/// Multiplies in GF(2^8) with the polynomial 0x11D.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ (if a & 0x80 != 0 { 0x1D } else { 0 });
        b >>= 1;
    }
    product
}

fn inverse(of: u8) -> u8 {
    (1..=255).find(|&it| multiply(it, of) == 1).unwrap_or(0)
}

/// Parity of two data chunks.
#[derive(Debug, Clone)]
pub(super) struct Code {
    /// Products with the coefficients of data_1 and data_2, and with their inverses.
    products: [[u8; 256]; 2],
    quotients: [[u8; 256]; 2],
}

impl Code {
    pub(super) fn new(is_cauchy: bool) -> Self {
        let coefficients = if is_cauchy {
            [inverse(2), inverse(3)]
        } else {
            [1, 1]
        };
        let table = |by: u8| std::array::from_fn(|byte| multiply(byte as u8, by));
        Self {
            products: coefficients.map(table),
            quotients: coefficients.map(|it| table(inverse(it))),
        }
    }

    pub(super) fn parity(&self, data: [&[u8]; 2], into: &mut [u8]) {
        for (at, into) in into.iter_mut().enumerate() {
            *into = self.products[0][usize::from(data[0][at])]
                ^ self.products[1][usize::from(data[1][at])];
        }
    }

    /// Computes the data chunk `lost` from the other data chunk and the parity chunk.
    pub(super) fn recover(&self, lost: usize, other: &[u8], parity: &[u8], into: &mut [u8]) {
        for (at, into) in into.iter_mut().enumerate() {
            let rest = parity[at] ^ self.products[1 - lost][usize::from(other[at])];
            *into = self.quotients[lost][usize::from(rest)];
        }
    }

    /// The block that is encoded in two members' payloads.
    pub(super) fn block(&self, members: [usize; 2], payloads: [&[u8]; 2]) -> [u8; LOGICAL] {
        let mut block = [0; LOGICAL];
        let (first, second) = block.split_at_mut(PAYLOAD);
        match members {
            [0, 1] => {
                first.copy_from_slice(payloads[0]);
                second.copy_from_slice(payloads[1]);
            }
            [0, _] => {
                first.copy_from_slice(payloads[0]);
                self.recover(1, payloads[0], payloads[1], second);
            }
            _ => {
                second.copy_from_slice(payloads[0]);
                self.recover(0, payloads[0], payloads[1], first);
            }
        }
        block
    }
}

// Contents.

/// Number of parts of a block that are written separately.
pub(super) const PARTS: usize = 4;
const PART: usize = LOGICAL / PARTS;

/// Content of a block: for each part, the number of the write that it is from; 0 for zeros.
pub(super) type Content = [u32; PARTS];

/// The bytes of a content.
pub(super) fn bytes_of(block: u64, content: Content) -> [u8; LOGICAL] {
    let mut bytes = [0; LOGICAL];
    for (part, (number, bytes)) in content.iter().zip(bytes.chunks_mut(PART)).enumerate() {
        if *number == 0 {
            continue;
        }
        for (at, bytes) in bytes.chunks_mut(8).enumerate() {
            let word = (u64::from(*number) << 32 | block << 16 | (part * PART / 8 + at) as u64)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }
    bytes
}

// The register.

/// Sentence of SECURITY.md that a violation breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Promise {
    /// A read returns only data that was written.
    Content,
    /// Acknowledged writes survive the loss of any one target, of the service, and of both.
    Acknowledged,
    /// Flushed writes, and those with FUA, survive a power failure of all machines; reads never return older data
    /// again.
    Durable,
    /// With at most one member of each stripe damaged, stale or unreachable at a time, there is no error.
    NoError,
    /// I/Os are answered in time.
    InTime,
    /// Contents are never determined by a member that is not current, and contradicting flags are refused.
    Refused,
    /// Two current members suffice to start, and a set is available again when its members are.
    Available,
    /// A set that is shown as healthy is redundant.
    Redundant,
    /// The state machines agree with each other: no event that a state does not allow.
    Consistent,
}

impl Promise {
    /// Ids of the sentences in SECURITY.md, and a keyword.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Content => "R2, R4, R5: content",
            Self::Acknowledged => "S1, R1, R3: acknowledged",
            Self::Durable => "S2, R3: durable",
            Self::NoError => "R1, R5: no error",
            Self::InTime => "R1, R8: in time",
            Self::Refused => "R4, R7: refused",
            Self::Available => "R1, R8, R9: available",
            Self::Redundant => "R1, R5, R6: redundant",
            Self::Consistent => "consistent",
        }
    }
}

/// Reason why a promise does not apply. Each is the limit of a sentence of SECURITY.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Excuse {
    /// A read returned an acknowledged write's predecessor: unflushed, and two members lost power.
    UnflushedPowerFailure,
    /// A read returned the version before an acknowledged write: one member had lost the write, and another one was
    /// also lost, damaged or stale.
    LostWrite,
    /// An I/O failed after more than one member of its stripe had been unreachable, damaged or stale since the stripe
    /// was last intact.
    TwoMembers,
    /// An I/O failed after it had waited for two members that were unreachable at the same time.
    Unreachable,
    /// An I/O failed because of an accelerator or the client's memory.
    Device,
    /// A session had to be restarted, because two members rejoined without their data.
    Restarted,
    /// A member was refused when it came back within a session: it had lost a write, or a chunk of it was damaged.
    WithoutContents,
    /// After a clean shutdown, the next session had stripes to settle.
    Unsettled,
}

impl Excuse {
    /// The limit that SECURITY.md states.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::UnflushedPowerFailure => {
                "not flushed, and two members lost power: as at some moment since the last flush"
            }
            Self::LostWrite => {
                "a lost write or an old copy on one member of a stripe, and another one lost or damaged: the block before the write, or when the copy was made"
            }
            Self::TwoMembers => {
                "two members of a stripe damaged, stale or lost at the same time: an I/O error"
            }
            Self::Unreachable => {
                "two members unreachable: an I/O error after four fifths of --io-timeout"
            }
            Self::Device => "an accelerator or the client's memory failed: an I/O error",
            Self::Restarted => "two members came back without their contents: a new session",
            Self::WithoutContents => {
                "a target came back without all of its contents: it may be refused until the next session"
            }
            Self::Unsettled => "a clean stop before the resync after an unclean end was complete",
        }
    }
}

/// A write of a block.
#[derive(Debug, Clone, Copy)]
struct Version {
    number: u64,
    content: Content,
    /// Logical time of its invocation.
    invoked: u64,
    /// Logical time of its completion.
    done: Option<u64>,
    /// Logical time by which a later write is known to have replaced it, or to have been present although this write
    /// had completed.
    replaced: Option<u64>,
    /// Reason why the write may be visible again although it was replaced.
    undone: Option<Excuse>,
    /// `true` if it was in flight in a power failure: unless it is durable when it is acknowledged, it may be lost although it is acknowledged later.
    is_shaky: bool,
    /// `true` if it was replaced permanently. It remains in the list for reads that began before.
    is_gone: bool,
}

impl Version {
    fn is_live(&self) -> bool {
        self.replaced.is_none() && !self.is_gone
    }
}

/// Number of versions that are kept for reads that began before the versions were permanently replaced.
const KEPT: u64 = 256;

/// The values that a block may have. Moments are numbers of events.
#[derive(Debug, Clone)]
pub(super) struct Register {
    block: u64,
    versions: Vec<Version>,
    next: u64,
}

/// A read in progress.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    began: u64,
    /// Versions that the read may return, in addition to those that begin later.
    may_be: Vec<Version>,
    /// Number of the first version that begins after the read.
    from: u64,
    /// `true` if the read was in progress during a power failure: the data that it returns may be lost.
    is_shaky: bool,
}

impl Register {
    /// A block that was never written.
    pub(super) fn new(block: u64) -> Self {
        let first = Version {
            number: 0,
            content: [0; PARTS],
            invoked: 0,
            done: Some(0),
            replaced: None,
            undone: None,
            is_shaky: false,
            is_gone: false,
        };
        Self {
            block,
            versions: vec![first],
            next: 1,
        }
    }

    pub(super) fn begin_write(&mut self, content: Content, now: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.versions.push(Version {
            number,
            content,
            invoked: now,
            done: None,
            replaced: None,
            undone: None,
            is_shaky: false,
            is_gone: false,
        });
        number
    }

    /// Completes a write. Without `is_acknowledged` its outcome is unknown, but it has no effect from now on.
    pub(super) fn end_write(
        &mut self,
        number: u64,
        now: u64,
        is_acknowledged: bool,
        is_durable: bool,
    ) {
        let Some(write) = self.versions.iter_mut().find(|it| it.number == number) else {
            return;
        };
        write.done = Some(now);
        let invoked = write.invoked;
        if is_acknowledged && (is_durable || !write.is_shaky) {
            self.replace_before(invoked, now);
        }
        if is_acknowledged && is_durable {
            for it in &mut self.versions {
                it.is_gone |= it.done.is_some_and(|done| done < invoked);
            }
        }
    }

    fn replace_before(&mut self, invoked: u64, now: u64) {
        for it in &mut self.versions {
            if it.done.is_some_and(|done| done < invoked) {
                it.replaced.get_or_insert(now);
            }
        }
    }

    pub(super) fn begin_read(&self, now: u64) -> Reading {
        let live = self.versions.iter().filter(|it| it.is_live());
        Reading {
            began: now,
            may_be: live.copied().collect(),
            from: self.next,
            is_shaky: false,
        }
    }

    /// Completes a read. Returns the excuse if it returned a version that was replaced.
    pub(super) fn end_read(
        &mut self,
        reading: &Reading,
        bytes: &[u8],
        now: u64,
    ) -> Result<Option<Excuse>, (Promise, String)> {
        let fits = |it: &Version| bytes_of(self.block, it.content) == *bytes;
        let later = self.versions.iter().filter(|it| it.number >= reading.from);
        let allowed = later.chain(&reading.may_be);
        let matching: Vec<Version> = allowed.copied().filter(fits).collect();
        if matching.is_empty() {
            let block = self.block;
            return Err(match self.versions.iter().rev().find(|it| fits(it)) {
                Some(it) if it.is_gone => (
                    Promise::Durable,
                    format!(
                        "a read of block {block} returned version {}, which was replaced for good",
                        it.number
                    ),
                ),
                Some(it) => (
                    Promise::Acknowledged,
                    format!(
                        "a read of block {block} returned version {}, which was replaced",
                        it.number
                    ),
                ),
                None => (
                    Promise::Content,
                    format!("a read of block {block} returned {}", Shown(block, bytes)),
                ),
            });
        }
        if reading.is_shaky {
            return Ok(None);
        }
        let numbers: Vec<u64> = matching.iter().map(|it| it.number).collect();
        for it in &mut self.versions {
            if it.done.is_some_and(|done| done < reading.began) && !numbers.contains(&it.number) {
                it.replaced.get_or_insert(now);
            }
        }
        if let [only] = matching[..] {
            self.replace_before(only.invoked, now);
        }
        let excuses = matching.iter().map(|it| it.undone);
        Ok(excuses.min().flatten())
    }

    /// A flush that began at this logical time has succeeded: versions replaced before it cannot be returned again.
    pub(super) fn flushed(&mut self, began: u64) {
        for it in &mut self.versions {
            it.is_gone |= it.replaced.is_some_and(|replaced| replaced <= began);
        }
        let next = self.next;
        self.versions
            .retain(|it| !it.is_gone || it.number + KEPT > next);
    }

    /// Two members lost power: unflushed writes may be undone.
    pub(super) fn lost_power(&mut self) {
        for it in self.versions.iter_mut().filter(|it| !it.is_gone) {
            if it.replaced.take().is_some() {
                it.undone = Some(Excuse::UnflushedPowerFailure);
            }
            it.is_shaky |= it.done.is_none();
        }
    }

    /// Two members were wrong at the same time, one of them with a lost write, or with an old copy made at the logical
    /// time `since`: the block may have the content from before that.
    pub(super) fn lost_two(&mut self, since: Option<u64>) {
        let last = self.versions.iter().filter_map(|it| it.replaced).max();
        let Some(since) = since.min(last).or(last) else {
            return;
        };
        for it in &mut self.versions {
            if it.replaced.take_if(|replaced| *replaced >= since).is_some() {
                it.undone = Some(Excuse::LostWrite);
                it.is_gone = false;
            }
        }
    }

    /// Extends a read in progress by the versions that are possible after a power failure.
    pub(super) fn extend(&self, reading: &mut Reading) {
        reading.is_shaky = true;
        reading
            .may_be
            .extend(self.versions.iter().filter(|it| !it.is_gone));
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.versions.iter().any(|it| it.done.is_none())
    }

    /// The content that was written last, and another possible content of the block.
    pub(super) fn contents(&self) -> [Content; 2] {
        let last = self.versions.last().map_or([0; PARTS], |it| it.content);
        [last, self.versions.first().map_or(last, |it| it.content)]
    }

    /// Returns `true` if the block may have these bytes now.
    pub(super) fn may_be(&self, bytes: &[u8]) -> bool {
        let mut live = self.versions.iter().filter(|it| it.is_live());
        live.any(|it| bytes_of(self.block, it.content) == *bytes)
    }

    pub(super) fn show(&self, bytes: &[u8]) -> String {
        Shown(self.block, bytes).to_string()
    }
}

/// Formats a block's bytes as numbers of writes.
struct Shown<'a>(u64, &'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (part, bytes) in self.1.chunks(PART).enumerate() {
            let number = (0..4096).find(|&number| {
                let mut content = [0; PARTS];
                content[part] = number;
                bytes_of(self.0, content)[part * PART..(part + 1) * PART] == *bytes
            });
            match number {
                Some(number) => write!(f, " {number}")?,
                None => f.write_str(" ?")?,
            }
        }
        f.write_str(" ]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(crc32c(b"123456789".iter()), 0xE306_9283);
    }

    #[test]
    fn both_codes_recover_each_data_chunk() {
        for is_cauchy in [false, true] {
            let code = Code::new(is_cauchy);
            let (first, second): ([u8; 256], [u8; 256]) = (
                std::array::from_fn(|byte| byte as u8),
                std::array::from_fn(|byte| (byte * 7 + 3) as u8),
            );
            let (mut parity, mut recovered) = ([0; 256], [0; 256]);
            code.parity([&first, &second], &mut parity);
            code.recover(0, &second, &parity, &mut recovered);
            assert_eq!(recovered, first);
            code.recover(1, &first, &parity, &mut recovered);
            assert_eq!(recovered, second);
        }
    }

    const A: Content = [1; PARTS];
    const B: Content = [2; PARTS];

    fn read(register: &mut Register, content: Content, at: u64) -> Result<Option<Excuse>, Promise> {
        let reading = register.begin_read(at);
        let bytes = bytes_of(5, content);
        register
            .end_read(&reading, &bytes, at + 1)
            .map_err(|(promise, _)| promise)
    }

    #[test]
    fn acknowledged_write_replaces_what_was_there() {
        let mut register = Register::new(5);
        let write = register.begin_write(A, 1);
        assert_eq!(read(&mut register, A, 2), Ok(None));
        assert_eq!(
            read(&mut register, [0; PARTS], 4),
            Err(Promise::Acknowledged),
            "it was read as new"
        );
        register.end_write(write, 6, true, false);
        assert_eq!(read(&mut register, B, 7), Err(Promise::Content));
        register.lost_power();
        assert_eq!(
            read(&mut register, [0; PARTS], 9),
            Ok(Some(Excuse::UnflushedPowerFailure))
        );
        assert_eq!(
            read(&mut register, A, 11),
            Err(Promise::Acknowledged),
            "it was read as old"
        );
    }

    #[test]
    fn unknown_outcome_is_decided_by_the_first_read() {
        for content in [[0; PARTS], A] {
            let mut register = Register::new(5);
            let write = register.begin_write(A, 1);
            register.end_write(write, 2, false, false);
            assert_eq!(read(&mut register, content, 3), Ok(None));
            let other = if content == A { [0; PARTS] } else { A };
            assert!(read(&mut register, other, 5).is_err());
        }
    }

    #[test]
    fn flushed_write_stays_through_a_power_failure() {
        let mut register = Register::new(5);
        let write = register.begin_write(A, 1);
        register.end_write(write, 2, true, false);
        register.flushed(3);
        register.lost_power();
        assert!(read(&mut register, [0; PARTS], 4).is_err());
        let write = register.begin_write(B, 6);
        register.end_write(write, 7, true, true);
        register.lost_power();
        assert!(read(&mut register, A, 8).is_err());
        assert_eq!(read(&mut register, B, 10), Ok(None));
    }
}
