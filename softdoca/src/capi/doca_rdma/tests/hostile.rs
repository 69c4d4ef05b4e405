//! Tests that are not repeated over the network: peers that violate the protocol, and the runs of all other tests of
//! this module over TCP, TLS and verbs, although the processes are on one machine.
//!
//! For any data that a peer writes to the ring, each posted task completes exactly once, and the context can be
//! stopped.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doca_abi::{DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING};
use proptest::prelude::*;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::{ALL, Bufs, Memory, Side, c, import, ok, pair, submit};
use crate::agent::{self, AgentAddress, AgentConnection};
use crate::capi::doca_pe::*;
use crate::capi::testing::{
    HAS_IMMEDIATE, HAS_MORE, IS_INLINE, RawRing, RingStep, ScriptedAgent, ring_step, segment,
};
use crate::error::Error;
use crate::runtime::Key;

/// Next action of the attacker.
#[derive(Debug, Clone)]
enum Step {
    Ring(RingStep),
    /// Calls progress on the instance.
    Progress,
    /// Closes its connection to the instance's agent.
    HangUp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => ring_step().prop_map(Step::Ring),
        4 => Just(Step::Progress),
        1 => Just(Step::HangUp),
    ];
    proptest::collection::vec(step, 1..24)
}

/// A peer that claims the ring of connection details, and then writes arbitrary data.
struct Attacker {
    ring: RawRing,
    agent: Option<AgentConnection>,
}

impl Attacker {
    fn claim(details: &[u8]) -> Attacker {
        let address = AgentAddress::decode(details[16..48].try_into().expect("32 bytes"));
        let key = Key::from_bytes(details[48..64].try_into().expect("16 bytes"));
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK);
        let bell = bell.expect("an eventfd");
        let (agent, _, mut fds) =
            agent::request(&address, key, b"SDRDMA\0\x01", &[bell.as_fd()]).expect("a claim");
        Attacker {
            ring: RawRing::new(fds.swap_remove(0)),
            agent: Some(agent),
        }
    }

    fn perform(&mut self, step: &Step, instance: &Side) {
        match step {
            Step::Ring(step) => self.ring.perform(step),
            Step::Progress => (0..8).for_each(|_| instance.progress()),
            Step::HangUp => self.agent = None,
        }
    }
}

/// Stops the instance and frees its tasks; fails if that does not terminate.
#[track_caller]
fn stop(instance: &Side) {
    let deadline = Instant::now() + Duration::from_secs(10);
    // SAFETY: live handles.
    unsafe {
        doca_ctx_stop(instance.ctx());
        let mut in_flight = 1;
        while in_flight != 0 {
            assert!(
                Instant::now() < deadline,
                "{in_flight} tasks stay in flight: {:?}",
                instance.completed()
            );
            instance.progress();
            ok(doca_ctx_get_num_inflight_tasks(
                instance.ctx(),
                &mut in_flight,
            ));
        }
    }
    instance.stop();
    assert_eq!(instance.state(), DOCA_CTX_STATE_IDLE);
}

#[track_caller]
fn assert_each_completed_once(instance: &Side, posted: u64) {
    let mut users: Vec<_> = instance.completed().iter().map(|(user, _)| *user).collect();
    users.sort_unstable();
    assert_eq!(users, (0..posted).collect::<Vec<_>>());
}

