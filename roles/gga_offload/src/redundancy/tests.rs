//! Losses, returns, writes and rebuilds in any order, on targets that are numbers: what is read is what was written last, or nothing.

use std::time::Instant;

use proptest::prelude::*;
use role_common::shutdown::Shutdown;

use super::{Found, Made, Shared, State, View, assemble};
use crate::target::{Target, Targets};

mod deaths;

const STRIPES: u64 = 3;

/// What may happen next.
#[derive(Debug, Clone)]
enum Step {
    /// A stripe is written; these targets do not store their half.
    Write(u64, Targets),
    Read(u64),
    Lose(Target),
    /// A lost target comes back, with all that it had or with nothing.
    Return(Target, bool),
    /// A stripe is rebuilt, unless a survivor does not read its half.
    Rebuild(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let target = || (0..3usize).prop_map(|number| Target::ALL[number]);
    // Mostly nobody fails, and sometimes more than one.
    let failing =
        prop_oneof![9 => Just(0u8), 3 => (0..3u8).prop_map(|target| 1 << target), 1 => 0..8u8];
    let step = prop_oneof![
        6 => (0..STRIPES, failing).prop_map(|(stripe, bits)| Step::Write(stripe, Targets::from_bits(bits))),
        4 => (0..STRIPES).prop_map(Step::Read),
        1 => target().prop_map(Step::Lose),
        4 => (target(), any::<bool>()).prop_map(|(target, kept)| Step::Return(target, kept)),
        6 => any::<bool>().prop_map(Step::Rebuild),
    ];
    proptest::collection::vec(step, 0..120)
}

/// Three targets: of each stripe the number of the write that it holds, for data; what both held, for parity.
struct World {
    shared: Shared,
    data: [[u64; STRIPES as usize]; 2],
    parity: [[u64; 2]; STRIPES as usize],
    /// The last write of each stripe, if it succeeded.
    written: [Option<u64>; STRIPES as usize],
    writes: u64,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let shutdown = Shutdown::new().expect("a pipe");
        Self {
            shared: Shared::of_whole(STRIPES, 1, shutdown.waker().clone()),
            data: Default::default(),
            parity: Default::default(),
            written: [Some(0); STRIPES as usize],
            writes: 0,
            now: Instant::now(),
        }
    }

    fn store(&mut self, target: Target, stripe: u64, halves: [u64; 2]) {
        match target {
            Target::DataP => self.parity[stripe as usize] = halves,
            data => self.data[data.number()][stripe as usize] = halves[data.number()],
        }
    }

    /// The half of a data target, as the two others make it up; `None` when they are of different writes.
    fn recover(&self, lost: Target, stripe: u64) -> Option<u64> {
        let (lost, other) = (lost.number(), 1 - lost.number());
        let parity = self.parity[stripe as usize];
        (parity[other] == self.data[other][stripe as usize]).then_some(parity[lost])
    }

    fn write(&mut self, stripe: u64, failing: Targets) {
        let view = self.shared.view();
        let Some(sinks) = view.sinks() else { return };
        self.writes += 1;
        if sinks != Targets::ALL {
            self.shared.missed.insert(stripe);
        }
        for target in sinks.minus(failing).iter() {
            self.store(target, stripe, [self.writes; 2]);
        }
        let without = sinks.intersection(failing);
        let holders = view.holders(sinks, without, self.shared.missed.contains(stripe));
        for target in without.iter() {
            self.shared.lose(target, "it failed");
        }
        if !without.is_empty() {
            self.shared.missed.insert(stripe);
        }
        let is_written = holders.len() > 1 && !self.shared.view().has_failed();
        self.written[stripe as usize] = is_written.then_some(self.writes);
    }

    fn read(&self, stripe: u64) -> Result<(), TestCaseError> {
        let view = self.shared.view();
        let sources = view.sources(self.shared.missed.contains(stripe));
        let Some(missing) = View::missing_half(sources) else {
            prop_assert!(view.has_failed(), "nothing was read with {view:?}");
            return Ok(());
        };
        let half = |target: Target| match missing == Some(target) {
            true => self.recover(target, stripe),
            false => Some(self.data[target.number()][stripe as usize]),
        };
        let halves = [half(Target::Data1), half(Target::Data2)];
        // What a failed write has left is not known; it is two halves of one write all the same.
        prop_assert!(halves[0].is_some() && halves[0] == halves[1], "{halves:?}");
        if let Some(written) = self.written[stripe as usize] {
            prop_assert_eq!(halves[0], Some(written));
        }
        Ok(())
    }

    fn come_back(&mut self, target: Target, has_kept: bool) {
        if self.shared.to_bring_back() != Some(target) {
            return;
        }
        if !has_kept {
            (0..STRIPES).for_each(|stripe| self.store(target, stripe, [u64::MAX; 2]));
        }
        self.shared.come_back(target, has_kept, true);
    }

