//! Services that die at any moment, with any target lost and any write in flight, on targets that are numbers: what the next one makes of
//! what the targets keep. What was acknowledged is read, and what was not is read as before, as after, or not at all.

use std::time::Instant;

use proptest::prelude::*;
use role_common::shutdown::Shutdown;
use role_common::superblock::{SetId, Superblock};
use wire::control::RecordState;

use crate::redundancy::membership::Membership;
use crate::redundancy::{Assembly, Found, Made, Shared, State, ToRebuild, View, assemble};
use crate::target::{Target, Targets};

const STRIPES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Lose(Target),
    /// A lost target comes back, with all that it had or with nothing.
    Return(Target, bool),
    Rebuild,
    /// A target keeps what it is to keep; the service learns of it or not.
    Keep(Target, bool),
    /// The service dies, when this stripe is written on these targets only; and the next one while these keep what it has them keep.
    Die(usize, Targets, Targets),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let target = || (0..3usize).prop_map(|number| Target::ALL[number]);
    let targets = || (0..8u8).prop_map(Targets::from_bits);
    let step = prop_oneof![
        6 => (0..STRIPES).prop_map(Step::Write),
        1 => target().prop_map(Step::Lose),
        2 => (target(), any::<bool>()).prop_map(|(target, kept)| Step::Return(target, kept)),
        5 => Just(Step::Rebuild),
        6 => (target(), prop::bool::weighted(0.9)).prop_map(|(target, known)| Step::Keep(target, known)),
        1 => (0..STRIPES, targets(), targets())
            .prop_map(|(stripe, stored, keeping)| Step::Die(stripe, stored, keeping)),
    ];
    proptest::collection::vec(step, 0..150)
}

/// What two halves are of: a checksum says whether they belong together.
type Halves = [u64; 2];