/// Runs the steps against receives of several kinds, one of them without a buf, and sends to a peer that posts a few
/// receives.
fn attack(connections: u16, steps: &[Step]) {
    let (instance, peer) = (Side::start(ALL, connections), Side::start(ALL, 1));
    let (memory, bufs) = (Memory::local(65_536), Bufs::new());
    let ((details, connection), (peer_details, _)) = (instance.export(), peer.export());
    let mut attacker = Attacker::claim(&details);
    ok(instance.connect(connection, &peer_details));
    let mut posted = 0;
    for (index, len) in [0, 16, 64, 4096, 20_000, 64, 64, 64]
        .into_iter()
        .enumerate()
    {
        let buf = match len {
            0 => std::ptr::null_mut(),
            len => c(bufs.room(&memory.mmap, index * 4096, len)),
        };
        submit(instance.receive(buf, posted));
        posted += 1;
    }
    for user in 0..4 {
        submit(peer.receive(std::ptr::null_mut(), user));
    }
    for step in steps {
        attacker.perform(step, &instance);
        // A context that has lost its connection stops by itself, and accepts no more tasks.
        if matches!(step, Step::Progress)
            && instance.state() == DOCA_CTX_STATE_RUNNING
            && posted < 20
        {
            let data = bufs.data(&memory.mmap, 60_000, 64);
            submit(instance.send(connection, c(data), posted));
            posted += 1;
        }
    }
    let until = Instant::now() + Duration::from_millis(2);
    while Instant::now() < until {
        instance.progress();
    }
    stop(&instance);
    assert_each_completed_once(&instance, posted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_task_completes_once_whatever_a_peer_puts_into_the_ring(
        connections in 1..=2_u16,
        steps in steps(),
    ) {
        attack(connections, &steps);
    }
}

/// Regression: servers hung because the receive had been taken from the queue, but was not in any other list when it
/// was refused.
#[test]
fn invalid_immediate_data_fails_the_receive_and_closes_the_connection() {
    let (instance, bufs) = (Side::start(ALL, 1), Bufs::new());
    let memory = Memory::local(4096);
    let (details, _) = instance.export();
    let mut attacker = Attacker::claim(&details);
    for user in 0..2 {
        submit(instance.receive(c(bufs.room(&memory.mmap, user as usize * 64, 64)), user));
    }
    attacker
        .ring
        .fragment(35 << 24 | HAS_IMMEDIATE | IS_INLINE, 0);
    let aborted = Error::ConnectionAborted.code();
    assert_eq!(instance.wait(2), [(0, aborted), (1, aborted)]);
    stop(&instance);
}

/// The whole ring, as mapped by the peer.
struct Mapped(&'static [AtomicU64]);

impl Mapped {
    fn of(ring: &RawRing) -> Mapped {
        let len = 512 + ring.slots as usize * 64;
        let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping of zeroed words, which stays until the process ends; every access is atomic.
        unsafe {
            let base = mmap(std::ptr::null_mut(), len, read_write, shared, &ring.fd, 0);
            let base: *const AtomicU64 = base.expect("a memfd").cast();
            Mapped(std::slice::from_raw_parts(base, len / 8))
        }
    }

    fn consumed(&self) -> u64 {
        self.0[128 / 8].load(Ordering::Acquire)
    }

    /// Fills the ring with one-byte fragments, each of which announces another one, until `stop`.
    fn flood(&self, slots: u64, stop: &AtomicBool) {
        let descriptor = u64::from(1 | IS_INLINE | HAS_MORE);
        let mut position = 0;
        while !stop.load(Ordering::Relaxed) {
            if position - self.consumed() < slots {
                let lap = (position / slots) << 1 | 1;
                let word = 512 / 8 + (position % slots) as usize * 8;
                self.0[word].store(descriptor | lap << 32, Ordering::Release);
                position += 1;
            }
        }
    }
}

/// One progress call processes a bounded number of fragments, regardless of how fast the peer adds them.
#[test]
fn progress_takes_a_bounded_number_of_fragments() {
    // Progress polls a context up to three times: for events, after the descriptors, and before it sleeps.
    const MOST: u64 = 3 * 64;
    let instance = Side::start(ALL, 1);
    let (details, _) = instance.export();
    let attacker = Attacker::claim(&details);
    let ring = Mapped::of(&attacker.ring);
    submit(instance.receive(std::ptr::null_mut(), 0));
    let stop_flood = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| ring.flood(attacker.ring.slots, &stop_flood));
        let begin = Instant::now();
        let mut most = 0;
        while begin.elapsed() < Duration::from_millis(500) {
            let before = ring.consumed();
            instance.progress();
            most = most.max(ring.consumed() - before);
        }
        stop_flood.store(true, Ordering::Relaxed);
        most
    });
    assert!((1..=MOST).contains(&most), "{most} fragments in one call");
    assert_eq!(instance.completed(), [], "the message has not ended");
    stop(&instance);
    assert_eq!(instance.completed().len(), 1);
}

#[test]
fn fragments_without_data_close_the_connection() {
    let instance = Side::start(ALL, 1);
    let (details, _) = instance.export();
    let mut attacker = Attacker::claim(&details);
    submit(instance.receive(std::ptr::null_mut(), 0));
    attacker.ring.fragment(IS_INLINE | HAS_MORE, 0);
    assert_eq!(instance.wait(1), [(0, Error::ConnectionAborted.code())]);
    stop(&instance);
}

const LEN: usize = 1 << 20;
const ADDR: u64 = 0x10_0000;

/// An agent for memory that peers cannot map; each copy of up to 64 KiB takes `delay`.
fn slow(delay: Duration) -> ScriptedAgent {
    ScriptedAgent::start(move |asked| match asked.operation {
        1 => Some((1, segment(ADDR, LEN as u64, 0, None), vec![])),
        _ => {
            std::thread::sleep(delay);
            Some((0, vec![9; asked.len as usize], vec![]))
        }
    })
}

