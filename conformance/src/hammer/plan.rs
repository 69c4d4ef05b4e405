//! The plan: faults, roles and times, derived from a seed.

use std::fmt;
use std::time::Duration;

use deployment::Part;
use fastrand::Rng;
use serde::Serialize;

use crate::matrix::Layout;
use crate::network::Condition;

/// Role that a fault is injected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultyRole {
    /// The initiator, which is the load.
    Load,
    Service,
    /// One of the targets, or the connection to it.
    Target,
    /// The NBD server, with [`LoadKind::Nbd`].
    FrontEnd,
}

impl FaultyRole {
    /// The faulty part of the deployment; `None` for the load, which is not a part of it. `target` is the number of the
    /// faulty target.
    pub(super) fn part(self, target: usize) -> Option<Part> {
        match self {
            Self::Load => None,
            Self::Service => Some(Part::Service),
            Self::Target => Some(Part::Target(target)),
            Self::FrontEnd => Some(Part::FrontEnd),
        }
    }
}

/// Kind of load during the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// The initiator of a service.
    Initiator,
    /// Clients of an NBD server for a service.
    Nbd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No fault: a regular session.
    None,
    /// SIGKILL.
    Kill,
    /// SIGSTOP until the other roles have ended the session; then SIGCONT.
    Stop,
    /// SIGSTOP until the other roles have ended the session; then SIGKILL.
    StopAndKill,
    /// SIGSTOP for less than every timeout.
    Delay,
    /// SIGTERM.
    Terminate,
    /// SIGINT, as of Ctrl-C.
    Interrupt,
    /// The control connection between service and target is closed.
    Close,
    /// The control connection between service and target is reset.
    Reset,
    /// Random bytes are sent to the role on this connection.
    GarbageFrame,
    /// A second client connects to the role and sends malformed requests.
    Intruder,
    /// The load sends malformed messages on its control channel.
    GarbageControl,
    /// One in eight of the load's messages is an invalid I/O.
    GarbageIo,
    /// The link to a target is cut until the service has detached the target.
    Cut,
    /// As `Cut`, for frames to the target only.
    CutToTarget,
    /// As `Cut`, for frames from the target only.
    CutToService,
    /// The link is cut for less than every timeout.
    ShortCut,
    /// Frames take 50 ms in each direction.
    SlowLink,
    /// Frames are lost in each direction, 1 in 100.
    LossyLink,
}

/// Phase of a session in which a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// While the load connects, and the session is set up.
    SetUp,
    Io,
    /// During I/O, with one target detached.
    Degraded,
    /// During I/O, while a target is rebuilt.
    Rebuilding,
    /// While the load reads all blocks back and ends the session.
    End,
}

/// A kind of fault, with one row in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Injection {
    /// Role that the fault is injected into.
    #[serde(rename = "role")]
    pub faulty: FaultyRole,
    pub fault: Fault,
    /// Phase in which the fault is injected.
    pub phase: Phase,
}

/// Expected effect on the load's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// The session continues, and none of its I/Os fails.
    Survives,
    /// The session may break, but before that none of its I/Os fails.
    MayBreak,
    /// The session may break, and its I/Os may fail. Acknowledged data must not be lost.
    MayFail,
}

/// One round: a session of the load with one fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Round {
    /// Number of the round, from 1.
    pub number: u64,
    #[serde(flatten)]
    pub injection: Injection,
    /// Index of the affected target, if the fault has one.
    pub target: usize,
    /// Index of the target that is detached first, in the phases that require that.
    pub lost_before: usize,
    /// Time from the beginning of the phase to the fault.
    pub delay: Duration,
    /// Duration of a SIGSTOP or a cut that ends by itself.
    pub pause: Duration,
    /// Time for which the load continues after the fault.
    pub linger: Duration,
    /// Seed of random bytes.
    pub noise: u64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number, injection, ..
        } = self;
        write!(f, "round {number}: {injection}")?;
        match injection.faulty {
            FaultyRole::Target => write!(f, " {}", self.target)?,
            FaultyRole::Load | FaultyRole::Service | FaultyRole::FrontEnd => {}
        }
        write!(f, ", after {:?}", self.delay)
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            faulty,
            fault,
            phase,
        } = self;
        write!(f, "{}, {}, {}", fault.name(), faulty.name(), phase.name())
    }
}

impl FaultyRole {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "initiator",
            Self::Service => "service",
            Self::Target => "target",
            Self::FrontEnd => "front end",
        }
    }
}