struct World {
    shared: Shared,
    /// What each target keeps of its set.
    kept: [Option<Superblock>; 3],
    data: [[u64; STRIPES]; 2],
    parity: [Halves; STRIPES],
    /// Of each stripe, what it may be read as: the last write that was acknowledged, and those after it.
    allowed: [Vec<u64>; STRIPES],
    /// Whether a write was interrupted when the stripe had only two halves that counted.
    may_be_torn: [bool; STRIPES],
    /// Stripes whose write waits for its acknowledgement.
    unsealed: Vec<usize>,
    writes: u64,
    /// How many halves there were that are of no write: each fits nothing.
    strange: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            shared: next_service([None; 3]),
            kept: [None; 3],
            data: Default::default(),
            parity: Default::default(),
            allowed: std::array::from_fn(|_| vec![0]),
            may_be_torn: [false; STRIPES],
            unsealed: Vec::new(),
            writes: 0,
            strange: 0,
        };
        world.keep_all(Targets::ALL);
        world
    }

    fn keep(&mut self, target: Target, is_known: bool) {
        if let Some(record) = self.shared.record_of(target) {
            self.kept[target.number()] = Some(record);
            if is_known {
                self.shared.recorded(target, record);
            }
        }
        if self.shared.is_sealed() && !self.shared.view().has_failed() {
            for stripe in std::mem::take(&mut self.unsealed) {
                let allowed = &mut self.allowed[stripe];
                allowed.drain(..allowed.len() - 1);
            }
        }
    }

    fn keep_all(&mut self, targets: Targets) {
        targets.iter().for_each(|target| self.keep(target, true));
    }

    /// A half that fits no other.
    fn strange(&mut self) -> u64 {
        self.strange += 1;
        u64::MAX - self.strange
    }

    fn store(&mut self, target: Target, stripe: usize, halves: Halves) {
        match target {
            Target::DataP => self.parity[stripe] = halves,
            data => self.data[data.number()][stripe] = halves[data.number()],
        }
    }

    fn write(&mut self, stripe: usize) {
        let view = self.shared.view();
        if self.unsealed.contains(&stripe) {
            // It is not its turn.
            return;
        }
        let Some(sinks) = view.sinks() else { return };
        self.writes += 1;
        if sinks != Targets::ALL {
            self.shared.missed.insert(stripe as u64);
        }
        let halves = [self.writes; 2];
        sinks
            .iter()
            .for_each(|target| self.store(target, stripe, halves));
        self.allowed[stripe].push(self.writes);
        self.may_be_torn[stripe] = false;
        if sinks == Targets::ALL || self.shared.is_sealed() {
            self.allowed[stripe] = vec![self.writes];
        } else {
            self.unsealed.push(stripe);
        }
    }

    /// The block without the half of this target, if the two others are of one write.
    fn without(&self, odd: Target, stripe: usize) -> Option<u64> {
        let data = [0, 1].map(|number: usize| self.data[number][stripe]);
        let parity = self.parity[stripe];
        match odd {
            Target::DataP => (data[0] == data[1]).then_some(data[0]),
            odd => {
                let other = 1 - odd.number();
                let fits = parity[other] == data[other] && parity[0] == parity[1];
                fits.then_some(data[other])
            }
        }
    }

    /// The half that does not fit the two others, which make up a block; `None` where no two do.
    fn odd(&self, stripe: usize) -> Option<Target> {
        let mut all = [Target::DataP, Target::Data1, Target::Data2].into_iter();
        all.find(|&odd| self.without(odd, stripe).is_some())
    }

    fn read(&self, stripe: usize) -> Result<(), TestCaseError> {
        let view = self.shared.view();
        let missed = self.shared.missed.contains(stripe as u64);
        let sources = view.sources(missed);
        let Some(missing) = View::missing_half(sources) else {
            prop_assert!(view.has_failed(), "nothing was read with {view:?}");
            return Ok(());
        };
        let mut value = self.without(missing.unwrap_or(Target::DataP), stripe);
        let is_unverified = self.shared.unverified.contains(stripe as u64);
        if value.is_none() && view.lost.is_empty() && (is_unverified || sources == Targets::ALL) {
            value = self.odd(stripe).and_then(|odd| self.without(odd, stripe));
        }
        match value {
            Some(value) => prop_assert!(
                self.allowed[stripe].contains(&value),
                "stripe {stripe} is read as {value}, expected one of {:?}",
                self.allowed[stripe]
            ),
            None => prop_assert!(self.may_be_torn[stripe], "stripe {stripe} is not read"),
        }
        Ok(())
    }

    fn make(&self, work: ToRebuild) -> (Made, Option<Target>) {
        let stripe = work.stripe as usize;
        let wanted = work.stale.unwrap_or(Target::DataP);
        let odd = match work.is_doubtful {
            false => Some(wanted),
            true => self.odd(stripe).or(work.stale),
        };
        match odd {
            None => (Made::Unreadable, None),
            Some(odd) => (Made::Half, Some(odd)),
        }
    }

    fn rebuild(&mut self) {
        let far = Instant::now() + std::time::Duration::from_secs(600);
        let Some(work) = self.shared.next_to_rebuild(far) else {
            return;
        };
        let stripe = work.stripe as usize;
        let (made, odd) = self.make(work);
        if let Some(odd) = odd {
            let data = [0, 1].map(|number: usize| self.data[number][stripe]);
            let parity = self.parity[stripe];
            match odd {
                Target::DataP => self.parity[stripe] = data,
                // Of halves that do not fit comes something that fits nothing.
                odd => {
                    let other = 1 - odd.number();
                    let fits = parity[other] == data[other];
                    let made = if fits {
                        parity[odd.number()]
                    } else {
                        self.strange()
                    };
                    self.data[odd.number()][stripe] = made;
                }
            }
        }
        self.shared.finish_rebuild(work, made);
    }

    fn die(&mut self, stripe: usize, stored: Targets, keeping: Targets) {
        let view = self.shared.view();
        if let Some(sinks) = view.sinks().filter(|_| !self.unsealed.contains(&stripe)) {
            self.writes += 1;
            let halves = [self.writes; 2];
            let stored = sinks.intersection(stored);
            stored
                .iter()
                .for_each(|target| self.store(target, stripe, halves));
            self.allowed[stripe].push(self.writes);
            // With three that fit each other, at least two are old, or new.
            let is_whole =
                self.shared.is_whole() && !self.shared.unverified.contains(stripe as u64);
            self.may_be_torn[stripe] |= !is_whole && !stored.is_empty() && stored != sinks;
        }
        self.unsealed.clear();
        self.shared = next_service(self.kept);
        self.keep_all(keeping);
        if keeping != Targets::ALL {
            self.shared = next_service(self.kept);
            self.keep_all(Targets::ALL);
        }
    }

    fn lose(&mut self, target: Target) {
        self.shared.lose(target, "it left");
        for stripe in 0..STRIPES {
            // Nobody has looked yet whether its halves fit, and now one of them is gone.
            let all = Target::ALL.map(|odd| self.without(odd, stripe));
            let fits = all[0] == all[1] && all[1] == all[2];
            self.may_be_torn[stripe] |= !fits && self.shared.unverified.contains(stripe as u64);
        }
    }

    fn come_back(&mut self, target: Target, has_kept: bool) {
        if self.shared.to_bring_back() != Some(target) {
            return;
        }
        if !has_kept {
            for stripe in 0..STRIPES {
                let strange = self.strange();
                self.store(target, stripe, [strange; 2]);
            }
            self.kept[target.number()] = None;
        }
        self.shared.come_back(target, has_kept, true);
    }

    fn step(&mut self, step: &Step) {
        self.shared.acknowledge(0, self.shared.view());
        match *step {
            Step::Write(stripe) => self.write(stripe),
            Step::Lose(target) => self.lose(target),
            Step::Return(target, has_kept) => self.come_back(target, has_kept),
            Step::Rebuild => self.rebuild(),
            Step::Keep(target, is_known) => self.keep(target, is_known),
            Step::Die(stripe, stored, keeping) => self.die(stripe, stored, keeping),
        }
    }
}