/// Submits `count` reads of `len` bytes each from a peer with a slow agent.
fn read_from(agent: &ScriptedAgent, count: u64, len: usize) -> (Side, Side, Vec<Duration>) {
    let ((a, connection), (b, _)) = pair();
    let (local, bufs) = (Memory::local(LEN), Bufs::new());
    let remote = import(&agent.descriptor(2, 0b1110, ADDR, LEN as u64));
    let mut longest = vec![];
    let mut timed = |action: &mut dyn FnMut()| {
        let begin = Instant::now();
        action();
        longest.push(begin.elapsed());
    };
    for user in 0..count {
        let at = user as usize * len;
        let (from, to) = (bufs.data(&remote, at, len), bufs.room(&local.mmap, at, len));
        let task = a.read(connection, (c(from), c(to)), user);
        timed(&mut || submit(task));
    }
    while a.completed().len() < count as usize {
        timed(&mut || a.progress());
    }
    // Bufs and memory are no longer used.
    a.stop();
    (a, b, longest)
}

#[test]
fn a_copy_by_a_slow_agent_times_out() {
    // 16 pieces, each of them within its timeout.
    let agent = slow(Duration::from_millis(900));
    let (a, _b, longest) = read_from(&agent, 1, LEN);
    assert_eq!(a.completed(), [(0, Error::TimeOut.code())]);
    let longest = longest.into_iter().max().expect("a submission");
    assert!(longest < Duration::from_millis(3500), "{longest:?}");
}

#[test]
fn progress_waits_for_one_slow_copy_at_a_time() {
    let agent = slow(Duration::from_millis(60));
    let (a, _b, longest) = read_from(&agent, 8, 64);
    let expected: Vec<_> = (0..8).map(|user| (user, 0)).collect();
    assert_eq!(a.completed(), expected);
    // At most one copy at a time: at least every second call returned after at most two.
    let calls = longest
        .iter()
        .filter(|time| **time >= Duration::from_millis(55));
    assert!(calls.count() >= 4, "{longest:?}");
}

/// Tests of behaviour that differs over the network (SEMANTICS.md), or of rings and agents.
const NOT_OVER_THE_NETWORK: [&str; 9] = [
    "capi::doca_rdma::tests::hostile",
    // A copy is complete when its submission returns.
    "pending_copies_are_flushed_with_their_context",
    "the_first_copy_completes_on_submission_and_all_in_order",
    // A message takes a receive that several connections share, without progress of the receiver.
    "receives_are_shared_by_senders_and_report_the_connection",
    "closing_one_connection_leaves_the_others",
    "several_clients_connect_to_one_port",
    "a_client_requests_and_the_server_accepts",
    "a_send_reaches_a_target_that_has_not_connected",
    // The exit of a process is reported as CONNECTION_RESET.
    "an_event_is_shared_across_pcie_and_its_destruction_ends_waits",
];

/// Tests whose properties do not apply to verbs, or that cannot be run in the guest.
const NOT_BY_VERBS: [&str; 3] = [
    // Only one of the built-in devices exists in the guest.
    "each_device_has_ports_of_its_own",
    // The guest is emulated: 30 messages that request a receive each take longer than 100 ms, and 20,000 take longer
    // than a minute.
    "as_many_messages_as_receives_are_taken",
    "both_directions_at_once_keep_their_order_between_threads",
];

#[test]
fn all_tests_of_rdma_pass_over_the_network() {
    run(&[], &[]);
}

#[cfg(feature = "tls")]
#[test]
fn all_tests_of_rdma_pass_over_tls() {
    let authority = crate::agent::Authority::new();
    let [certificate, key] = authority.sign("127.0.0.1", |_| {});
    let tls = [
        ("SOFTDOCA_TLS_CERTIFICATE", certificate),
        ("SOFTDOCA_TLS_KEY", key),
        ("SOFTDOCA_TLS_CA", authority.path()),
    ];
    run(&tls, &[]);
}

/// Runs only where a topology file names an RDMA device with the name that the tests use, as in the guest of .ci/verbs.
#[test]
fn all_tests_of_rdma_pass_over_verbs() {
    let has_topology = std::env::var_os(crate::topology::VARIABLE).is_some();
    if !has_topology || !Path::new("/sys/class/infiniband/mlx5_0").exists() {
        eprintln!(
            "NOT RUN: tests of RDMA over verbs: no topology file names an RDMA device mlx5_0"
        );
        return;
    }
    run(&[("SOFTDOCA_TRANSPORT", "verbs".into())], &NOT_BY_VERBS);
}

fn run(environment: &[(&str, PathBuf)], skipped: &[&str]) {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.arg("capi::doca_rdma::tests");
    for name in NOT_OVER_THE_NETWORK.iter().chain(skipped) {
        command.args(["--skip", name]);
    }
    let output = command
        .env("SOFTDOCA_ADDRESS", "127.0.0.1")
        .env("SOFTDOCA_TRANSPORT", "tcp")
        .envs(environment.iter().map(|(name, path)| (name, path)))
        .output()
        .expect("this executable again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    // A filter without matches also passes.
    let passed = text
        .split("test result: ok. ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse::<u32>().ok());
    assert!(passed > Some(50), "{text}");
}
