//! Virtqueues of a guest: descriptor tables, indirect tables, available rings and requests in its memory.

use arbitrary::{Arbitrary, Result, Unstructured};
use vhost_user_blk_frontend::device::{Device, ID_BYTES, SECTOR};
use vhost_user_blk_frontend::request::Memory;
use vhost_user_blk_frontend::ring::{Outcome, Part, Ring, Setup};
use vm_memory::{Bytes as _, GuestAddress};
use volume::Operation;

use crate::harness::{self};

/// Size of the guest's memory in bytes.
pub(crate) const MEMORY: usize = 1 << 16;
/// Size of the disk in bytes.
pub(crate) const DISK: u64 = 16 * 1024;
/// Maximum transfer size of one part in bytes.
const MAX_TRANSFER: u32 = 2048;
/// Number of descriptors of the virtqueue.
pub(crate) const SIZE: u16 = 8;
pub(crate) const DESCRIPTORS: u64 = 0x100;
pub(crate) const AVAILABLE: u64 = 0x400;
pub(crate) const USED: u64 = 0x600;
/// Offset of the request headers, one per descriptor, followed by an indirect table.
pub(crate) const HEADERS: u64 = 0x1000;
const INDIRECT: u64 = 0x2000;
pub(crate) const DATA: u64 = 0x4000;
/// Maximum number of steps of the ring: more than all chains of any available ring need.
const STEPS: usize = 4096;

/// Guest memory as written by a driver.
#[derive(Debug, Clone)]
pub struct Input {
    event_idx: bool,
    write_through: bool,
    read_only: bool,
    flush: bool,
    abandons: bool,
    next_available: u16,
    available: u16,
    heads: Vec<u16>,
    descriptors: Vec<Descriptor>,
    indirect: Vec<Descriptor>,
    requests: Vec<(u32, u64)>,
    /// Bytes written to arbitrary addresses at the end.
    damage: Vec<(u16, u8)>,
}

/// A descriptor of 16 bytes.
#[derive(Debug, Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl<'a> Arbitrary<'a> for Descriptor {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=15)? {
            0 => Self {
                address: u.arbitrary()?,
                len: u.arbitrary()?,
                flags: u.arbitrary()?,
                next: u.arbitrary()?,
            },
            1 => Self {
                address: INDIRECT,
                len: 16 * u.int_in_range(0..=8)?,
                flags: 4,
                next: 0,
            },
            2..=5 => Self {
                address: HEADERS + 16 * u.int_in_range(0..=7)?,
                len: 16,
                flags: 1,
                next: u.int_in_range(0..=SIZE - 1)?,
            },
            // A status byte.
            6..=9 => Self {
                address: DATA + u.int_in_range(0..=4095)?,
                len: 1,
                flags: 2,
                next: 0,
            },
            _ => Self {
                address: DATA + u.int_in_range(0..=0x1000)?,
                len: SECTOR as u32 * u.int_in_range(0..=12)?,
                flags: u.int_in_range(0..=3)?,
                next: u.int_in_range(0..=SIZE - 1)?,
            },
        })
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let next_available = u.arbitrary()?;
        let request = |u: &mut Unstructured<'a>| -> Result<(u32, u64)> {
            let kinds = [0, 0, 1, 1, 4, 8, 11, 13];
            let kind = if u.ratio(1, 8)? {
                u.arbitrary()?
            } else {
                *u.choose(&kinds)?
            };
            let sector = if u.ratio(1, 8)? {
                u.arbitrary()?
            } else {
                u.int_in_range(0..=DISK / SECTOR)?
            };
            Ok((kind, sector))
        };
        Ok(Self {
            event_idx: u.arbitrary()?,
            write_through: u.arbitrary()?,
            read_only: u.ratio(1, 4)?,
            flush: u.arbitrary()?,
            abandons: u.ratio(1, 4)?,
            next_available,
            available: next_available.wrapping_add(if u.ratio(1, 8)? {
                u.arbitrary()?
            } else {
                u.int_in_range(0..=SIZE)?
            }),
            heads: (0..SIZE)
                .map(|_| {
                    if u.ratio(1, 16)? {
                        u.arbitrary()
                    } else {
                        u.int_in_range(0..=SIZE - 1)
                    }
                })
                .collect::<Result<_>>()?,
            descriptors: (0..SIZE).map(|_| u.arbitrary()).collect::<Result<_>>()?,
            indirect: (0..8).map(|_| u.arbitrary()).collect::<Result<_>>()?,
            requests: (0..8).map(|_| request(u)).collect::<Result<_>>()?,
            damage: u.arbitrary()?,
        })
    }
}

impl Input {
    fn guest(&self) -> Memory {
        let memory = Memory::from_ranges(&[(GuestAddress(0), MEMORY)]).expect("memory");
        self.write(|address, bytes| {
            memory
                .write_slice(bytes, GuestAddress(address))
                .expect("guest memory");
        });
        memory
    }