/// A service that begins with what the targets keep.
fn next_service(kept: [Option<Superblock>; 3]) -> Shared {
    let shutdown = Shutdown::new().expect("a pipe");
    let found = kept.map(|record| record.map_or(Found::Blank, Found::Record));
    let assembly = assemble(found, None, None).unwrap_or_else(|refused| panic!("{refused}"));
    let shared = Shared::new(STRIPES as u64, 1, shutdown.waker().clone(), assembly);
    shared.acknowledge(0, shared.view());
    shared
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_was_acknowledged_is_read(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            (0..STRIPES).try_for_each(|stripe| world.read(stripe))?;
        }
        // Whatever is to be done comes to an end, and then any two of the targets have all of it.
        for _ in 0..10 * STRIPES {
            world.step(&Step::Rebuild);
            world.keep_all(Targets::ALL);
        }
        if world.shared.state() == State::Healthy {
            prop_assert!(!world.shared.verifies());
            for stripe in 0..STRIPES {
                world.read(stripe)?;
                let all = Target::ALL.map(|odd| world.without(odd, stripe));
                prop_assert!(all[0] == all[1] && all[1] == all[2], "{all:?}");
            }
        }
    }
}

#[test]
fn an_empty_target_that_leaves_before_it_is_whole_leaves_two_that_are() {
    let mut world = World::new();
    let mut steps = vec![Step::Lose(Target::DataP)];
    steps.extend([Target::Data1, Target::Data2].map(|target| Step::Keep(target, true)));
    steps.extend([Step::Write(0), Step::Return(Target::DataP, false)]);
    steps.push(Step::Keep(Target::DataP, true));
    // It is whole, but does not keep that it is.
    steps.extend(std::iter::repeat_n(Step::Rebuild, 2 * STRIPES));
    steps.extend([Step::Lose(Target::DataP), Step::Keep(Target::Data1, true)]);
    steps.push(Step::Die(1, Targets::NONE, Targets::NONE));
    for step in &steps {
        world.step(step);
    }
    world.read(0).expect("two targets have it");
}

/// A service of these, that has begun.
fn service(stale: Option<Target>, is_unclean: bool) -> Shared {
    let members = stale.map_or(Targets::ALL, Targets::without);
    let shutdown = Shutdown::new().expect("a pipe");
    let assembly = Assembly {
        membership: Some(Membership::new(SetId(5), 3, members, Targets::ALL)),
        stale,
        is_unclean,
    };
    let shared = Shared::new(STRIPES as u64, 1, shutdown.waker().clone(), assembly);
    shared.acknowledge(0, shared.view());
    shared
}

/// The target keeps what it is to keep.
fn keep(shared: &Shared, target: Target) -> Superblock {
    let record = shared.record_of(target).expect("it is there");
    shared.recorded(target, record);
    record
}

#[test]
fn a_write_that_a_lost_target_misses_counts_when_both_others_keep_that() {
    for lost in Target::ALL {
        let shared = service(None, false);
        for target in Target::ALL {
            assert!(
                !shared.is_sealed(),
                "not before all keep that they are used"
            );
            keep(&shared, target);
        }
        assert!(shared.is_sealed());
        let before = shared.record_of(lost).expect("it is there");
        shared.lose(lost, "it left");
        assert_eq!(shared.record_of(lost), None, "nobody can tell it");
        for target in Targets::without(lost).iter() {
            assert!(!shared.is_sealed(), "not before {target:?} keeps it");
            let record = keep(&shared, target);
            assert_eq!(
                record.epoch.number,
                before.epoch.number + 1,
                "it knows that one is lost"
            );
            assert_eq!(record.state, RecordState::InUse);
        }
        assert!(shared.is_sealed());
    }
}

#[test]
fn an_end_is_good_when_all_is_looked_at_and_nothing_is_missed() {
    let state = |shared: &Shared| {
        shared.conclude();
        keep(shared, Target::DataP).state
    };
    let all = |shared: &Shared| Target::ALL.map(|target| keep(shared, target));
    let shared = service(None, false);
    all(&shared);
    assert_eq!(state(&shared), RecordState::Clean);

    let shared = service(None, true);
    all(&shared);
    for _ in 0..STRIPES {
        assert_eq!(state(&shared), RecordState::InUse, "not all is looked at");
        let work = shared.next_to_rebuild(Instant::now()).expect("a stripe");
        shared.finish_rebuild(work, Made::Fits);
    }
    assert_eq!(shared.next_to_rebuild(Instant::now()), None);
    assert_eq!(state(&shared), RecordState::Clean);

    let shared = service(Some(Target::Data1), false);
    all(&shared);
    for _ in 0..STRIPES {
        assert_eq!(state(&shared), RecordState::InUse, "not all is rebuilt");
        let work = shared.next_to_rebuild(Instant::now()).expect("a stripe");
        shared.finish_rebuild(work, Made::Half);
    }
    assert_eq!(shared.next_to_rebuild(Instant::now()), None);
    assert_eq!(state(&shared), RecordState::InUse, "it does not know yet");
    all(&shared);
    assert_eq!(shared.next_to_rebuild(Instant::now()), None);
    assert_eq!(state(&shared), RecordState::Clean);
}
