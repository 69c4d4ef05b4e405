//! A bare TCP connection between two processes, with the framing of remote reads: a request of 64 bytes is answered with the header of a
//! write, the block and a result of 64 bytes.
//!
//! Both sides do as little as TCP allows: requests and answers are sent in batches by vectored writes, blocks are sent
//! from where they are and received where they belong, and one thread does everything. A side without work yields the
//! CPU for 50 us, and then sleeps in `poll`. If a yield takes longer than 20 us, another process has the CPU, and the
//! side sleeps immediately: the kernel then returns the CPU when data arrives, and not when the time slice of the other
//! process ends.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::sched_yield;

use crate::ring::{Load, Measured};

/// Size of a request and of a result in bytes.
const MESSAGE: usize = 64;
/// Size of a write's header in bytes.
const HEADER: usize = 56;
/// Maximum number of answers per system call.
const MOST_ANSWERS: usize = 128;
/// Idle time after which a side sleeps.
const YIELDS: Duration = Duration::from_micros(50);
/// Maximum duration of a yield on a CPU without other runnable processes.
const SCHEDULED: Duration = Duration::from_micros(20);
/// Time for the server to start listening.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum of the latency histogram: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

#[derive(Default)]
struct Waiting {
    since: Option<Instant>,
}

impl Waiting {
    /// Restarts the time until the next block, because the socket was ready.
    fn reset(&mut self) {
        self.since = None;
    }

    /// Yields the CPU; after [`YIELDS`], or if another process ran in between, blocks until the socket is ready.
    fn wait(&mut self, stream: &TcpStream, events: PollFlags) -> io::Result<()> {
        let begin = Instant::now();
        if begin.duration_since(*self.since.get_or_insert(begin)) < YIELDS {
            sched_yield();
            if begin.elapsed() < SCHEDULED {
                return Ok(());
            }
        }
        match poll(&mut [PollFd::new(stream, events)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                self.reset();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// `None` if the socket is not ready.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Serves one connection until its client closes it.
///
/// # Errors
///
/// The address is not available, or the connection fails.
pub fn serve(address: SocketAddr, load: Load) -> io::Result<()> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    prepare(&stream)?;
    let blocks: Vec<u8> = (0..load.blocks * load.block_size)
        .map(|at| (at % 251) as u8)
        .collect();
    let (header, result) = ([1; HEADER], [2; MESSAGE]);
    let answer = HEADER + load.block_size + MESSAGE;
    let mut requests = vec![0; load.transactions * MESSAGE];
    let (mut have, mut next, mut owed, mut sent) = (0, 0, 0, 0);
    let mut waiting = Waiting::default();
    loop {
        // All received requests are answered before further ones are received, which bounds their number.
        if owed == 0 {
            match ready(stream.read(&mut requests[have..]))? {
                Some(0) => return Ok(()),
                Some(count) => {
                    waiting.reset();
                    have += count;
                    owed = have / MESSAGE;
                    requests.copy_within(owed * MESSAGE..have, 0);
                    have -= owed * MESSAGE;
                }
                None => waiting.wait(&stream, PollFlags::IN)?,
            }
            continue;
        }
        let mut pieces = [IoSlice::new(&[]); 3 * MOST_ANSWERS];
        let count = owed.min(MOST_ANSWERS);
        for (index, pieces) in pieces.chunks_exact_mut(3).take(count).enumerate() {
            let from = (next + index) % load.blocks * load.block_size;
            pieces[0] = IoSlice::new(&header);
            pieces[1] = IoSlice::new(&blocks[from..from + load.block_size]);
            pieces[2] = IoSlice::new(&result);
        }
        let mut rest = &mut pieces[..3 * count];
        IoSlice::advance_slices(&mut rest, sent);
        match ready(stream.write_vectored(rest))? {
            Some(count) => {
                waiting.reset();
                sent += count;
                let whole = sent / answer;
                (sent, next, owed) = (sent - whole * answer, next + whole, owed - whole);
            }
            None => waiting.wait(&stream, PollFlags::OUT)?,
        }
    }
}

/// Sends the requests of a load to a server, which may be about to start.
///
/// # Errors
///
/// The server is unreachable, or the connection fails.
pub fn run(address: SocketAddr, load: Load) -> io::Result<Measured> {
    let mut stream = connect(address)?;
    prepare(&stream)?;
    let answer = HEADER + load.block_size + MESSAGE;
    // Start times of the transactions, in the order of the answers.
    let mut slots = vec![0_u8; load.transactions * answer];
    let mut begun: VecDeque<Instant> = VecDeque::with_capacity(load.transactions);
    let requests = vec![3_u8; load.transactions * MESSAGE];
    let (mut asked, mut unsent, mut done, mut received) = (0, 0, 0_u64, 0);
    let mut histogram = Histogram::<u64>::new_with_max(LONGEST_NS, 3).map_err(io::Error::other)?;
    let mut waiting = Waiting::default();
    let begin = Instant::now();
    while done < load.operations {
        let now = Instant::now();
        while begun.len() < load.transactions && asked < load.operations {
            begun.push_back(now);
            asked += 1;
            unsent += MESSAGE;
        }
        if unsent > 0 {
            unsent -= ready(stream.write(&requests[..unsent]))?.unwrap_or(0);
        }
        let first = (done % load.transactions as u64) as usize * answer;
        let (before, from) = slots.split_at_mut(first);
        let mut pieces: [IoSliceMut<'_>; 2] = [
            IoSliceMut::new(&mut from[received..]),
            IoSliceMut::new(before),
        ];
        match ready(stream.read_vectored(&mut pieces))? {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => {
                waiting.reset();
                let now = Instant::now();
                received += count;
                while received >= answer {
                    received -= answer;
                    done += 1;
                    let begun = begun.pop_front().ok_or_else(|| {
                        io::Error::other("expected an answer to each request, got another one")
                    })?;
                    let time = now.duration_since(begun).as_nanos() as u64;
                    histogram.saturating_record(time);
                }
            }
            None => {
                let output = if unsent > 0 {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                };
                waiting.wait(&stream, PollFlags::IN | output)?;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Measured {
        seconds,
        rate: load.operations as f64 / seconds,
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        p99_9_ns: histogram.value_at_quantile(0.999),
    })
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && begin.elapsed() < TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_are_answered() {
        for (transactions, block_size, operations) in [
            (1, 4096, 100),
            (64, 4096, 5000),
            (7, 100_000, 50),
            (3, 10, 2),
        ] {
            let load = Load {
                transactions,
                block_size,
                blocks: 16,
                operations,
            };
            let port = {
                let any = TcpListener::bind("127.0.0.1:0").expect("a port");
                any.local_addr().expect("its address")
            };
            let server = std::thread::spawn(move || serve(port, load));
            let measured = run(port, load).expect("measured");
            server.join().expect("a thread").expect("served");
            assert!(measured.rate > 0.0, "{measured:?}");
            assert!(measured.p50_ns <= measured.p99_9_ns, "{measured:?}");
        }
    }
}