impl Fault {
    /// Returns `true` if it affects the connection between service and target.
    pub(super) fn is_of_connection(self) -> bool {
        matches!(self, Self::Close | Self::Reset | Self::GarbageFrame)
    }

    /// All kinds, with their names in tables and the roles into which they are injected during I/O.
    const ALL: [(Self, &str, &[FaultyRole]); 19] = {
        use FaultyRole::{Load, Service, Target};
        [
            (Self::Kill, "kill", &[Load, Service, Target]),
            (Self::Stop, "stop, continue", &[Service, Target]),
            (Self::StopAndKill, "stop, kill", &[Load, Service, Target]),
            (Self::Delay, "delay", &[Load, Service, Target]),
            (Self::Terminate, "SIGTERM", &[Load, Service, Target]),
            (Self::Interrupt, "SIGINT", &[Service, Target]),
            (Self::Close, "close connection", &[Target]),
            (Self::Reset, "reset connection", &[Target]),
            (Self::GarbageFrame, "garbage frame", &[Service, Target]),
            (Self::Intruder, "intruder", &[Service, Target]),
            (Self::GarbageControl, "garbage control", &[Load]),
            (Self::GarbageIo, "garbage I/O", &[Load]),
            (Self::None, "none", &[Load]),
            // For deployments on several machines.
            (Self::Cut, "cut link", &[]),
            (Self::CutToTarget, "cut to target", &[]),
            (Self::CutToService, "cut to service", &[]),
            (Self::ShortCut, "short cut", &[]),
            (Self::SlowLink, "slow link", &[]),
            (Self::LossyLink, "lossy link", &[]),
        ]
    };

    /// Returns `true` for a cut that the service must detect.
    pub(super) fn is_long_cut(self) -> bool {
        matches!(self, Self::Cut | Self::CutToTarget | Self::CutToService)
    }

    /// Conditions of the link to the target and back, if it is a network fault.
    pub(super) fn conditions(self) -> Option<[Condition; 2]> {
        let both = |condition| Some([condition; 2]);
        match self {
            Self::Cut | Self::ShortCut => both(Condition::CUT),
            Self::CutToTarget => Some([Condition::CUT, Condition::GOOD]),
            Self::CutToService => Some([Condition::GOOD, Condition::CUT]),
            Self::SlowLink => both(Condition::SLOW),
            Self::LossyLink => both(Condition::LOSSY),
            _ => None,
        }
    }

    /// Name in tables.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(fault, ..)| *fault == self);
        known.map_or("unknown", |(_, name, _)| name)
    }
}

impl Phase {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Io => "I/O",
            Self::Degraded => "degraded",
            Self::Rebuilding => "rebuilding",
            Self::End => "end",
        }
    }
}

impl Injection {
    /// All kinds of faults in a deployment.
    pub fn all(layout: Layout) -> Vec<Self> {
        use Fault::{Close, Delay, GarbageIo, Kill, Reset, Stop, Terminate};
        use Phase::{Degraded, End, Io, Rebuilding, SetUp};
        // In the other phases, only faults that are handled differently there.
        let of_others = [Kill, Terminate, Delay];
        let mut all = Vec::new();
        let mut add = |faulty, faults: &[Fault], phase| {
            all.extend(faults.iter().map(|&fault| Self {
                faulty,
                fault,
                phase,
            }));
        };
        for faulty in [FaultyRole::Load, FaultyRole::Service, FaultyRole::Target] {
            let its = Fault::ALL.iter().filter(|(.., of)| of.contains(&faulty));
            let its: Vec<Fault> = its.map(|(fault, ..)| *fault).collect();
            add(faulty, &its, Io);
        }
        for phase in [SetUp, End] {
            add(FaultyRole::Load, &[Kill], phase);
            add(FaultyRole::Service, &of_others, phase);
            add(FaultyRole::Target, &of_others, phase);
            add(FaultyRole::Target, &[Close, Reset], phase);
        }
        if layout == Layout::Gga {
            for phase in [Degraded, Rebuilding] {
                add(FaultyRole::Load, &[Kill, GarbageIo], phase);
                add(FaultyRole::Service, &of_others, phase);
                add(FaultyRole::Target, &[Kill, Stop, Delay, Reset], phase);
            }
        }
        all
    }

