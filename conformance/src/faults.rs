//! Faults in a live deployment: roles that crash or stop, connections that are closed or carry malformed messages.
//!
//! * A [`Case`] is one fault: the role of a deployment that gets a signal at a phase of a session. [`run`] starts the deployment with real
//!   processes, brings the session to that phase, injects the fault, and checks the other roles, the data, and the next session.
//! * [`relay`] finds the phase: every step of a session passes a connection between service and target.

mod deployment;
pub mod relay;

use std::fmt;
use std::time::{Duration, Instant};

use ::deployment::implementation::Implementation;
use ::deployment::log::{self, LogEvent};
use ::deployment::process::Signal;
use serde::Serialize;
use wire::control::MessageType;

pub use ::deployment::Part;

use self::deployment::{Deployment, Ended};
use crate::matrix::Layout;
use crate::report;
use crate::report::Outcome;
use crate::violation::Violation;

/// Attempts to bring a session to the phase of the fault.
const ATTEMPTS: u32 = 3;

/// Result of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    #[serde(rename = "fault")]
    pub case: Case,
    /// Number of blocks with wrong contents, number of unexpected results, and number of sessions after the fault that
    /// did not read the written data.
    pub lost_or_wrong: usize,
    /// Time until the last of the other roles had detected the fault.
    #[serde(serialize_with = "seconds")]
    pub noticed: Option<Duration>,
    #[serde(flatten)]
    pub report: report::Case,
}

fn seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Runs a case. `number`, its index in the run, selects its CPUs.
pub fn run(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Tried {
    let started = Instant::now();
    let mut attempts = 1;
    let mut played = Played::of(settings, case, number, interrupted);
    while !played.is_struck && case.fault == Fault::Stop && attempts < ATTEMPTS && !interrupted() {
        // With the roles' short timeouts, a session may fail on an overloaded machine even without a fault.
        attempts += 1;
        played = Played::of(settings, case, number, interrupted);
    }
    let lost_or_wrong = played.lost_or_wrong();
    if lost_or_wrong > 0 {
        played
            .problems
            .push(format!("{lost_or_wrong} I/Os were lost or wrong"));
    }
    let outcome = if played.problems.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(played.problems.join("; "))
    };
    let output =
        (!played.problems.is_empty()).then(|| played.ended.iter().map(Ended::to_string).collect());
    Tried {
        case,
        lost_or_wrong,
        noticed: played.noticed,
        report: report::Case {
            meaning: meaning(case),
            note: played.noticed.map(|time| {
                let seconds = time.as_secs_f64();
                format!("noticed after {seconds:.1} s, in attempt {attempts}")
            }),
            took: started.elapsed(),
            output,
            ..report::Case::new(case.suite(), case.to_string(), outcome)
        },
    }
}

fn meaning(case: Case) -> String {
    let Case {
        faulty,
        phase,
        fault,
        layout,
        ..
    } = case;
    let faulty = faulty.name(layout);
    format!(
        "the {faulty} gets {fault} at {phase}: all others notice, nothing is lost, and the next session is as it should be"
    )
}

/// A completed case.
#[derive(Debug, Default)]
struct Played {
    /// `true` if the session has reached the phase of the fault.
    is_struck: bool,
    problems: Vec<String>,
    noticed: Option<Duration>,
    ended: Vec<Ended>,
    /// Number of sessions after the fault that did not read the written data.
    failed_sessions: usize,
}

