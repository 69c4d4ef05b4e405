//! Where in a session a target can go wrong.

use wire::control::{Message, MessageType};

use super::target::Reply;
use crate::role::step::Step;

/// A request to a target, and the step of the initiator that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) step: Step,
    pub(super) request: MessageType,
    /// Which of three targets goes wrong there.
    target: usize,
}

/// All requests that a target gets, in their order.
pub(super) const POINTS: [Point; 6] = [
    point(Step::Query, MessageType::QueryStorageRequest, 0),
    point(Step::Init, MessageType::InitStorageRequest, 1),
    point(Step::Init, MessageType::CreateRdmaConnectionRequest, 2),
    point(Step::Start, MessageType::StartStorageRequest, 0),
    point(Step::Stop, MessageType::StopStorageRequest, 1),
    point(Step::Shutdown, MessageType::ShutdownRequest, 2),
];

const fn point(step: Step, request: MessageType, target: usize) -> Point {
    Point {
        step,
        request,
        target,
    }
}

impl Point {
    /// Everybody is honest, but one of so many targets at this point.
    pub(super) fn wrong(
        self,
        targets: usize,
        wrong: impl Fn(&Message) -> Reply,
    ) -> impl FnMut(usize, &Message) -> Reply {
        move |index, message| {
            let is_here = message.payload.message_type() == self.request;
            if is_here && index == self.target % targets {
                wrong(message)
            } else {
                Reply::Honest
            }
        }
    }
}

/// One check for each of [`POINTS`].
macro_rules! at_each_point {
    ($prefix:literal, $meaning:literal, $play:ident) => {
        [
            at_each_point!(@one $prefix, "query", $meaning, $play::<0>),
            at_each_point!(@one $prefix, "init", $meaning, $play::<1>),
            at_each_point!(@one $prefix, "connection", $meaning, $play::<2>),
            at_each_point!(@one $prefix, "start", $meaning, $play::<3>),
            at_each_point!(@one $prefix, "stop", $meaning, $play::<4>),
            at_each_point!(@one $prefix, "shutdown", $meaning, $play::<5>),
        ]
    };
    (@one $prefix:literal, $point:literal, $meaning:literal, $play:expr) => {
        $crate::role::Check {
            name: concat!($prefix, "-", $point),
            meaning: $meaning,
            play: $play,
        }
    };
}

pub(super) use at_each_point;
