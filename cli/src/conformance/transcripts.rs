//! Recordings of control connections: the relay that makes them, their replay and their display.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::conformance::report::{Case, Outcome, Report};
use ::conformance::transcript::replay::{Script, Settings, against_service, against_target};
use ::conformance::transcript::{
    self, Entry, Event, Header, Recorder, Relay, Side, Transcript, fields,
};
use ::deployment::implementation::{Implementation, Role};
use ::deployment::port::{Port, wait_for_listener};
use ::deployment::process::Process;
use clap::{Args, ValueEnum, value_parser};
use role_common::console::counted;
use role_common::flags::duration;
use role_common::{errln, out, signals};
use serde::Serialize;
use tabled::builder::Builder;
use wire::sbc;

use super::{ReportOptions, Result, seconds, usage};
use table::Layout;

// A relay that records the messages between services and targets.

/// Time for which a connection to a target is retried if it is refused: the target may be starting.
const TIMEOUT: Duration = Duration::from_secs(3);

const RECORD_HELP: &str = "\
Give the service the relay's address instead of the target's. Recording ends after --sessions, or with Ctrl-C.
Only the control messages over TCP are recorded, not RDMA (the data path) or Comch (between initiator and service).

Examples:
  doca-storage conformance record --listen 12346 --to 127.0.0.1:12345 --output session.transcript --sessions 1
  doca-storage zero-copy ... --storage-server 127.0.0.1:12346
  doca-storage conformance record --listen 2001 --to :1001 --listen 2002 --to :1002 --listen 2003 --to :1003 --output gga.transcript";

#[derive(Debug, Args)]
#[command(
    after_help = RECORD_HELP,
    override_usage = "doca-storage conformance record [OPTIONS]\n           --listen <[ADDRESS:]PORT> --to <HOST:PORT> --output <FILE>"
)]
pub(super) struct Record {
    /// TCP port to listen on, at 127.0.0.1 unless an address is given; 0 picks a free port and prints it. Once per --to
    #[arg(long, value_name = "[ADDRESS:]PORT", required = true)]
    listen: Vec<String>,

    /// Address of the target, by default on 127.0.0.1. Once per --listen, in the same order
    #[arg(long, value_name = "HOST:PORT", required = true)]
    to: Vec<String>,

    /// File for the transcript
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// End the recording after this number of connections per --listen
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..))]
    sessions: Option<u32>,
}

