//! Permissions of memory maps, and export descriptors: opaque bytes by which another process can access a map.
//!
//! Little endian: magic (8 bytes), version (u16), kind (u8), 0 (u8), permissions (u32), address (u64), length
//! (u64), agent (boot id and key, 32 bytes), key of the export (16), key for exporting it onwards (16, zero for none). Version 1 ends
//! here; in version 2, which is for RDMA only, an offer to the network follows ([`NetworkOffer`]).

use crate::agent::{AgentAddress, NetworkOffer, Rights, Route};
use crate::error::{Error, Result};
use crate::runtime::Key;

/// Kind of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExportKind {
    /// A device across PCIe: `doca_mmap_export_pci`.
    Pci = 1,
    /// RDMA peers: `doca_mmap_export_rdma`.
    Rdma = 2,
}

impl ExportKind {
    /// Permissions, at least one of which an export of this kind needs.
    pub const fn permissions(self) -> Permissions {
        match self {
            ExportKind::Pci => Permissions::PCI,
            ExportKind::Rdma => Permissions::RDMA,
        }
    }
}

/// Contents of an export descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub kind: ExportKind,
    pub permissions: Permissions,
    /// In the exporting process.
    pub addr: u64,
    /// In bytes, not 0; `addr + len` does not overflow.
    pub len: u64,
    pub agent: AgentAddress,
    pub key: Key,
    /// Set on a PCI export of memory that RDMA peers may also access: the importer may export it again for RDMA.
    pub onward: Option<Key>,
    /// Access for peers on other machines.
    pub network: Option<NetworkOffer>,
}

const MAGIC: [u8; 8] = *b"SOFTDOCA";
/// Sizes without and with a network offer.
const VERSIONS: [u16; 2] = [1, 2];
const NO_KEY: [u8; Key::SIZE] = [0; Key::SIZE];

impl Descriptor {
    /// Encoded size in bytes without a network offer.
    pub const SIZE: usize = 96;

    /// Access method from this process.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another machine's memory without a network offer.
    pub fn route(&self) -> Result<Route> {
        self.agent.route(self.network.as_ref())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Descriptor::SIZE];
        bytes[0..8].copy_from_slice(&MAGIC);
        let version = VERSIONS[usize::from(self.network.is_some())];
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        bytes[10] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.permissions.bits().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.addr.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.agent.encode());
        bytes[64..80].copy_from_slice(&self.key.to_bytes());
        bytes[80..96].copy_from_slice(&self.onward.map_or(NO_KEY, Key::to_bytes));
        if let Some(network) = &self.network {
            bytes.extend_from_slice(&network.encode());
        }
        bytes
    }

    /// Decodes and validates an untrusted descriptor.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor> {
        let invalid = |reason: std::fmt::Arguments<'_>| {
            Error::InvalidValue.because(format_args!(
                "this is no export descriptor of softdoca: {reason}"
            ))
        };
        let mut rest = bytes;
        let mut field = Fields { rest: &mut rest };
        if field.take::<8>().is_none_or(|magic| magic != MAGIC) {
            return Err(invalid(format_args!(
                "it does not begin with {:?}",
                MAGIC.escape_ascii().to_string()
            )));
        }
        let version = field.take().map(u16::from_le_bytes);
        let Some(version) = version.filter(|version| VERSIONS.contains(version)) else {
            return Err(Error::UnsupportedVersion.because(format_args!(
                "the export descriptor has version {version:?}, expected one of {VERSIONS:?}; use one softdoca in all processes"
            )));
        };
        let offer = bytes
            .get(Descriptor::SIZE..)
            .filter(|offer| !offer.is_empty());
        let network = offer.and_then(NetworkOffer::decode);
        if bytes.len() < Descriptor::SIZE
            || (version == VERSIONS[1]) != offer.is_some()
            || offer.is_some() != network.is_some()
        {
            return Err(invalid(format_args!(
                "it has {} bytes, expected {}, and an offer to the network in version 2",
                bytes.len(),
                Descriptor::SIZE
            )));
        }
        let checked = || -> Option<Descriptor> {
            let kind = match field.take()? {
                [1, 0] => ExportKind::Pci,
                [2, 0] => ExportKind::Rdma,
                _ => return None,
            };
            let permissions = Permissions::from_bits(u32::from_le_bytes(field.take()?))?;
            let addr = u64::from_le_bytes(field.take()?);
            let len = u64::from_le_bytes(field.take()?);
            let agent = AgentAddress::decode(&field.take()?);
            let key = Key::from_bytes(field.take()?);
            let onward = field.take()?;
            let onward = (onward != NO_KEY).then(|| Key::from_bytes(onward));
            let sane = permissions.intersects(kind.permissions())
                && !permissions.contains(Permissions::PCI)
                && len != 0
                && addr
                    .checked_add(len)
                    .is_some_and(|end| usize::try_from(end).is_ok())
                && (network.is_none() || kind == ExportKind::Rdma)
                && (onward.is_none()
                    || kind == ExportKind::Pci && permissions.intersects(Permissions::RDMA));
            sane.then_some(Descriptor {
                kind,
                permissions,
                addr,
                len,
                agent,
                key,
                onward,
                network,
            })
        };
        let mut checked = checked;
        checked().ok_or_else(|| invalid(format_args!("kind, permissions or range make no sense")))
    }
}

