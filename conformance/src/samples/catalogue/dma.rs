//! `doca_dma`: a copy on the DPU, and one from the memory of a host.

use super::{DPU, HOST};
use crate::samples::scenario::{Event, Party, Reply, Scenario, Side, Step};

const LIBRARY: &str = "doca_dma";
/// As much as the samples take.
const LONG: usize = 4096;

pub(super) fn scenarios() -> Vec<Scenario> {
    // Source and destination as chains of so many bufs.
    let chains = [("1", "1"), ("3", "1"), ("1", "4"), ("5", "3")];
    let texts = [
        ("short", "what the host has".to_owned()),
        ("long", "d".repeat(LONG)),
    ];
    let mut scenarios = Vec::new();
    for (sources, destinations) in chains {
        for (kind, text) in &texts {
            let chain = ["-p", DPU, "-ns", sources, "-nd", destinations];
            let variant = format!("{kind}_{sources}_to_{destinations}");
            scenarios.push(
                Scenario::new(LIBRARY, format!("dma_local_copy:{variant}")).party(
                    Party::new("dpu", "dma_local_copy")
                        .on(Side::Dpu)
                        .arguments(chain)
                        .arguments(["-t", text])
                        .says("copied and verified"),
                ),
            );
            scenarios.push(from_host(&variant, text, &chain));
        }
    }
    scenarios
}

fn from_host(variant: &str, text: &str, chain: &[&str]) -> Scenario {
    let files = ["-d", "{dir}/descriptor", "-b", "{dir}/buffer"];
    let copy = Party::new("dpu", "dma_copy_dpu")
        .on(Side::Dpu)
        .arguments(chain.to_vec())
        .arguments(files)
        .starts_when(Event::says("host", "press enter"))
        .before(Step::copy("{shared}/host/descriptor", "{dir}/descriptor"))
        .before(Step::copy("{shared}/host/buffer", "{dir}/buffer"))
        .says(format!("Memory content: {text}"));
    Scenario::new(LIBRARY, format!("dma_copy_dpu:{variant}"))
        .party(
            Party::new("host", "dma_copy_host")
                .on(Side::Host)
                .arguments(["-p", HOST, "-t", text])
                .arguments(files)
                .reply(Reply::to("press enter").when(Event::says("dpu", "can be closed"))),
        )
        .party(copy)
}