    /// All kinds of faults in a deployment below an NBD server. At most one target of gga is offline at a time.
    pub fn all_below_front_end(layout: Layout) -> Vec<Self> {
        use Fault::{Delay, Kill, None, Terminate};
        use Phase::{Degraded, Io, Rebuilding};
        let mut all = Vec::new();
        let mut add = |faulty, faults: &[Fault], phase| {
            all.extend(faults.iter().map(|&fault| Self {
                faulty,
                fault,
                phase,
            }));
        };
        add(FaultyRole::Load, &[None], Io);
        add(FaultyRole::FrontEnd, &[Kill, Terminate, Delay], Io);
        add(FaultyRole::Service, &[Kill, Delay], Io);
        match layout {
            // The service fails I/Os while its only target is offline.
            Layout::ZeroCopy => add(FaultyRole::Target, &[Delay], Io),
            Layout::Gga => {
                add(FaultyRole::Target, &[Kill, Terminate, Delay], Io);
                for phase in [Degraded, Rebuilding] {
                    add(FaultyRole::Load, &[None], phase);
                    add(FaultyRole::FrontEnd, &[Kill], phase);
                    add(FaultyRole::Service, &[Kill, Delay], phase);
                }
            }
        }
        all
    }

    /// All kinds of faults in a deployment on several machines: those of processes, and of the links between them.
    /// Connection faults are excluded, because the hammer has no relay between machines.
    pub fn all_over_network(layout: Layout) -> Vec<Self> {
        use Fault::{Cut, CutToService, CutToTarget, LossyLink, ShortCut, SlowLink};
        let mut all = Self::all(layout);
        all.retain(|injection| {
            let is_of_port =
                injection.fault == Fault::Intruder && injection.faulty == FaultyRole::Target;
            !injection.fault.is_of_connection() && !is_of_port
        });
        let mut add = |faults: &[Fault], phase| {
            all.extend(faults.iter().map(|&fault| Self {
                faulty: FaultyRole::Target,
                fault,
                phase,
            }));
        };
        add(
            &[
                Cut,
                CutToTarget,
                CutToService,
                ShortCut,
                SlowLink,
                LossyLink,
            ],
            Phase::Io,
        );
        add(&[ShortCut], Phase::SetUp);
        add(&[ShortCut], Phase::End);
        if layout == Layout::Gga {
            add(&[Cut, ShortCut, SlowLink], Phase::Degraded);
            add(&[Cut, ShortCut, SlowLink], Phase::Rebuilding);
        }
        all
    }

    /// Expected effect on the session.
    pub fn expectation(self, layout: Layout) -> Expectation {
        use Fault::{Delay, GarbageIo, Interrupt, Intruder, None, Terminate};
        use Fault::{LossyLink, ShortCut, SlowLink};
        match (self.fault, self.faulty, self.phase) {
            (None | Delay | Intruder | GarbageIo, _, _) => Expectation::Survives,
            (ShortCut | SlowLink | LossyLink, _, _) => Expectation::Survives,
            // The load is asked to exit, and ends its session cleanly.
            (Terminate, FaultyRole::Load, _) => Expectation::Survives,
            (_, FaultyRole::Target, Phase::Io) if layout == Layout::Gga => Expectation::Survives,
            // Two targets are offline.
            (_, FaultyRole::Target, _) => Expectation::MayFail,
            (Terminate | Interrupt, FaultyRole::Service, _) => Expectation::MayFail,
            _ if layout == Layout::ZeroCopy => Expectation::MayFail,
            _ => Expectation::MayBreak,
        }
    }
}

/// The rounds of one deployment: every kind of fault in random order, repeatedly.
#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    layout: Layout,
    deck: Vec<Injection>,
    only: Vec<Injection>,
    rounds: u64,
}

impl Plan {
    /// Creates the rounds for a seed. If `only` is not empty, it selects the kinds whose description contains one of its entries.
    pub fn new(seed: u64, layout: Layout, only: &[String]) -> Self {
        Self::of_load(LoadKind::Initiator, seed, layout, only)
    }

    /// As [`Plan::new`], for any load.
    pub fn of_load(load: LoadKind, seed: u64, layout: Layout, only: &[String]) -> Self {
        let all = match load {
            LoadKind::Initiator => Injection::all(layout),
            LoadKind::Nbd => Injection::all_below_front_end(layout),
        };
        Self::of(all, seed, layout, only)
    }

    /// As [`Plan::new`], for a deployment on several machines.
    pub fn over_network(seed: u64, layout: Layout, only: &[String]) -> Self {
        Self::of(Injection::all_over_network(layout), seed, layout, only)
    }

    fn of(all: Vec<Injection>, seed: u64, layout: Layout, only: &[String]) -> Self {
        let chosen = |injection: &Injection| {
            let text = injection.to_string();
            only.is_empty() || only.iter().any(|part| text.contains(part.as_str()))
        };
        Self {
            rng: Rng::with_seed(seed ^ layout.targets().len() as u64),
            layout,
            deck: Vec::new(),
            only: all.into_iter().filter(chosen).collect(),
            rounds: 0,
        }
    }

