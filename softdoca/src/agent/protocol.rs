//! Protocol of an agent's socket: the agent's address, one message per request and per reply, and the exports that they
//! access. Both sides are on one machine, but may be different builds, which are detected by the version. Integers are
//! little endian.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::runtime::{BootId, Key, MAX_MESSAGE};

/// Must change with every change of the protocol.
const VERSION: u16 = 2;
const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"SDrq");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"SDrp");

/// Maximum payload of a request or reply in bytes.
pub const MAX_PAYLOAD: usize = MAX_MESSAGE - 64;

/// Kind of a request. `key` identifies an export or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Operation {
    /// Returns segments of an export, starting at index `addr`; shared segments with their memfds. `operands[0]` are
    /// the requested rights, 1 read, 2 write, 4 atomic.
    Describe = 1,
    /// Reads `len` bytes at `addr`.
    Read = 2,
    /// Writes the payload to `addr`.
    Write = 3,
    /// Adds `operands[0]` to the u64 at `addr`; returns the old value.
    FetchAdd = 4,
    /// Replaces the u64 at `addr` by `operands[1]` if it equals `operands[0]`; returns the old value.
    CompareSwap = 5,
    /// Passes the payload to the service.
    Call = 6,
    /// Returns the export's validity word: its memfd, and its offset and value in the two halves of the reply's value.
    Validity = 7,
}

impl Operation {
    fn from_value(value: u16) -> Option<Operation> {
        use Operation::{Call, CompareSwap, Describe, FetchAdd, Read, Validity, Write};
        [Describe, Read, Write, FetchAdd, CompareSwap, Call, Validity]
            .into_iter()
            .find(|operation| *operation as u16 == value)
    }
}

/// Fixed part of a request; the payload follows in the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub operation: Operation,
    pub key: Key,
    pub addr: u64,
    pub len: u64,
    pub operands: [u64; 2],
}

impl RequestHeader {
    pub const SIZE: usize = 56;

    pub fn encode(&self) -> [u8; RequestHeader::SIZE] {
        let mut bytes = [0; RequestHeader::SIZE];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.operation as u16).to_le_bytes());
        bytes[8..24].copy_from_slice(&self.key.to_bytes());
        bytes[24..32].copy_from_slice(&self.addr.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.len.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.operands[0].to_le_bytes());
        bytes[48..56].copy_from_slice(&self.operands[1].to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<RequestHeader> {
        let mut fields = Fields(bytes);
        if u32::from_le_bytes(fields.take()?) != REQUEST_MAGIC {
            return Err(Error::InvalidValue);
        }
        if u16::from_le_bytes(fields.take()?) != VERSION {
            return Err(Error::UnsupportedVersion);
        }
        let operation =
            Operation::from_value(u16::from_le_bytes(fields.take()?)).ok_or(Error::InvalidValue)?;
        Ok(RequestHeader {
            operation,
            key: Key::from_bytes(fields.take()?),
            addr: u64::from_le_bytes(fields.take()?),
            len: u64::from_le_bytes(fields.take()?),
            operands: [
                u64::from_le_bytes(fields.take()?),
                u64::from_le_bytes(fields.take()?),
            ],
        })
    }
}

/// Encodes the decoded fixed part of a valid request again.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    RequestHeader::decode(bytes).map(|header| header.encode().to_vec())
}

/// Fixed parts of all requests, with a nonexistent key.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let request = |operation| RequestHeader {
        operation,
        key: Key::from_bytes([1; Key::SIZE]),
        addr: 0x1000,
        len: 8,
        operands: [1, 2],
    };
    (0..=u16::from(u8::MAX))
        .filter_map(Operation::from_value)
        .map(|operation| request(operation).encode().to_vec())
        .collect()
}

/// Fixed part of a reply; the payload follows in the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub result: Result<()>,
    /// The old value of an atomic, or the number of segments of a described export; over the network, the `RemoteKey`
    /// word of the described memory, or 0.
    pub value: u64,
}

impl ReplyHeader {
    pub const SIZE: usize = 16;

