//! Idle strategy of a thread whose progress engines have no work.
//!
//! It spins briefly (a peer on another core responds within a microsecond), then yields (the peer may need this core),
//! then blocks on all engines that it progresses, with a timeout. Because of the timeout, a lost wake-up causes a
//! delay, but never a hang.
//!
//! The program may call progress in a loop that also polls a socket or a pipe, of which the engine is not aware: a
//! sleep delays the processing of that socket. Therefore sleeps grow only up to [`LONGEST_SHORT_SLEEP`] at most, until
//! the thread has been idle for [`LONG_IDLE_TIME`]. If a program has requested the notification handle, its threads
//! wait on the handle themselves, and calls of progress do not sleep. `SOFTDOCA_IDLE` selects another [`Strategy`].
//!
//! A busy thread also yields from time to time. A pipeline of processes is as fast as its slowest CPU only while all
//! CPUs are busy: if a stage shares its CPU with its predecessor, and continues as long as its successor delivers
//! events, the stages run sequentially. Without CPU contention, occasional yields have no measurable cost.
//!
//! If another thread occupies the CPU and does not yield, a busy thread does not yield, either, and an idle thread
//! sleeps briefly: see [`Contention`].
//!
//! A thread may progress several engines in turn. Each is armed in its own call; the thread blocks in the call that
//! arms the last one. An engine that the thread no longer progresses is dropped from the list.

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::{current_timer_slack, set_current_timer_slack};

use super::Arming;
use crate::error::{Error, Result};

/// Empty calls per engine that spin.
const SPINS: u32 = 8;
/// Number of events after which the first empty call yields without spinning: the peer has enough to do.
const ENOUGH_EVENTS: u32 = 24;
/// Number of events after which a busy thread yields.
const MOST_EVENTS: u32 = 128;
/// Empty calls per engine before the thread blocks; calls after the spins yield.
const YIELDS: u32 = 400;
/// Empty calls per engine before the thread blocks under CPU contention; calls after the spins sleep briefly.
const SHORT_SLEEPS: u32 = 20;
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
/// Longest sleep of a thread that was not idle for long.
const LONGEST_SHORT_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Idle time after which sleeps may be longer. A sleep of 1 ms takes about 35 us of CPU time, mostly in the kernel's
/// timer: several percent of a CPU.
const LONG_IDLE_TIME: Duration = Duration::from_secs(5);
/// Divisor of a longer idle time that gives the maximum duration of a sleep: CPU usage is then far below 1 %.
const PART_OF_IDLE_TIME: u32 = 500;
/// Number of short sleeps for which an engine remains armed: arming takes four system calls. Connections that the
/// program has made since are polled before each sleep, but cannot end it before the engine is armed again.
const SLEEPS_PER_ARMING: u32 = 16;
/// Number of empty calls of the thread after which it no longer waits for an engine that was not progressed.
const STALE_CALLS: u32 = 64;
/// A thread with more engines than this never blocks.
const MOST_ENGINES: usize = 32;

/// Environment variable that selects the strategy.
const VARIABLE: &str = "SOFTDOCA_IDLE";

/// Behaviour of a thread whose engines have no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// `spin`: polls continuously, as on hardware.
    Spin,
    /// `yield`: yields the CPU.
    Yield,
    /// `sleep`, the default, or `sleep:MAX`: sleeps after a short time, for at most `MAX` if given.
    Sleep(Option<Duration>),
}

impl Strategy {
    /// The strategy selected by the environment.
    ///
    /// # Errors
    /// [`Error::BadConfig`] for an invalid value.
    pub(super) fn get() -> Result<Strategy> {
        static STRATEGY: OnceLock<Result<Strategy>> = OnceLock::new();
        *STRATEGY.get_or_init(|| match std::env::var_os(VARIABLE) {
            None => Ok(Strategy::Sleep(None)),
            Some(value) => value.to_str().and_then(Self::parse).ok_or_else(|| {
                Error::BadConfig.because(format_args!(
                    "expected spin, yield, sleep or sleep:MAX as {VARIABLE}, with MAX a number of us, ms or s such as 5ms, got {value:?}"
                ))
            }),
        })
    }