/// Encoding of a valid descriptor.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    Descriptor::decode(bytes).map(|descriptor| descriptor.encode())
}

/// Valid descriptors of nonexistent memory.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let key = Key::from_bytes([1; Key::SIZE]);
    let pci = Descriptor {
        kind: ExportKind::Pci,
        permissions: Permissions::PCI_READ_WRITE | Permissions::RDMA_READ,
        addr: 0x7f00_0000_0010,
        len: 4096,
        agent: AgentAddress::local()?,
        key,
        onward: Some(key),
        network: None,
    };
    let rdma = Descriptor {
        kind: ExportKind::Rdma,
        onward: None,
        ..pci.clone()
    };
    let remote = Descriptor {
        network: Some(NetworkOffer::example()),
        ..rdma.clone()
    };
    Ok([pci, rdma, remote].map(|it| it.encode()).into())
}

/// Reads fixed-size fields from the front.
struct Fields<'a, 'b> {
    rest: &'a mut &'b [u8],
}

impl Fields<'_, '_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        *self.rest = rest;
        Some(*field)
    }
}

bitflags::bitflags! {
    /// `enum doca_access_flag`. Local reads need no flag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Permissions: u32 {
        /// Local devices may write.
        const LOCAL_READ_WRITE = 1 << 0;
        /// RDMA peers may read.
        const RDMA_READ = 1 << 1;
        /// RDMA peers may write.
        const RDMA_WRITE = 1 << 2;
        /// RDMA peers may perform atomic operations.
        const RDMA_ATOMIC = 1 << 3;
        /// Devices across PCIe may read.
        const PCI_READ_ONLY = 1 << 4;
        /// Devices across PCIe may read and write.
        const PCI_READ_WRITE = 1 << 5;
        /// Accesses across PCIe may be reordered. No effect here.
        const PCI_RELAXED_ORDERING = 1 << 6;
    }
}

impl Permissions {
    /// The flags that make a map exportable for RDMA.
    pub const RDMA: Permissions = Permissions::RDMA_READ
        .union(Permissions::RDMA_WRITE)
        .union(Permissions::RDMA_ATOMIC);
    /// The flags that make a map exportable across PCIe.
    pub const PCI: Permissions = Permissions::PCI_READ_ONLY.union(Permissions::PCI_READ_WRITE);

    /// Checks a mask that a program set.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for unknown flags and for read-only together with read-write.
    pub fn from_mask(mask: u32) -> Result<Permissions> {
        let permissions = Permissions::from_bits(mask).ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "access mask {mask:#x} has unknown flags, expected a combination of {:#x}",
                Permissions::all().bits()
            ))
        })?;
        if permissions.contains(Permissions::PCI) {
            return Err(Error::InvalidValue
                .because("DOCA_ACCESS_FLAG_PCI_READ_ONLY and DOCA_ACCESS_FLAG_PCI_READ_WRITE exclude each other"));
        }
        Ok(permissions)
    }

    /// Returns `true` if the program's own devices may write. Memory that peers may write is also locally writable:
    /// hardware registers no other combination.
    pub const fn local_write(self) -> bool {
        let any = Permissions::LOCAL_READ_WRITE
            .union(Permissions::PCI_READ_WRITE)
            .union(Permissions::RDMA_WRITE)
            .union(Permissions::RDMA_ATOMIC);
        self.intersects(any)
    }

    /// Returns `true` if another process may have any access.
    pub const fn remote(self) -> bool {
        self.intersects(Permissions::RDMA.union(Permissions::PCI))
    }

    /// Rights of a peer across PCIe.
    pub(super) fn pci_rights(self) -> Rights {
        Rights {
            read: self.intersects(Permissions::PCI),
            write: self.contains(Permissions::PCI_READ_WRITE),
            atomic: false,
        }
    }

    /// Rights of an RDMA peer.
    pub(super) fn rdma_rights(self) -> Rights {
        Rights {
            read: self.contains(Permissions::RDMA_READ),
            write: self.contains(Permissions::RDMA_WRITE),
            atomic: self.contains(Permissions::RDMA_ATOMIC),
        }
    }
}