impl Played {
    fn of(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Self {
        let mut played = Self::default();
        match Deployment::set(settings, case, number, interrupted) {
            Ok(mut deployment) => {
                if let Err(why) = played.play(&mut deployment) {
                    played.problems.push(why.to_string());
                }
                played.failed_sessions = deployment.failed_sessions;
                // The remaining roles are no longer needed.
                let rest = deployment.take_ended();
                played.ended = deployment.ended;
                played.ended.extend(rest);
            }
            Err(why) => played.problems.push(why.to_string()),
        }
        played
    }

    fn play(&mut self, deployment: &mut Deployment<'_>) -> Result<(), Violation> {
        let held = deployment.reach()?;
        self.is_struck = true;
        deployment.strike(held)?;
        let aftermath = deployment.watch()?;
        self.noticed = Some(aftermath.noticed);
        self.problems.extend(aftermath.problems);
        // A killed process cannot clean up: the next process that starts does.
        if deployment.case.fault != Fault::Kill {
            self.look_around(deployment, "behind the fault")?;
        }
        if deployment.is_restarted() {
            self.problems.extend(deployment.restart());
        }
        self.look_around(deployment, "at the end")
    }

    /// Checks that the roles left no files or processes behind.
    fn look_around(&mut self, deployment: &Deployment<'_>, when: &str) -> Result<(), Violation> {
        let left = deployment.roles.sandbox.leftovers()?;
        if !left.is_empty() {
            let problem = format!("{when}, the runtime directory has {left:?}");
            self.problems.push(problem);
        }
        let processes = deployment.roles.sandbox.processes()?;
        if !processes.is_empty() {
            let problem = format!("{when}, there are still processes {processes:?}");
            self.problems.push(problem);
        }
        Ok(())
    }

    fn lost_or_wrong(&self) -> usize {
        let events = || {
            self.ended
                .iter()
                .flat_map(|ended| log::events(&ended.exit.stderr))
        };
        let mismatches = events().filter(|event| *event == LogEvent::DataMismatch);
        let is_unasked = |event: &LogEvent<'_>| {
            matches!(
                event,
                LogEvent::UnexpectedAnswer | LogEvent::UnexpectedResult { .. }
            )
        };
        // A session that failed because of a mismatch is included in both counts.
        mismatches.count().max(self.failed_sessions) + events().filter(is_unasked).count()
    }
}

// Settings of all cases of a run.

/// Returns `true` if the run is to be stopped.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

#[derive(Debug, Clone)]
pub struct Settings {
    pub implementation: Implementation,
    /// Timeout of all roles if a peer is stopped, which only a timeout can detect. Whole seconds.
    pub timeout: Duration,
    /// Time in which all other roles must detect the fault and exit, on a loaded machine. If no role is stopped, the roles' own
    /// timeouts are longer, so that a timeout is not mistaken for detection.
    pub notice: Duration,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
}

// A fault: its kind, role and phase.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after the other roles have ended the stopped role's session.
    Stop,
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::Kill, Self::Stop, Self::Terminate, Self::Interrupt];

    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Terminate => Signal::TERM,
            Self::Interrupt => Signal::INT,
        }
    }

    /// Returns `true` if the fault requests a shutdown of the role.
    fn is_request(self) -> bool {
        matches!(self, Self::Terminate | Self::Interrupt)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "SIGKILL",
            Self::Stop => "SIGSTOP",
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

/// A phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Service and targets are connected, and wait for an initiator.
    Waiting,
    /// A frame of this type has been sent but not yet delivered, after this many other frames of the type.
    Frame(MessageType, u32),
    /// The whole storage has been written, and I/Os are in flight.
    Io,
}

impl Phase {
    /// All phases, in the order of a session.
    pub const ALL: [Self; 16] = [
        Self::Waiting,
        Self::Frame(MessageType::QueryStorageRequest, 0),
        Self::Frame(MessageType::QueryStorageResponse, 0),
        Self::Frame(MessageType::InitStorageRequest, 0),
        Self::Frame(MessageType::InitStorageResponse, 0),
        Self::Frame(MessageType::CreateRdmaConnectionRequest, 0),
        Self::Frame(MessageType::CreateRdmaConnectionResponse, 0),
        Self::Frame(MessageType::CreateRdmaConnectionRequest, 1),
        Self::Frame(MessageType::CreateRdmaConnectionResponse, 1),
        Self::Frame(MessageType::StartStorageRequest, 0),
        Self::Frame(MessageType::StartStorageResponse, 0),
        Self::Io,
        Self::Frame(MessageType::StopStorageRequest, 0),
        Self::Frame(MessageType::StopStorageResponse, 0),
        Self::Frame(MessageType::ShutdownRequest, 0),
        Self::Frame(MessageType::ShutdownResponse, 0),
    ];

