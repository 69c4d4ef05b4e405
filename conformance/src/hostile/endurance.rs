//! Attacks in random order, again and again, beside a well-behaved client that is served all the time.
//!
//! A role serves one session at a time. The client begins the next session as soon as the last one has ended, and an attack that holds a
//! session of its own waits for its turn at the [`Gate`]. What an attack may cost the client is what it may cost anybody: after its end the
//! client has completed a session within [`Cost::service`](super::Cost), and no session that has begun fails. At checkpoints, when nothing is
//! going on, the role's memory, descriptors and threads must be what they were at the first one.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::attack::Attack;
use super::knock::OwnedDoor;
use super::victim::Victim;
use super::{Seen, Settings, play, suite};
use crate::hammer::Resources;
use crate::report::{Case, Outcome, Report};
use crate::role::{self, Wrong};

/// When it ends.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After so many sessions, half of them attacks. Attacks that take long are played once.
    Sessions(usize),
}

/// An attack that takes longer is played once where sessions are counted.
const LONG: Duration = Duration::from_millis(400);
/// Parts of the sessions after which the resources are measured where sessions are counted: of 5000, after 100 and 1000. The first measurement is
/// what the others are compared with.
const CHECKPOINTS: [usize; 2] = [50, 5];
/// Attacks between two measurements where the time is limited.
const BETWEEN_CHECKPOINTS: usize = 100;
/// Time that the role has at a checkpoint to give back what the last attack took: threads that are held by a peer return.
const SETTLE: Duration = Duration::from_secs(20);
/// Time for a session of the client, unless the role is attacked in the meantime.
const SESSION: Duration = Duration::from_secs(30);
/// I/Os of each kind in a session of the client.
const ROUNDS: usize = 4;
/// Lines that a role may log for a session of the client.
const LINES_OF_A_SESSION: usize = 24;
/// Lines that a role may log in a second in total: 20 of each kind, and there are a few kinds.
const LINES_OF_A_SECOND: usize = 120;

/// One session at a time is begun. Held by the client for each attempt, by attacks while they begin a session, and at checkpoints.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Mutex<()>>);

impl Gate {
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's observations, shared with its thread.
#[derive(Default)]
struct Client {
    stop: AtomicBool,
    /// It begins as many sessions as this, and one more when it is raised. `usize::MAX` for any number.
    allowed: AtomicUsize,
    completed: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// From the first attempt to the end of a session.
    longest_wait: Mutex<Duration>,
}

impl Client {
    fn run(&self, door: &OwnedDoor, gate: &Gate) {
        let mut begin = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if self.completed.load(Ordering::Relaxed) >= self.allowed.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                begin = Instant::now();
                continue;
            }
            let mut begun = false;
            let entered = gate.enter();
            let visited = door.visit(&mut begun);
            drop(entered);
            match visited {
                Ok(()) => {
                    let mut longest = lock(&self.longest_wait);
                    *longest = longest.max(begin.elapsed());
                    drop(longest);
                    self.completed.fetch_add(1, Ordering::Relaxed);
                    begin = Instant::now();
                }
                Err(wrong) if begun => {
                    lock(&self.failed).push(wrong.to_string());
                    begin = Instant::now();
                }
                // Another session is served.
                Err(_) => {}
            }
            // An attack takes its turn.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn completed(&self) -> usize {
        self.completed.load(Ordering::Relaxed)
    }