/// As in DOCA: a new map may be used locally.
impl Default for Permissions {
    fn default() -> Permissions {
        Permissions::LOCAL_READ_WRITE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Descriptor {
        Descriptor {
            kind: ExportKind::Pci,
            permissions: Permissions::PCI_READ_WRITE | Permissions::RDMA_READ,
            addr: 0x7f00_0000_0010,
            len: 4096,
            agent: AgentAddress::local().unwrap(),
            key: Key::random().unwrap(),
            onward: Some(Key::random().unwrap()),
            network: None,
        }
    }

    #[test]
    fn round_trips() {
        let descriptor = example();
        assert_eq!(
            Descriptor::decode(&descriptor.encode()),
            Ok(descriptor.clone())
        );
        let rdma = Descriptor {
            kind: ExportKind::Rdma,
            onward: None,
            ..descriptor
        };
        assert_eq!(Descriptor::decode(&rdma.encode()), Ok(rdma.clone()));
        let remote = Descriptor {
            network: Some(NetworkOffer::example()),
            ..rdma
        };
        assert_eq!(Descriptor::decode(&remote.encode()), Ok(remote.clone()));
        let pci = Descriptor {
            kind: ExportKind::Pci,
            ..remote
        };
        assert_eq!(Descriptor::decode(&pci.encode()), Err(Error::InvalidValue));
        // Programs have buffers of that size.
        const { assert!(Descriptor::SIZE + NetworkOffer::LONGEST <= 512) };
    }

    #[test]
    fn every_field_is_checked() {
        let good = example().encode();
        let changed = |index: usize, values: &[u8]| {
            let mut bytes = good.clone();
            bytes[index..index + values.len()].copy_from_slice(values);
            Descriptor::decode(&bytes).map(|_| ())
        };
        assert_eq!(changed(0, b"s"), Err(Error::InvalidValue));
        assert_eq!(changed(8, &[3]), Err(Error::UnsupportedVersion));
        assert_eq!(changed(8, &[2]), Err(Error::InvalidValue), "no offer");
        assert_eq!(changed(10, &[3]), Err(Error::InvalidValue), "kind");
        assert_eq!(changed(11, &[1]), Err(Error::InvalidValue), "reserved");
        assert_eq!(
            changed(12, &[1, 0, 0, 0]),
            Err(Error::InvalidValue),
            "nothing that PCI may do"
        );
        assert_eq!(
            changed(12, &[0x30, 0, 0, 0]),
            Err(Error::InvalidValue),
            "read-only and read-write"
        );
        assert_eq!(
            changed(12, &[0x20, 1, 0, 0]),
            Err(Error::InvalidValue),
            "unknown permission"
        );
        assert_eq!(changed(24, &[0; 8]), Err(Error::InvalidValue), "no length");
        assert_eq!(
            changed(24, &[0xff; 8]),
            Err(Error::InvalidValue),
            "overflow"
        );
        assert_eq!(
            changed(12, &[0x20, 0, 0, 0]),
            Err(Error::InvalidValue),
            "onward without RDMA"
        );
        assert_eq!(Descriptor::decode(&good[..95]), Err(Error::InvalidValue));
        assert_eq!(Descriptor::decode(&[]), Err(Error::InvalidValue));
        let long: Vec<u8> = good.iter().copied().chain([0]).collect();
        assert_eq!(Descriptor::decode(&long), Err(Error::InvalidValue));
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(tail in proptest::collection::vec(any::<u8>(), 0..120), len in 0..130_usize) {
            let mut bytes = example().encode()[..10].to_vec();
            bytes.extend(tail);
            bytes.truncate(len);
            let _ = Descriptor::decode(&bytes);
        }
    }

    #[test]
    fn masks_are_checked() {
        assert_eq!(Permissions::from_mask(0), Ok(Permissions::empty()));
        assert_eq!(
            Permissions::from_mask(0x7f & !0x10),
            Ok(Permissions::all() - Permissions::PCI_READ_ONLY)
        );
        assert_eq!(Permissions::from_mask(0x80), Err(Error::InvalidValue));
        assert_eq!(Permissions::from_mask(0x30), Err(Error::InvalidValue));
    }

    #[test]
    fn derived_rights() {
        assert!(!Permissions::empty().local_write() && !Permissions::PCI_READ_ONLY.local_write());
        assert!(Permissions::PCI_READ_WRITE.local_write() && Permissions::default().local_write());
        assert!(!Permissions::default().remote() && Permissions::RDMA_ATOMIC.remote());
        let pci = Permissions::PCI_READ_ONLY.pci_rights();
        assert_eq!((pci.read, pci.write, pci.atomic), (true, false, false));
        let rdma = (Permissions::RDMA_WRITE | Permissions::PCI_READ_WRITE).rdma_rights();
        assert_eq!((rdma.read, rdma.write, rdma.atomic), (false, true, false));
    }
}