impl Record {
    /// Records until all sessions have ended, or a signal arrives.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        if self.listen.len() != self.to.len() {
            return Err(usage(format!(
                "expected the same number of --listen and --to, got {} and {}",
                self.listen.len(),
                self.to.len()
            )));
        }
        let mut channels = Vec::new();
        for (listen, to) in std::iter::zip(&self.listen, &self.to) {
            channels.push((listener(listen)?, server(to)?));
        }
        let servers = channels.iter().map(|(_, server)| server.clone()).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let header = Header {
            client: transcript::Role::Service,
            server: transcript::Role::Target,
            start_unix_ns: u64::try_from(now.as_nanos())?,
            channels: servers,
            recorder: concat!("doca-storage ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let output = |error: std::io::Error| format!("--output {}: {error}", self.output.display());
        let file = File::create(&self.output).map_err(output)?;
        let recorder = Recorder::new(file, &header).map_err(output)?;
        for (number, (listener, server)) in channels.iter().enumerate() {
            let port = listener.local_addr()?.port();
            errln!("channel {number} to {server}: listening on port {port}");
        }
        let relay = Relay {
            channels,
            timeout: TIMEOUT,
            sessions: self.sessions,
        };
        let relayed = relay.run(&recorder, &|| shutdown.is_requested());
        let summary = recorder.finish().map_err(output)?;
        relayed?;
        errln!(
            "{}: {}, {}, {} outside of frames",
            self.output.display(),
            counted(summary.sessions, "session"),
            counted(summary.frames, "frame"),
            counted(summary.raw_bytes, "byte")
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn listener(text: &str) -> Result<TcpListener> {
    let address = if text.contains(':') {
        text.to_owned()
    } else {
        format!("127.0.0.1:{text}")
    };
    let listener =
        TcpListener::bind(&address).map_err(|error| format!("--listen {text}: {error}"))?;
    Ok(listener)
}

/// Adds the address 127.0.0.1 to `:PORT`, and checks that the address can be resolved.
fn server(text: &str) -> Result<String> {
    let address = if text.starts_with(':') {
        format!("127.0.0.1{text}")
    } else {
        text.to_owned()
    };
    address
        .to_socket_addrs()
        .map_err(|error| format!("--to {text}: {error}"))?;
    Ok(address)
}

// Replay of one side of a recording.

const REPLAY_HELP: &str = "\
Start the role with the flags of the recording: its responses depend on them. It must use the same runtime directory as this program
(SOFTDOCA_RUNTIME_DIR, by default one per user). The exit status is 0 if all messages match the recording, and 1 if not.

Examples:
  doca-storage conformance replay session.transcript --to 127.0.0.1:12345
  doca-storage conformance replay session.transcript --bin ./doca_storage_target_rdma -- -d 3b:00.0 --cpu 0 --block-count 64
  doca-storage conformance replay session.transcript --against service --listen 12345";

/// Role under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// A target: the service is replayed
    Target,
    /// A service: the target is replayed; start the service with the printed port, and an initiator
    Service,
}

#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(super) struct Replay {
    /// Transcript written by `record`
    #[arg(value_name = "FILE")]
    transcript: PathBuf,

    /// Role under test; the other side is replayed
    #[arg(long, value_name = "ROLE", default_value = "target")]
    against: Against,

    /// Address of a running target
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bin")]
    to: Option<String>,

    /// Program of a target, or doca-storage, to start for each session, with the flags after -- and --listen-port
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,

    /// Directory of the DOCA libraries for --bin [default: from LD_LIBRARY_PATH and the program]
    #[arg(long, value_name = "DIR", requires = "bin")]
    library_path: Option<PathBuf>,

    /// TCP port of 127.0.0.1 for the service; 0 picks a free one and prints it. Once per channel
    #[arg(long, value_name = "PORT")]
    listen: Vec<u16>,

    /// Only this channel of the recording [default: 0 for a target, all for a service]
    #[arg(long, value_name = "NUMBER")]
    channel: Option<u32>,

    /// Only this session [default: all, one after the other]
    #[arg(long, value_name = "NUMBER")]
    session: Option<u32>,

    /// DOCA device of the replayed side [default: 03:00.0 as a service, 3b:00.0 as a target]
    #[arg(short, long)]
    device: Option<String>,

    /// Seconds that an answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = seconds(1, 3600))]
    timeout: u64,

    /// For a service: limit for a session, from the wait for its connection to its end [default: none, as both are up to an initiator]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    session_timeout: Option<Duration>,

    /// For a service: accept requests whose message ids differ from the recorded ones
    #[arg(long)]
    any_ids: bool,

    /// For a target: do not read blocks through the live connections after the start
    #[arg(long)]
    no_probe: bool,

    /// For a service: initial data of the storage, plain or .sbc. Once per channel [default: zeros]
    #[arg(long, value_name = "FILE")]
    content: Vec<PathBuf>,

    #[command(flatten)]
    report: ReportOptions,

    /// Flags of --bin
    #[arg(last = true, value_name = "FLAGS", requires = "bin")]
    flags: Vec<OsString>,
}

impl Replay {
    /// Replays the recording, and compares the responses.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        let interrupted = || shutdown.is_requested();
        let transcript = read(&self.transcript)?;
        if !transcript.is_whole() && transcript.truncated.is_none() {
            errln!("note: the recording was not completed; its sessions may be truncated");
        }
        let report = match self.against {
            Against::Target => self.target(&transcript, &interrupted)?,
            Against::Service => self.service(&transcript, &interrupted)?,
        };
        if interrupted() {
            return Err("interrupted".into());
        }
        self.report.finish("conformance replay", &report)
    }

    fn scripts(&self, transcript: &Transcript, channel: u32) -> Result<Vec<Script>> {
        let failed =
            |error: &dyn std::fmt::Display| format!("{}: {error}", self.transcript.display());
        let mut scripts = Script::all(transcript, channel).map_err(|error| failed(&error))?;
        if let Some(session) = self.session {
            let count = scripts.len();
            scripts.retain(|script| script.session == session);
            if scripts.is_empty() {
                let error = format!("--session {session}: the channel has {count}, counted from 0");
                return Err(failed(&error).into());
            }
        }
        Ok(scripts)
    }

    fn settings(&self) -> Result<Settings> {
        let device = match self.against {
            Against::Target => "03:00.0",
            Against::Service => "3b:00.0",
        };
        Ok(Settings {
            device: self.device.clone().unwrap_or_else(|| device.to_owned()),
            timeout: Duration::from_secs(self.timeout),
            session_timeout: self.session_timeout,
            compare_ids: !self.any_ids,
            probe: !self.no_probe,
            content: Vec::new(),
        })
    }

    fn target(&self, transcript: &Transcript, stop: &dyn Fn() -> bool) -> Result<Report> {
        let settings = self.settings()?;
        let mut report = Report::default();
        for script in self.scripts(transcript, self.channel.unwrap_or(0))? {
            if stop() {
                break;
            }
            let cases = match (&self.to, &self.bin) {
                (Some(address), _) => against_target(&script, address, &settings, stop),
                (None, Some(program)) => self.started(program, &script, &settings, stop)?,
                (None, None) => {
                    return Err(usage(
                        "expected --to HOST:PORT or --bin FILE: which target?",
                    ));
                }
            };
            report.cases.extend(cases);
        }
        Ok(report)
    }

    /// Replays against a target that is started anew for each session.
    fn started(
        &self,
        program: &Path,
        script: &Script,
        settings: &Settings,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Case>> {
        let reserved = Port::reserve()?;
        let port = reserved.number();
        let mut command = Implementation::of_binary("target", Role::Target, program)
            .with_library_path(self.library_path.clone())
            .command(Role::Target)?;
        command
            .args(&self.flags)
            .args(["--listen-port", &port.to_string()]);
        let mut target = Process::spawn("target", command)?;
        let deadline = Instant::now() + settings.timeout;
        let mut has_ended = false;
        let listens = wait_for_listener(port, deadline, || {
            has_ended = target.wait(Instant::now()).is_some();
            has_ended || stop()
        })?;
        if !listens {
            let what = match has_ended {
                true => "has ended".to_owned(),
                false => format!("has not listened within {:?}", settings.timeout),
            };
            return Err(format!("the target {what}{}", target.stderr()).into());
        }
        let mut cases = against_target(script, &format!("127.0.0.1:{port}"), settings, stop);
        if script.is_shut_down() {
            let suite = cases
                .last()
                .map_or_else(String::new, |case| case.suite.clone());
            let started = Instant::now();
            let (outcome, output) = match target.finish(started + settings.timeout, stop) {
                Ok(_) => (Outcome::Passed, None),
                Err(failure) => (Outcome::Failed(failure.what), Some(failure.stderr)),
            };
            cases.push(Case {
                meaning: "it was asked to end".to_owned(),
                took: started.elapsed(),
                output,
                ..Case::new(&suite, "clean shutdown", outcome)
            });
        } else if let Some(failed) = cases
            .iter_mut()
            .find(|case| matches!(case.outcome, Outcome::Failed(_)))
        {
            failed.output = Some(target.stderr());
        }
        Ok(cases)
    }

    /// Replays all channels concurrently, because a service queries all its targets.
    fn service(&self, transcript: &Transcript, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report> {
        let settings = self.settings()?;
        let channels: Vec<u32> = match self.channel {
            Some(channel) => vec![channel],
            None => (0..)
                .take(transcript.header.channels.len().max(1))
                .collect(),
        };
        for (flag, count) in [
            ("--listen", self.listen.len()),
            ("--content", self.content.len()),
        ] {
            if count != 0 && count != channels.len() {
                let channels = channels.len();
                return Err(usage(format!(
                    "expected {flag} for each of {channels} channels, got {count}"
                )));
            }
        }
        let mut parts = Vec::new();
        for (index, &channel) in channels.iter().enumerate() {
            let port = self.listen.get(index).copied().unwrap_or(0);
            let listener = TcpListener::bind(("127.0.0.1", port))
                .map_err(|error| format!("--listen {port}: {error}"))?;
            let port = listener.local_addr()?.port();
            errln!("channel {channel}: listening on port {port}");
            let mut settings = settings.clone();
            if let Some(path) = self.content.get(index) {
                settings.content = content(path)?;
            }
            parts.push((listener, self.scripts(transcript, channel)?, settings));
        }
        type Part = (TcpListener, Vec<Script>, Settings);
        let play = |(listener, scripts, settings): Part| -> io::Result<Vec<Case>> {
            let mut cases = Vec::new();
            for script in &scripts {
                cases.extend(against_service(script, &listener, &settings, stop)?);
            }
            Ok(cases)
        };
        let played: Vec<_> = std::thread::scope(|scope| {
            let play = &play;
            let threads: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || play(part)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
                })
                .collect()
        });
        let mut report = Report::default();
        for cases in played {
            report.cases.extend(cases?);
        }
        Ok(report)
    }
}

