//! Reads 4 KiB at random offsets for a few seconds, with one queue and thread for each worker of the service:
//! `random_reads [QUEUES [SECONDS]]`.
//!
//! `VOLUME_SERVICE` names the Comch server of the service, if it is not `doca_storage_comch`.

use std::error::Error;
use std::time::{Duration, Instant};

use volume::{Config, Io, IoError, Operation, Queue, Volume};

const LEN: usize = 4096;
const DEPTH: u64 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let (queues, seconds) = (number(1)?, number(3)?);
    let mut config = Config {
        queues,
        ..Config::default()
    };
    if let Ok(service) = std::env::var("VOLUME_SERVICE") {
        config.services[0].name = service;
    }
    let mut volume = Volume::open(config)?;
    let blocks = volume.size() / LEN as u64;
    if blocks == 0 {
        return Err("the volume is smaller than one read".into());
    }
    let time = Duration::from_secs(seconds.into());
    let threads: Vec<_> = volume
        .take_queues()
        .into_iter()
        .map(|queue| std::thread::spawn(move || read(queue, blocks, time)))
        .collect();
    let mut total = 0;
    for thread in threads {
        total += thread.join().map_err(|_| "a thread has panicked")??;
    }
    volume.close()?;
    println!("{:.0} reads/s", total as f64 / time.as_secs_f64());
    Ok(())
}

/// Keeps `DEPTH` reads in flight, and returns the number of completed ones.
fn read(mut queue: Queue, blocks: u64, time: Duration) -> Result<u64, IoError> {
    let (end, mut random) = (Instant::now() + time, fastrand::Rng::with_seed(1));
    let (mut done, mut in_flight, mut result) = (0, 0, Ok(()));
    let mut is_over = false;
    while !is_over || in_flight != 0 {
        while !is_over
            && in_flight < DEPTH
            && let Some(buffer) = queue.buffer(LEN)
        {
            let io = Io {
                tag: 0,
                operation: Operation::Read,
                offset: random.u64(..blocks) * LEN as u64,
                len: LEN as u32,
                buffer: Some(buffer),
            };
            if queue.submit(io).is_err() {
                break;
            }
            in_flight += 1;
        }
        let count = queue.poll(&mut |completion| result = result.and(completion.result)) as u64;
        (done, in_flight) = (done + count, in_flight - count);
        // Reads the clock about once per 1024 completions.
        if count == 0 || done % 1024 < count {
            is_over = Instant::now() >= end || result.is_err();
        }
    }
    result.map(|()| done)
}