    pub fn encode(&self) -> [u8; ReplyHeader::SIZE] {
        let mut bytes = [0; ReplyHeader::SIZE];
        bytes[0..4].copy_from_slice(&REPLY_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.result.map_or_else(Error::code, |()| 0).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<ReplyHeader> {
        let mut fields = Fields(bytes);
        if u32::from_le_bytes(fields.take()?) != REPLY_MAGIC {
            return Err(Error::InvalidValue);
        }
        let result = match u32::from_le_bytes(fields.take()?) {
            0 => Ok(()),
            code => Err(Error::from_code(code).unwrap_or(Error::Unknown)),
        };
        Ok(ReplyHeader {
            result,
            value: u64::from_le_bytes(fields.take()?),
        })
    }
}

/// One segment in the payload of a `Describe` reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEntry {
    pub addr: u64,
    pub len: u64,
    /// Offset in the memfd; 0 for a private segment.
    pub offset: u64,
    /// Index of the message's descriptor; `None` for a private segment.
    pub memfd: Option<u32>,
}

impl SegmentEntry {
    pub const SIZE: usize = 32;
    /// Segments in one message, each with its own descriptor.
    pub const PER_MESSAGE: usize = crate::runtime::MAX_FDS;
    const PRIVATE: u32 = u32::MAX;

    pub fn encode(&self) -> [u8; SegmentEntry::SIZE] {
        let mut bytes = [0; SegmentEntry::SIZE];
        bytes[0..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.memfd.unwrap_or(SegmentEntry::PRIVATE).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<SegmentEntry> {
        let mut fields = Fields(bytes);
        let (addr, len, offset) = (fields.take()?, fields.take()?, fields.take()?);
        let memfd = u32::from_le_bytes(fields.take()?);
        Ok(SegmentEntry {
            addr: u64::from_le_bytes(addr),
            len: u64::from_le_bytes(len),
            offset: u64::from_le_bytes(offset),
            memfd: (memfd != SegmentEntry::PRIVATE).then_some(memfd),
        })
    }
}

/// Reads fixed-size fields from the front of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Error::InvalidValue)?;
        self.0 = rest;
        Ok(*field)
    }
}

/// Address of the agent of one process on this machine; embedded in export descriptors and RDMA connection details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentAddress {
    boot: BootId,
    key: Key,
}

impl AgentAddress {
    /// Encoded size in bytes: boot id, key.
    pub const SIZE: usize = BootId::SIZE + Key::SIZE;

    /// Address of this process; constant for its lifetime. The agent listens at this address while exports or services
    /// exist.
    ///
    /// # Errors
    /// The kernel has no boot id or random number.
    pub fn local() -> Result<AgentAddress> {
        static LOCAL: OnceLock<AgentAddress> = OnceLock::new();
        if let Some(address) = LOCAL.get() {
            return Ok(*address);
        }
        let address = AgentAddress {
            boot: BootId::current()?,
            key: Key::random()?,
        };
        Ok(*LOCAL.get_or_init(|| address))
    }

    pub fn encode(&self) -> [u8; AgentAddress::SIZE] {
        let mut bytes = [0; AgentAddress::SIZE];
        bytes[..BootId::SIZE].copy_from_slice(&self.boot.to_bytes());
        bytes[BootId::SIZE..].copy_from_slice(&self.key.to_bytes());
        bytes
    }

    /// Decodes an embedded address. Every value is valid; [`AgentAddress::check`] determines whether it belongs to this
    /// machine.
    pub fn decode(bytes: &[u8; AgentAddress::SIZE]) -> AgentAddress {
        let (mut boot, mut key) = ([0; BootId::SIZE], [0; Key::SIZE]);
        boot.copy_from_slice(&bytes[..BootId::SIZE]);
        key.copy_from_slice(&bytes[BootId::SIZE..]);
        AgentAddress {
            boot: BootId::from_bytes(boot),
            key: Key::from_bytes(key),
        }
    }

    /// Refuses the address of another machine, or of an earlier boot of this one.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(&self) -> Result<()> {
        if self.is_of_this_machine()? {
            return Ok(());
        }
        Err(Error::NotSupported.because(format_args!(
            "the descriptor was made on another machine or before a restart (boot id {:?}, here {:?}), and offers no connection \
             over the network: set SOFTDOCA_ADDRESS on both machines",
            self.boot,
            BootId::current()?
        )))
    }

    /// Returns `true` for a process of the current boot of this machine.
    pub(crate) fn is_of_this_machine(&self) -> Result<bool> {
        Ok(self.boot == BootId::current()?)
    }

    pub(super) fn socket_name(&self) -> String {
        format!("a-{}.sock", self.key)
    }
}

/// Rights of holders of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
    pub atomic: bool,
}

impl Rights {
    /// As a bit mask: 1 read, 2 write, 4 atomic.
    pub(super) fn bits(self) -> u64 {
        u64::from(self.read) | u64::from(self.write) << 1 | u64::from(self.atomic) << 2
    }

