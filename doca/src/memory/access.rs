use doca_sys as sys;

bitflags::bitflags! {
    /// Who may do what with a memory map or through an RDMA instance.
    ///
    /// ```
    /// use doca::Access;
    ///
    /// let access = Access::PCI_READ_WRITE | Access::RDMA_READ;
    /// assert!(access.contains(Access::RDMA_READ));
    /// assert!(Access::LOCAL_READ_ONLY.is_empty());
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Contexts of this process read; the absence of every other permission.
        const LOCAL_READ_ONLY = sys::DOCA_ACCESS_FLAG_LOCAL_READ_ONLY;
        /// Contexts of this process read and write.
        const LOCAL_READ_WRITE = sys::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
        /// RDMA peers read.
        const RDMA_READ = sys::DOCA_ACCESS_FLAG_RDMA_READ;
        /// RDMA peers write.
        const RDMA_WRITE = sys::DOCA_ACCESS_FLAG_RDMA_WRITE;
        /// RDMA peers use atomic operations.
        const RDMA_ATOMIC = sys::DOCA_ACCESS_FLAG_RDMA_ATOMIC;
        /// A peer across PCIe reads.
        const PCI_READ_ONLY = sys::DOCA_ACCESS_FLAG_PCI_READ_ONLY;
        /// A peer across PCIe reads and writes.
        const PCI_READ_WRITE = sys::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
        /// Accesses across PCIe may be reordered.
        const PCI_RELAXED_ORDERING = sys::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING;
    }
}