    /// Kinds of faults in the plan.
    pub fn injections(&self) -> &[Injection] {
        &self.only
    }
}

impl Iterator for Plan {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.only);
            self.rng.shuffle(&mut self.deck);
        }
        let injection = self.deck.pop()?;
        self.rounds += 1;
        let rng = &mut self.rng;
        let targets = self.layout.targets().len();
        let mut up_to = |milliseconds| Duration::from_millis(rng.u64(..milliseconds));
        let delay = match injection.phase {
            Phase::SetUp => up_to(120),
            Phase::Io => up_to(600),
            Phase::Degraded => up_to(300),
            Phase::Rebuilding | Phase::End => up_to(40),
        };
        let (pause, linger) = (up_to(400), up_to(500));
        let target = rng.usize(..targets);
        Some(Round {
            number: self.rounds,
            injection,
            target,
            // The same target or another one: these are distinct cases.
            lost_before: rng.usize(..targets),
            delay,
            pause,
            linger,
            noise: rng.u64(..),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seed: u64, layout: Layout) -> Vec<Round> {
        Plan::new(seed, layout, &[]).take(200).collect()
    }

    #[test]
    fn plan_is_determined_by_the_seed() {
        assert_eq!(rounds(1, Layout::Gga), rounds(1, Layout::Gga));
        let order = |seed| {
            let rounds = rounds(seed, Layout::Gga).into_iter();
            rounds.map(|round| round.injection).collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn every_kind_of_fault_occurs_before_one_repeats() {
        for layout in Layout::ALL {
            let all = Injection::all(layout);
            let mut injections: Vec<Injection> = Plan::new(3, layout, &[])
                .take(all.len())
                .map(|round| round.injection)
                .collect();
            injections.sort_unstable();
            let mut expected = all;
            expected.sort_unstable();
            assert_eq!(injections, expected);
            assert!(injections.is_sorted_by(|a, b| a < b), "none is there twice");
        }
    }

    #[test]
    fn faults_below_a_front_end_leave_two_targets_of_gga() {
        let blows = Injection::all_below_front_end(Layout::Gga);
        assert!(
            blows
                .iter()
                .any(|injection| injection.faulty == FaultyRole::FrontEnd)
        );
        let of_target = |injection: &&Injection| injection.faulty == FaultyRole::Target;
        let mut phases = blows
            .iter()
            .filter(of_target)
            .map(|injection| injection.phase);
        assert!(phases.all(|phase| phase == Phase::Io));
    }

    #[test]
    fn kinds_of_faults_can_be_selected() {
        let only = ["kill, target".to_owned()];
        let plan = Plan::new(3, Layout::Gga, &only);
        assert_eq!(plan.injections().len(), 6, "{:?}", plan.injections());
        let nothing = ["nothing".to_owned()];
        assert_eq!(Plan::new(3, Layout::Gga, &nothing).next(), None);
    }

    #[test]
    fn gga_must_survive_the_loss_of_one_target() {
        let injection = Injection {
            faulty: FaultyRole::Target,
            fault: Fault::Kill,
            phase: Phase::Io,
        };
        assert_eq!(injection.expectation(Layout::Gga), Expectation::Survives);
        assert_eq!(
            injection.expectation(Layout::ZeroCopy),
            Expectation::MayFail
        );
        let second = Injection {
            phase: Phase::Degraded,
            ..injection
        };
        assert_eq!(second.expectation(Layout::Gga), Expectation::MayFail);
    }

    #[test]
    fn link_faults_are_planned_for_several_machines_only() {
        let is_of_link = |injection: &Injection| injection.fault.conditions().is_some();
        for layout in Layout::ALL {
            assert!(!Injection::all(layout).iter().any(is_of_link));
            let all = Injection::all_over_network(layout);
            assert!(all.iter().filter(|injection| is_of_link(injection)).count() >= 8);
            let of_relay = all
                .iter()
                .filter(|injection| injection.fault.is_of_connection());
            assert_eq!(
                of_relay.count(),
                0,
                "there is no relay between the machines"
            );
            let cut = Injection {
                faulty: FaultyRole::Target,
                fault: Fault::Cut,
                phase: Phase::Io,
            };
            let expected = match layout {
                Layout::Gga => Expectation::Survives,
                Layout::ZeroCopy => Expectation::MayFail,
            };
            assert_eq!(cut.expectation(layout), expected);
        }
    }
}