    fn parse(text: &str) -> Option<Strategy> {
        match text {
            "" | "sleep" => Some(Strategy::Sleep(None)),
            "spin" => Some(Strategy::Spin),
            "yield" => Some(Strategy::Yield),
            _ => {
                let most = text.strip_prefix("sleep:")?;
                let digits = most.find(|c: char| !c.is_ascii_digit())?;
                let number: u64 = most[..digits].parse().ok()?;
                let unit = match &most[digits..] {
                    "us" => Duration::from_micros,
                    "ms" => Duration::from_millis,
                    "s" => Duration::from_secs,
                    _ => return None,
                };
                Some(Strategy::Sleep(Some(unit(number)))).filter(|_| number > 0)
            }
        }
    }
}

/// The part of an engine that blocking needs. It may outlive the engine.
#[derive(Debug)]
pub(super) struct Sleeper {
    epoll: Arc<OwnedFd>,
    armed: AtomicBool,
    /// `true` if the program has the notification handle, and waits by itself.
    notifies: AtomicBool,
    /// Calls since the engine was armed.
    calls_armed: AtomicU32,
}

impl Sleeper {
    pub(super) fn new(epoll: Arc<OwnedFd>) -> Self {
        Self {
            epoll,
            armed: AtomicBool::new(false),
            notifies: AtomicBool::new(false),
            calls_armed: AtomicU32::new(0),
        }
    }

    pub(super) fn set_notifies(&self) {
        self.notifies.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    pub(super) fn set_armed(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
        self.calls_armed.store(0, Ordering::Relaxed);
    }

    /// `true` if the armed engine need not be armed again in this call: the thread's last sleep was short, and was not
    /// interrupted.
    pub(super) fn stays_armed(&self) -> bool {
        let calls = self.calls_armed.load(Ordering::Relaxed) + 1;
        self.calls_armed.store(calls, Ordering::Relaxed);
        calls < SLEEPS_PER_ARMING
            && !self.notifies.load(Ordering::Relaxed)
            && IDLE.with_borrow(|idle| idle.timed_out)
    }
}

struct Entry {
    sleeper: Arc<Sleeper>,
    /// Value of `Idle::calls` at the thread's last empty call for this engine.
    seen: u32,
}

struct Idle {
    engines: Vec<Entry>,
    /// Empty calls since the last call that found events.
    empty: u32,
    /// All empty calls, wrapping.
    calls: u32,
    sleep: Duration,
    /// `true` if the last sleep was short, and ended with its timeout.
    timed_out: bool,
    /// Time of the first sleep since the last call that found events.
    since: Option<Instant>,
    /// Events since the thread last yielded.
    busy: u32,
    contention: Contention,
}

thread_local! {
    static IDLE: RefCell<Idle> = const { RefCell::new(Idle::NEW) };
}

/// Records a call that delivered this number of events.
pub(super) fn found_work(events: u32) {
    let yields = IDLE.with_borrow_mut(|idle| {
        idle.empty = 0;
        idle.sleep = SHORTEST_SLEEP;
        idle.timed_out = false;
        idle.since = None;
        idle.busy += events;
        let yields = idle.busy >= MOST_EVENTS;
        if yields {
            idle.busy = 0;
        }
        yields && !idle.contention.is_present()
    });
    if yields {
        yield_cpu();
    }
}

/// Yields and records the duration. All yields are timed, because an undetected long yield would take as long as
/// reading the clock for a hundred thousand short ones.
fn yield_cpu() {
    let start = Instant::now();
    std::thread::yield_now();
    let now = Instant::now();
    IDLE.with_borrow_mut(|idle| idle.contention.yielded(now, now - start));
}

enum Step {
    Spin,
    Yield,
    ShortSleep,
    Arm,
}

/// Handles an empty call: spins, yields, sleeps briefly, or arms the engine with `arm` and blocks, with `hurry` only
/// briefly. Returns `true` if arming delivered events.
pub(super) fn found_nothing(
    sleeper: &Arc<Sleeper>,
    arm: impl FnOnce() -> Arming,
    hurry: impl FnOnce() -> bool,
) -> bool {
    match IDLE.with_borrow_mut(|idle| idle.next_step(sleeper)) {
        Step::Spin => {
            std::hint::spin_loop();
            false
        }
        Step::Yield => {
            yield_cpu();
            false
        }
        Step::ShortSleep => {
            sleep_briefly();
            false
        }
        Step::Arm => {
            // Callbacks may run here and progress other engines: no borrow is held.
            match arm() {
                Arming::Armed => sleep_if_all_armed(hurry()),
                // The next call polls again soon.
                Arming::Stirred => {}
                Arming::Delivered => {
                    found_work(1);
                    return true;
                }
            }
            false
        }
    }
}

/// Must be called when a submission has to be retried: programs retry in a loop inside a callback, and the peer that
/// would free a slot may need this core.
pub(crate) fn yield_before_retry() {
    if IDLE.with_borrow(|idle| idle.contention.is_present()) {
        sleep_briefly();
    } else {
        yield_cpu();
    }
}

impl Idle {
    const NEW: Self = Self {
        engines: Vec::new(),
        empty: 0,
        calls: 0,
        sleep: SHORTEST_SLEEP,
        timed_out: false,
        since: None,
        busy: 0,
        contention: Contention::NONE,
    };

