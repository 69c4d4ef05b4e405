//! Attacks in random order during the sessions of a well-behaved client, which runs one after the other.
//!
//! A role serves one session at a time: the client, and attacks that hold a session, serialise their sessions with the
//! [`SessionLock`]. The limits of an attack apply to the client: it must complete a session within
//! [`Cost::service`](super::Cost) after the attack, and a session that has begun must complete. At checkpoints, without
//! a session or an attack, the role's memory, descriptors and threads must be at the level of the first checkpoint.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deployment::Resources;

use super::attack::Attack;
use super::server::{Client, ClientProcess, SESSION, Server};
use super::{Observation, Settings, play, suite};
use crate::report::{Case, Outcome, Report};
use crate::violation::Violation;

#[derive(Debug, Clone, Copy)]
pub enum Limit {
    Time(Duration),
    /// Stop after this number of sessions, half of which are attacks. Slow attacks are executed once.
    Sessions(usize),
}

/// Duration above which an attack is executed only once if the number of sessions is limited.
const LONG: Duration = Duration::from_millis(400);
/// Divisors of the number of sessions after which resources are measured, if that number is limited: of 5000 sessions, after 100 and 1000.
/// Later measurements are compared with the first one.
const CHECKPOINTS: [usize; 2] = [50, 5];
/// Number of attacks between two measurements if the time is limited.
const BETWEEN_CHECKPOINTS: usize = 100;
/// Time limit at a checkpoint for the role to release the resources of the last attack, including threads blocked by a peer.
const SETTLE: Duration = Duration::from_secs(20);
/// Maximum number of lines that a role logs for a session of the client.
const LINES_OF_A_SESSION: usize = 24;
/// Maximum number of lines that a role logs per second: 20 of each kind, for a few kinds.
const LINES_OF_A_SECOND: usize = 120;

/// Serialises the start of sessions: held by the client for each attempt, by attacks while they begin a session, and at checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionLock(Arc<Mutex<()>>);

impl SessionLock {
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of one attack over all its repetitions.
#[derive(Default)]
struct Tally {
    played: usize,
    took: Duration,
    service: Duration,
    held_up: Duration,
    failed: Option<String>,
}

struct Run<'a> {
    settings: &'a Settings,
    seed: u64,
    server: &'a Server,
    client: &'a Client,
    begin: Instant,
    attacks: usize,
    tallies: BTreeMap<&'static str, Tally>,
    /// Names of attacks that are not run again.
    long: HashSet<&'static str>,
    first: Option<Resources>,
    checkpoints: Vec<Case>,
}

/// Executes attacks until the limit is reached.
pub(super) fn endure(
    settings: &Settings,
    limit: Limit,
    done: &dyn Fn(&str),
    interrupted: &dyn Fn() -> bool,
) -> Report {
    let not_started = |reason| Report {
        cases: vec![Case::new(
            &suite(settings.role),
            "start",
            Outcome::Failed(reason),
        )],
    };
    let server = match Server::start(settings.role, &settings.implementation) {
        Ok(server) => server,
        Err(violation) => return not_started(violation.to_string()),
    };
    let client = Client::default();
    let mut process = match ClientProcess::start((settings.client)(&server.endpoint().into())) {
        Ok(process) => process,
        Err(error) => return not_started(format!("the client does not start: {error}")),
    };
    let session_lock = server.session_lock().clone();
    let mut run = Run {
        settings,
        seed: settings.seed.unwrap_or_else(|| fastrand::u64(..)),
        server: &server,
        client: &client,
        begin: Instant::now(),
        attacks: 0,
        tallies: BTreeMap::new(),
        long: HashSet::new(),
        first: None,
        checkpoints: Vec::new(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| client.run(&mut process, &session_lock));
        run.go(limit, done, interrupted);
        client.stop.store(true, Ordering::Relaxed);
    });
    run.finish(interrupted())
}

