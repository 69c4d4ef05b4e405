//! Permissions of memory maps.

use crate::agent::Rights;
use crate::error::{Error, Result};

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
    use super::*;

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