    fn next_step(&mut self, sleeper: &Arc<Sleeper>) -> Step {
        // An engine is not created with an invalid value.
        match Strategy::get() {
            Ok(Strategy::Spin) => return Step::Spin,
            Ok(Strategy::Yield) => return Step::Yield,
            Ok(Strategy::Sleep(_)) | Err(_) => {}
        }
        self.calls = self.calls.wrapping_add(1);
        self.empty = self.empty.saturating_add(1);
        let (calls, mut known) = (self.calls, false);
        for entry in &mut self.engines {
            if Arc::ptr_eq(&entry.sleeper, sleeper) {
                entry.seen = calls;
                known = true;
            }
        }
        if !known {
            // Drops destroyed engines, because a busy thread may never reach the check for unused engines below.
            self.engines
                .retain(|entry| Arc::strong_count(&entry.sleeper) > 1);
            self.engines.push(Entry {
                sleeper: Arc::clone(sleeper),
                seen: calls,
            });
        }
        let rounds = self.empty / self.engines.len() as u32;
        let is_peers_turn = self.busy >= ENOUGH_EVENTS;
        if is_peers_turn {
            self.busy = 0;
        } else if rounds < SPINS {
            return Step::Spin;
        }
        let (pass, passes) = if self.contention.is_present() {
            (Step::ShortSleep, SHORT_SLEEPS)
        } else {
            (Step::Yield, YIELDS)
        };
        let waits_itself = |entry: &Entry| entry.sleeper.notifies.load(Ordering::Relaxed);
        if is_peers_turn
            || rounds < passes
            || self.engines.len() > MOST_ENGINES
            || self.engines.iter().any(waits_itself)
        {
            pass
        } else {
            self.engines
                .retain(|entry| calls.wrapping_sub(entry.seen) <= STALE_CALLS);
            Step::Arm
        }
    }
}

/// Longest sleep of a thread that has been idle for `idle_time`.
fn longest_sleep(strategy: Strategy, idle_time: Duration) -> Duration {
    match strategy {
        Strategy::Sleep(Some(most)) => most,
        _ if idle_time < LONG_IDLE_TIME => LONGEST_SHORT_SLEEP,
        _ => (idle_time / PART_OF_IDLE_TIME).min(LONGEST_SLEEP),
    }
}

fn sleep_if_all_armed(hurry: bool) {
    let Some((sleepers, duration, is_short)) = IDLE.with_borrow_mut(|idle| {
        if !idle.engines.iter().all(|entry| entry.sleeper.is_armed()) {
            return None;
        }
        if hurry {
            idle.sleep = SHORTEST_SLEEP;
        }
        let now = Instant::now();
        let idle_time = now - *idle.since.get_or_insert(now);
        let strategy = Strategy::get().unwrap_or(Strategy::Sleep(None));
        let longest = longest_sleep(strategy, idle_time);
        let duration = idle.sleep.min(longest);
        #[cfg(test)]
        let duration = FIXED_SLEEP.get().unwrap_or(duration);
        idle.sleep = duration.max(SHORTEST_SLEEP) * 2;
        let sleepers: Vec<Arc<Sleeper>> = idle
            .engines
            .iter()
            .map(|entry| Arc::clone(&entry.sleeper))
            .collect();
        Some((sleepers, duration, longest <= LONGEST_SHORT_SLEEP))
    }) else {
        return;
    };
    let mut fds: Vec<PollFd<'_>> = sleepers
        .iter()
        .map(|sleeper| PollFd::new(&*sleeper.epoll, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: i64::from(duration.subsec_nanos()),
    };
    // After a wake-up or a signal, the next call polls all sources.
    let timed_out = rustix::event::poll(&mut fds, Some(&timeout)) == Ok(0);
    IDLE.with_borrow_mut(|idle| idle.timed_out = timed_out && is_short);
}

#[cfg(test)]
thread_local! {
    static FIXED_SLEEP: std::cell::Cell<Option<Duration>> = const { std::cell::Cell::new(None) };
}

/// Runs `work`, in which this thread sleeps for `duration` unless it is woken. With it, a test can distinguish a
/// wake-up from a timeout on any machine.
#[cfg(test)]
pub(crate) fn with_sleeps_of<T>(duration: Duration, work: impl FnOnce() -> T) -> T {
    FIXED_SLEEP.set(Some(duration));
    let result = work();
    FIXED_SLEEP.set(None);
    result
}

/// A longer yield means that a CPU-bound thread ran, and not a peer.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Time without yields after a long yield. Initially short, because a peer may have had much work, or the machine may
/// have been suspended.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Time without yields after repeated long yields: one yield per second takes less than 1 % of the time.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Growth factor of the pause after another long yield.
const GROWTH: u32 = 4;
/// The pause is halved when all yields were short for at least this time and for as long as the last pause, because
/// some yields reach only a peer although CPU-bound threads are waiting.
const SHORTEST_TRIAL: Duration = Duration::from_millis(8);

/// Estimate of CPU contention: `true` while another thread occupies this CPU without yielding.
///
/// A peer that gets the CPU completes its work and yields within microseconds. Other threads, such as the main thread
/// of a program that polls a socket, keep the CPU for a whole time slice of milliseconds, and the kernel treats a yield
/// as the end of the yielder's own slice. Under such contention, an idle thread should sleep briefly, because its timer
/// preempts the other thread, and a busy thread should not yield.
///
/// Such threads migrate between CPUs, and if peers also share the CPU, only a small part of the yields is affected by
/// such a thread. Therefore an observation is valid for a period of time, and not for a number of yields, which pass
/// quickly when the CPU is free.
#[derive(Debug)]
pub(super) struct Contention {
    /// Duration of the last pause, or of the next one as adapted since then.
    pause: Duration,
    /// End of the last pause, or of the last trial period in which all yields were short. `None` without contention.
    since: Option<Instant>,
}

impl Contention {
    pub(super) const NONE: Self = Self {
        pause: Duration::ZERO,
        since: None,
    };

    /// `true` if the thread must not yield now. Reads the clock only if there was a recent long yield.
    pub(super) fn is_present(&self) -> bool {
        self.since.is_some() && self.is_present_at(Instant::now())
    }

    fn is_present_at(&self, now: Instant) -> bool {
        self.since.is_some_and(|end| now < end)
    }

    /// Records a yield that returned at `now` and took `away`.
    pub(super) fn yielded(&mut self, now: Instant, away: Duration) {
        if away > LONG_YIELD {
            self.pause = (GROWTH * self.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            self.since = Some(now + self.pause);
        } else if let Some(since) = self.since
            && now.saturating_duration_since(since) >= self.pause.max(SHORTEST_TRIAL)
        {
            self.pause /= 2;
            self.since = Some(now);
            if self.pause < SHORTEST_PAUSE {
                *self = Self::NONE;
            }
        }
    }
}

/// Duration of a short sleep: about the time that a peer needs. Shorter sleeps end before the CPU is released.
const SHORT_SLEEP: Duration = Duration::from_micros(20);
/// Timer slack of a short sleep, in nanoseconds. The default of 50 us would be used up entirely.
const SLACK: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// Sleeps for [`SHORT_SLEEP`], and restores the thread's timer slack afterwards: other sleeps are the program's own.
pub(super) fn sleep_briefly() {
    let usual = current_timer_slack().ok().and_then(NonZeroU64::new);
    let is_precise = usual.is_some() && set_current_timer_slack(Some(SLACK)).is_ok();
    std::thread::sleep(SHORT_SLEEP);
    if is_precise {
        // Cannot fail, because the value was in use before.
        let _ = set_current_timer_slack(usual);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn strategies_are_parsed() {
        let limit = |most| Some(Strategy::Sleep(Some(most)));
        assert_eq!(Strategy::parse("spin"), Some(Strategy::Spin));
        assert_eq!(Strategy::parse("yield"), Some(Strategy::Yield));
        for default in ["", "sleep"] {
            assert_eq!(Strategy::parse(default), Some(Strategy::Sleep(None)));
        }
        assert_eq!(
            Strategy::parse("sleep:200us"),
            limit(Duration::from_micros(200))
        );
        assert_eq!(
            Strategy::parse("sleep:50ms"),
            limit(Duration::from_millis(50))
        );
        assert_eq!(Strategy::parse("sleep:1s"), limit(Duration::from_secs(1)));
        for invalid in [
            "nap",
            "sleep:",
            "sleep:5",
            "sleep:0ms",
            "sleep:ms",
            "sleep:5m",
            "sleep:-1ms",
            "sleep:99999999999999999999ms",
            "Spin",
        ] {
            assert_eq!(Strategy::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn sleeps_are_short_until_the_thread_has_been_idle_for_long() {
        let longest = |seconds| longest_sleep(Strategy::Sleep(None), Duration::from_secs(seconds));
        for seconds in [0, 1, 4] {
            assert_eq!(longest(seconds), Duration::from_millis(1));
        }
        assert_eq!(longest(5), Duration::from_millis(10));
        for seconds in [25, 100_000] {
            assert_eq!(longest(seconds), Duration::from_millis(50));
        }
        let most = Duration::from_millis(20);
        assert_eq!(
            longest_sleep(Strategy::Sleep(Some(most)), Duration::ZERO),
            most
        );
    }

    /// The steps of a thread after a number of events, by their first letters, up to the arming.
    fn steps(contention: bool, events: u32) -> String {
        let mut idle = Idle {
            busy: events,
            ..Idle::NEW
        };
        if contention {
            for _ in 0..8 {
                idle.contention
                    .yielded(Instant::now(), Duration::from_millis(3));
            }
        }
        let epoll = Arc::new(
            std::io::stderr()
                .as_fd()
                .try_clone_to_owned()
                .expect("a descriptor"),
        );
        let sleeper = Arc::new(Sleeper::new(epoll));
        let mut steps = String::new();
        while !steps.ends_with('A') {
            steps.push(match idle.next_step(&sleeper) {
                Step::Spin => 's',
                Step::Yield => 'y',
                Step::ShortSleep => 'n',
                Step::Arm => 'A',
            });
        }
        steps
    }

    #[test]
    fn an_idle_thread_spins_and_yields_and_sleeps() {
        let expected = format!("{}{}A", "s".repeat(7), "y".repeat(392));
        assert_eq!(steps(false, 1), expected);
        let expected = format!("y{}{}A", "s".repeat(6), "y".repeat(392));
        assert_eq!(steps(false, ENOUGH_EVENTS), expected);
    }

    #[test]
    fn an_idle_thread_sleeps_briefly_under_contention() {
        let expected = format!("{}{}A", "s".repeat(7), "n".repeat(12));
        assert_eq!(steps(true, 1), expected);
        let expected = format!("n{}{}A", "s".repeat(6), "n".repeat(12));
        assert_eq!(steps(true, ENOUGH_EVENTS), expected);
    }

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(3);

    /// Time after `now` during which the thread does not yield, in tenths of a millisecond.
    fn paused(contention: &Contention, now: Instant) -> Duration {
        let step = Duration::from_micros(100);
        let steps = (0..).take_while(|steps| contention.is_present_at(now + *steps * step));
        step * steps.count() as u32
    }

    #[test]
    fn short_yields_mean_no_contention() {
        let (mut contention, now) = (Contention::NONE, Instant::now());
        assert!(!contention.is_present());
        for milliseconds in 0..100 {
            contention.yielded(now + Duration::from_millis(milliseconds), SHORT);
            assert_eq!(paused(&contention, now), Duration::ZERO);
        }
    }

    #[test]
    fn pauses_grow_with_every_long_yield_up_to_a_second() {
        let (mut contention, mut now) = (Contention::NONE, Instant::now());
        for milliseconds in [1, 4, 16, 64, 256, 1000, 1000] {
            contention.yielded(now, LONG);
            let pause = Duration::from_millis(milliseconds);
            assert_eq!(paused(&contention, now), pause);
            now += pause;
            // The next yield reaches a peer.
            contention.yielded(now, SHORT);
            assert_eq!(paused(&contention, now), Duration::ZERO);
        }
    }

    #[test]
    fn contention_ends_soon_after_a_single_long_yield() {
        let (mut contention, mut now) = (Contention::NONE, Instant::now());
        contention.yielded(now, LONG);
        now += SHORTEST_PAUSE + SHORTEST_TRIAL;
        contention.yielded(now, SHORT);
        assert!(
            contention.since.is_none(),
            "a peer, or the machine was away"
        );
        for _ in 0..5 {
            contention.yielded(now, LONG);
        }
        let pause = paused(&contention, now);
        assert_eq!(pause, Duration::from_millis(256));
        now += pause;
        let almost = now + pause - SHORT;
        contention.yielded(almost, SHORT);
        contention.yielded(almost, LONG);
        assert_eq!(
            paused(&contention, almost),
            LONGEST_PAUSE,
            "it was elsewhere"
        );
        now = almost + LONGEST_PAUSE;
        let mut halved = 0;
        while contention.since.is_some() {
            now += contention.pause.max(SHORTEST_TRIAL);
            contention.yielded(now, SHORT);
            halved += 1;
        }
        assert_eq!(halved, 10, "1 s, 500 ms, ... 2 ms, 1 ms: it has left");
    }

    #[test]
    fn a_short_sleep_restores_the_timer_slack() {
        let slack = NonZeroU64::new(70_000);
        set_current_timer_slack(slack).expect("a thread may set its own");
        sleep_briefly();
        assert_eq!(current_timer_slack().ok().and_then(NonZeroU64::new), slack);
    }
}
