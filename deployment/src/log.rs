//! Events in the logs of the roles as values, so that the message texts are defined in one place.
//! [`Process::wait_for_event`](crate::process::Process::wait_for_event) waits for an event.

use std::time::Duration;

/// An event that a line of a role's log or progress reports, in text format. Targets have the names that the service logs: data_1,
/// data_2 and data_p.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent<'a> {
    /// A target, or a recorder's channel, accepts connections on this TCP port.
    Listening { port: u16 },
    /// A role serves its metrics at this URL.
    ServingMetrics { url: &'a str },
    /// A service is ready for an initiator.
    WaitingForInitiator,
    /// The session with this number, from 1 on, has completed.
    SessionCompleted(u64),
    /// The session with this number, from 1 on, has failed.
    SessionFailed(u64),
    /// This number of sessions has failed since the last report, in addition to those that are reported individually.
    MoreSessionsFailed(u64),
    /// A server of several sessions has ended, and some of these have failed.
    SessionsFailed { failed: u64, ended: u64 },
    /// A server has refused a client because it is serving another one.
    ClientRefused,
    /// A client has disconnected before its first request.
    ClosedWithoutRequest,
    /// A client has not sent its first request in time.
    FirstRequestTimedOut,
    /// A service has ignored a result without a request.
    UnexpectedResult { user_data: u64 },
    /// A run has completed this number of operations.
    Progress { operations: u64 },
    /// The user has interrupted a run.
    Interrupted,
    /// A target has this storage.
    Storage { blocks: u64, block_size: u64 },
    /// A session starts without this target.
    TargetMissing(&'a str),
    /// This target is unresponsive, but is not detached, because another target is not current.
    TargetAwaited(&'a str),
    /// This target was detached, and the session continues without it.
    TargetDetached(&'a str),
    /// This target was detached, which leaves too few targets: I/Os wait.
    SetFailed(&'a str),
    /// This target, which was detached when too few were left, is online again with its data.
    TargetRestored(&'a str),
    /// No session starts, because fewer than two targets have committed this epoch of the set.
    TooFewCurrent { epoch: u64 },
    /// No session starts without this target, because it is not certain that the other targets are current.
    TargetRequired(&'a str),
    /// No session starts, because the targets belong to different sets.
    SeveralSets,
    /// No session starts, because the set stores its blocks in another form than the service is configured for, for
    /// example with another block size.
    OtherForm,
    /// No session starts, because this target is a member of a set, and the service does not support sets.
    MemberOfSet(&'a str),
    /// No session starts, because the superblock of the first of these targets names the second one.
    TargetExchanged { target: &'a str, got: &'a str },
    /// A target does not rejoin, because it is of another set.
    ForeignTarget,
    /// The rebuild of this target has started: of all stripes, or only of those whose writes it has missed.
    RebuildStarted {
        target: &'a str,
        stripes: u64,
        all: bool,
    },
    /// The rebuild of this number of stripes has failed, and is retried.
    RebuildRetried { stripes: u64 },
    /// A target could not be connected, or may not rejoin, because of the DOCA error with this name; the service tries again.
    ConnectRetried { error: &'a str },
    /// The rebuild of this target has completed.
    TargetUpToDate(&'a str),
    /// This target has returned many corrupt chunks.
    TargetFailing(&'a str),
    /// A session starts after an unclean shutdown, and settles this number of blocks whose write was interrupted.
    ResyncStarted { stripes: u64 },
    /// All blocks whose write was interrupted are settled.
    ResyncCompleted,
    /// A scrub has completed; see [`scrub_time`].
    ScrubCompleted,
    /// All written blocks of a target are durable.
    BlocksDurable,
    /// A target has persisted a superblock with this epoch.
    SuperblockPersisted { epoch: u64 },
    /// A peer has connected to a server's control channel.
    Connected,
    /// A service cannot connect to its targets before this session, and tries again.
    NotReady { session: u64 },
    /// All targets are current at the start of a session.
    AllUpToDate,
    /// An initiator has read a block with unexpected contents.
    DataMismatch,
    /// An initiator has received an answer that matches none of its requests.
    UnexpectedAnswer,
}

impl<'a> LogEvent<'a> {
    /// The event that a line reports, if any.
    pub fn parse(line: &'a str) -> Option<Self> {
        let target = |prefix: &str, suffix| between(line, prefix, suffix);
        let number = |prefix: &str, suffix| between(line, prefix, suffix)?.parse().ok();
        if let Some((_, port)) = line.rsplit_once("listening on port ") {
            let port = port.trim().parse().ok()?;
            return Some(Self::Listening { port });
        }
        if let Some((_, url)) = line.split_once("metrics at ") {
            return Some(Self::ServingMetrics { url: url.trim() });
        }
        if let Some(number) = number("session ", " has completed") {
            return Some(Self::SessionCompleted(number));
        }
        if let Some(number) = number("session ", " has failed: ") {
            return Some(Self::SessionFailed(number));
        }
        if let Some((failed, ended)) =
            between(line, ": error: ", " sessions have failed").and_then(|n| n.split_once(" of "))
        {
            return Some(Self::SessionsFailed {
                failed: failed.parse().ok()?,
                ended: ended.parse().ok()?,
            });
        }
        if let Some(count) = line.strip_suffix(" more sessions have failed") {
            return Some(Self::MoreSessionsFailed(count.parse().ok()?));
        }
        if let Some(name) = target("storage target ", " is missing: starting without it") {
            return Some(Self::TargetMissing(name));
        }
        if let Some(name) = target("storage target ", " is missing, and the others do not") {
            return Some(Self::TargetRequired(name));
        }
        if let Some(name) = target(
            "storage target ",
            " is unresponsive, and another one is not current",
        ) {
            return Some(Self::TargetAwaited(name));
        }
        if let Some(name) = target("detached storage target ", ", going on without it") {
            return Some(Self::TargetDetached(name));
        }
        if let Some(name) = target(
            "detached storage target ",
            ", with which too few are left: I/Os wait",
        ) {
            return Some(Self::SetFailed(name));
        }
        if let Some(name) = target("storage target ", " is online again, with its data") {
            return Some(Self::TargetRestored(name));
        }
        if let Some(name) = target("storage target ", ": it is a member of set ") {
            return Some(Self::MemberOfSet(name));
        }
        if let Some(target) = target("storage target ", " is online: rebuilding ") {
            return Some(Self::RebuildStarted {
                target,
                stripes: number(" is online: rebuilding ", " stripes, ")?,
                all: line.ends_with(" stripes, all of them"),
            });
        }
        if let Some((head, _)) = line.split_once(" stripes could not be rebuilt, trying again") {
            let (_, number) = head.rsplit_once(' ').unwrap_or(("", head));
            let stripes = number.parse().ok()?;
            return Some(Self::RebuildRetried { stripes });
        }
        if line.contains("expected a target of set ") {
            return Some(Self::ForeignTarget);
        }
        if let Some((_, error)) = line
            .strip_suffix("); trying again")
            .and_then(|head| head.rsplit_once('('))
        {
            return Some(Self::ConnectRetried { error });
        }
        if let Some(name) = target("storage target ", " is up to date") {
            return Some(Self::TargetUpToDate(name));
        }
        if let Some(name) = target("storage target ", " may be failing") {
            return Some(Self::TargetFailing(name));
        }
        if let Some(stripes) = number(
            "the set was not shut down cleanly: settling ",
            " blocks that were written last",
        ) {
            return Some(Self::ResyncStarted { stripes });
        }
        if let Some((_, epoch)) = line
            .split_once("superblock of set ")
            .and_then(|(_, superblock)| superblock.split_once(": epoch "))
        {
            let (epoch, _) = epoch.split_once('-')?;
            let epoch = epoch.parse().ok()?;
            return Some(Self::SuperblockPersisted { epoch });
        }
        if let Some(epoch) = number(
            "expected two current storage targets, with epoch ",
            ", got ",
        ) {
            return Some(Self::TooFewCurrent { epoch });
        }
        if let Some((_, data)) = line.split_once(" sent a result without a request, user data 0x") {
            let (data, _) = data.split_once(';')?;
            let user_data = u64::from_str_radix(data, 16).ok()?;
            return Some(Self::UnexpectedResult { user_data });
        }
        if let Some((target, got)) = between(line, "storage target ", "; exchange the addresses")
            .and_then(|place| place.split_once(": expected "))
        {
            let (_, got) = got.split_once(", got ")?;
            return Some(Self::TargetExchanged { target, got });
        }
        if let Some((blocks, rest)) = line.split_once(" blocks of ") {
            let (_, blocks) = blocks.rsplit_once(' ').unwrap_or(("", blocks));
            return Some(Self::Storage {
                blocks: blocks.parse().ok()?,
                block_size: rest.strip_suffix(" bytes")?.parse().ok()?,
            });
        }
        if let Some(session) = number("not ready for session ", " yet: ") {
            return Some(Self::NotReady { session });
        }
        if let Some((head, _)) = line.split_once(" operations (") {
            // Without a terminal, each has its own line; on a terminal, all are on one line.
            let (counts, _) = head.rsplit_once(" of ")?;
            let digits = counts.rsplit(|letter: char| !letter.is_ascii_digit());
            let operations = digits.into_iter().next()?.parse().ok()?;
            return Some(Self::Progress { operations });
        }
        let texts = [
            (
                "expected three storage targets of one set",
                Self::SeveralSets,
            ),
            (", but the service was started for stored ", Self::OtherForm),
            ("waiting for the initiator", Self::WaitingForInitiator),
            ("refused a further client", Self::ClientRefused),
            ("disconnected without a request", Self::ClosedWithoutRequest),
            ("closed without a request", Self::ClosedWithoutRequest),
            ("its first request", Self::FirstRequestTimedOut),
            ("interrupted by the user", Self::Interrupted),
            ("resync completed", Self::ResyncCompleted),
            (SCRUB_COMPLETED, Self::ScrubCompleted),
            ("all blocks are on the disk", Self::BlocksDurable),
            ("all storage targets are up to date", Self::AllUpToDate),
            (" is not as expected: block ", Self::DataMismatch),
            (" an answer that fits no request: ", Self::UnexpectedAnswer),
            (" connected", Self::Connected),
        ];
        let found = texts.into_iter().find(|(text, _)| line.contains(text));
        found.map(|(_, event)| event)
    }
}

const SCRUB_COMPLETED: &str = "scrub completed";

/// The port that a line reports as [`LogEvent::Listening`].
pub fn listening_port(line: &str) -> Option<u16> {
    match LogEvent::parse(line)? {
        LogEvent::Listening { port } => Some(port),
        _ => None,
    }
}

/// `Some` if a line reports [`LogEvent::WaitingForInitiator`].
pub fn waits_for_initiator(line: &str) -> Option<()> {
    (LogEvent::parse(line)? == LogEvent::WaitingForInitiator).then_some(())
}

/// The events that a text reports.
pub fn events(text: &str) -> impl Iterator<Item = LogEvent<'_>> {
    text.lines().filter_map(LogEvent::parse)
}

/// Number of stripes and duration of a scrub, from the line that reports [`LogEvent::ScrubCompleted`].
pub fn scrub_time(line: &str) -> Option<(u64, Duration)> {
    let (_, summary) = line.split_once(SCRUB_COMPLETED)?;
    let (stripes, rest) = summary.strip_prefix(": ")?.split_once(" stripes in ")?;
    let (took, _) = rest.split_once(',')?;
    let digits = took.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &took[digits.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        _ => return None,
    };
    let seconds = digits.parse::<f64>().ok()? * unit;
    let took = Duration::try_from_secs_f64(seconds).ok()?;
    Some((stripes.parse().ok()?, took))
}

/// Name of the DOCA error, such as `DOCA_ERROR_TIME_OUT`, at the end of the last error that a role has printed.
pub fn error_name(stderr: &str) -> Option<&str> {
    let (_, error) = stderr.rsplit_once(": error: ")?;
    error.lines().find_map(|line| {
        let (_, name) = line.strip_suffix(')')?.rsplit_once('(')?;
        name.starts_with("DOCA_ERROR_").then_some(name)
    })
}

/// Text between `before` and the first `after`.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (head, _) = line.split_once(after)?;
    Some(head.rsplit_once(before)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_events_is_parsed() {
        let events = [
            (
                "2026-01-01 INFO role: storage target data_1 is online: rebuilding 64 stripes, all of them",
                LogEvent::RebuildStarted {
                    target: "data_1",
                    stripes: 64,
                    all: true,
                },
            ),
            (
                "2026-01-01 INFO role: superblock of set 6f-1: epoch 3-00ab, open",
                LogEvent::SuperblockPersisted { epoch: 3 },
            ),
            (
                "ERROR role: detached storage target data_2, with which too few are left: I/Os wait until it is back: x",
                LogEvent::SetFailed("data_2"),
            ),
            (
                "INFO role: storage target data_2 is online again, with its data",
                LogEvent::TargetRestored("data_2"),
            ),
            (
                "INFO role: the set was not shut down cleanly: settling 7 blocks that were written last",
                LogEvent::ResyncStarted { stripes: 7 },
            ),
            (
                "role: error: the set stores stored chunks for --logical-block-size 4096 and --matrix-type vandermonde, but the service was \
                 started for stored chunks for --logical-block-size 4096 and --matrix-type cauchy; start it",
                LogEvent::OtherForm,
            ),
            (
                "role: error: storage target data_2: it is a member of set 6f-1, which stores x",
                LogEvent::MemberOfSet("data_2"),
            ),
            ("session 12 has failed: x", LogEvent::SessionFailed(12)),
            (
                "1545 of 4000000000 operations (0 %), 770 per second",
                LogEvent::Progress { operations: 1545 },
            ),
            (
                "    17 of 200 operations (8 %), 3 per second",
                LogEvent::Progress { operations: 17 },
            ),
            (
                "waiting for the initiator on \"doca_storage_comch\"",
                LogEvent::WaitingForInitiator,
            ),
            (
                "listening on port 40123",
                LogEvent::Listening { port: 40123 },
            ),
            (
                "7 more sessions have failed",
                LogEvent::MoreSessionsFailed(7),
            ),
            (
                "WARN not ready for session 3 yet: x",
                LogEvent::NotReady { session: 3 },
            ),
            (
                "role: error: 4 of 5 sessions have failed, the last of these: x",
                LogEvent::SessionsFailed {
                    failed: 4,
                    ended: 5,
                },
            ),
            (
                "the storage target sent a result without a request, user data 0x1f; it is ignored",
                LogEvent::UnexpectedResult { user_data: 31 },
            ),
            (
                "storage target data_1: expected data_1 of its set, got data_2; exchange the addresses, or",
                LogEvent::TargetExchanged {
                    target: "data_1",
                    got: "data_2",
                },
            ),
            (
                "WARN TLS: x (DOCA_ERROR_AUTHENTICATION); trying again",
                LogEvent::ConnectRetried {
                    error: "DOCA_ERROR_AUTHENTICATION",
                },
            ),
            (
                "INFO role: 5 blocks of 2048 bytes",
                LogEvent::Storage {
                    blocks: 5,
                    block_size: 2048,
                },
            ),
        ];
        for (line, event) in events {
            assert_eq!(LogEvent::parse(line), Some(event), "{line}");
        }
        let others = [
            "",
            "session x has failed: y",
            "listening on port x",
            "4 sessions of 5 have failed",
        ];
        for line in others {
            assert_eq!(LogEvent::parse(line), None, "{line}");
        }
    }

    #[test]
    fn time_of_a_scrub_is_parsed() {
        for (took, expected) in [("1.5s", 1500), ("250.0ms", 250), ("3000.0µs", 3)] {
            let line = format!("INFO {SCRUB_COMPLETED}: 64 stripes in {took}, 0 lost, 0 not read");
            assert_eq!(
                scrub_time(&line),
                Some((64, Duration::from_millis(expected)))
            );
        }
        assert_eq!(
            scrub_time("scrub completed: 64 stripes in a while, 0"),
            None
        );
    }

    #[test]
    fn name_of_the_last_error_is_found() {
        let stderr = "role: error: a (DOCA_ERROR_AGAIN)\nx\nrole: error: (b)\nc (DOCA_ERROR_TIME_OUT)\nafter (it)\n";
        assert_eq!(error_name(stderr), Some("DOCA_ERROR_TIME_OUT"));
        assert_eq!(error_name("role: error: wrong usage"), None);
        assert_eq!(error_name("(DOCA_ERROR_AGAIN)"), None);
    }
}
