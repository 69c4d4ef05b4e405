//! Runs every decoder on random inputs and prints a table of the results: `cargo run --release -p fuzz-properties
//! --example malformed [INPUTS [SEED]]`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use fuzz_properties::harness::{ALL, Table, snapshot};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (inputs, seed) = (number(100_000)?, number(1)?);
    let start = Instant::now();
    let mut failed = false;
    // One thread per property, so that slow ones do not delay the others.
    std::thread::scope(|scope| {
        let threads: Vec<_> = ALL
            .iter()
            .map(|search| {
                scope.spawn(move || {
                    let mut failed = false;
                    search.run(seed, inputs, |number| {
                        failed = true;
                        eprintln!(
                            "{}: input {number} of seed {seed} has failed, see above",
                            search.name
                        );
                    });
                    failed
                })
            })
            .collect();
        for thread in threads {
            failed |= thread.join().unwrap_or(true);
        }
    });
    println!("{}", Table(snapshot()));
    println!(
        "\nseed {seed}, {inputs} inputs of the usual share, {:.0?}",
        start.elapsed()
    );
    Ok(ExitCode::from(u8::from(failed)))
}