    /// Index in the available ring at which the device starts.
    pub(crate) fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Writes the input to the guest's memory.
    pub(crate) fn write(&self, put: impl Fn(u64, &[u8])) {
        let tables = [(DESCRIPTORS, &self.descriptors), (INDIRECT, &self.indirect)];
        for (table, descriptors) in tables {
            for (at, it) in (table..).step_by(16).zip(descriptors) {
                put(at, &it.address.to_le_bytes());
                put(at + 8, &it.len.to_le_bytes());
                put(at + 12, &it.flags.to_le_bytes());
                put(at + 14, &it.next.to_le_bytes());
            }
        }
        for (at, (kind, sector)) in (HEADERS..).step_by(16).zip(&self.requests) {
            put(at, &kind.to_le_bytes());
            put(at + 8, &sector.to_le_bytes());
        }
        put(AVAILABLE + 2, &self.available.to_le_bytes());
        for (at, head) in (AVAILABLE + 4..).step_by(2).zip(&self.heads) {
            put(at, &head.to_le_bytes());
        }
        for (at, byte) in &self.damage {
            put(u64::from(*at), &[*byte]);
        }
    }
}

/// For any guest memory: no I/O outside the disk, no changes to a read-only disk, no more completions than requests,
/// and bounded work and memory.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    let memory = input.guest();
    harness::within_memory(1 << 20, "a virtqueue", || serve(input, &memory));
}

fn serve(input: &Input, memory: &Memory) {
    let used_index = || {
        let index: u16 = memory.read_obj(GuestAddress(USED + 2)).expect("memory");
        u16::from_le(index)
    };
    let before = used_index();
    let ring = Ring::new(Setup {
        memory: memory.clone(),
        size: SIZE,
        descriptors: GuestAddress(DESCRIPTORS),
        available: GuestAddress(AVAILABLE),
        used: GuestAddress(USED),
        next_available: input.next_available,
        event_idx: input.event_idx,
        write_through: input.write_through,
        inflight: None,
        device: Device {
            size: DISK,
            block_size: 4096,
            flush: input.flush,
            read_only: input.read_only,
            queues: 1,
            id: [b'i'; ID_BYTES],
        },
        max_transfer: MAX_TRANSFER,
        max_piece: MAX_TRANSFER,
    });
    let Ok(mut ring) = ring else {
        return;
    };
    let mut buffer = [0xa5; MAX_TRANSFER as usize];
    let mut pending: Vec<Part> = Vec::new();
    let mut is_good = true;
    let mut steps = 0;
    loop {
        steps += 1;
        assert!(steps < STEPS, "no end");
        let part = match ring.next_part() {
            Ok(Some(part)) => part,
            // Some pieces wait for others to complete.
            Ok(None) if pending.is_empty() => break,
            Ok(None) => {
                complete(&mut ring, pending.swap_remove(0), &buffer);
                continue;
            }
            Err(_) => {
                is_good = false;
                break;
            }
        };
        check(input, &part);
        let is_write = matches!(part.operation, Operation::Write { .. });
        if is_write && (ring.copy_from_guest(&part, &mut buffer[..part.len as usize])).is_err() {
            ring.fail_part();
            continue;
        }
        ring.handed_out(&part);
        pending.push(part);
        // Some parts complete late, and in another order.
        if pending.len() > 2 {
            complete(&mut ring, pending.swap_remove(0), &buffer);
        }
        let _ = ring.take_notification();
    }
    if input.abandons {
        ring.abandon();
    }
    for part in pending {
        complete(&mut ring, part, &buffer);
    }
    assert_eq!(ring.outstanding(), 0);
    // Further pieces of requests are not handed out after a violation.
    assert!(ring.is_drained() || !is_good && !input.abandons);
    let _ = (ring.arm(), ring.take_notification());
    // A read request may have overwritten the used ring, if the driver's descriptor points there.
    let taken = ring.next_available().wrapping_sub(input.next_available);
    assert!(taken <= SIZE, "{taken} chains of a ring of {SIZE}");
    harness::count("virtqueue", is_good && used_index() != before);
}

fn complete(ring: &mut Ring, part: Part, buffer: &[u8]) {
    let outcome = match part.operation {
        Operation::Read => Outcome::Done(&buffer[..part.len as usize]),
        _ if part.offset % 3 == 1 => Outcome::Failed,
        _ => Outcome::Done(&[]),
    };
    ring.complete(part.tag, outcome);
}

fn check(input: &Input, part: &Part) {
    let end = part.offset.checked_add(part.len.into());
    assert!(end.is_some_and(|end| end <= DISK), "{part:?}");
    match part.operation {
        Operation::Read => assert!(part.len <= MAX_TRANSFER && part.len > 0, "{part:?}"),
        Operation::Write { fua } => {
            assert!(part.len <= MAX_TRANSFER && part.len > 0, "{part:?}");
            assert!(!input.read_only, "{part:?}");
            assert_eq!(fua, input.write_through && input.flush, "{part:?}");
        }
        Operation::WriteZeroes { .. } | Operation::Discard => {
            assert!(part.len <= MAX_TRANSFER && part.len > 0, "{part:?}");
            assert!(!input.read_only, "{part:?}");
        }
        Operation::Flush => assert_eq!((part.offset, part.len), (0, 0)),
    }
}
