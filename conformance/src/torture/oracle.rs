//! Contents that each block of a storage may have, according to the replies to its clients.
//!
//! A block has a set of possible contents. The start of a write adds its content; its acknowledgement removes all
//! contents without it; a read without overlapping writes removes all contents that differ from its result. A second
//! set contains the contents that are possible after a power failure: all since the start of the last successful flush.

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
        };
        Self {
            block_size,
            is_atomic,
            blocks: (0..blocks).map(|_| block()).collect(),
            flushes: BTreeMap::new(),
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
        let is_free = |(block, range, _): &(usize, Range<usize>, Range<usize>)| {
            let block = &self.blocks[*block];
            let overlaps = |of: &Range<usize>| of.start < range.end && range.start < of.end;
            let excludes =
                |write: &Writing| fua || write.front_end != front_end || overlaps(&write.range);
            let is_whole = range.len() == self.block_size;
            !block.writes.iter().any(excludes) && (is_whole || block.now.0.len() < MANY)
        };
        if !parts.iter().all(is_free) {
            return None;
        }
        let id = self.number();
        for (index, range, bytes) in parts {
            let block = &mut self.blocks[index];
            let added = block.now.with(range.start, &data[bytes]);
            block.now.extend(&added);
            block.durable.extend(&added);
            for flush in self.flushes.values_mut() {
                flush[index].extend(&added);
            }
            for read in &mut block.reads {
                read.seen.extend(&added);
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
        Some(id)
    }

    /// Records that a write was acknowledged.
    pub(super) fn written(&mut self, id: u64, offset: u64, data: &[u8], fua: bool) {
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
    }

    /// Records that a write has failed, or will not be answered: it may have been executed.
    pub(super) fn write_failed(&mut self, id: u64) {
        for block in &mut self.blocks {
            block.writes.retain(|write| write.id != id);
        }
    }

    /// Records the start of a read.
    pub(super) fn begin_read(&mut self, offset: u64, length: usize) -> u64 {
        let id = self.number();
        for (index, _, _) in self.parts(offset, length) {
            let block = &mut self.blocks[index];
            block.reads.push(Reading {
                id,
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
    /// A block cannot have this content.
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
            if !read.seen.allow(range.start, data, is_atomic) {
                result = result.and(Err(mismatch(index, &range, size, data, &read.seen)));
                continue;
            }
            self.verified += 1;
            if !read.is_disturbed {
                block.now.narrow(range.start, data, is_atomic);
            }
        }
        result
    }

    /// Records the start of a flush.
    pub(super) fn begin_flush(&mut self) -> u64 {
        let id = self.number();
        let now = self.blocks.iter().map(|block| block.now.clone()).collect();
        self.flushes.insert(id, now);
        id
    }

    /// Records that a flush has succeeded.
    pub(super) fn flushed(&mut self, id: u64) {
        let flushed = self.flushes.remove(&id).unwrap_or_default();
        for (block, contents) in self.blocks.iter_mut().zip(flushed) {
            block.durable = contents;
        }
    }

    /// Records that a flush has failed, or will not be answered.
    pub(super) fn flush_failed(&mut self, id: u64) {
        self.flushes.remove(&id);
    }

    /// Records a power failure: each block may have any content that it had since the last flush.
    pub(super) fn lose_power(&mut self) {
        self.flushes.clear();
        for block in &mut self.blocks {
            block.now = block.durable.clone();
            block.writes.clear();
            block.reads.clear();
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
        oracle.written(id, offset, data, false);
    }

    fn read(oracle: &mut Oracle, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let id = oracle.begin_read(offset, data.len());
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
        oracle.written(id, 0, &[1; 512], false);
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
        let flush = oracle.begin_flush();
        write(&mut oracle, 0, &[2; SIZE]);
        oracle.flushed(flush);
        write(&mut oracle, 0, &[3; SIZE]);
        for (content, is_allowed) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let mut oracle = Oracle {
                blocks: vec![Block {
                    now: oracle.blocks[0].now.clone(),
                    durable: oracle.blocks[0].durable.clone(),
                    writes: Vec::new(),
                    reads: Vec::new(),
                }],
                flushes: BTreeMap::new(),
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
        oracle.written(id, 0, &[2; 512], true);
        oracle.lose_power();
        read(&mut oracle, 0, &[2; 512]).expect("durable");
        read(&mut oracle, 512, &[0; 512]).expect_err("older than the write with FUA");
    }

    #[test]
    fn overlapping_read_may_return_old_or_new() {
        let mut oracle = oracle();
        let reading = oracle.begin_read(0, SIZE);
        write(&mut oracle, 0, &[1; SIZE]);
        oracle.read(reading, 0, &[0; SIZE]).expect("old");
        read(&mut oracle, 0, &[0; SIZE]).expect_err("overwritten");
    }
}