    /// Returns `true` if these rights include those of a bit mask; a peer may request undefined bits.
    pub(super) fn include(self, bits: u64) -> bool {
        bits & !self.bits() == 0
    }
}

/// A segment of an exported range. The segments of an export are ascending and contiguous.
#[derive(Clone, Debug)]
pub struct Segment {
    /// First address in the exporting process.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access method for other processes.
    pub backing: Backing,
}

/// Access method of a segment from another process.
#[derive(Clone, Debug)]
pub enum Backing {
    /// By mapping this memfd from `offset`.
    Shared {
        /// Sealed against shrinking.
        memfd: Arc<OwnedFd>,
        /// Multiple of the page size.
        offset: u64,
    },
    /// Through the agent only.
    Private,
}

/// A range of memory exported under a key.
#[derive(Debug)]
pub struct Export {
    /// Rights granted by the key.
    pub rights: Rights,
    /// The whole range.
    pub segments: Vec<Segment>,
    /// Invalidated when the export ends, for processes that have mapped its segments.
    pub validity: Option<SharedWord>,
}

/// A u32 in shared memory, with its value while the export is valid.
#[derive(Clone, Debug)]
pub struct SharedWord {
    /// Sealed against shrinking.
    pub memfd: Arc<OwnedFd>,
    /// In bytes, a multiple of 4.
    pub offset: u32,
    /// Any other value means that the export has ended.
    pub value: u32,
}

impl SharedWord {
    /// Offset and value encoded in one number.
    pub(super) fn place(&self) -> u64 {
        u64::from(self.offset) << 32 | u64::from(self.value)
    }
}

/// Length of the operand of an atomic operation in bytes.
const ATOMIC_SIZE: u64 = 8;

impl Export {
    /// Returns the address as a pointer if all `len` bytes from it on belong to the export.
    pub(super) fn pointer(&self, addr: u64, len: u64) -> Result<*mut u8> {
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else {
            return Err(Error::InvalidValue);
        };
        let end = addr.checked_add(len).ok_or(Error::InvalidValue)?;
        if addr < first.addr || end > last.addr.saturating_add(last.len) {
            return Err(Error::InvalidValue);
        }
        usize::try_from(addr)
            .map(std::ptr::with_exposed_provenance_mut)
            .map_err(|_| Error::InvalidValue)
    }

    /// Performs an atomic operation on the u64 at `addr`; returns the old value.
    pub(super) fn atomic(
        &self,
        addr: u64,
        operation: impl FnOnce(&AtomicU64) -> u64,
    ) -> Result<u64> {
        if !self.rights.atomic {
            return Err(Error::NotPermitted);
        }
        let pointer = self.pointer(addr, ATOMIC_SIZE)?;
        if !addr.is_multiple_of(ATOMIC_SIZE) || !is_mapped(pointer) {
            return Err(Error::InvalidValue);
        }
        // SAFETY: aligned, mapped, inside a range that the program registered for this purpose and must keep valid
        // while it is exported; the program and its peers also use atomics for it.
        Ok(operation(unsafe { AtomicU64::from_ptr(pointer.cast()) }))
    }

    /// The entries that fit in one message, starting at index `from`, with their descriptors.
    pub(super) fn describe(&self, from: u64) -> (Vec<SegmentEntry>, Vec<Arc<OwnedFd>>) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (mut entries, mut fds) = (Vec::new(), Vec::<Arc<OwnedFd>>::new());
        for segment in self
            .segments
            .iter()
            .skip(from)
            .take(SegmentEntry::PER_MESSAGE)
        {
            let (memfd, offset) = match &segment.backing {
                Backing::Private => (None, 0),
                Backing::Shared { memfd, offset } => {
                    let index = fds
                        .iter()
                        .position(|fd| Arc::ptr_eq(fd, memfd))
                        .unwrap_or_else(|| {
                            fds.push(Arc::clone(memfd));
                            fds.len() - 1
                        });
                    (u32::try_from(index).ok(), *offset)
                }
            };
            entries.push(SegmentEntry {
                addr: segment.addr,
                len: segment.len,
                offset,
                memfd,
            });
        }
        (entries, fds)
    }
}

/// Returns `true` if the page at `pointer` is mapped. If a program unmaps exported memory, its peers must get errors,
/// and the program must not crash.
fn is_mapped(pointer: *mut u8) -> bool {
    let page = rustix::param::page_size();
    let mut resident = 0_u8;
    // SAFETY: mincore does not read the memory, and writes one byte for the single requested page.
    unsafe {
        libc::mincore(
            pointer.map_addr(|addr| addr & !(page - 1)).cast(),
            page,
            &mut resident,
        ) == 0
    }
}