impl Run<'_> {
    fn go(&mut self, limit: Limit, done: &dyn Fn(&str), interrupted: &dyn Fn() -> bool) {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut bag = Vec::new();
        let counted = matches!(limit, Limit::Sessions(_));
        let mut parts = CHECKPOINTS.into_iter();
        let mut next_part = |count| parts.next().map_or(usize::MAX, |part| count / part);
        let mut next = match limit {
            Limit::Sessions(count) => next_part(count),
            Limit::Time(_) => {
                self.client.allowed.store(usize::MAX, Ordering::Relaxed);
                BETWEEN_CHECKPOINTS
            }
        };
        while !interrupted() && self.server.ended().is_none() && !self.is_over(limit) {
            if bag.is_empty() {
                bag = self.settings.attacks.iter().collect();
                bag.retain(|attack: &&Attack| !counted || !self.long.contains(attack.name));
                rng.shuffle(&mut bag);
            }
            let Some(attack) = bag.pop() else { return };
            if counted {
                // Permits one session of the client for each attack.
                let allowed = self.client.completed() + 1;
                self.client.allowed.store(allowed, Ordering::Relaxed);
            }
            self.play(attack);
            done(attack.name);
            let at = if counted {
                self.sessions()
            } else {
                self.attacks
            };
            if at >= next {
                self.measure(&format!("after {} sessions", self.sessions()));
                next = match limit {
                    Limit::Sessions(count) => next_part(count),
                    Limit::Time(_) => next + BETWEEN_CHECKPOINTS,
                };
            }
        }
        if self.server.ended().is_none() {
            self.measure("at the end");
        }
    }

    fn sessions(&self) -> usize {
        self.attacks + self.client.completed()
    }

    fn is_over(&self, limit: Limit) -> bool {
        match limit {
            Limit::Time(time) => self.begin.elapsed() >= time,
            Limit::Sessions(count) => self.sessions() >= count,
        }
    }

    fn play(&mut self, attack: &Attack) {
        let (lines, completed) = (self.server.lines(), self.client.completed());
        let failures = self.client.failed().len();
        let begin = Instant::now();
        let mut observation = Observation::default();
        // An attack that fails to continue was stopped by the role.
        let _ = play(self.server, &attack.play, &mut observation);
        let Observation { held_up, violation } = observation;
        let took = begin.elapsed();
        if took > LONG {
            self.long.insert(attack.name);
        }
        self.attacks += 1;
        let wanted = match self.client.allowed.load(Ordering::Relaxed) {
            // The client's current session may end before it is affected by the attack.
            usize::MAX => self.client.completed() + 2,
            allowed => allowed,
        };
        let served = self.client.wait_for(wanted, attack.cost.service + SESSION);
        let result = self.judge(attack, held_up, served.as_ref(), failures);
        let result = result.and_then(|()| violation.map_or(Ok(()), Err));
        let (lines, sessions) = (
            self.server.lines().saturating_sub(lines),
            self.client.completed() - completed,
        );
        let most = attack.cost.lines
            + sessions * LINES_OF_A_SESSION
            + begin.elapsed().as_secs() as usize * LINES_OF_A_SECOND;
        let result = result.and_then(|()| {
            Violation::unless(
                lines <= most,
                format!("at most {most} lines in the log"),
                lines,
            )
        });
        let tally = self.tallies.entry(attack.name).or_default();
        tally.played += 1;
        tally.took += took;
        tally.service = tally.service.max(served.unwrap_or_default());
        tally.held_up = tally.held_up.max(held_up);
        if let Err(violation) = result {
            tally.failed.get_or_insert(violation.to_string());
        }
    }

    fn judge(
        &self,
        attack: &Attack,
        held_up: Duration,
        served: Result<&Duration, &Violation>,
        failures: usize,
    ) -> Result<(), Violation> {
        if let Some(name) = self.server.ended() {
            return Err(Violation::expected(
                "all programs to go on",
                format!("the end of the {name}"),
            ));
        }
        if let Some(failure) = self.client.failed().get(failures) {
            return Err(Violation::expected(
                "sessions of the client to go on",
                failure,
            ));
        }
        let served = *served.map_err(Clone::clone)?;
        Violation::unless(
            served <= attack.cost.service,
            format!("the client to be served within {:?}", attack.cost.service),
            format!("{:.1} s", served.as_secs_f64()),
        )?;
        Violation::unless(
            held_up <= attack.cost.held_up,
            format!(
                "a reaction to other clients within {:?}",
                attack.cost.held_up
            ),
            format!("{:.1} s", held_up.as_secs_f64()),
        )
    }

    /// Measures the resources while no session is active, and compares them with the first measurement.
    fn measure(&mut self, name: &str) {
        let session_lock = self.server.session_lock().clone();
        let _closed = session_lock.enter();
        let deadline = Instant::now() + SETTLE;
        let (outcome, note) = loop {
            let now = match self.server.resources() {
                Ok(now) => now,
                Err(violation) => break (Outcome::Failed(violation.to_string()), None),
            };
            let settled = Instant::now() > deadline;
            let note = Some(format!(
                "{} KiB, {} descriptors, {} threads, {} shared mappings",
                now.memory, now.descriptors, now.threads, now.shared
            ));
            match self.first {
                // The resources of the last session are released shortly after its end.
                None => {
                    std::thread::sleep(Duration::from_secs(1));
                    self.first = self.server.resources().ok();
                    break (Outcome::Passed, note);
                }
                Some(first) if now.is_flat_since(first, Resources::RETAINED) => {
                    break (Outcome::Passed, note);
                }
                Some(first) if settled => {
                    let violation = Violation::expected(
                        format!("no more than at first, {first:?}"),
                        format!("{now:?}"),
                    );
                    break (Outcome::Failed(violation.to_string()), note);
                }
                Some(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let meaning = "memory, descriptors and threads are what they were at the first checkpoint";
        self.checkpoints.push(Case {
            meaning: meaning.to_owned(),
            took: self.begin.elapsed(),
            note,
            ..Case::new(
                &suite(self.settings.role),
                format!("resources {name}"),
                outcome,
            )
        });
    }

    fn finish(self, interrupted: bool) -> Report {
        let suite = suite(self.settings.role);
        let log = || Some(self.server.log());
        let mut cases: Vec<Case> = self
            .tallies
            .into_iter()
            .map(|(name, tally)| {
                let outcome = tally
                    .failed
                    .clone()
                    .map_or(Outcome::Passed, Outcome::Failed);
                Case {
                    took: tally.took,
                    note: Some(format!(
                        "{} times; the client waited {:.2} s, reactions {:.2} s at most",
                        tally.played,
                        tally.service.as_secs_f64(),
                        tally.held_up.as_secs_f64()
                    )),
                    output: tally.failed.is_some().then(log).flatten(),
                    ..Case::new(&suite, name, outcome)
                }
            })
            .collect();
        let failed = self.client.failed();
        let outcome = match failed.first() {
            _ if interrupted => Outcome::NotRun("interrupted".to_owned()),
            Some(first) => Outcome::Failed(format!("{} sessions failed: {first}", failed.len())),
            None => Outcome::Passed,
        };
        cases.push(Case {
            meaning: "sessions of the client that have begun complete".to_owned(),
            took: self.begin.elapsed(),
            note: Some(format!(
                "{} sessions, {} attacks, seed {}; the longest wait {:.2} s",
                self.client.completed(),
                self.attacks,
                self.seed,
                self.client.longest_wait().as_secs_f64()
            )),
            ..Case::new(&suite, "client", outcome)
        });
        cases.extend(self.checkpoints);
        Report { cases }
    }
}