    /// Returns `true` if all writes of the initiator have been acknowledged.
    fn is_written(self) -> bool {
        let at = |phase: &Self| *phase == self;
        Self::ALL.iter().position(at) >= Self::ALL.iter().position(|phase| *phase == Self::Io)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Frame(message, 0) => message.fmt(f),
            Self::Frame(message, after) => write!(f, "{message}_{}", after + 1),
            Self::Io => f.write_str("io"),
        }
    }
}

impl Serialize for Phase {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Expected reaction of the other roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The other roles exit.
    Once,
    /// The other roles run with `--sessions forever`, and serve the next session.
    Serving,
    /// The service runs with `--logical-block-size`, and continues without a target.
    Degraded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    pub layout: Layout,
    /// Expected reaction of the other roles.
    pub mode: Mode,
    /// Role that the fault is injected into.
    #[serde(rename = "role")]
    pub faulty: Part,
    /// Phase in which the fault is injected.
    pub phase: Phase,
    pub fault: Fault,
}

impl Case {
    pub fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for layout in Layout::ALL {
            for mode in [Mode::Once, Mode::Serving, Mode::Degraded] {
                for faulty in Part::roles(layout) {
                    for phase in Phase::ALL {
                        cases.extend(Fault::ALL.map(|fault| Self {
                            layout,
                            mode,
                            faulty,
                            phase,
                            fault,
                        }));
                    }
                }
            }
        }
        cases.retain(|case| case.exists());
        cases
    }

    /// One fault for each role and phase, alternating so that every role and every phase gets every kind of fault.
    pub fn some() -> Vec<Self> {
        let all = Self::all();
        let mut chosen = Vec::new();
        let is_beside =
            |a: &Self, b: &Self| (a.suite(), a.faulty, a.phase) == (b.suite(), b.faulty, b.phase);
        for (number, beside) in all.chunk_by(is_beside).enumerate() {
            let turn = number / Phase::ALL.len() + number;
            chosen.push(beside[turn % beside.len()]);
        }
        chosen
    }

    fn exists(&self) -> bool {
        let is_target = matches!(self.faulty, Part::Target(_));
        let is_there = self.phase != Phase::Waiting || self.faulty != Part::Initiator;
        is_there
            && match self.mode {
                Mode::Once => true,
                // The next session is not served by a role that is asked to exit, and its peers have detected its exit.
                Mode::Serving => !self.fault.is_request(),
                Mode::Degraded => self.layout == Layout::Gga && is_target,
            }
    }

    /// Name of the case's group in a report.
    pub fn suite(&self) -> &'static str {
        match (self.layout, self.mode) {
            (Layout::ZeroCopy, Mode::Serving) => "faults.zero_copy.serving",
            (Layout::ZeroCopy, _) => "faults.zero_copy",
            (Layout::Gga, Mode::Once) => "faults.gga",
            (Layout::Gga, Mode::Serving) => "faults.gga.serving",
            (Layout::Gga, Mode::Degraded) => "faults.gga.degraded",
        }
    }

    /// Index of the target on whose connection the frame is held: the faulty role, or the first target.
    fn channel(&self) -> u32 {
        match self.faulty {
            Part::Target(index) => u32::try_from(index).unwrap_or(0),
            Part::Initiator | Part::Service | Part::FrontEnd => 0,
        }
    }
}

/// Name within its group: role, phase, fault.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faulty = self.faulty.name(self.layout);
        write!(f, "{faulty}, {}, {}", self.phase, self.fault)
    }
}

// Roles that may exit with success although a fault was injected into another role.

impl Case {
    /// Returns `true` if `part`, which is not the faulty role, may exit with success: its session may have ended before, or continues.
    fn may_end_well(&self, part: Part) -> bool {
        // The initiator stops the storage before it exits.
        let ends_in_order = self.faulty == Part::Initiator && self.fault.is_request();
        ends_in_order
            || self.is_closed_in_order(part)
            || self.is_survived()
            || self.is_over_for(part)
    }

    /// Returns `true` if the service ends the session with this target cleanly, because it is asked to exit while it
    /// serves I/Os.
    fn is_closed_in_order(&self, part: Part) -> bool {
        self.faulty == Part::Service
            && self.fault.is_request()
            && self.phase == Phase::Io
            && matches!(part, Part::Target(_))
    }

