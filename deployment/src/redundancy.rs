//! State of the targets of a gga deployment, according to the log of its service.

use std::collections::BTreeMap;

use crate::log::{self, LogEvent};

/// State of a target that is not up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stale {
    Offline,
    Rebuilding,
}

/// Redundancy of a set of targets in the current session of a service. It is computed anew for each session, because a
/// session may end before a rebuild or resync is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// `true` if the session has reported a state.
    is_known: bool,
    /// Targets that are not up to date, by index.
    stale: BTreeMap<usize, Stale>,
    is_resyncing: bool,
}

impl Redundancy {
    /// Parses the log of a service with these targets. A single target is never stale.
    pub fn of_log(log: &str, targets: &[&str]) -> Self {
        let mut state = Self {
            is_known: targets.len() == 1,
            ..Self::default()
        };
        if state.is_known {
            return state;
        }
        state.follow(log, targets);
        state
    }

    /// Continues with further whole lines of the log.
    pub fn follow(&mut self, log: &str, targets: &[&str]) {
        for event in log::events(log) {
            self.update(event, targets);
        }
    }

    /// Returns `true` once a session has reported a state.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    fn update(&mut self, event: LogEvent<'_>, targets: &[&str]) {
        let mut report = |name: &str, stale: Option<Stale>| {
            let Some(index) = targets.iter().position(|target| *target == name) else {
                return;
            };
            match stale {
                Some(stale) => self.stale.insert(index, stale),
                None => self.stale.remove(&index),
            };
        };
        match event {
            LogEvent::TargetDetached(name)
            | LogEvent::SetFailed(name)
            | LogEvent::TargetMissing(name) => report(name, Some(Stale::Offline)),
            LogEvent::RebuildStarted { target, .. } => report(target, Some(Stale::Rebuilding)),
            LogEvent::TargetUpToDate(name) | LogEvent::TargetRestored(name) => report(name, None),
            LogEvent::AllUpToDate => self.stale.clear(),
            LogEvent::ResyncStarted { .. } => self.is_resyncing = true,
            LogEvent::ResyncCompleted => self.is_resyncing = false,
            LogEvent::WaitingForInitiator => {
                *self = Self::default();
                return;
            }
            _ => return,
        }
        self.is_known = true;
    }

    /// Returns `true` if all targets are up to date, and no resync is in progress.
    pub fn is_complete(&self) -> bool {
        self.is_known && !self.is_resyncing && self.stale.is_empty()
    }

    /// Returns `true` if a target is offline or being rebuilt.
    pub fn lacks(&self, target: usize) -> bool {
        self.stale.contains_key(&target)
    }

    /// Returns `true` if a target is detached or missing.
    pub fn is_offline(&self, target: usize) -> bool {
        self.stale.get(&target) == Some(&Stale::Offline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [&str; 3] = ["data_1", "data_2", "data_p"];
    const CURRENT: &str = "INFO all storage targets are up to date\n";
    const LOST: &str = "WARN detached storage target data_2, going on without it: reset\n";
    const MISSING: &str = "WARN storage target data_2 is missing: starting without it\n";
    const BACK: &str =
        "INFO storage target data_2 is online: rebuilding 3 stripes, those that it has missed\n";
    const REBUILT: &str = "INFO storage target data_2 is up to date: 3 stripes rebuilt in 1ms\n";
    const UNCLEAN: &str =
        "INFO the set was not shut down cleanly: settling 64 blocks that were written last\n";
    const RESYNCED: &str =
        "INFO resync completed: 64 stripes settled in 1ms, 3 rewritten, 0 lost\n";
    const NEXT: &str = "waiting for the initiator on Comch \"name\"\n";
    const SECOND: &str = "ERROR detached storage target data_p, with which too few are left: I/Os wait until it is back: reset\n";
    const RESTORED: &str = "INFO storage target data_p is online again, with its data\n";

    fn of(lines: &[&str]) -> Redundancy {
        Redundancy::of_log(&lines.concat(), &TARGETS)
    }

    #[test]
    fn set_is_complete_when_all_targets_are_up_to_date_and_no_resync_is_in_progress() {
        let complete: [&[&str]; 9] = [
            &[CURRENT],
            &[NEXT, CURRENT],
            &[LOST, BACK, REBUILT],
            &[LOST, REBUILT],
            &[LOST, SECOND, RESTORED, BACK, REBUILT],
            &[UNCLEAN, RESYNCED],
            &[NEXT, RESYNCED],
            &[LOST, BACK, NEXT, BACK, REBUILT],
            &[LOST, NEXT, CURRENT],
        ];
        for lines in complete {
            assert!(of(lines).is_complete(), "{lines:?}");
        }
        let incomplete: [&[&str]; 9] = [
            &[],
            &[NEXT],
            &[CURRENT, NEXT],
            &[CURRENT, LOST],
            &[BACK, REBUILT, UNCLEAN],
            &[NEXT, MISSING, RESYNCED],
            &[CURRENT, LOST, SECOND, REBUILT],
            &[CURRENT, LOST, SECOND, RESTORED],
            &[LOST, BACK, NEXT],
        ];
        for lines in incomplete {
            assert!(!of(lines).is_complete(), "{lines:?}");
        }
        assert!(Redundancy::of_log(NEXT, &["target"]).is_complete());
    }

    #[test]
    fn latest_report_of_the_session_tells_whether_a_target_is_offline() {
        // Log lines; `true` if the second target is offline; `true` if it is stale.
        let cases: [(&[&str], bool, bool); 12] = [
            (&[LOST], true, true),
            (&[LOST, BACK], false, true),
            (&[LOST, SECOND], true, true),
            (&[LOST, SECOND, RESTORED], true, true),
            (&[LOST, BACK, REBUILT], false, false),
            (&[MISSING, UNCLEAN, RESYNCED], true, true),
            (&[BACK, UNCLEAN, RESYNCED], false, true),
            (&[LOST, NEXT], false, false),
            (&[NEXT, MISSING], true, true),
            (&[NEXT, MISSING, BACK], false, true),
            (&[LOST, NEXT, BACK], false, true),
            (&[UNCLEAN], false, false),
        ];
        for (lines, is_offline, is_stale) in cases {
            let state = of(lines);
            assert_eq!(
                (state.is_offline(1), state.lacks(1)),
                (is_offline, is_stale),
                "{lines:?}"
            );
            assert!(!is_stale || !state.is_complete(), "{lines:?}");
        }
        assert!(of(&[LOST, SECOND]).is_offline(2));
    }
}
