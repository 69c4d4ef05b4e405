//! What is done to whom, and when: from a seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

use crate::matrix::Layout;

/// Who is hurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// The initiator, which is the load.
    Load,
    /// The service.
    Service,
    /// One of the targets, or the connection to it.
    Target,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing: a session as it should be.
    None,
    /// SIGKILL.
    Kill,
    /// SIGSTOP, until the others have given it up; then SIGCONT.
    Stop,
    /// SIGSTOP until the others have given it up; then SIGKILL.
    StopAndKill,
    /// SIGSTOP for so short a time that nobody may give it up.
    Delay,
    /// SIGTERM.
    Terminate,
    /// SIGINT, as of Ctrl-C.
    Interrupt,
    /// The control connection between service and target is closed.
    Close,
    /// It is reset.
    Reset,
    /// Bytes in this connection that nobody sent, for the victim.
    GarbageFrame,
    /// A stranger connects to the victim and sends bytes that are no request.
    Stranger,
    /// The load says something wrong on its control channel.
    GarbageControl,
    /// One of eight of the load's messages is no proper I/O.
    GarbageIo,
}

/// When it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// While the load connects, and the session is made.
    SetUp,
    /// While I/Os are under way.
    Io,
    /// The same, with one target lost.
    Degraded,
    /// The same, while a target is rebuilt.
    Rebuilding,
    /// While the load reads all back and ends the session.
    End,
}

/// A kind of fault: what the table has a row for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Blow {
    /// Whom.
    pub victim: Victim,
    /// What.
    pub fault: Fault,
    /// When.
    pub phase: Phase,
}

/// What has to become of the load's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// It goes on, and none of its I/Os fails.
    Survives,
    /// It may break, but until then none of its I/Os fails.
    MayBreak,
    /// It may break, and its I/Os may fail. Nothing may be lost all the same.
    MayFail,
}

/// One round: a session of the load, and what is done to whom meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Round {
    /// Its number, from 1.
    pub number: u64,
    /// What.
    #[serde(flatten)]
    pub blow: Blow,
    /// Which target, where it is about one.
    pub target: usize,
    /// The target that is lost before, in the phases that need one.
    pub lost_before: usize,
    /// Time between the beginning of the phase and the fault.
    pub delay: Duration,
    /// How long a delay is.
    pub pause: Duration,
    /// How long the load goes on afterwards.
    pub linger: Duration,
    /// What garbage is made from.
    pub noise: u64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, blow, .. } = self;
        write!(f, "round {number}: {blow}")?;
        match blow.victim {
            Victim::Target => write!(f, " {}", self.target)?,
            Victim::Load | Victim::Service => {}
        }
        write!(f, ", after {:?}", self.delay)
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            victim,
            fault,
            phase,
        } = self;
        write!(f, "{}, {}, {}", fault.name(), victim.name(), phase.name())
    }
}

impl Victim {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "initiator",
            Self::Service => "service",
            Self::Target => "target",
        }
    }
}

impl Fault {
    /// Whether it is done to the connection between service and target.
    pub(super) fn is_of_connection(self) -> bool {
        matches!(self, Self::Close | Self::Reset | Self::GarbageFrame)
    }

    /// Each with its name for tables, and with whom it is done to while I/Os are under way.
    const ALL: [(Self, &str, &[Victim]); 13] = {
        use Victim::{Load, Service, Target};
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
            (Self::Stranger, "stranger", &[Service, Target]),
            (Self::GarbageControl, "garbage control", &[Load]),
            (Self::GarbageIo, "garbage I/O", &[Load]),
            (Self::None, "none", &[Load]),
        ]
    };

    /// For tables.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(fault, ..)| *fault == self);
        known.map_or("unknown", |(_, name, _)| name)
    }
}

