//! `doca_erasure_coding`: a file in blocks, some of which get lost.

use super::DPU;
use crate::samples::content::Content;
use crate::samples::scenario::{Check, Event, Party, Scenario, Step};

const LIBRARY: &str = "doca_erasure_coding";
const SAMPLE: &str = "erasure_coding_recover";

/// How a file is split, and what is lost of it.
struct Loss {
    matrix: &'static str,
    data: usize,
    redundancy: usize,
    lost: &'static [usize],
    /// Source and destination as chains of so many bufs.
    chains: (usize, usize),
}

const LOSSES: [Loss; 9] = [
    loss("cauchy", 2, 2, &[0], (1, 1)),
    loss("cauchy", 2, 1, &[1], (1, 1)),
    loss("cauchy", 4, 2, &[0, 3], (1, 1)),
    loss("cauchy", 10, 4, &[0, 3, 4, 9], (1, 1)),
    loss("cauchy", 32, 8, &[1, 2, 3, 5, 8, 13, 21, 31], (3, 2)),
    loss("vandermonde", 2, 1, &[0], (1, 1)),
    loss("vandermonde", 2, 2, &[0, 1], (1, 1)),
    loss("vandermonde", 6, 3, &[2, 5], (2, 1)),
    loss("vandermonde", 16, 4, &[0, 7, 15], (4, 4)),
];

const fn loss(
    matrix: &'static str,
    data: usize,
    redundancy: usize,
    lost: &'static [usize],
    chains: (usize, usize),
) -> Loss {
    Loss {
        matrix,
        data,
        redundancy,
        lost,
        chains,
    }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    // No whole number of blocks: what the sample fills up with must not come back.
    let content = Content::Noise(100_003);
    LOSSES
        .iter()
        .flat_map(|loss| [loss.both(&content), loss.apart(&content)])
        .collect()
}

impl Loss {
    fn scenario(&self, way: &str, content: &Content) -> Scenario {
        let Self {
            matrix,
            data,
            redundancy,
            lost,
            ..
        } = self;
        let name = format!(
            "{SAMPLE}:{matrix}_{data}_{redundancy}_lost_{}{way}",
            lost.len()
        );
        Scenario::new(LIBRARY, name).input("{shared}/input", content.clone())
    }

    fn party(&self, name: &str) -> Party {
        let (sources, destinations) = self.chains;
        Party::new(name, SAMPLE)
            .arguments(["-p", DPU, "-x", self.matrix])
            .arguments(["-t".to_owned(), self.data.to_string()])
            .arguments(["-r".to_owned(), self.redundancy.to_string()])
            .arguments(["-ns".to_owned(), sources.to_string()])
            .arguments(["-nd".to_owned(), destinations.to_string()])
    }

    /// One process splits, deletes and recovers; the recovered file lies beside the input.
    fn both(&self, content: &Content) -> Scenario {
        let lost: Vec<String> = self.lost.iter().map(usize::to_string).collect();
        let sample = self
            .party("both")
            .arguments(["-i", "{shared}/input", "-o", "{dir}", "-b"])
            .arguments(["-d".to_owned(), lost.join(",")])
            .says_times("Deleted successfully", self.lost.len())
            .says("data was recovered");
        self.scenario("", content).party(sample).check(Check::File {
            path: "{shared}/input_recovered".to_owned(),
            content: content.clone(),
        })
    }

    /// One process splits, the user loses blocks, another recovers.
    fn apart(&self, content: &Content) -> Scenario {
        let encode = self
            .party("encode")
            .arguments(["-i", "{shared}/input", "-o", "{dir}"])
            .says("redundancy blocks were created");
        let decode = self
            .party("decode")
            .arguments(["-i", "{shared}/encode", "-o", "{dir}/output"])
            .starts_when(Event::ends("encode"))
            .says("data was recovered");
        let decode = self.lost.iter().fold(decode, |decode, index| {
            decode.before(Step::Remove(format!(
                "{{shared}}/encode/data_block_{index}"
            )))
        });
        self.scenario("_apart", content)
            .party(encode)
            .party(decode)
            .check(Check::File {
                path: "{shared}/decode/output".to_owned(),
                content: content.clone(),
            })
    }
}
