//! Who may end well although somebody was hit.

use wire::control::MessageType;

use super::case::{Case, Fault, Mode, Part, Phase};

impl Case {
    /// Whether `part`, which is not the victim, may end well: where its session can have come to its end by then, or goes on.
    pub(super) fn may_end_well(&self, part: Part) -> bool {
        // It stops the storage before it ends.
        let ends_in_order = self.victim == Part::Initiator && self.fault.is_request();
        ends_in_order || self.is_survived() || self.is_over_for(part)
    }

    /// Whether `part` must end well: the session goes on without the victim.
    pub(super) fn is_survived(&self) -> bool {
        self.mode == Mode::Degraded && self.phase == Phase::Io
    }

    /// Whether `part` may have done all that it has to do.
    fn is_over_for(&self, part: Part) -> bool {
        let Phase::Frame(message, _) = self.phase else {
            return false;
        };
        let is_answered = message == MessageType::ShutdownResponse;
        let is_target = matches!(self.victim, Part::Target(_));
        if message == MessageType::StopStorageResponse
            && self.fault != Fault::Kill
            && is_target
            && matches!(part, Part::Target(_))
        {
            // It has answered, and is stopped or takes its time to end: the session goes on, and the others get their shutdown.
            return true;
        }
        if self.mode == Mode::Degraded
            && matches!(
                message,
                MessageType::StartStorageRequest
                    | MessageType::StartStorageResponse
                    | MessageType::StopStorageRequest
                    | MessageType::StopStorageResponse
            )
        {
            // The target may be lost while I/Os are served, or a moment before or after.
            return true;
        }
        if !is_answered && message != MessageType::ShutdownRequest {
            return false;
        }
        match (part, self.victim) {
            // They get the request before or after, and know no more.
            (Part::Target(_), _) => true,
            (Part::Service, Part::Initiator) => true,
            // The target has done its part.
            (Part::Service | Part::Initiator, Part::Target(_)) => {
                // One that is asked to end may answer first.
                is_answered || self.fault.is_request() || self.mode == Mode::Degraded
            }
            // One that is asked to end may be done first.
            (Part::Initiator, Part::Service) => self.fault.is_request(),
            (Part::Initiator, Part::Initiator) | (Part::Service, Part::Service) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Layout;

    #[test]
    fn a_death_in_the_session_is_nobodys_good_end() {
        let case = |victim, message, fault| Case {
            layout: Layout::ZeroCopy,
            mode: Mode::Once,
            victim,
            phase: Phase::Frame(message, 0),
            fault,
        };
        let target = Part::Target(0);
        let stop = case(Part::Service, MessageType::StopStorageRequest, Fault::Kill);
        assert!(!stop.may_end_well(target) && !stop.may_end_well(Part::Initiator));
        let shutdown = case(Part::Service, MessageType::ShutdownResponse, Fault::Kill);
        assert!(shutdown.may_end_well(target) && !shutdown.may_end_well(Part::Initiator));
        let late = case(target, MessageType::ShutdownRequest, Fault::Kill);
        assert!(!late.may_end_well(Part::Service) && !late.may_end_well(Part::Initiator));
        let asked = case(
            Part::Initiator,
            MessageType::StopStorageRequest,
            Fault::Interrupt,
        );
        assert!(asked.may_end_well(Part::Service));
    }
}
