//! A cable between two machines, with injected faults: it can be cut, delay frames or lose them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use deployment::network::{Network, far, near};
use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec};
use tappers::{Interface, Tap};

use crate::violation::Violation;

/// Maximum size of a frame in bytes.
const LONGEST_FRAME: usize = 65_536;
/// Maximum number of delayed frames; further ones are dropped, as by a switch.
const MOST_DELAYED: usize = 20_000;
/// Maximum number of frames received from one device before the other one is polled.
const BATCH: usize = 64;

/// Maximum number of kinds of frames that a cable distinguishes; further kinds are counted together.
const MOST_FLOWS: usize = 1000;
/// Types of Ethernet frames.
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flow {
    Arp,
    /// A packet of this protocol (6 is TCP) between these addresses.
    Ip(u8, IpAddr, IpAddr),
    /// A frame of another type; 0 for frames that are too short, and for further kinds beyond the maximum.
    Other(u16),
}

impl Flow {
    fn of(frame: &[u8]) -> Self {
        let Some(kind) = frame.get(12..14) else {
            return Self::Other(1);
        };
        let kind = u16::from_be_bytes([kind[0], kind[1]]);
        let packet = &frame[14..];
        let v4 = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let v6 = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
        let flow = match kind {
            ARP => Some(Self::Arp),
            IPV4 => v4(12)
                .zip(v4(16))
                .map(|(from, to)| Self::Ip(packet[9], from.into(), to.into())),
            IPV6 => v6(8)
                .zip(v6(24))
                .map(|(from, to)| Self::Ip(packet[6], from.into(), to.into())),
            _ => None,
        };
        flow.unwrap_or(Self::Other(kind))
    }
}

/// `arp`, `ip PROTOCOL FROM TO` or `other TYPE`.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arp => f.write_str("arp"),
            Self::Ip(protocol, from, to) => write!(f, "ip {protocol} {from} {to}"),
            Self::Other(kind) => write!(f, "other {kind}"),
        }
    }
}

impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let flow = match words[..] {
            ["arp"] => Some(Self::Arp),
            ["ip", protocol, from, to] => (|| {
                let (from, to) = (from.parse().ok()?, to.parse().ok()?);
                Some(Self::Ip(protocol.parse().ok()?, from, to))
            })(),
            ["other", kind] => kind.parse().ok().map(Self::Other),
            _ => None,
        };
        flow.ok_or_else(|| format!("expected a kind of frame, got {text:?}"))
    }
}

/// Treatment of the frames of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condition {
    /// All frames are lost.
    pub cut: bool,
    /// Delay of each frame.
    pub delay: Duration,
    /// Number of lost frames per 1000.
    pub loss: u16,
}

impl Condition {
    /// A cable without a fault.
    pub const GOOD: Self = Self {
        cut: false,
        delay: Duration::ZERO,
        loss: 0,
    };
    pub const CUT: Self = Self {
        cut: true,
        ..Self::GOOD
    };
    pub const SLOW: Self = Self {
        delay: Duration::from_millis(50),
        ..Self::GOOD
    };
    /// One of 100 frames is lost.
    pub const LOSSY: Self = Self {
        loss: 10,
        ..Self::GOOD
    };
}

/// Three numbers: cut (0 or 1), delay in milliseconds, lost frames per 1000.
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

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// Queued until its delay has passed.
    Delayed,
    Lost,
}

/// One direction of a cable, without a clock of its own.
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

    /// Sets the condition. A cut drops the delayed frames.
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
        // Frames are delivered in order.
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