    /// Returns `true` if `part` must exit with success: the session continues without the faulty role.
    fn is_survived(&self) -> bool {
        self.mode == Mode::Degraded && self.phase == Phase::Io
    }

    /// Returns `true` if the session may already be complete for `part`, or may be completed for it without the faulty role.
    ///
    /// A held frame is delivered after the fault. A faulty role that is asked to exit may still process the frame that it
    /// receives, but no later one.
    fn is_over_for(&self, part: Part) -> bool {
        let Phase::Frame(message, _) = self.phase else {
            return false;
        };
        if self.mode == Mode::Degraded
            && matches!(
                message,
                MessageType::StartStorageRequest
                    | MessageType::StartStorageResponse
                    | MessageType::StopStorageRequest
                    | MessageType::StopStorageResponse
            )
        {
            // The target may be detached during I/O, or shortly before or after.
            return true;
        }
        let is_asked = self.fault.is_request();
        match (message, part, self.faulty) {
            // With the response of the faulty role, the service has all responses. The disconnection of the faulty role
            // is a separate event: the service may have sent shutdown requests to all targets before it, and the other
            // targets do not depend on the faulty role.
            (MessageType::StopStorageResponse, Part::Target(_), Part::Target(_)) => true,
            (MessageType::StopStorageRequest, Part::Target(_), Part::Target(_)) => is_asked,
            (MessageType::ShutdownRequest | MessageType::ShutdownResponse, part, faulty) => {
                let is_answered = message == MessageType::ShutdownResponse;
                match (part, faulty) {
                    // They receive the request before or after the fault, and do not detect the fault.
                    (Part::Target(_), _) => true,
                    (Part::Service, Part::Initiator) => true,
                    // The target has completed its part.
                    (Part::Service | Part::Initiator, Part::Target(_)) => {
                        is_answered || is_asked || self.mode == Mode::Degraded
                    }
                    // A role that is asked to exit may complete first.
                    (Part::Initiator, Part::Service) => is_asked,
                    _ => true,
                }
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::matrix::Layout;

    #[test]
    fn all_cases_are_every_role_phase_and_fault_once() {
        let cases = Case::all();
        let count = |layout, mode| {
            let is = |case: &&Case| case.layout == layout && case.mode == mode;
            cases.iter().filter(is).count()
        };
        assert_eq!(count(Layout::ZeroCopy, Mode::Once), (3 * 16 - 1) * 4);
        assert_eq!(count(Layout::Gga, Mode::Once), (5 * 16 - 1) * 4);
        assert_eq!(count(Layout::ZeroCopy, Mode::Serving), (3 * 16 - 1) * 2);
        assert_eq!(count(Layout::Gga, Mode::Degraded), 3 * 16 * 4);
        assert_eq!(count(Layout::ZeroCopy, Mode::Degraded), 0);
        let names: HashSet<_> = cases
            .iter()
            .map(|case| (case.suite(), case.to_string()))
            .collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn data_is_expected_from_the_io_phase_on() {
        assert!(!Phase::Waiting.is_written());
        assert!(!Phase::Frame(MessageType::StartStorageResponse, 0).is_written());
        assert!(Phase::Io.is_written());
        assert!(Phase::Frame(MessageType::ShutdownResponse, 0).is_written());
    }

    fn case(faulty: Part, message: MessageType, fault: Fault) -> Case {
        Case {
            layout: Layout::Gga,
            mode: Mode::Once,
            faulty,
            phase: Phase::Frame(message, 0),
            fault,
        }
    }

    /// Other roles that may exit with success.
    fn may_end_well(faulty: Part, message: MessageType, fault: Fault) -> Vec<Part> {
        let case = case(faulty, message, fault);
        let others = Part::roles(case.layout).filter(|part| *part != faulty);
        others.filter(|part| case.may_end_well(*part)).collect()
    }

    const TARGETS: [Part; 3] = [Part::Target(0), Part::Target(1), Part::Target(2)];
    const OTHER_TARGETS: [Part; 2] = [Part::Target(0), Part::Target(1)];
    const FAULTY: Part = Part::Target(2);

    #[test]
    fn no_role_exits_with_success_after_a_fault_before_the_storage_is_stopped() {
        let stop = |phase: &Phase| *phase == Phase::Frame(MessageType::StopStorageRequest, 0);
        let before = Phase::ALL.into_iter().take_while(|phase| !stop(phase));
        for phase in before {
            for (fault, faulty) in Fault::ALL
                .into_iter()
                .flat_map(|fault| Part::roles(Layout::Gga).map(move |faulty| (fault, faulty)))
                .filter(|(fault, faulty)| *faulty != Part::Initiator || !fault.is_request())
            {
                let case = Case {
                    phase,
                    ..case(faulty, MessageType::StopStorageRequest, fault)
                };
                for part in Part::roles(case.layout).filter(|part| *part != faulty) {
                    // A service that is asked to exit while it serves I/Os ends the session with its targets cleanly.
                    let is_closed = faulty == Part::Service
                        && fault.is_request()
                        && phase == Phase::Io
                        && part != Part::Initiator;
                    assert_eq!(case.may_end_well(part), is_closed, "{case}: {part:?}");
                }
            }
        }
    }

    #[test]
    fn other_targets_shut_down_after_the_victims_stop_response() {
        let response = MessageType::StopStorageResponse;
        for fault in Fault::ALL {
            // The service does not receive the shutdown response of the faulty role.
            assert_eq!(may_end_well(FAULTY, response, fault), OTHER_TARGETS);
        }
        // The service is the faulty role, or has no initiator that requests the shutdown.
        for fault in Fault::ALL {
            assert_eq!(may_end_well(Part::Service, response, fault), []);
        }
        assert_eq!(may_end_well(Part::Initiator, response, Fault::Kill), []);
        assert_eq!(may_end_well(Part::Initiator, response, Fault::Stop), []);
    }

    #[test]
    fn terminated_target_may_answer_the_stop_request_first() {
        let request = MessageType::StopStorageRequest;
        for fault in [Fault::Terminate, Fault::Interrupt] {
            assert_eq!(may_end_well(FAULTY, request, fault), OTHER_TARGETS);
            assert_eq!(may_end_well(Part::Service, request, fault), []);
        }
        for fault in [Fault::Kill, Fault::Stop] {
            assert_eq!(may_end_well(FAULTY, request, fault), []);
            assert_eq!(may_end_well(Part::Service, request, fault), []);
            assert_eq!(may_end_well(Part::Initiator, request, fault), []);
        }
    }

    #[test]
    fn roles_that_wait_for_the_victims_shutdown_response_fail() {
        let (request, response) = (MessageType::ShutdownRequest, MessageType::ShutdownResponse);
        for fault in [Fault::Kill, Fault::Stop] {
            assert_eq!(may_end_well(FAULTY, request, fault), OTHER_TARGETS);
            assert_eq!(may_end_well(Part::Service, request, fault), TARGETS);
            assert_eq!(may_end_well(Part::Service, response, fault), TARGETS);
        }
        for fault in Fault::ALL {
            assert_eq!(may_end_well(FAULTY, response, fault).len(), 4);
            let case = case(Part::Initiator, request, fault);
            assert!(case.may_end_well(Part::Service) && case.may_end_well(Part::Target(0)));
        }
    }

    #[test]
    fn terminated_initiator_ends_the_session_cleanly() {
        let request = MessageType::StopStorageRequest;
        let others = may_end_well(Part::Initiator, request, Fault::Interrupt);
        assert_eq!(others.len(), 4);
    }

    #[test]
    fn degraded_service_may_lose_a_target_during_io() {
        let case = Case {
            mode: Mode::Degraded,
            ..case(FAULTY, MessageType::StartStorageResponse, Fault::Kill)
        };
        assert!(case.may_end_well(Part::Service) && case.may_end_well(Part::Initiator));
        let before = Case {
            phase: Phase::Frame(MessageType::InitStorageResponse, 0),
            ..case
        };
        assert!(!before.may_end_well(Part::Service));
    }
}