/// Reads the data of a storage, without the header of a .sbc file.
fn content(path: &Path) -> Result<Vec<u8>> {
    let mut content =
        std::fs::read(path).map_err(|error| format!("--content {}: {error}", path.display()))?;
    let header = content.get(..sbc::HEADER_SIZE).map(sbc::Header::parse);
    if let Some(Ok(_)) = header {
        content.drain(..sbc::HEADER_SIZE);
    }
    Ok(content)
}

// Display of a transcript, as text or JSON.

/// Bytes per line of a hex dump.
const DUMP_WIDTH: usize = 16;

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Transcript written by `record`
    #[arg(value_name = "FILE")]
    transcript: PathBuf,

    /// Also show the bytes of every message
    #[arg(long)]
    hex: bool,

    /// Print JSON, with all bytes in hexadecimal
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    header: &'a ::conformance::transcript::Header,
    entries: &'a [Entry],
    /// `true` if the recording is complete.
    whole: bool,
    truncated: Option<&'a str>,
}

/// An entry, with the position of its bytes in its side's stream.
struct Placed<'a> {
    number: usize,
    entry: &'a Entry,
    offset: usize,
    bytes: bytes::Bytes,
}

impl Show {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let transcript = read(&self.transcript)?;
        out!("{}", self.text(&transcript)?);
        if let Some(truncated) = &transcript.truncated {
            errln!("note: {truncated}");
        } else if !transcript.is_whole() {
            errln!("note: the recording has no end: its recorder was killed, or still runs");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, transcript: &Transcript) -> Result<String> {
        if self.json {
            let document = Document {
                header: &transcript.header,
                entries: &transcript.entries,
                whole: transcript.is_whole(),
                truncated: transcript.truncated.as_deref(),
            };
            return Ok(serde_json::to_string_pretty(&document)? + "\n");
        }
        let placed = placed(&transcript.entries);
        let mut text = table(transcript, &placed);
        if self.hex {
            let sent = placed.iter().filter(|placed| !placed.bytes.is_empty());
            sent.for_each(|placed| text += &format!("\n{}", dump(placed)));
        }
        Ok(text)
    }
}

