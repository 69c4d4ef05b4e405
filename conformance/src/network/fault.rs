//! The faults of a network.

use std::time::Duration;

use super::cable::Condition;

/// A fault of the network of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The cable is cut for less than the time after which a peer is given up.
    ShortCut,
    /// The cable is cut.
    Cut,
    /// Only frames towards the target are lost.
    CutToTarget,
    /// Only frames towards the service are lost.
    CutToService,
    /// Frames take 50 ms in each direction.
    Delay,
    /// One of 100 frames is lost in each direction.
    Loss,
    /// The target is killed and started again behind a cut cable: the service's connections are half open.
    TargetReplaced,
    /// The service is killed and started again behind cut cables: the targets' connections are half open.
    ServiceReplaced,
    /// The target's machine returns with another address.
    AnotherAddress,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 9] = [
        Self::ShortCut,
        Self::Cut,
        Self::Delay,
        Self::CutToTarget,
        Self::Loss,
        Self::CutToService,
        Self::TargetReplaced,
        Self::AnotherAddress,
        Self::ServiceReplaced,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ShortCut => "short_cut",
            Self::Cut => "cut",
            Self::CutToTarget => "cut_to_target",
            Self::CutToService => "cut_to_service",
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::TargetReplaced => "target_replaced",
            Self::ServiceReplaced => "service_replaced",
            Self::AnotherAddress => "another_address",
        }
    }

    /// The fault in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::ShortCut => "The cable to a target is cut for half a second.",
            Self::Cut => "The cable to a target is cut.",
            Self::CutToTarget => "Frames from the service to a target are lost.",
            Self::CutToService => "Frames from a target to the service are lost.",
            Self::Delay => "Frames between service and target take 50 ms in each direction.",
            Self::Loss => "One of 100 frames between service and target is lost.",
            Self::TargetReplaced => {
                "A target is killed and started again behind a cut cable: the service's connections are half open."
            }
            Self::ServiceReplaced => {
                "The service is killed and started again behind cut cables: the targets' connections are half open."
            }
            Self::AnotherAddress => {
                "A target's machine returns with another address; later the service is started with it."
            }
        }
    }

    /// Conditions towards the target and back while the fault lasts.
    pub(super) fn conditions(self) -> [Condition; 2] {
        match self {
            Self::CutToTarget => [Condition::CUT, Condition::GOOD],
            Self::CutToService => [Condition::GOOD, Condition::CUT],
            Self::Delay => [Condition::SLOW; 2],
            Self::Loss => [Condition::LOSSY; 2],
            Self::ShortCut
            | Self::Cut
            | Self::TargetReplaced
            | Self::ServiceReplaced
            | Self::AnotherAddress => [Condition::CUT; 2],
        }
    }

    /// Time for which it lasts. Unless it is short, peers notice a cut within 3 s.
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::ShortCut => Duration::from_millis(500),
            _ => Duration::from_secs(5),
        }
    }

    /// Returns `true` if the service has to notice that it does not reach the target, and ends the fault only then. A service that is killed
    /// notices nothing.
    pub(super) fn must_be_noticed(self) -> bool {
        !self.is_endured() && self != Self::ServiceReplaced
    }

    /// Returns `true` if no peer may be given up.
    pub(super) fn is_endured(self) -> bool {
        matches!(self, Self::ShortCut | Self::Delay | Self::Loss)
    }
}