    /// Waits until it has completed so many sessions; the time that took.
    fn wait_for(&self, wanted: usize, patience: Duration) -> Result<Duration, Wrong> {
        let begin = Instant::now();
        while self.completed() < wanted {
            if begin.elapsed() > patience {
                return Err(Wrong::expected(
                    format!("the client to be served within {patience:?} after the attack"),
                    "no session",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(begin.elapsed())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The run so far.
struct Run<'a> {
    settings: &'a Settings,
    seed: u64,
    victim: &'a Victim<'a>,
    client: &'a Client,
    begin: Instant,
    attacks: usize,
    tallies: BTreeMap<&'static str, Tally>,
    /// Not to be played again.
    long: HashSet<&'static str>,
    first: Option<Resources>,
    checkpoints: Vec<Case>,
}

/// Plays attacks until the limit.
pub(super) fn endure(
    settings: &Settings,
    limit: Limit,
    done: &dyn Fn(&str),
    interrupted: &dyn Fn() -> bool,
) -> Report {
    let mut report = Report::default();
    let victim = match Victim::start(settings.role, &settings.implementation) {
        Ok(victim) => victim,
        Err(wrong) => {
            let outcome = Outcome::Failed(wrong.to_string());
            let case = Case::new(&suite(settings.role), "start", outcome);
            report.cases.push(case);
            return report;
        }
    };
    let client = Client::default();
    let gate = victim.gate().clone();
    let door = OwnedDoor::from(victim.door());
    let mut run = Run {
        settings,
        seed: settings.seed.unwrap_or_else(|| fastrand::u64(..)),
        victim: &victim,
        client: &client,
        begin: Instant::now(),
        attacks: 0,
        tallies: BTreeMap::new(),
        long: HashSet::new(),
        first: None,
        checkpoints: Vec::new(),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| client.run(&door, &gate));
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
        while !interrupted() && self.victim.ended().is_none() && !self.is_over(limit) {
            if bag.is_empty() {
                bag = self.settings.attacks.iter().collect();
                bag.retain(|attack: &&Attack| !counted || !self.long.contains(attack.name));
                rng.shuffle(&mut bag);
            }
            let Some(attack) = bag.pop() else { return };
            if counted {
                // One session of the client for each attack.
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
        if self.victim.ended().is_none() {
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
        let (lines, completed) = (self.victim.lines(), self.client.completed());
        let failures = lock(&self.client.failed).len();
        let begin = Instant::now();
        let mut seen = Seen::default();
        // An attack that cannot go on has been stopped by the role.
        let _ = play(self.victim, &attack.play, &mut seen);
        let Seen { held_up, wrong } = seen;
        let took = begin.elapsed();
        if took > LONG {
            self.long.insert(attack.name);
        }
        self.attacks += 1;
        let wanted = match self.client.allowed.load(Ordering::Relaxed) {
            // The session that goes on now may end without having seen anything of the attack.
            usize::MAX => self.client.completed() + 2,
            allowed => allowed,
        };
        let served = self.client.wait_for(wanted, attack.cost.service + SESSION);
        let result = self.judge(attack, held_up, served.as_ref(), failures);
        let result = result.and_then(|()| wrong.map_or(Ok(()), Err));
        let (lines, sessions) = (
            self.victim.lines().saturating_sub(lines),
            self.client.completed() - completed,
        );
        let most = attack.cost.lines
            + sessions * LINES_OF_A_SESSION
            + begin.elapsed().as_secs() as usize * LINES_OF_A_SECOND;
        let result = result.and_then(|()| {
            Wrong::unless(
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
        if let Err(wrong) = result {
            tally.failed.get_or_insert(wrong.to_string());
        }
    }

    fn judge(
        &self,
        attack: &Attack,
        held_up: Duration,
        served: Result<&Duration, &Wrong>,
        failures: usize,
    ) -> Result<(), Wrong> {
        if let Some(name) = self.victim.ended() {
            return Err(Wrong::expected(
                "all programs to go on",
                format!("the end of the {name}"),
            ));
        }
        if let Some(failure) = lock(&self.client.failed).get(failures) {
            return Err(Wrong::expected("sessions of the client to go on", failure));
        }
        let served = *served.map_err(Clone::clone)?;
        Wrong::unless(
            served <= attack.cost.service,
            format!("the client to be served within {:?}", attack.cost.service),
            format!("{:.1} s", served.as_secs_f64()),
        )?;
        Wrong::unless(
            held_up <= attack.cost.held_up,
            format!(
                "a reaction to other clients within {:?}",
                attack.cost.held_up
            ),
            format!("{:.1} s", held_up.as_secs_f64()),
        )
    }

    /// Measures the resources while no session goes on, and compares them with the first measurement.
    fn measure(&mut self, name: &str) {
        let gate = self.victim.gate().clone();
        let _closed = gate.enter();
        let deadline = Instant::now() + SETTLE;
        let (outcome, note) = loop {
            let now = match self.victim.resources() {
                Ok(now) => now,
                Err(wrong) => break (Outcome::Failed(wrong.to_string()), None),
            };
            let settled = Instant::now() > deadline;
            let note = Some(format!(
                "{} KiB, {} descriptors, {} threads, {} shared mappings",
                now.memory, now.descriptors, now.threads, now.shared
            ));
            match self.first {
                // What the last session took is given back within a moment.
                None => {
                    std::thread::sleep(Duration::from_secs(1));
                    self.first = self.victim.resources().ok();
                    break (Outcome::Passed, note);
                }
                Some(first) if now.is_flat_since(first) => break (Outcome::Passed, note),
                Some(first) if settled => {
                    let wrong = Wrong::expected(
                        format!("no more than at first, {first:?}"),
                        format!("{now:?}"),
                    );
                    break (Outcome::Failed(wrong.to_string()), note);
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
        let log = || Some(self.victim.log());
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
        let failed = lock(&self.client.failed);
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
                lock(&self.client.longest_wait).as_secs_f64()
            )),
            ..Case::new(&suite, "client", outcome)
        });
        cases.extend(self.checkpoints);
        Report { cases }
    }
}

impl OwnedDoor {
    /// A whole session of a client.
    fn visit(&self, begun: &mut bool) -> Result<(), Wrong> {
        match self {
            Self::Tcp(port) => role::target::visit(*port, ROUNDS, SESSION, begun),
            Self::Comch { channel, .. } => role::service::visit(channel, ROUNDS, SESSION, begun),
        }
    }
}