impl Phase {
    /// For tables.
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

impl Blow {
    /// All that there are in a deployment.
    pub fn all(layout: Layout) -> Vec<Self> {
        use Fault::{Close, Delay, GarbageIo, Kill, Reset, Stop, Terminate};
        use Phase::{Degraded, End, Io, Rebuilding, SetUp};
        // In the other phases, what differs there from I/O as it is.
        let of_others = [Kill, Terminate, Delay];
        let mut all = Vec::new();
        let mut add = |victim, faults: &[Fault], phase| {
            all.extend(faults.iter().map(|&fault| Self {
                victim,
                fault,
                phase,
            }));
        };
        for victim in [Victim::Load, Victim::Service, Victim::Target] {
            let its = Fault::ALL.iter().filter(|(.., of)| of.contains(&victim));
            let its: Vec<Fault> = its.map(|(fault, ..)| *fault).collect();
            add(victim, &its, Io);
        }
        for phase in [SetUp, End] {
            add(Victim::Load, &[Kill], phase);
            add(Victim::Service, &of_others, phase);
            add(Victim::Target, &of_others, phase);
            add(Victim::Target, &[Close, Reset], phase);
        }
        if layout == Layout::Gga {
            for phase in [Degraded, Rebuilding] {
                add(Victim::Load, &[Kill, GarbageIo], phase);
                add(Victim::Service, &of_others, phase);
                add(Victim::Target, &[Kill, Stop, Delay, Reset], phase);
            }
        }
        all
    }

    /// What has to become of the session.
    pub fn expectation(self, layout: Layout) -> Expectation {
        use Fault::{Delay, GarbageIo, Interrupt, None, Stranger, Terminate};
        match (self.fault, self.victim, self.phase) {
            (None | Delay | Stranger | GarbageIo, _, _) => Expectation::Survives,
            // The load is asked to end, which it does in order.
            (Terminate, Victim::Load, _) => Expectation::Survives,
            (_, Victim::Target, Phase::Io) if layout == Layout::Gga => Expectation::Survives,
            // Two targets are too many.
            (_, Victim::Target, _) => Expectation::MayFail,
            (Terminate | Interrupt, Victim::Service, _) => Expectation::MayFail,
            _ if layout == Layout::ZeroCopy => Expectation::MayFail,
            _ => Expectation::MayBreak,
        }
    }
}

/// Rounds of one deployment: every kind of fault in a random order, again and again.
#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    layout: Layout,
    deck: Vec<Blow>,
    only: Vec<Blow>,
    rounds: u64,
}

impl Plan {
    /// The rounds that this seed gives; the same for the same seed. Only of those kinds of faults whose description contains
    /// one of `only`, if there are any.
    pub fn new(seed: u64, layout: Layout, only: &[String]) -> Self {
        let chosen = |blow: &Blow| {
            let text = blow.to_string();
            only.is_empty() || only.iter().any(|part| text.contains(part.as_str()))
        };
        Self {
            rng: Rng::with_seed(seed ^ layout.targets().len() as u64),
            layout,
            deck: Vec::new(),
            only: Blow::all(layout).into_iter().filter(chosen).collect(),
            rounds: 0,
        }
    }

    /// The kinds of faults that it has.
    pub fn blows(&self) -> &[Blow] {
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
        let blow = self.deck.pop()?;
        self.rounds += 1;
        let rng = &mut self.rng;
        let targets = self.layout.targets().len();
        let mut up_to = |milliseconds| Duration::from_millis(rng.u64(..milliseconds));
        let delay = match blow.phase {
            Phase::SetUp => up_to(120),
            Phase::Io => up_to(600),
            Phase::Degraded => up_to(300),
            Phase::Rebuilding | Phase::End => up_to(40),
        };
        let (pause, linger) = (up_to(400), up_to(500));
        let target = rng.usize(..targets);
        Some(Round {
            number: self.rounds,
            blow,
            target,
            // The same one, or another: both are different cases.
            lost_before: rng.usize(..targets),
            delay,
            pause,
            linger,
            noise: rng.u64(..),
        })
    }
}

#[cfg(test)]
mod tests;