/// Forwards frames between two new TAP devices with these names. Each line on standard input contains two [`Condition`]s, towards the far
/// end and towards the near end, separated by a comma; it is answered with a line once they are in effect. The line `flows` is answered with
/// the kinds of frames so far. Returns at the end of the input.
///
/// # Errors
///
/// The devices cannot be created (for example in a network namespace of another user), or a line is malformed.
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
    let mut flows = BTreeSet::new();
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
            if text.trim() == "flows" {
                let flows: Vec<_> = flows.iter().map(Flow::to_string).collect();
                writeln!(output, "{}", flows.join(","))?;
                continue;
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
                let flow = Flow::of(&frame[..len]);
                if !flows.contains(&flow) {
                    let is_full = flows.len() >= MOST_FLOWS;
                    flows.insert(if is_full { Flow::Other(0) } else { flow });
                }
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

/// Sends a frame. It is dropped if the device is down because its machine is not running.
fn send(tap: &Tap, frame: &[u8]) {
    let _ = tap.send(frame);
}

/// Waits for frames or input, with a time limit. Returns `true` if there is input.
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

/// The process of a cable. The cable is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Cable {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Cable {
    /// Connects machine 0 of a network without cables to another machine. `program` creates the command that calls
    /// [`relay`] with the two names, which are appended as arguments.
    pub(crate) fn connect(
        network: &Network,
        machine: usize,
        program: &[std::ffi::OsString],
    ) -> Result<Self, Violation> {
        let [program, arguments @ ..] = program else {
            return Err(Violation::new("there is no program for cables"));
        };
        let mut command = Command::new(program);
        command.args(arguments).args([near(machine), far(machine)]);
        let mut process = network
            .place(0, command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (commands, answers) = pipes.ok_or_else(|| Violation::new("no pipes"))?;
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
            .map_err(|error| Violation::new(error.to_string()))?;
        Ok(cable)
    }

    /// Process id of the cable's process.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Changes the conditions towards machine 0's peer and in the other direction. Returns once they are in effect.
    pub(crate) fn set(&mut self, there: Condition, back: Condition) -> Result<(), Violation> {
        writeln!(self.commands, "{there},{back}")?;
        self.expect("set")
    }

    /// Kinds of frames so far.
    pub(super) fn flows(&mut self) -> Result<Vec<Flow>, Violation> {
        writeln!(self.commands, "flows")?;
        let line = self.answer()?;
        let words = line.trim().split(',').filter(|word| !word.is_empty());
        words
            .map(|word| word.parse().map_err(Violation::new))
            .collect()
    }

    fn answer(&mut self) -> Result<String, Violation> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }

    fn expect(&mut self, word: &str) -> Result<(), Violation> {
        let line = self.answer()?;
        Violation::unless(
            line.trim() == word,
            format!("the cable to say {word:?}"),
            format!("{line:?}"),
        )
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // The call fails only if the process has exited.
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
    fn frames_are_told_apart_by_protocol_and_addresses() {
        let mut frame = vec![0; 14 + 40];
        frame[12..14].copy_from_slice(&IPV4.to_be_bytes());
        frame[14 + 9] = 6;
        frame[14 + 12..14 + 20].copy_from_slice(&[10, 91, 1, 1, 10, 91, 1, 2]);
        let tcp = Flow::of(&frame);
        assert_eq!(tcp.to_string(), "ip 6 10.91.1.1 10.91.1.2");
        frame[12..14].copy_from_slice(&IPV6.to_be_bytes());
        frame[14 + 6] = 58;
        frame[14 + 8..].fill(0);
        frame[14 + 23] = 1;
        let icmp = Flow::of(&frame);
        assert_eq!(icmp.to_string(), "ip 58 ::1 ::");
        let short = Flow::of(&frame[..14 + 39]);
        assert_eq!(short, Flow::Other(IPV6));
        frame[12..14].copy_from_slice(&ARP.to_be_bytes());
        assert_eq!(Flow::of(&frame), Flow::Arp);
        assert_eq!(Flow::of(&frame[..13]), Flow::Other(1));
        for flow in [tcp, icmp, short, Flow::Arp] {
            assert_eq!(flow.to_string().parse(), Ok(flow));
        }
        assert!("ip 6 10.91.1.1".parse::<Flow>().is_err());
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
    fn cut_line_loses_all_frames_and_those_in_flight() {
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
