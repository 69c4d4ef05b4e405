//! Requests of virtio-blk: from a chain of descriptors in guest memory to an operation on the storage.
//!
//! Guests write descriptors, headers and lengths, and may change them at any time. Each value is read once and then
//! checked; no value makes the parser panic, loop, allocate beyond its limits or access memory other than the
//! guest's. An invalid request with a status byte is completed with an error; a chain that cannot be completed is a
//! [`ChainError`], which stops the virtqueue.

use thiserror::Error;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes as _, GuestAddress, GuestMemory as _, GuestMemoryMmap, Permissions};

use crate::device::{Device, MAX_QUEUE_SIZE, MAX_ZEROES, MAX_ZEROES_SEGMENTS, SECTOR};

pub type Memory = GuestMemoryMmap<()>;

/// Size of a descriptor in bytes.
const DESCRIPTOR: u64 = size_of::<Descriptor>() as u64;
/// Size of a request's header in bytes: type, reserved, sector.
const HEADER: usize = 16;
/// Size of a segment of a discard or write-zeroes request in bytes: sector, number of sectors, flags.
const ZEROES_SEGMENT: usize = 16;

/// Status byte of a completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Ok = VIRTIO_BLK_S_OK as u8,
    /// Failed, or out of the device's range.
    IoError = VIRTIO_BLK_S_IOERR as u8,
    /// Type or flag that was not offered.
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// A range of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub address: GuestAddress,
    /// Length in bytes.
    pub len: u32,
}

/// A range of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes, at most [`MAX_ZEROES`].
    pub len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read into the segments.
    Read,
    /// Write from the segments.
    Write,
    /// Make completed writes durable.
    Flush,
    /// Declare the ranges unused.
    Discard,
    /// Write zeros to the ranges.
    WriteZeroes,
}

/// The next action for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Execute it on the storage.
    Execute(Kind),
    /// Write the identifier to the segments, and complete the request.
    Identify,
    /// Complete the request.
    Answer(Status),
}

/// Error in a chain of descriptors that prevents completing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChainError {
    /// A descriptor index exceeds its table.
    #[error("expected a descriptor index below {size}, got {index}")]
    Index {
        index: u16,
        /// Number of entries of the table.
        size: u16,
    },
    /// The chain has more descriptors than the table (it is a loop), or more than the limit.
    #[error("expected a chain of at most {most} descriptors, got a longer one or a loop")]
    TooLong { most: u16 },
    /// An indirect table within an indirect table, an indirect table that is followed by another descriptor, or one of
    /// an invalid length.
    #[error(
        "expected an indirect table of 1 to {MAX_QUEUE_SIZE} descriptors at the end of the chain"
    )]
    Indirect,
    /// A table outside guest memory.
    #[error("expected descriptors in guest memory, got address {address:#x}")]
    Table { address: u64 },
    /// A readable descriptor after a writable one.
    #[error("expected no readable descriptor after writable ones")]
    Order,
    /// The chain has no status byte, or its status byte is outside guest memory.
    #[error("expected a writable byte for the status in guest memory")]
    Status,
}

/// Location of a descriptor table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Address of the first descriptor.
    pub address: GuestAddress,
    /// Number of descriptors.
    pub size: u16,
}

/// A parsed request. Its vectors are reused when the next one is [parsed](Self::parse) into it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Address of the status byte.
    pub status: GuestAddress,
    /// Data of reads, writes and identifications in the order of the chain. None is empty.
    pub segments: Vec<Segment>,
    /// Ranges to discard or to zero. None is empty.
    pub ranges: Vec<Range>,
    /// Offset on the device in bytes, for reads and writes.
    pub offset: u64,
    /// Total length of the segments in bytes.
    pub len: u64,
    writable: Vec<Segment>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            status: GuestAddress(0),
            segments: Vec::new(),
            ranges: Vec::new(),
            offset: 0,
            len: 0,
            writable: Vec::new(),
        }
    }
}