    fn rebuild(&mut self, is_read: bool) {
        // After any pause.
        self.now += std::time::Duration::from_secs(60);
        let Some(work) = self.shared.next_to_rebuild(self.now) else {
            return;
        };
        let data = [0, 1].map(|number: usize| self.data[number][work.stripe as usize]);
        let made = match work.target {
            Target::DataP => Some(data),
            lost => self.recover(lost, work.stripe).map(|half| [half; 2]),
        };
        if let (true, Some(halves)) = (is_read, made) {
            self.store(work.target, work.stripe, halves);
        }
        let is_made = is_read && made.is_some();
        let made = if is_made { Made::Half } else { Made::Nothing };
        self.shared.finish_rebuild(work, made);
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.shared.acknowledge(0, self.shared.view());
        match *step {
            Step::Write(stripe, failing) => self.write(stripe, failing),
            Step::Read(stripe) => self.read(stripe)?,
            Step::Lose(target) => self.shared.lose(target, "it left"),
            Step::Return(target, has_kept) => self.come_back(target, has_kept),
            Step::Rebuild(is_read) => self.rebuild(is_read),
        }
        if self.shared.is_whole() {
            prop_assert_eq!(
                self.shared.missed.len(),
                0,
                "whole, and something is missed"
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_read_is_what_was_written(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
            for stripe in 0..STRIPES {
                world.read(stripe)?;
            }
        }
        // Whoever is back is whole in the end.
        while let State::Rebuilding(_) = world.shared.state() {
            world.step(&Step::Rebuild(true))?;
        }
        (0..STRIPES).try_for_each(|stripe| world.read(stripe))?;
    }
}

#[test]
fn who_is_distrusted_takes_writes_and_is_not_read() {
    for target in Target::ALL {
        let shutdown = Shutdown::new().expect("a pipe");
        let assembly = assemble([Found::Mute; 3], Some(target), None).expect("the user's word");
        let shared = Shared::new(STRIPES, 1, shutdown.waker().clone(), assembly);
        let view = shared.view();
        assert_eq!(view.sinks(), Some(Targets::ALL));
        for stripe in 0..STRIPES {
            let sources = view.sources(shared.missed.contains(stripe));
            assert_eq!(sources, Targets::without(target));
        }
        assert_eq!(shared.summary().lost, [0; 3]);
        shared.acknowledge(0, view);
        for stripe in 0..STRIPES {
            let work = shared.next_to_rebuild(Instant::now()).expect("a stripe");
            assert_eq!((work.target, work.stripe), (target, stripe));
            shared.finish_rebuild(work, Made::Half);
        }
        assert_eq!(shared.next_to_rebuild(Instant::now()), None);
        assert!(shared.is_whole());
    }
}

#[test]
fn nothing_is_rebuilt_before_every_worker_knows_who_is_back() {
    let shutdown = Shutdown::new().expect("a pipe");
    let shared = Shared::of_whole(STRIPES, 2, shutdown.waker().clone());
    shared.lose(Target::Data1, "it left");
    shared.missed.insert(1);
    let degraded = shared.view();
    shared.acknowledge(0, degraded);
    assert_eq!(
        shared.to_bring_back(),
        None,
        "worker 1 has not parted from it"
    );
    shared.acknowledge(1, degraded);
    assert_eq!(shared.to_bring_back(), Some(Target::Data1));
    shared.come_back(Target::Data1, true, true);
    let rebuilding = shared.view();
    shared.acknowledge(1, rebuilding);
    assert_eq!(
        shared.next_to_rebuild(Instant::now()),
        None,
        "worker 0 writes without it"
    );
    shared.acknowledge(0, rebuilding);
    let work = shared.next_to_rebuild(Instant::now()).expect("a stripe");
    assert_eq!((work.target, work.stripe), (Target::Data1, 1));

    // Lost again meanwhile: what was rebuilt then says nothing.
    shared.lose(Target::Data1, "again");
    shared.finish_rebuild(work, Made::Half);
    assert!(shared.missed.contains(1));
}

#[test]
fn what_was_begun_before_another_loss_says_nothing_of_the_rebuild_after_it() {
    let shutdown = Shutdown::new().expect("a pipe");
    let shared = Shared::of_whole(STRIPES, 1, shutdown.waker().clone());
    let begin = || {
        shared.lose(Target::Data1, "it left");
        shared.missed.insert(1);
        shared.acknowledge(0, shared.view());
        shared.come_back(Target::Data1, true, true);
        shared.acknowledge(0, shared.view());
        shared.next_to_rebuild(Instant::now()).expect("a stripe")
    };
    let (before, after) = (begin(), begin());
    assert_eq!((before.target, before.stripe), (after.target, after.stripe));
    // It went to the target that was lost since: the one that is back may be another, and waits for its own.
    shared.finish_rebuild(before, Made::Half);
    assert!(shared.missed.contains(1));
    assert_eq!(shared.summary().rebuilt_stripes, 0);
    shared.finish_rebuild(after, Made::Half);
    assert!(!shared.missed.contains(1));
    assert_eq!(shared.summary().rebuilt_stripes, 1);
}
