//! A cable between two machines that can be cut, slow or lossy.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use deployment::network::{Network, far, near};
use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec};
use tappers::{Interface, Tap};

use crate::role::Wrong;

/// Bytes of the longest frame.
const LONGEST_FRAME: usize = 65_536;
/// Frames that are delayed at a time; further ones are lost, as in a switch.
const MOST_DELAYED: usize = 20_000;
/// Frames that are taken from one device before the other one is looked at.
const BATCH: usize = 64;

/// Treatment of the frames of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condition {
    /// All frames are lost.
    pub cut: bool,
    /// Time that a frame takes.
    pub delay: Duration,
    /// Lost frames of 1000.
    pub loss: u16,
}

impl Condition {
    /// A cable without a fault.
    pub const GOOD: Self = Self {
        cut: false,
        delay: Duration::ZERO,
        loss: 0,
    };
    /// All frames are lost.
    pub const CUT: Self = Self {
        cut: true,
        ..Self::GOOD
    };
}

/// Three numbers: cut (0 or 1), milliseconds of delay, lost frames of 1000.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = self.delay.as_millis();
        write!(f, "{} {delay} {}", u8::from(self.cut), self.loss)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<u64> = text
            .split_ascii_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        match words[..] {
            [cut @ 0..=1, delay @ 0..=60_000, loss @ 0..=1000] => Ok(Self {
                cut: cut == 1,
                delay: Duration::from_millis(delay),
                // At most 1000.
                loss: loss as u16,
            }),
            _ => Err(format!(
                "expected cut (0 or 1), delay in milliseconds, lost frames of 1000; got {text:?}"
            )),
        }
    }
}

/// Treatment of a frame.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Forwarded.
    Pass,
    /// Queued until its delay has passed.
    Delayed,
    /// Dropped.
    Lost,
}

/// One direction of a cable, in its own time.
struct Line {
    condition: Condition,
    delayed: VecDeque<(Duration, Vec<u8>)>,
    random: Rng,
}

impl Line {
    fn new(seed: u64) -> Self {
        Self {
            condition: Condition::GOOD,
            delayed: VecDeque::new(),
            random: Rng::with_seed(seed),
        }
    }

    /// Frames that were delayed before the cable is cut are lost.
    fn set(&mut self, condition: Condition) {
        self.condition = condition;
        if condition.cut {
            self.delayed.clear();
        }
    }

    fn offer(&mut self, frame: &[u8], now: Duration) -> Verdict {
        let Condition { cut, delay, loss } = self.condition;
        if cut || loss > 0 && self.random.u16(0..1000) < loss {
            return Verdict::Lost;
        }
        // Frames do not overtake each other.
        let earliest = self.delayed.back().map_or(now, |(due, _)| *due);
        let due = (now + delay).max(earliest);
        if due <= now && self.delayed.is_empty() {
            return Verdict::Pass;
        }
        if self.delayed.len() >= MOST_DELAYED {
            return Verdict::Lost;
        }
        self.delayed.push_back((due, frame.to_vec()));
        Verdict::Delayed
    }

    fn next_due(&self) -> Option<Duration> {
        self.delayed.front().map(|(due, _)| *due)
    }

    fn take_due(&mut self, now: Duration) -> Option<Vec<u8>> {
        let (_, frame) = self.delayed.pop_front_if(|(due, _)| *due <= now)?;
        Some(frame)
    }
}

/// Carries frames between two new TAP devices of these names. Standard input brings lines of two [`Condition`]s, towards the far end and
/// towards the near end, with a comma between them; each is answered by a line when it holds. Returns at the end of the input.
///
/// # Errors
///
/// The devices cannot be made, as in a network namespace of another user, or a line is not as expected.
pub fn relay(near: &str, far: &str) -> io::Result<()> {
    let mut taps = [open(near)?, open(far)?];
    for tap in &mut taps {
        tap.set_nonblocking(true)?;
    }
    let mut lines = [Line::new(1), Line::new(2)];
    let (mut input, mut text) = (io::stdin().lock(), String::new());
    let mut output = io::stdout();
    writeln!(output, "ready")?;
    let begin = Instant::now();
    let mut frame = vec![0; LONGEST_FRAME];
    loop {
        let due = lines.iter().filter_map(Line::next_due).min();
        if wait(
            &taps,
            io::stdin().as_fd(),
            due.map(|due| due.saturating_sub(begin.elapsed())),
        )? {
            text.clear();
            if input.read_line(&mut text)? == 0 {
                return Ok(());
            }
            let conditions = text.trim().split_once(',');
            let (there, back) = conditions.ok_or_else(|| io::Error::other("expected a comma"))?;
            lines[0].set(there.parse().map_err(io::Error::other)?);
            lines[1].set(back.parse().map_err(io::Error::other)?);
            writeln!(output, "set")?;
        }
        for (from, line) in lines.iter_mut().enumerate() {
            let to = &taps[1 - from];
            while let Some(frame) = line.take_due(begin.elapsed()) {
                send(to, &frame);
            }
            for _ in 0..BATCH {
                let Ok(len) = taps[from].recv(&mut frame) else {
                    break;
                };
                if line.offer(&frame[..len], begin.elapsed()) == Verdict::Pass {
                    send(to, &frame[..len]);
                }
            }
        }
    }
}

