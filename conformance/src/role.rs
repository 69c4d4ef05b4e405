//! Checks of **one** running role of any implementation, all of whose peers are scripted.
//!
//! A [`Check`] starts the role in a [`Fixture`], scripts its peers over real TCP, Comch and RDMA, and reports
//! violations. The peers live in this process, which must share a runtime directory with the role: the command
//! creates a private one for both.

mod control;
mod fixture;
mod initiator;
mod io_channel;
pub(crate) mod service;
pub(crate) mod target;

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use doca::Access;
use wire::control::MessageType;

use super::report::{Case, Outcome, Report};
use wire::release::Release;

use deployment::implementation::Role;
use deployment::process::{Failure, Signal};

pub use control::{ComchPeer, ControlPeer, Listening, Polled, TcpPeer};
pub use fixture::{Fixture, Running, Subject};
pub use io_channel::IoChannel;

/// A required behaviour of a role, and its test.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name: a few words with dashes.
    pub name: &'static str,
    /// Required behaviour in one sentence.
    pub meaning: &'static str,
    /// Runs the check.
    pub play: fn(&Fixture<'_>) -> Result<(), Violation>,
}

impl Check {
    /// Returns `true` if it applies to a role of this release. The local region of an initiator of 3.0 is as large as the storage.
    pub fn is_of(&self, release: Release) -> bool {
        release != Release::V3_0 || !initiator::NEED_SMALL_REGIONS.contains(&self.name)
    }
}

/// All checks of a role; none for the generator, which has no peers.
pub fn checks(role: Role) -> Vec<Check> {
    match role {
        Role::Target => target::checks(),
        Role::Initiator => initiator::checks(),
        Role::ZeroCopy | Role::GgaOffload => service::checks(role),
        Role::SbcGenerator => Vec::new(),
    }
}

/// A violation: the expected and the actual behaviour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

impl Violation {
    /// Creates a violation with this description.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Creates a violation `expected X, got Y`.
    pub fn expected(expected: impl Display, got: impl Display) -> Self {
        Self(format!("expected {expected}, got {got}"))
    }

    /// Fails unless `holds`.
    ///
    /// # Errors
    ///
    /// The violation `expected X, got Y`.
    pub fn unless(holds: bool, expected: impl Display, got: impl Display) -> Result<(), Self> {
        if holds {
            Ok(())
        } else {
            Err(Self::expected(expected, got))
        }
    }
}

/// Adds context to an error.
pub trait During<T> {
    /// Prefixes the error with `when: `.
    ///
    /// # Errors
    ///
    /// The error of `self`, with the prefix.
    fn during(self, when: impl Display) -> Result<T, Violation>;
}

impl<T, E: Into<Violation>> During<T> for Result<T, E> {
    fn during(self, when: impl Display) -> Result<T, Violation> {
        self.map_err(|error| Violation(format!("{when}: {}", error.into())))
    }
}

macro_rules! from {
    ($($source:ty),*) => {$(
        impl From<$source> for Violation {
            fn from(error: $source) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}

from!(
    std::io::Error,
    doca::Error,
    doca::ErrorCode,
    wire::DecodeError,
    Failure,
    deployment::implementation::Error,
    super::target::Error
);

// Steps of a session between initiator and service.

/// A request of the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Query,
    Init,
    Start,
    Stop,
    Shutdown,
}

impl Step {
    /// All steps in order.
    const ALL: [Self; 5] = [
        Self::Query,
        Self::Init,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    /// Type of the initiator's request.
    fn request(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageRequest,
            Self::Init => MessageType::InitStorageRequest,
            Self::Start => MessageType::StartStorageRequest,
            Self::Stop => MessageType::StopStorageRequest,
            Self::Shutdown => MessageType::ShutdownRequest,
        }
    }

    /// Type of the response.
    fn answer(self) -> MessageType {
        match self {
            Self::Query => MessageType::QueryStorageResponse,
            Self::Init => MessageType::InitStorageResponse,
            Self::Start => MessageType::StartStorageResponse,
            Self::Stop => MessageType::StopStorageResponse,
            Self::Shutdown => MessageType::ShutdownResponse,
        }
    }
}

// Runs several checks concurrently, because most of the time they wait.

/// Runs the checks on `jobs` threads. `done` is called with the name of each completed check; once `interrupted`
/// returns `true`, the rest is skipped. Cases are in the order of the checks.
pub fn run(
    subject: &Subject,
    checks: &[Check],
    jobs: usize,
    done: &(dyn Fn(&str) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Report {
    let next = AtomicUsize::new(0);
    let cases = Mutex::new(Vec::with_capacity(checks.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, checks.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, check)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    checks.get(index).map(|check| (index, check))
                } {
                    let case = if interrupted() {
                        Case::new(
                            &suite(subject),
                            check.name,
                            Outcome::NotRun("interrupted".to_owned()),
                        )
                    } else {
                        play(subject, check)
                    };
                    done(check.name);
                    cases
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((index, case));
                }
            });
        }
    });
    let mut cases = cases
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    cases.sort_by_key(|(index, _)| *index);
    Report {
        cases: cases.into_iter().map(|(_, case)| case).collect(),
    }
}

fn suite(subject: &Subject) -> String {
    format!("role.{}", subject.role)
}

fn play(subject: &Subject, check: &Check) -> Case {
    let started = Instant::now();
    let mut repeated = 0;
    let (result, output) = loop {
        let (result, output, crash) = play_once(subject, check);
        let raced = crash == Some(Signal::SEGV.as_raw());
        if result.is_ok() || !raced || repeated == subject.crash_retries {
            break (result, output);
        }
        repeated += 1;
    };
    Case {
        meaning: check.meaning.to_owned(),
        note: (repeated > 0).then(|| format!("repeated after {repeated} crashes (SIGSEGV)")),
        took: started.elapsed(),
        output: Some(output).filter(|output| !output.is_empty()),
        ..Case::new(
            &suite(subject),
            check.name,
            result.map_or_else(
                |violation| Outcome::Failed(violation.to_string()),
                |()| Outcome::Passed,
            ),
        )
    }
}

/// Runs a check once. A role that was killed by a signal that the check did not send has failed, whatever its peers observed.
fn play_once(subject: &Subject, check: &Check) -> (Result<(), Violation>, String, Option<i32>) {
    let fixture = match Fixture::new(subject) {
        Ok(fixture) => fixture,
        Err(violation) => return (Err(violation), String::new(), None),
    };
    let result = (check.play)(&fixture);
    let watch = fixture.watch();
    let result = result.and_then(|()| match watch.crash {
        None => Ok(()),
        Some(signal) => Err(Violation::new(format!("it was killed by signal {signal}"))),
    });
    (result, watch.output.clone(), watch.crash)
}

// Memory access that the scripted peers grant.

/// Read and write access, local and for RDMA peers.
pub(crate) const REMOTE: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);