impl Request {
    /// Parses the request whose chain begins with the descriptor `head`.
    ///
    /// # Errors
    /// The chain cannot be completed.
    pub fn parse(
        &mut self,
        memory: &Memory,
        table: Table,
        head: u16,
        device: &Device,
    ) -> Result<Verdict, ChainError> {
        self.ranges.clear();
        self.offset = 0;
        self.len = 0;
        self.collect(memory, table, head)?;
        let last = self.writable.last_mut().ok_or(ChainError::Status)?;
        last.len -= 1;
        self.status = GuestAddress(
            last.address
                .0
                .checked_add(u64::from(last.len))
                .ok_or(ChainError::Status)?,
        );
        if last.len == 0 {
            self.writable.pop();
        }
        if !memory.check_range(self.status, 1, Permissions::Write) {
            return Err(ChainError::Status);
        }
        Ok(self.judge(memory, device).unwrap_or_else(Verdict::Answer))
    }

    /// Collects the descriptors of a chain, readable ones in `segments` and writable ones in `writable`. Empty
    /// descriptors are omitted.
    fn collect(&mut self, memory: &Memory, table: Table, head: u16) -> Result<(), ChainError> {
        self.segments.clear();
        self.writable.clear();
        let mut table = table;
        let mut is_indirect = false;
        let mut index = head;
        let mut left = table.size.min(MAX_QUEUE_SIZE);
        loop {
            if index >= table.size {
                return Err(ChainError::Index {
                    index,
                    size: table.size,
                });
            }
            if left == 0 {
                return Err(ChainError::TooLong {
                    most: table.size.min(MAX_QUEUE_SIZE),
                });
            }
            left -= 1;
            let address = table.address.0.checked_add(u64::from(index) * DESCRIPTOR);
            let descriptor: Descriptor = address
                .and_then(|address| memory.read_obj(GuestAddress(address)).ok())
                .ok_or(ChainError::Table {
                    address: address.unwrap_or(u64::MAX),
                })?;
            if descriptor.refers_to_indirect_table() {
                let len = u64::from(descriptor.len());
                let size = len / DESCRIPTOR;
                let fits = len.is_multiple_of(DESCRIPTOR)
                    && (1..=u64::from(MAX_QUEUE_SIZE)).contains(&size);
                if is_indirect || descriptor.has_next() || !fits {
                    return Err(ChainError::Indirect);
                }
                table = Table {
                    address: descriptor.addr(),
                    size: size as u16,
                };
                is_indirect = true;
                index = 0;
                left = table.size;
                continue;
            }
            let segment = Segment {
                address: descriptor.addr(),
                len: descriptor.len(),
            };
            if descriptor.is_write_only() {
                if segment.len != 0 {
                    self.writable.push(segment);
                }
            } else if !self.writable.is_empty() {
                return Err(ChainError::Order);
            } else if segment.len != 0 {
                self.segments.push(segment);
            }
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
    }

    fn judge(&mut self, memory: &Memory, device: &Device) -> Result<Verdict, Status> {
        for (segments, access) in [
            (&self.segments, Permissions::Read),
            (&self.writable, Permissions::Write),
        ] {
            let is_mapped = |it: &Segment| memory.check_range(it.address, it.len as usize, access);
            if !segments.iter().all(is_mapped) {
                return Err(Status::IoError);
            }
        }
        let header: [u8; HEADER] = self.take(memory)?;
        let [t0, t1, t2, t3, _, _, _, _, sector @ ..] = header;
        let sector = u64::from_le_bytes(sector);
        match u32::from_le_bytes([t0, t1, t2, t3]) {
            VIRTIO_BLK_T_IN => {
                std::mem::swap(&mut self.segments, &mut self.writable);
                self.transfer(sector, device)
                    .map(|()| Verdict::Execute(Kind::Read))
            }
            VIRTIO_BLK_T_OUT if device.read_only => Err(Status::IoError),
            VIRTIO_BLK_T_OUT => self
                .transfer(sector, device)
                .map(|()| Verdict::Execute(Kind::Write)),
            VIRTIO_BLK_T_FLUSH if device.flush => Ok(Verdict::Execute(Kind::Flush)),
            VIRTIO_BLK_T_GET_ID => {
                std::mem::swap(&mut self.segments, &mut self.writable);
                self.len = total(&self.segments);
                Ok(Verdict::Identify)
            }
            VIRTIO_BLK_T_DISCARD if !device.read_only => self
                .zeroes(memory, device, 0)
                .map(|()| Verdict::Execute(Kind::Discard)),
            VIRTIO_BLK_T_WRITE_ZEROES if !device.read_only => {
                let flags = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
                self.zeroes(memory, device, flags)
                    .map(|()| Verdict::Execute(Kind::WriteZeroes))
            }
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => Err(Status::IoError),
            _ => Err(Status::Unsupported),
        }
    }

    /// Checks a read or a write of all segments.
    ///
    /// # Errors
    /// Status of an invalid request.
    fn transfer(&mut self, sector: u64, device: &Device) -> Result<(), Status> {
        self.len = total(&self.segments);
        let sectors = self.len / SECTOR;
        let is_inside = sector
            .checked_add(sectors)
            .is_some_and(|end| end <= device.sectors());
        if !self.len.is_multiple_of(SECTOR) || self.len == 0 || !is_inside {
            return Err(Status::IoError);
        }
        self.offset = sector * SECTOR;
        Ok(())
    }

    /// Reads the ranges of a discard or write-zeroes request. Flags other than `allowed` are not supported.
    fn zeroes(&mut self, memory: &Memory, device: &Device, allowed: u32) -> Result<(), Status> {
        let len = total(&self.segments);
        let count = len / ZEROES_SEGMENT as u64;
        if !len.is_multiple_of(ZEROES_SEGMENT as u64)
            || !(1..=u64::from(MAX_ZEROES_SEGMENTS)).contains(&count)
        {
            return Err(Status::IoError);
        }
        for _ in 0..count {
            let bytes: [u8; ZEROES_SEGMENT] = self.take(memory)?;
            let [
                s0,
                s1,
                s2,
                s3,
                s4,
                s5,
                s6,
                s7,
                n0,
                n1,
                n2,
                n3,
                f0,
                f1,
                f2,
                f3,
            ] = bytes;
            let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
            let sectors = u32::from_le_bytes([n0, n1, n2, n3]);
            if u32::from_le_bytes([f0, f1, f2, f3]) & !allowed != 0 {
                return Err(Status::Unsupported);
            }
            let is_inside = sector
                .checked_add(u64::from(sectors))
                .is_some_and(|end| end <= device.sectors());
            if !is_inside || sectors > MAX_ZEROES / SECTOR as u32 {
                return Err(Status::IoError);
            }
            if sectors != 0 {
                self.ranges.push(Range {
                    offset: sector * SECTOR,
                    len: sectors * SECTOR as u32,
                });
            }
        }
        if self.ranges.is_empty() {
            Err(Status::Ok)
        } else {
            Ok(())
        }
    }

    /// Removes the first `N` bytes of the segments, and returns them.
    fn take<const N: usize>(&mut self, memory: &Memory) -> Result<[u8; N], Status> {
        let mut bytes = [0; N];
        let mut filled = 0;
        let mut used = 0;
        for segment in &mut self.segments {
            if filled == N {
                break;
            }
            let len = (segment.len as usize).min(N - filled);
            memory
                .read_slice(&mut bytes[filled..filled + len], segment.address)
                .map_err(|_| Status::IoError)?;
            filled += len;
            segment.len -= len as u32;
            segment.address.0 += len as u64;
            if segment.len == 0 {
                used += 1;
            }
        }
        self.segments.drain(..used);
        if filled < N {
            Err(Status::IoError)
        } else {
            Ok(bytes)
        }
    }

    /// Calls `copy` for each segment that overlaps the `len` bytes at offset `from`, with the overlapping part and its
    /// range in a buffer of `len` bytes.
    ///
    /// # Errors
    /// The error of `copy`, or an I/O error if the segments have fewer bytes.
    pub fn each_part(
        &self,
        from: u64,
        len: usize,
        mut copy: impl FnMut(GuestAddress, std::ops::Range<usize>) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut skip = from;
        let mut filled = 0;
        for segment in &self.segments {
            if filled == len {
                break;
            }
            if skip >= u64::from(segment.len) {
                skip -= u64::from(segment.len);
                continue;
            }
            let count = ((u64::from(segment.len) - skip) as usize).min(len - filled);
            copy(
                GuestAddress(segment.address.0 + skip),
                filled..filled + count,
            )?;
            filled += count;
            skip = 0;
        }
        if filled == len {
            Ok(())
        } else {
            Err(Status::IoError)
        }
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guest::*;

    fn parse(guest: &Guest, device: &Device) -> (Request, Result<Verdict, ChainError>) {
        let mut request = Request::default();
        let verdict = request.parse(&guest.memory, Guest::table(), 0, device);
        (request, verdict)
    }

    /// Parses a request with a header, these further descriptors, and a status byte.
    fn with(
        kind: u32,
        sector: u64,
        data: &[(u64, u32, u16)],
    ) -> (Request, Result<Verdict, ChainError>) {
        let guest = Guest::new();
        guest.header(DATA, kind, sector);
        let chain = [&[(DATA, 16, 0)], data, &[(STATUS_AT, 1, WRITE)]].concat();
        guest.chain(0, &chain);
        parse(&guest, &DEVICE)
    }

    fn segment(address: u64, len: u32) -> Segment {
        Segment {
            address: GuestAddress(address),
            len,
        }
    }

    #[test]
    fn read_has_its_segments_and_status() {
        let (request, verdict) = with(
            VIRTIO_BLK_T_IN,
            8,
            &[(DATA + 0x1000, 512, WRITE), (DATA + 0x3000, 1024, WRITE)],
        );
        assert_eq!(verdict, Ok(Verdict::Execute(Kind::Read)));
        assert_eq!(
            request.segments,
            [segment(DATA + 0x1000, 512), segment(DATA + 0x3000, 1024)]
        );
        assert_eq!((request.offset, request.len), (4096, 1536));
        assert_eq!(request.status, GuestAddress(STATUS_AT));
    }

    #[test]
    fn write_is_parsed_with_any_framing() {
        let guest = Guest::new();
        guest.header(DATA, VIRTIO_BLK_T_OUT, 3);
        // The header is in two descriptors, the second of which also contains data, and the status byte is preceded by
        // other writable bytes.
        guest.chain(
            0,
            &[
                (DATA, 5, 0),
                (0, 0, 0),
                (DATA + 5, 11 + 500, 0),
                (DATA + 0x2000, 12, 0),
                (STATUS_AT - 9, 10, WRITE),
            ],
        );
        let (request, verdict) = parse(&guest, &DEVICE);
        assert_eq!(verdict, Ok(Verdict::Execute(Kind::Write)));
        assert_eq!(
            request.segments,
            [segment(DATA + 16, 500), segment(DATA + 0x2000, 12)]
        );
        assert_eq!((request.offset, request.len), (3 * 512, 512));
        assert_eq!(request.status, GuestAddress(STATUS_AT));
    }

    #[test]
    fn indirect_table_is_followed() {
        let guest = Guest::new();
        let table = DATA + 0x4000;
        guest.header(DATA, VIRTIO_BLK_T_OUT, 0);
        guest.chain(0, &[(table, 48, INDIRECT)]);
        guest.descriptor_at(table, 0, DATA, 16, NEXT, 2);
        guest.descriptor_at(table, 2, DATA + 0x1000, 512, NEXT, 1);
        guest.descriptor_at(table, 1, STATUS_AT, 1, WRITE, 0);
        let (request, verdict) = parse(&guest, &DEVICE);
        assert_eq!(verdict, Ok(Verdict::Execute(Kind::Write)));
        assert_eq!(request.segments, [segment(DATA + 0x1000, 512)]);
    }

    #[test]
    fn indirect_tables_of_wrong_shape_stop_the_queue() {
        let table = DATA + 0x4000;
        for (len, flags) in [
            (0, INDIRECT),
            (47, INDIRECT),
            (1025 * 16, INDIRECT),
            (48, INDIRECT | NEXT),
        ] {
            let guest = Guest::new();
            guest.descriptor_at(DESCRIPTORS, 0, table, len, flags, 1);
            assert_eq!(
                parse(&guest, &DEVICE).1,
                Err(ChainError::Indirect),
                "{len} {flags}"
            );
        }
        let guest = Guest::new();
        guest.chain(0, &[(table, 48, INDIRECT)]);
        guest.descriptor_at(table, 0, table, 48, INDIRECT, 0);
        assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Indirect));
        let guest = Guest::new();
        guest.chain(0, &[(MEMORY - 8, 48, INDIRECT)]);
        assert_eq!(
            parse(&guest, &DEVICE).1,
            Err(ChainError::Table {
                address: MEMORY - 8
            })
        );
    }

