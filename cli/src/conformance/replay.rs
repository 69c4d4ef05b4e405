//! Replay of one side of a recording.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::conformance::report::{Case, Outcome, Report};
use ::conformance::transcript::Transcript;
use ::conformance::transcript::replay::{Script, Settings, against_service, against_target};
use ::deployment::implementation::{Implementation, Role};
use ::deployment::port::{Port, wait_for_listener};
use ::deployment::process::Process;
use clap::{Args, ValueEnum};
use role_common::errln;
use role_common::flags::duration;
use role_common::shutdown::Shutdown;
use wire::sbc;

use super::report::ReportOptions;
use super::show::read;
use super::{Result, seconds, usage};

const HELP: &str = "\
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
#[command(after_help = HELP)]
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

    /// For a service: accept other message ids in its requests than recorded
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
        let shutdown = Shutdown::on_signals()?;
        let interrupted = || shutdown.is_requested();
        let transcript = read(&self.transcript)?;
        if !transcript.is_whole() && transcript.truncated.is_none() {
            errln!("note: the recording has no end; sessions may be longer than it knows");
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

    /// Replays against a target started for each session.
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

    /// All channels concurrently, because a service queries all its targets.
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