/// Reads a transcript; errors name the file.
pub(super) fn read(path: &std::path::Path) -> Result<Transcript> {
    let transcript =
        Transcript::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(transcript)
}

fn placed(entries: &[Entry]) -> Vec<Placed<'_>> {
    let mut sent: HashMap<_, usize> = HashMap::new();
    let place = |(number, entry): (usize, &'_ Entry)| -> (usize, usize, bytes::Bytes) {
        let bytes = match &entry.event {
            Event::Frame(frame) => frame.to_bytes(),
            Event::Raw(bytes) => bytes.clone(),
            _ => bytes::Bytes::new(),
        };
        let stream = (entry.channel, entry.session, entry.from);
        let end = sent.entry(stream).or_default();
        let offset = *end;
        *end += bytes.len();
        (number, offset, bytes)
    };
    let places: Vec<_> = entries.iter().enumerate().map(place).collect();
    std::iter::zip(entries, places)
        .map(|(entry, (number, offset, bytes))| Placed {
            number,
            entry,
            offset,
            bytes,
        })
        .collect()
}

fn table(transcript: &Transcript, placed: &[Placed<'_>]) -> String {
    let header = &transcript.header;
    let (client, server) = (header.name(Side::Client), header.name(Side::Server));
    let mut text = format!(
        "recorded by {} at {:.6} (Unix time)\n",
        header.recorder,
        Duration::from_nanos(header.start_unix_ns).as_secs_f64()
    );
    for (number, address) in header.channels.iter().enumerate() {
        let _ = writeln!(text, "channel {number}: {server} at {address}");
    }
    let mut table = Builder::new();
    table.push_record([
        "entry",
        "seconds",
        "session",
        "direction",
        "at",
        "bytes",
        "message",
        "id",
        "corr.",
        "fields",
    ]);
    for placed in placed {
        let entry = placed.entry;
        let direction = match entry.from {
            Some(Side::Client) => format!("{client} → {server}"),
            Some(Side::Server) => format!("{client} ← {server}"),
            None => String::new(),
        };
        let (message_id, correlation_id, content) = match &entry.event {
            Event::Frame(frame) => {
                let message = &frame.message;
                let mut content: Vec<String> = fields(&message.payload)
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                if frame.bytes.is_some() {
                    content.push("(in other bytes than ours would be)".to_owned());
                }
                (
                    message.message_id.to_string(),
                    message.correlation_id.to_string(),
                    content.join("\n"),
                )
            }
            _ => Default::default(),
        };
        let (at, size) = match placed.bytes.len() {
            0 => Default::default(),
            size => (format!("{:#06x}", placed.offset), size.to_string()),
        };
        table.push_record([
            placed.number.to_string(),
            format!("{:.6}", entry.time.as_secs_f64()),
            format!("{}.{}", entry.channel, entry.session),
            direction,
            at,
            size,
            entry.event.to_string(),
            message_id,
            correlation_id,
            content,
        ]);
    }
    let layout = Layout {
        right: &[],
        // Optional columns, in the order in which they are hidden: times, places and ids; sender and message are always
        // shown.
        optional: &[4, 5, 8, 1, 7, 2],
        flexible: Some(9),
    };
    let _ = writeln!(text, "{}", table::render(table, layout));
    text
}

/// Bytes of an entry, with offsets in their side's stream, as `xxd` shows a capture of it.
fn dump(placed: &Placed<'_>) -> String {
    let mut text = format!("entry {}: {}\n", placed.number, placed.entry.event);
    for (line, bytes) in placed.bytes.chunks(DUMP_WIDTH).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String = bytes
            .iter()
            .map(|&byte| {
                if byte.is_ascii_graphic() || byte == b' ' {
                    byte as char
                } else {
                    '.'
                }
            })
            .collect();
        let offset = placed.offset + line * DUMP_WIDTH;
        let width = DUMP_WIDTH * 3 - 1;
        let _ = writeln!(text, "  {offset:08x}  {:width$}  {plain}", hex.join(" "));
    }
    text
}