fn open(name: &str) -> io::Result<Tap> {
    Tap::new_named(Interface::new(name)?).map_err(|error| {
        io::Error::other(format!(
            "cannot make the TAP device {name}: {error}; expected /dev/net/tun and CAP_NET_ADMIN"
        ))
    })
}

/// A frame that the device does not take, as its machine is not up, is lost.
fn send(tap: &Tap, frame: &[u8]) {
    let _ = tap.send(frame);
}

/// Waits for frames, for the input, or for a time. Returns `true` if there is input.
fn wait(taps: &[Tap; 2], input: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<bool> {
    let [near, far] = taps.each_ref().map(|tap| PollFd::new(tap, PollFlags::IN));
    let mut fds = [near, far, PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos() as _,
    });
    match rustix::event::poll(&mut fds, limit.as_ref()) {
        Ok(_) => Ok(!fds[2].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The process of a cable. The cable is gone when this is dropped.
#[derive(Debug)]
pub(super) struct Cable {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Cable {
    /// Connects machine 0 and another one of a network that has no cables. `program` makes the command that calls [`relay`] with the two
    /// names behind it.
    pub(super) fn connect(
        network: &Network,
        machine: usize,
        program: &[std::ffi::OsString],
    ) -> Result<Self, Wrong> {
        let [program, arguments @ ..] = program else {
            return Err(Wrong::new("there is no program for cables"));
        };
        let mut command = Command::new(program);
        command.args(arguments).args([near(machine), far(machine)]);
        let mut process = network
            .place(0, command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (commands, answers) = pipes.ok_or_else(|| Wrong::new("no pipes"))?;
        let mut cable = Self {
            process,
            commands,
            answers: BufReader::new(answers),
        };
        cable.expect("ready")?;
        let holder = network.holder(machine).to_string();
        let name = far(machine);
        network
            .run(0, &["ip", "link", "set", &name, "netns", &holder])
            .and_then(|_| network.set_up(machine))
            .map_err(|error| Wrong::new(error.to_string()))?;
        Ok(cable)
    }

    /// Changes the conditions towards machine 0's peer and back. They hold when this returns.
    pub(super) fn set(&mut self, there: Condition, back: Condition) -> Result<(), Wrong> {
        writeln!(self.commands, "{there},{back}")?;
        self.expect("set")
    }

    fn expect(&mut self, word: &str) -> Result<(), Wrong> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Wrong::unless(
            line.trim() == word,
            format!("the cable to say {word:?}"),
            format!("{line:?}"),
        )
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // It has ended if it has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn with(condition: Condition) -> Line {
        let mut line = Line::new(7);
        line.set(condition);
        line
    }

    #[test]
    fn conditions_round_trip_as_text() {
        let slow = Condition {
            delay: ms(50),
            loss: 10,
            ..Condition::GOOD
        };
        for condition in [Condition::GOOD, Condition::CUT, slow] {
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
        for text in ["", "0 0", "2 0 0", "0 0 1001", "0 x 0", "0 0 0 0"] {
            assert!(text.parse::<Condition>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn delayed_frames_keep_their_order_when_the_delay_shrinks() {
        let mut line = with(Condition {
            delay: ms(50),
            ..Condition::GOOD
        });
        assert_eq!(line.offer(b"1", ms(0)), Verdict::Delayed);
        line.set(Condition::GOOD);
        assert_eq!(line.offer(b"2", ms(10)), Verdict::Delayed);
        assert_eq!(line.next_due(), Some(ms(50)));
        assert_eq!(line.take_due(ms(49)), None);
        assert_eq!(line.take_due(ms(50)).as_deref(), Some(&b"1"[..]));
        assert_eq!(line.take_due(ms(50)).as_deref(), Some(&b"2"[..]));
        assert_eq!(line.offer(b"3", ms(51)), Verdict::Pass);
    }

    #[test]
    fn cut_line_loses_all_frames_and_those_under_way() {
        let mut line = with(Condition {
            delay: ms(50),
            ..Condition::GOOD
        });
        line.offer(b"1", ms(0));
        line.set(Condition::CUT);
        assert_eq!(line.offer(b"2", ms(1)), Verdict::Lost);
        assert_eq!(line.take_due(ms(1000)), None);
    }

    #[test]
    fn loss_is_as_frequent_as_it_should_be() {
        let mut line = with(Condition {
            loss: 10,
            ..Condition::GOOD
        });
        let lost = (0..100_000)
            .filter(|_| line.offer(b"1", ms(0)) == Verdict::Lost)
            .count();
        assert!((700..1300).contains(&lost), "{lost}");
    }
}
