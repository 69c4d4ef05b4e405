//! What kernels, copies and ring hops of gga would allow, if nothing else cost anything.

use serde::Serialize;

use crate::point::{Layout, Operation, Point};
use crate::series::BlockKernels;

/// Time per I/O in nanoseconds, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GgaLimit {
    /// Compression or decompression, in the service.
    pub lz4_ns: f64,
    /// Erasure coding, in the service.
    pub parity_ns: f64,
    /// Copies of content and stored block, in the service.
    pub service_copies_ns: f64,
    /// Copies between targets and service, in the targets.
    pub target_copies_ns: f64,
    /// All hops through rings, each in the process that takes the message.
    pub hops_ns: f64,
    /// Hops that the service takes.
    pub service_hops_ns: f64,
    /// I/Os a second that this allows on so many CPUs: none of them, and no single process, does more than it can.
    pub rate: f64,
}

/// What one round found out about the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// I/Os a second of the bare ring with blocks of 4 KiB.
    pub ring: f64,
    /// Blocks of 4 KiB that are copied in a second.
    pub copies: f64,
    /// The kernels.
    pub kernels: BlockKernels,
}

/// The limit of one operation on blocks of 4 KiB.
pub fn gga_limit(limits: Limits, operation: Operation, cpus: usize) -> GgaLimit {
    let Limits {
        ring,
        copies,
        kernels,
    } = limits;
    // A block of 4 KiB.
    let copy_ns = 1e9 / copies;
    // The ring's three processes share the CPUs: what is not copying is four hops.
    let ring_cpus = cpus.min(3) as f64;
    let hop_ns = ((ring_cpus * 1e9 / ring - copy_ns) / 4.0).max(0.0);

    // Both ways between initiator and service, and both ways for every target that takes part.
    let targets = match operation {
        Operation::Read | Operation::RecoveryRead => 2.0,
        Operation::Write => 3.0,
    };
    let hops_ns = (2.0 + 2.0 * targets) * hop_ns;
    let service_hops_ns = (1.0 + targets) * hop_ns;
    // Each target moves half a block.
    let target_copies_ns = targets * copy_ns / 2.0;
    // The stored block, and the content.
    let service_copies_ns = 2.0 * copy_ns;
    let (lz4_ns, parity_ns) = match operation {
        Operation::Read => (kernels.decompress_ns, 0.0),
        Operation::RecoveryRead => (kernels.decompress_ns, kernels.recover_ns),
        Operation::Write => (kernels.compress_ns, kernels.create_ns),
    };
    let service = lz4_ns + parity_ns + service_copies_ns + service_hops_ns;
    let all = lz4_ns + parity_ns + service_copies_ns + target_copies_ns + hops_ns;
    GgaLimit {
        lz4_ns,
        parity_ns,
        service_copies_ns,
        target_copies_ns,
        hops_ns,
        service_hops_ns,
        rate: 1e9 / service.max(all / cpus.min(5) as f64),
    }
}

/// The point that a limit is compared with.
pub(super) fn gga_point(operation: Operation) -> Point {
    Point {
        layout: Layout::Gga,
        operation,
        ..Point::ZERO_COPY_READ
    }
}