/// Atomic operations of DOCA RDMA.
pub(super) fn fetch_add(value: u64) -> impl FnOnce(&AtomicU64) -> u64 {
    move |word| word.fetch_add(value, Ordering::SeqCst)
}

/// See [`fetch_add`].
pub(super) fn compare_swap(expected: u64, new: u64) -> impl FnOnce(&AtomicU64) -> u64 {
    move |word| match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(old) | Err(old) => old,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_round_trip_and_are_checked() {
        let header = RequestHeader {
            operation: Operation::CompareSwap,
            key: Key::from_bytes([9; 16]),
            addr: u64::MAX,
            len: 8,
            operands: [1, 2],
        };
        let mut bytes = header.encode();
        assert_eq!(RequestHeader::decode(&bytes), Ok(header));
        assert_eq!(
            RequestHeader::decode(&bytes[..55]),
            Err(Error::InvalidValue)
        );
        bytes[4] += 1;
        assert_eq!(
            RequestHeader::decode(&bytes),
            Err(Error::UnsupportedVersion)
        );
        bytes[4] -= 1;
        bytes[6] = 99;
        assert_eq!(RequestHeader::decode(&bytes), Err(Error::InvalidValue));
    }

    #[test]
    fn replies_and_segments_round_trip() {
        for result in [Ok(()), Err(Error::NotFound)] {
            let header = ReplyHeader { result, value: 3 };
            assert_eq!(ReplyHeader::decode(&header.encode()), Ok(header));
        }
        for memfd in [None, Some(2)] {
            let entry = SegmentEntry {
                addr: 1,
                len: 2,
                offset: 3,
                memfd,
            };
            assert_eq!(SegmentEntry::decode(&entry.encode()), Ok(entry));
        }
        let mut unknown = ReplyHeader {
            result: Ok(()),
            value: 0,
        }
        .encode();
        unknown[4] = 200;
        assert_eq!(
            ReplyHeader::decode(&unknown).unwrap().result,
            Err(Error::Unknown)
        );
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = RequestHeader::decode(&bytes);
            let _ = ReplyHeader::decode(&bytes);
            let _ = SegmentEntry::decode(&bytes);
        }
    }

    #[test]
    fn address_round_trips_and_is_validated() {
        let local = AgentAddress::local().unwrap();
        assert_eq!(AgentAddress::local(), Ok(local));
        let mut bytes = local.encode();
        assert_eq!(AgentAddress::decode(&bytes), local);
        assert_eq!(local.check(), Ok(()));
        bytes[3] ^= 1;
        assert_eq!(
            AgentAddress::decode(&bytes).check(),
            Err(Error::NotSupported)
        );
    }

    fn export(addr: u64, len: u64, atomic: bool) -> Export {
        let rights = Rights {
            read: true,
            write: true,
            atomic,
        };
        Export {
            rights,
            segments: vec![Segment {
                addr,
                len,
                backing: Backing::Private,
            }],
            validity: None,
        }
    }

    #[test]
    fn addresses_are_checked_without_overflow() {
        let export = export(0x1000, 0x100, true);
        assert!(export.pointer(0x1000, 0x100).is_ok());
        assert!(export.pointer(0x1100, 0).is_ok());
        for (addr, len) in [
            (0xfff, 1),
            (0x1000, 0x101),
            (0x1001, u64::MAX),
            (u64::MAX, 1),
            (0x10ff, 2),
        ] {
            assert_eq!(
                export.pointer(addr, len),
                Err(Error::InvalidValue),
                "{addr:#x} {len:#x}"
            );
        }
    }

    #[test]
    fn atomics_need_permission_alignment_and_memory() {
        let mut word = [5_u64, 0];
        let addr = word.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(
            export(addr, 16, false).atomic(addr, fetch_add(1)),
            Err(Error::NotPermitted)
        );
        let allowed = export(addr, 16, true);
        assert_eq!(allowed.atomic(addr, fetch_add(2)), Ok(5));
        assert_eq!(allowed.atomic(addr, compare_swap(0, 9)), Ok(7));
        assert_eq!(allowed.atomic(addr, compare_swap(7, 9)), Ok(7));
        assert_eq!(word[0], 9);
        assert_eq!(
            allowed.atomic(addr + 4, fetch_add(1)),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            allowed.atomic(addr + 16, fetch_add(1)),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            export(0x1000, 8, true).atomic(0x1000, fetch_add(1)),
            Err(Error::InvalidValue)
        );
    }
}
