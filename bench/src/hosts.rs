//! Deployments over two machines: network namespaces with a veth pair between them.

use deployment::network::{Network, Unavailable};

use super::point::Point;

/// Machines: one of service and initiator, one of the target.
pub const MACHINES: usize = 2;

/// Compared workloads: zero-copy reads, for the rate, the latency, and the bandwidth.
pub fn points() -> [Point; 4] {
    let base = Point::ZERO_COPY_READ;
    let of = |block_size, transactions| Point {
        block_size,
        transactions,
        ..base
    };
    [base, of(4096, 1), of(64 << 10, 64), of(1 << 20, 16)]
}

/// Two machines that exist as long as the value.
///
/// # Errors
///
/// This user may not make network namespaces, or a program is missing.
pub fn network() -> Result<Network, Unavailable> {
    Network::new(MACHINES)
}