    #[test]
    fn loops_stop_the_queue() {
        let guest = Guest::new();
        guest.descriptor_at(DESCRIPTORS, 0, DATA, 16, NEXT, 1);
        guest.descriptor_at(DESCRIPTORS, 1, DATA, 16, NEXT, 0);
        assert_eq!(
            parse(&guest, &DEVICE).1,
            Err(ChainError::TooLong { most: SIZE })
        );
        let guest = Guest::new();
        guest.descriptor_at(DESCRIPTORS, 0, DATA, 16, NEXT, SIZE);
        assert_eq!(
            parse(&guest, &DEVICE).1,
            Err(ChainError::Index {
                index: SIZE,
                size: SIZE
            })
        );
    }

    #[test]
    fn chains_without_a_status_byte_stop_the_queue() {
        let guest = Guest::new();
        guest.header(DATA, VIRTIO_BLK_T_OUT, 0);
        guest.chain(0, &[(DATA, 16, 0), (DATA, 512, 0)]);
        assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
        guest.chain(0, &[(DATA, 16, 0), (DATA, 512, 0), (MEMORY, 1, WRITE)]);
        assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
        guest.chain(0, &[(DATA, 16, 0), (u64::MAX, 2, WRITE)]);
        assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
    }

    #[test]
    fn readable_behind_writable_stops_the_queue() {
        let guest = Guest::new();
        guest.chain(0, &[(DATA, 16, 0), (STATUS_AT, 1, WRITE), (DATA, 512, 0)]);
        assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Order));
    }

    #[test]
    fn ranges_and_lengths_are_checked() {
        let sectors = DEVICE.sectors();
        let data = |len| [(DATA + 0x1000, len, WRITE)];
        let io_error = Ok(Verdict::Answer(Status::IoError));
        assert_eq!(
            with(VIRTIO_BLK_T_IN, sectors - 1, &data(512)).1,
            Ok(Verdict::Execute(Kind::Read))
        );
        for (sector, len) in [
            (sectors - 1, 1024),
            (sectors, 512),
            (u64::MAX, 512),
            (u64::MAX / 512, 1024),
            (0, 511),
            (0, 513),
            (0, 0),
        ] {
            assert_eq!(
                with(VIRTIO_BLK_T_IN, sector, &data(len)).1,
                io_error,
                "{sector} {len}"
            );
        }
        // Data for the device where data for the driver is expected, and vice versa.
        assert_eq!(with(VIRTIO_BLK_T_IN, 0, &[(DATA, 512, 0)]).1, io_error);
        assert_eq!(with(VIRTIO_BLK_T_OUT, 0, &data(512)).1, io_error);
        // Data partially or completely outside guest memory.
        for address in [MEMORY - 511, MEMORY, u64::MAX - 600, u64::MAX] {
            assert_eq!(
                with(VIRTIO_BLK_T_OUT, 0, &[(address, 512, 0)]).1,
                io_error,
                "{address:#x}"
            );
        }
    }

    #[test]
    fn unknown_and_unoffered_types_are_unsupported() {
        let unsupported = Ok(Verdict::Answer(Status::Unsupported));
        for kind in [2, 3, 5, 14, 16, u32::MAX] {
            assert_eq!(with(kind, 0, &[]).1, unsupported, "{kind}");
        }
        let guest = Guest::new();
        guest.header(DATA, VIRTIO_BLK_T_FLUSH, 0);
        guest.chain(0, &[(DATA, 16, 0), (STATUS_AT, 1, WRITE)]);
        assert_eq!(parse(&guest, &DEVICE).1, Ok(Verdict::Execute(Kind::Flush)));
        assert_eq!(
            parse(
                &guest,
                &Device {
                    flush: false,
                    ..DEVICE
                }
            )
            .1,
            unsupported
        );
    }

    #[test]
    fn read_only_refuses_operations_that_write() {
        let device = Device {
            read_only: true,
            ..DEVICE
        };
        for kind in [
            VIRTIO_BLK_T_OUT,
            VIRTIO_BLK_T_DISCARD,
            VIRTIO_BLK_T_WRITE_ZEROES,
        ] {
            let guest = Guest::new();
            guest.header(DATA, kind, 0);
            guest.write(DATA + 16, &1_u64.to_le_bytes());
            guest.write(DATA + 24, &1_u32.to_le_bytes());
            guest.chain(
                0,
                &[
                    (DATA, 16, 0),
                    (
                        DATA + 16,
                        if kind == VIRTIO_BLK_T_OUT { 512 } else { 16 },
                        0,
                    ),
                    (STATUS_AT, 1, WRITE),
                ],
            );
            assert!(
                matches!(parse(&guest, &DEVICE).1, Ok(Verdict::Execute(_))),
                "{kind}"
            );
            assert_eq!(
                parse(&guest, &device).1,
                Ok(Verdict::Answer(Status::IoError)),
                "{kind}"
            );
        }
    }

    #[test]
    fn zeroes_and_discards_have_ranges() {
        let zeroes = |kind, segments: &[(u64, u32, u32)]| {
            let guest = Guest::new();
            guest.header(DATA, kind, 0);
            for (at, (sector, sectors, flags)) in segments.iter().enumerate() {
                let bytes = [
                    &sector.to_le_bytes()[..],
                    &sectors.to_le_bytes(),
                    &flags.to_le_bytes(),
                ]
                .concat();
                guest.write(DATA + 16 + 16 * at as u64, &bytes);
            }
            guest.chain(
                0,
                &[
                    (DATA, 16 + 16 * segments.len() as u32, 0),
                    (STATUS_AT, 1, WRITE),
                ],
            );
            let (request, verdict) = parse(&guest, &DEVICE);
            (request.ranges, verdict)
        };
        let (discard, write_zeroes) = (VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES);
        let two = [
            Range {
                offset: 512,
                len: 1024,
            },
            Range {
                offset: 5120,
                len: 512,
            },
        ];
        let execute = |kind| Ok(Verdict::Execute(kind));
        let answer = |status| Ok(Verdict::Answer(status));
        assert_eq!(
            zeroes(discard, &[(1, 2, 0), (4, 0, 0), (10, 1, 0)]),
            (two.to_vec(), execute(Kind::Discard))
        );
        assert_eq!(
            zeroes(write_zeroes, &[(1, 2, 1), (10, 1, 0)]),
            (two.to_vec(), execute(Kind::WriteZeroes))
        );
        assert_eq!(zeroes(write_zeroes, &[(1, 0, 0)]).1, answer(Status::Ok));
        assert_eq!(zeroes(discard, &[(1, 2, 1)]).1, answer(Status::Unsupported));
        assert_eq!(
            zeroes(write_zeroes, &[(1, 2, 2)]).1,
            answer(Status::Unsupported)
        );
        assert_eq!(
            zeroes(write_zeroes, &[(DEVICE.sectors(), 1, 0)]).1,
            answer(Status::IoError)
        );
        assert_eq!(
            zeroes(write_zeroes, &[(u64::MAX, 1, 0)]).1,
            answer(Status::IoError)
        );
        assert_eq!(
            zeroes(write_zeroes, &[(0, u32::MAX, 0)]).1,
            answer(Status::IoError)
        );
        assert_eq!(zeroes(write_zeroes, &[]).1, answer(Status::IoError));
        assert_eq!(
            zeroes(write_zeroes, &[(0, 1, 0); 17]).1,
            answer(Status::IoError)
        );
    }

    #[test]
    fn each_part_finds_its_bytes() {
        let request = Request {
            segments: vec![segment(100, 10), segment(300, 5), segment(500, 20)],
            ..Request::default()
        };
        let parts = |from, len| {
            let mut parts = Vec::new();
            let result = request.each_part(from, len, |address, range| {
                parts.push((address.0, range));
                Ok(())
            });
            (parts, result)
        };
        assert_eq!(parts(0, 10), (vec![(100, 0..10)], Ok(())));
        assert_eq!(
            parts(8, 10),
            (vec![(108, 0..2), (300, 2..7), (500, 7..10)], Ok(()))
        );
        assert_eq!(parts(15, 20), (vec![(500, 0..20)], Ok(())));
        assert_eq!(parts(15, 21).1, Err(Status::IoError));
    }

    /// A descriptor that is likely to be valid.
    fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
        let address = prop_oneof![
            Just(DATA),
            Just(DATA + 0x4000),
            Just(STATUS_AT),
            Just(DESCRIPTORS),
            0..MEMORY + 600,
            any::<u64>()
        ];
        let len = prop_oneof![
            Just(1),
            Just(16),
            Just(32),
            Just(512),
            Just(1024),
            0..2000_u32,
            any::<u32>()
        ];
        let flags = prop_oneof![
            Just(NEXT),
            Just(NEXT | WRITE),
            Just(WRITE),
            Just(0),
            Just(INDIRECT),
            any::<u16>()
        ];
        (address, len, flags, 0..SIZE + 2)
    }

    proptest! {
        #[test]
        fn arbitrary_chain_is_parsed_within_the_limits(
            descriptors in prop::collection::vec(descriptor(), usize::from(SIZE)),
            indirect in prop::collection::vec(descriptor(), 8),
            kind in prop_oneof![0..20_u32, any::<u32>()],
            sector in prop_oneof![0..600_u64, any::<u64>()],
            head in 0..SIZE + 2,
            read_only in any::<bool>(),
        ) {
            let guest = Guest::new();
            guest.header(DATA, kind, sector);
            for (table, descriptors) in [(DESCRIPTORS, &descriptors), (DATA + 0x4000, &indirect)] {
                for (index, &(address, len, flags, next)) in descriptors.iter().enumerate() {
                    guest.descriptor_at(table, index as u16, address, len, flags, next);
                }
            }
            let device = Device { read_only, ..DEVICE };
            let mut request = Request::default();
            let Ok(verdict) = request.parse(&guest.memory, Guest::table(), head, &device) else {
                return Ok(());
            };
            prop_assert!(request.status.0 < MEMORY);
            if let Verdict::Execute(kind) = verdict {
                prop_assert!(request.segments.len() <= usize::from(MAX_QUEUE_SIZE));
                prop_assert!(!read_only || matches!(kind, Kind::Read | Kind::Flush));
                if matches!(kind, Kind::Read | Kind::Write) {
                    prop_assert!(request.offset + request.len <= device.size);
                    prop_assert_eq!(request.len, request.segments.iter().map(|it| u64::from(it.len)).sum::<u64>());
                    for it in &request.segments {
                        prop_assert!(it.len != 0 && it.address.0 + u64::from(it.len) <= MEMORY);
                    }
                }
                for range in &request.ranges {
                    prop_assert!(range.len != 0 && range.offset + u64::from(range.len) <= device.size);
                }
            }
        }
    }
}
