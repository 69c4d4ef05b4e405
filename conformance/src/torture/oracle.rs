//! Contents that each block of a storage may have, according to the replies to its clients.
//!
//! A block has a set of possible contents. The start of a write adds its content; its acknowledgement removes all
//! contents without it; a read without overlapping writes removes all contents that differ from its result. A second
//! set contains the contents that are possible after a power failure: all since the start of the last successful flush.
//!
//! When another service has taken over, the front end of the earlier one is [fenced](Oracle::fence): none of its writes
//! in flight is executed any more, and I/Os that it starts later must not complete.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::violation::Violation;

/// Content of a block.
type Content = Arc<[u8]>;

/// Number of possible contents from which on a block is written only as a whole, which limits the size of the sets.
const MANY: usize = 16;
/// Maximum number of contents of a violation's description.
const SHOWN: usize = 3;

/// A set of contents; small, in the order of their writes.
#[derive(Debug, Clone, Default)]
struct Contents(Vec<Content>);

impl Contents {
    fn add(&mut self, content: Content) {
        if !self.0.contains(&content) {
            self.0.push(content);
        }
    }

    /// These contents, each overwritten with `data` at `at`.
    fn with(&self, at: usize, data: &[u8]) -> Self {
        let mut changed = Self::default();
        for content in &self.0 {
            let mut bytes = content.to_vec();
            bytes[at..at + data.len()].copy_from_slice(data);
            changed.add(bytes.into());
        }
        changed
    }

    fn extend(&mut self, more: &Self) {
        for content in &more.0 {
            self.add(Arc::clone(content));
        }
    }

    /// Returns `true` if a block, or each of its bytes if blocks are not written atomically, may have this content at `at`.
    fn allow(&self, at: usize, data: &[u8], is_atomic: bool) -> bool {
        let end = at + data.len();
        let is_one = |content: &Content| content[at..end] == *data;
        self.0.iter().any(is_one)
            || !is_atomic
                && (0..data.len()).all(|byte| {
                    self.0
                        .iter()
                        .any(|content| content[at + byte] == data[byte])
                })
    }

    /// Removes the contents that contradict a read of `data` at `at`.
    fn narrow(&mut self, at: usize, data: &[u8], is_atomic: bool) {
        if is_atomic {
            let end = at + data.len();
            self.0.retain(|content| content[at..end] == *data);
        } else {
            *self = self.with(at, data);
        }
    }
}

/// A write in flight of one block.
#[derive(Debug, Clone)]
struct Writing {
    id: u64,
    front_end: usize,
    /// Bytes of the block that no other write in flight may overlap.
    range: Range<usize>,
}

/// A read in progress of one block.
#[derive(Debug, Clone)]
struct Reading {
    id: u64,
    front_end: usize,
    /// `true` if the read began while its front end was fenced.
    is_late: bool,
    /// Contents that the block has had since the read began.
    seen: Contents,
    /// `true` if a write of the block was in flight during the read.
    is_disturbed: bool,
}

#[derive(Debug, Clone)]
struct Block {
    now: Contents,
    durable: Contents,
    writes: Vec<Writing>,
    reads: Vec<Reading>,
    /// Contents that the block may have had when the fence began. `None` if a power failure may have changed them.
    at_fence: Option<Contents>,
    /// `true` if the block may have been written since the fence began.
    is_rewritten: bool,
}

/// A write without a reply.
#[derive(Debug, Clone)]
struct Pending {
    front_end: usize,
    offset: u64,
    data: Arc<[u8]>,
    fua: bool,
    /// `true` if the write began while its front end was fenced.
    is_late: bool,
    /// `true` if the power failed before the reply: the write may have been executed, and lost.
    may_be_lost: bool,
}

/// The oracle of one storage.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    block_size: usize,
    /// `true` if a write changes a block as a whole.
    is_atomic: bool,
    blocks: Vec<Block>,
    /// Contents of all blocks since the start of each flush in flight.
    flushes: BTreeMap<u64, Vec<Contents>>,
    /// Front ends of the flushes in flight that began while it was fenced.
    late_flushes: BTreeMap<u64, usize>,
    /// Writes without a reply, by id.
    pending: BTreeMap<u64, Pending>,
    /// Front end of the service that was taken over from.
    fenced: Option<usize>,
    next: u64,
    /// Number of blocks whose content was verified.
    verified: u64,
}

