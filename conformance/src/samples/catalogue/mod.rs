//! All runs that are known.

mod comch;
mod common;
mod compress;
mod crypto;
mod dma;
mod erasure_coding;
mod rdma;
mod rdma_multi_conn;

use super::scenario::Scenario;
use crate::scene::{DPU_DEVICE, HOST_DEVICE};

/// The device of the DPU, its network representor, and the device of the host, as the guides print them.
const DPU: &str = DPU_DEVICE;
const HOST: &str = HOST_DEVICE;
/// The same devices, as RDMA names them.
const DPU_RDMA: &str = "mlx5_0";
const HOST_RDMA: &str = "mlx5_1";

/// Every scenario.
pub fn catalogue() -> Vec<Scenario> {
    let mut all = comch::scenarios();
    all.extend(rdma::scenarios());
    all.extend(rdma_multi_conn::scenarios());
    all.extend(dma::scenarios());
    all.extend(compress::scenarios());
    all.extend(erasure_coding::scenarios());
    all.extend(common::scenarios());
    all.extend(crypto::scenarios());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::samples::scenario::Event;

    #[test]
    fn scenarios_have_names_of_their_own() {
        let all = catalogue();
        let names: BTreeSet<_> = all.iter().map(|scenario| &scenario.name).collect();
        assert_eq!(names.len(), all.len());
    }

    /// A party that waits for one that does not exist, or for itself, would wait forever.
    #[test]
    fn parties_wait_for_each_other() {
        for scenario in catalogue() {
            let parties: BTreeSet<_> = scenario.parties.iter().map(|party| &party.name).collect();
            assert_eq!(parties.len(), scenario.parties.len(), "{}", scenario.name);
            for party in &scenario.parties {
                let replies = party.replies.iter().flat_map(|reply| &reply.when);
                let others = party.starts.iter().chain(replies).map(Event::party);
                for other in others {
                    assert!(
                        parties.iter().any(|party| *party == other) && party.name != other,
                        "{}: {} waits for {other}",
                        scenario.name,
                        party.name
                    );
                }
            }
            assert!(
                scenario.parties.iter().any(|party| party.starts.is_empty()),
                "{}: nobody begins",
                scenario.name
            );
        }
    }

    /// Every sample of the eight folders.
    #[test]
    fn every_sample_takes_part() {
        let samples: BTreeSet<_> = catalogue()
            .iter()
            .flat_map(|scenario| scenario.samples())
            .collect();
        assert_eq!(samples.len(), 43, "{samples:?}");
    }
}