impl Oracle {
    /// Creates the oracle of a storage that reads as zeros.
    pub(super) fn new(block_size: usize, blocks: u64, is_atomic: bool) -> Self {
        let zeros: Content = vec![0; block_size].into();
        let zeros = Contents(vec![zeros]);
        let block = || Block {
            now: zeros.clone(),
            durable: zeros.clone(),
            writes: Vec::new(),
            reads: Vec::new(),
            at_fence: None,
            is_rewritten: false,
        };
        Self {
            block_size,
            is_atomic,
            blocks: (0..blocks).map(|_| block()).collect(),
            flushes: BTreeMap::new(),
            late_flushes: BTreeMap::new(),
            pending: BTreeMap::new(),
            fenced: None,
            next: 0,
            verified: 0,
        }
    }

    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Size of the storage in bytes.
    pub(super) fn size(&self) -> u64 {
        self.blocks.len() as u64 * self.block_size as u64
    }

    pub(super) fn verified(&self) -> u64 {
        self.verified
    }

    /// A possible content of a block, for writes that repeat parts of it.
    pub(super) fn content(&self, block: u64, choice: usize) -> Content {
        let block = &self.blocks[block as usize];
        let known = block.now.0.len() + block.durable.0.len();
        let mut all = block.now.0.iter().chain(&block.durable.0);
        let content = all.nth(choice % known.max(1));
        content.map_or_else(|| vec![0; self.block_size].into(), Arc::clone)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Parts of a range of bytes: block, bytes of the block, bytes of the range.
    fn parts(&self, offset: u64, length: usize) -> Vec<(usize, Range<usize>, Range<usize>)> {
        let size = self.block_size;
        let (mut at, mut done, mut parts) = (offset as usize, 0, Vec::new());
        while done < length {
            let within = at % size;
            let count = (size - within).min(length - done);
            parts.push((at / size, within..within + count, done..done + count));
            at += count;
            done += count;
        }
        parts
    }

    /// Records the start of a write. `None` if its outcome could not be determined: the write overlaps another write in
    /// flight, a write with FUA shares a block with another write, or it would write a part of a block in doubt. Writes
    /// through different front ends never share a block, because each front end writes a part of a block by
    /// read-modify-write, without a lock that the other one would respect.
    pub(super) fn begin_write(
        &mut self,
        front_end: usize,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> Option<u64> {
        let parts = self.parts(offset, data.len());
        let is_late = self.fenced == Some(front_end);
        if is_late && self.has_pending_in(front_end, offset, data.len()) {
            return None;
        }
        let is_free = |(block, range, _): &(usize, Range<usize>, Range<usize>)| {
            let block = &self.blocks[*block];
            let overlaps = |of: &Range<usize>| of.start < range.end && range.start < of.end;
            let excludes =
                |write: &Writing| fua || write.front_end != front_end || overlaps(&write.range);
            let is_whole = range.len() == self.block_size;
            !block.writes.iter().any(excludes) && (is_whole || block.now.0.len() < MANY)
        };
        if !is_late && !parts.iter().all(is_free) {
            return None;
        }
        let id = self.number();
        let pending = Pending {
            front_end,
            offset,
            data: data.into(),
            fua,
            is_late,
            may_be_lost: false,
        };
        if !is_late {
            self.admit(id, &pending);
        }
        self.pending.insert(id, pending);
        Some(id)
    }

    /// Returns `true` if a write without a reply of this front end shares a block with a range of bytes.
    fn has_pending_in(&self, front_end: usize, offset: u64, length: usize) -> bool {
        let blocks = |offset: u64, length: usize| {
            let size = self.block_size as u64;
            offset / size..(offset + length as u64).div_ceil(size)
        };
        let wanted = blocks(offset, length);
        self.pending.values().any(|it| {
            let own = blocks(it.offset, it.data.len());
            it.front_end == front_end && own.start < wanted.end && wanted.start < own.end
        })
    }

    /// Adds the contents of a write that may be executed from now on.
    fn admit(&mut self, id: u64, write: &Pending) {
        let Pending {
            front_end,
            offset,
            ref data,
            fua,
            ..
        } = *write;
        for (index, range, bytes) in self.parts(offset, data.len()) {
            let block = &mut self.blocks[index];
            let added = block.now.with(range.start, &data[bytes]);
            block.now.extend(&added);
            block.durable.extend(&added);
            block.is_rewritten = true;
            for flush in self.flushes.values_mut() {
                flush[index].extend(&added);
            }
            for read in &mut block.reads {
                // Contents written after a takeover must not be read through the earlier service.
                if self.fenced != Some(read.front_end) {
                    read.seen.extend(&added);
                }
                read.is_disturbed = true;
            }
            // A write with FUA excludes others from its blocks.
            let range = if fua { 0..self.block_size } else { range };
            block.writes.push(Writing {
                id,
                front_end,
                range,
            });
        }
    }

    /// Records that a write was acknowledged.
    ///
    /// # Errors
    ///
    /// The write has completed through a service that was taken over from, and was not executed before.
    pub(super) fn written(
        &mut self,
        id: u64,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> Result<(), Violation> {
        let write = self.pending.remove(&id);
        if let Some(write) = &write
            && self.fenced == Some(write.front_end)
        {
            return self.written_when_fenced(write);
        }
        if write.is_some_and(|write| write.may_be_lost) {
            self.write_failed(id);
            return Ok(());
        }
        for (index, range, bytes) in self.parts(offset, data.len()) {
            let block = &mut self.blocks[index];
            block.writes.retain(|write| write.id != id);
            block.now = block.now.with(range.start, &data[bytes.clone()]);
            if fua && self.is_atomic {
                block.durable = block.now.clone();
            } else if fua {
                block.durable = block.durable.with(range.start, &data[bytes]);
            }
        }
        Ok(())
    }

    /// Verifies that an acknowledged write was executed before the fence began.
    fn written_when_fenced(&mut self, write: &Pending) -> Result<(), Violation> {
        let (offset, length) = (write.offset, write.data.len());
        Violation::unless(
            !write.is_late,
            "no write to complete that began after its service was taken over from",
            format!("an acknowledgement of {length} bytes at {offset}"),
        )?;
        if write.may_be_lost {
            return Ok(());
        }
        let (size, is_atomic) = (self.block_size, self.is_atomic);
        for (index, range, bytes) in self.parts(offset, length) {
            let block = &mut self.blocks[index];
            let Some(before) = &mut block.at_fence else {
                continue;
            };
            let data = &write.data[bytes];
            if !before.allow(range.start, data, is_atomic) {
                let what = mismatch(index, &range, size, data, before);
                return Err(Violation::new(format!(
                    "a write was acknowledged after its service was taken over from, and not executed before: {what}"
                )));
            }
            before.narrow(range.start, data, is_atomic);
            if !block.is_rewritten {
                block.now = before.clone();
            }
        }
        Ok(())
    }

    /// Another service has taken over from the one of this front end, and is ready.
    pub(super) fn fence(&mut self, front_end: usize) {
        if self.fenced == Some(front_end) {
            return;
        }
        self.fenced = Some(front_end);
        for block in &mut self.blocks {
            block.writes.retain(|write| write.front_end != front_end);
            block.at_fence = Some(block.now.clone());
            block.is_rewritten = !block.writes.is_empty();
        }
    }

    /// The service of the fenced front end is about to take over again: I/Os without a reply are executed later, if at
    /// all. No other front end may have writes in flight that share a block with these.
    pub(super) fn unfence(&mut self) {
        let Some(front_end) = self.fenced.take() else {
            return;
        };
        let of_front_end = |(_, write): &(&u64, &Pending)| write.front_end == front_end;
        let pending: Vec<(u64, Pending)> = self
            .pending
            .iter()
            .filter(of_front_end)
            .map(|(id, write)| (*id, write.clone()))
            .collect();
        for block in &mut self.blocks {
            for read in &mut block.reads {
                if read.front_end == front_end {
                    read.seen.extend(&block.now);
                    read.is_late = false;
                    read.is_disturbed = true;
                }
            }
        }
        for (id, mut write) in pending {
            self.admit(id, &write);
            write.is_late = false;
            self.pending.insert(id, write);
        }
    }

    /// Number of writes of a front end without a reply.
    pub(super) fn pending_writes(&self, front_end: usize) -> usize {
        let writes = self.pending.values();
        writes.filter(|it| it.front_end == front_end).count()
    }

    /// Records that a write has failed, or will not be answered: it may have been executed.
    pub(super) fn write_failed(&mut self, id: u64) {
        self.pending.remove(&id);
        for block in &mut self.blocks {
            block.writes.retain(|write| write.id != id);
        }
    }

    /// Records the start of a read.
    pub(super) fn begin_read(&mut self, front_end: usize, offset: u64, length: usize) -> u64 {
        let id = self.number();
        let is_late = self.fenced == Some(front_end);
        for (index, _, _) in self.parts(offset, length) {
            let block = &mut self.blocks[index];
            block.reads.push(Reading {
                id,
                front_end,
                is_late,
                seen: block.now.clone(),
                is_disturbed: !block.writes.is_empty(),
            });
        }
        id
    }

    /// Records that a read has failed, or will not be answered.
    pub(super) fn read_failed(&mut self, id: u64) {
        for block in &mut self.blocks {
            block.reads.retain(|read| read.id != id);
        }
    }

    /// Records and verifies the result of a read.
    ///
    /// # Errors
    ///
    /// A block cannot have this content, or the read began after its service was taken over from.
    pub(super) fn read(&mut self, id: u64, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let (size, is_atomic) = (self.block_size, self.is_atomic);
        let mut result = Ok(());
        for (index, range, bytes) in self.parts(offset, data.len()) {
            let block = &mut self.blocks[index];
            let Some(position) = block.reads.iter().position(|read| read.id == id) else {
                continue;
            };
            let read = block.reads.remove(position);
            let data = &data[bytes];
            let is_fenced = self.fenced == Some(read.front_end);
            if is_fenced && read.is_late {
                result = result.and(Err(Violation::expected(
                    "no read to complete that began after its service was taken over from",
                    format!("content of block {index}: {}", outline(data)),
                )));
                continue;
            }
            if !read.seen.allow(range.start, data, is_atomic) {
                result = result.and(Err(mismatch(index, &range, size, data, &read.seen)));
                continue;
            }
            self.verified += 1;
            if !read.is_disturbed && !is_fenced {
                block.now.narrow(range.start, data, is_atomic);
                if !block.is_rewritten
                    && let Some(before) = &mut block.at_fence
                {
                    before.clone_from(&block.now);
                }
            }
        }
        result
    }

    /// Records the start of a flush.
    pub(super) fn begin_flush(&mut self, front_end: usize) -> u64 {
        let id = self.number();
        if self.fenced == Some(front_end) {
            self.late_flushes.insert(id, front_end);
            return id;
        }
        let now = self.blocks.iter().map(|block| block.now.clone()).collect();
        self.flushes.insert(id, now);
        id
    }

    /// Records that a flush has succeeded.
    ///
    /// # Errors
    ///
    /// The flush began after its service was taken over from.
    pub(super) fn flushed(&mut self, id: u64) -> Result<(), Violation> {
        let late = self.late_flushes.remove(&id);
        Violation::unless(
            late.is_none() || late != self.fenced,
            "no flush to succeed that began after its service was taken over from",
            "success",
        )?;
        let flushed = self.flushes.remove(&id).unwrap_or_default();
        for (block, contents) in self.blocks.iter_mut().zip(flushed) {
            block.durable = contents;
        }
        Ok(())
    }

    /// Records that a flush has failed, or will not be answered.
    pub(super) fn flush_failed(&mut self, id: u64) {
        self.late_flushes.remove(&id);
        self.flushes.remove(&id);
    }

    /// Records a power failure: each block may have any content that it had since the last flush.
    pub(super) fn lose_power(&mut self) {
        self.flushes.clear();
        for block in &mut self.blocks {
            block.now = block.durable.clone();
            block.writes.clear();
            block.reads.clear();
            block.at_fence = None;
        }
        for write in self.pending.values_mut() {
            write.may_be_lost = true;
        }
        // A service that is still running may repeat these.
        let fenced = self.fenced;
        let is_open = |write: &Pending| fenced != Some(write.front_end);
        let pending = self.pending.clone().into_iter();
        for (id, write) in pending.filter(|(_, write)| is_open(write)) {
            self.admit(id, &write);
        }
    }

    /// Number of blocks that may have several contents.
    #[cfg(test)]
    fn in_doubt(&self) -> usize {
        let is_in_doubt = |block: &&Block| block.now.0.len() > 1;
        self.blocks.iter().filter(is_in_doubt).count()
    }
}

fn mismatch(
    block: usize,
    range: &Range<usize>,
    size: usize,
    data: &[u8],
    allowed: &Contents,
) -> Violation {
    let place = if range.len() == size {
        format!("block {block}")
    } else {
        format!("bytes {range:?} of block {block}")
    };
    let shown: Vec<String> = allowed
        .0
        .iter()
        .take(SHOWN)
        .map(|content| differences(content, range, data))
        .collect();
    Violation::expected(
        format!("one of {} contents in {place}", allowed.0.len()),
        format!(
            "{}; differing 512-byte sectors to these: {}",
            outline(data),
            shown.join(" or ")
        ),
    )
}

/// Sectors in which a content differs from the data read.
fn differences(content: &Content, range: &Range<usize>, data: &[u8]) -> String {
    let sectors = content[range.clone()]
        .chunks(512)
        .zip(data.chunks(512))
        .enumerate();
    let differing = sectors.filter(|(_, (a, b))| a != b);
    let numbers: Vec<String> = differing.map(|(number, _)| number.to_string()).collect();
    format!("[{}]", numbers.join(" "))
}

fn outline(data: &[u8]) -> String {
    if data.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let head: Vec<String> = data
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}…", head.join(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1024;

    fn oracle() -> Oracle {
        Oracle::new(SIZE, 4, true)
    }

    fn write(oracle: &mut Oracle, offset: u64, data: &[u8]) {
        let id = oracle.begin_write(0, offset, data, false).expect("free");
        oracle.written(id, offset, data, false).expect("not fenced");
    }

    fn read(oracle: &mut Oracle, offset: u64, data: &[u8]) -> Result<(), Violation> {
        read_at(oracle, 0, offset, data)
    }

    fn read_at(
        oracle: &mut Oracle,
        front_end: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Violation> {
        let id = oracle.begin_read(front_end, offset, data.len());
        oracle.read(id, offset, data)
    }

    #[test]
    fn acknowledged_write_must_be_read() {
        let mut oracle = oracle();
        write(&mut oracle, 512, &[1; 1024]);
        read(&mut oracle, 0, &[0; 512]).expect("unchanged");
        read(&mut oracle, 512, &[1; 1024]).expect("written");
        read(&mut oracle, 512, &[0; 512]).expect_err("old");
        read(&mut oracle, 2048, &[1; 8]).expect_err("never written");
    }

    #[test]
    fn read_decides_about_a_failed_write() {
        for decided in [0, 1] {
            let mut oracle = oracle();
            let id = oracle.begin_write(0, 0, &[1; SIZE], false).expect("free");
            oracle.write_failed(id);
            assert_eq!(oracle.in_doubt(), 1);
            read(&mut oracle, 512, &[decided; 512]).expect("old or new");
            read(&mut oracle, 0, &[1 - decided; SIZE]).expect_err("the other one");
            read(&mut oracle, 0, &[decided; SIZE]).expect("the same");
        }
    }

    #[test]
    fn front_ends_do_not_write_the_same_block_at_once() {
        let mut oracle = oracle();
        let id = oracle.begin_write(0, 0, &[1; 512], false).expect("free");
        assert_eq!(oracle.begin_write(1, 512, &[2; 512], false), None);
        oracle.begin_write(0, 512, &[2; 512], false).expect("free");
        oracle.written(id, 0, &[1; 512], false).expect("not fenced");
        assert_eq!(oracle.begin_write(1, 0, &[3; 512], false), None);
        oracle.begin_write(1, 1024, &[3; 512], false).expect("free");
    }

    #[test]
    fn torn_block_is_a_violation_if_writes_are_atomic() {
        let torn = [[1; 512], [0; 512]].concat();
        for is_atomic in [true, false] {
            let mut oracle = Oracle::new(SIZE, 1, is_atomic);
            let id = oracle.begin_write(0, 0, &[1; SIZE], false).expect("free");
            oracle.write_failed(id);
            assert_eq!(read(&mut oracle, 0, &torn).is_ok(), !is_atomic);
        }
    }

    #[test]
    fn power_failure_brings_back_what_was_there_since_the_last_flush() {
        let mut oracle = oracle();
        write(&mut oracle, 0, &[1; SIZE]);
        let flush = oracle.begin_flush(0);
        write(&mut oracle, 0, &[2; SIZE]);
        oracle.flushed(flush).expect("not fenced");
        write(&mut oracle, 0, &[3; SIZE]);
        for (content, is_allowed) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let mut oracle = Oracle {
                blocks: vec![Block {
                    now: oracle.blocks[0].now.clone(),
                    durable: oracle.blocks[0].durable.clone(),
                    writes: Vec::new(),
                    reads: Vec::new(),
                    at_fence: None,
                    is_rewritten: false,
                }],
                flushes: BTreeMap::new(),
                late_flushes: BTreeMap::new(),
                pending: BTreeMap::new(),
                ..oracle
            };
            oracle.lose_power();
            assert_eq!(read(&mut oracle, 0, &[content; SIZE]).is_ok(), is_allowed);
        }
    }

    #[test]
    fn write_with_fua_survives_a_power_failure() {
        let mut oracle = oracle();
        write(&mut oracle, 0, &[1; SIZE]);
        let id = oracle.begin_write(0, 0, &[2; 512], true).expect("free");
        assert_eq!(oracle.begin_write(0, 512, &[3; 512], false), None);
        oracle.written(id, 0, &[2; 512], true).expect("not fenced");
        oracle.lose_power();
        read(&mut oracle, 0, &[2; 512]).expect("durable");
        read(&mut oracle, 512, &[0; 512]).expect_err("older than the write with FUA");
    }

    #[test]
    fn overlapping_read_may_return_old_or_new() {
        let mut oracle = oracle();
        let reading = oracle.begin_read(0, 0, SIZE);
        write(&mut oracle, 0, &[1; SIZE]);
        oracle.read(reading, 0, &[0; SIZE]).expect("old");
        read(&mut oracle, 0, &[0; SIZE]).expect_err("overwritten");
    }

    #[test]
    fn write_through_a_fenced_front_end_must_have_been_executed_before() {
        for (content, is_allowed) in [(0, false), (1, true)] {
            let mut oracle = oracle();
            let id = oracle.begin_write(0, 0, &[1; SIZE], false).expect("free");
            oracle.fence(0);
            read_at(&mut oracle, 1, 0, &[content; SIZE]).expect("old or new");
            let next = oracle.begin_write(1, 0, &[2; SIZE], false).expect("free");
            oracle
                .written(next, 0, &[2; SIZE], false)
                .expect("not fenced");
            let acknowledged = oracle.written(id, 0, &[1; SIZE], false);
            assert_eq!(acknowledged.is_ok(), is_allowed);
            read_at(&mut oracle, 1, 0, &[1; SIZE]).expect_err("executed after the takeover");
        }
    }

    #[test]
    fn late_acknowledgement_decides_what_is_read_through_the_new_service() {
        let mut oracle = oracle();
        let id = oracle.begin_write(0, 0, &[1; 512], false).expect("free");
        oracle.fence(0);
        oracle
            .written(id, 0, &[1; 512], false)
            .expect("executed before");
        read_at(&mut oracle, 1, 0, &[0; 512]).expect_err("acknowledged");
        read_at(&mut oracle, 1, 0, &[1; 512]).expect("acknowledged");
    }

    #[test]
    fn no_io_that_begins_after_the_fence_may_complete_until_the_service_takes_over_again() {
        let mut oracle = oracle();
        let before = oracle.begin_read(0, 0, SIZE);
        oracle.fence(0);
        oracle.read(before, 0, &[0; SIZE]).expect("in flight");
        read(&mut oracle, 0, &[0; SIZE]).expect_err("late");
        let late = oracle.begin_write(0, 0, &[1; SIZE], false).expect("free");
        assert_eq!(oracle.begin_write(0, 0, &[1; SIZE], false), None);
        read_at(&mut oracle, 1, 0, &[1; SIZE]).expect_err("late");
        oracle
            .clone()
            .written(late, 0, &[1; SIZE], false)
            .expect_err("late");
        let waiting = oracle.begin_read(0, 0, SIZE);
        oracle.unfence();
        assert_eq!(oracle.pending_writes(0), 1);
        assert_eq!(oracle.begin_write(1, 0, &[2; SIZE], false), None);
        oracle.fence(1);
        oracle
            .written(late, 0, &[1; SIZE], false)
            .expect("in charge");
        oracle.read(waiting, 0, &[1; SIZE]).expect("in charge");
        read(&mut oracle, 0, &[1; SIZE]).expect("in charge");
        read(&mut oracle, 0, &[0; SIZE]).expect_err("overwritten");
    }
}
