//! Common start-up and exit of every program: flags, banner, logs, signals, exit code.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitCode;
use std::sync::Once;

use crate::console::{self, Console};
use crate::failure::Failure;
use crate::flags::{self, FlagsError, RoleFlags};
use crate::metrics::{Metrics, MetricsAddress};
use crate::shutdown::Shutdown;
use crate::{errln, logging};

/// Resources of a program besides its flags.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Console for the program's output.
    pub console: Console,
    /// Shutdown request, set by signals.
    pub shutdown: Shutdown,
    /// Metrics served with `--metrics`.
    pub metrics: Metrics,
}

impl Environment {
    /// Announces on the console, and to a service manager, that the program is ready for its peers.
    pub fn announce_ready(&self, line: impl std::fmt::Display) {
        self.console.announce(line);
        notify_ready();
    }
}

/// Runs the program called `name`: reads its flags from `args`, starts logs and signal handling,
/// and calls `body`. Exit codes: 0 for success, help and version, 1 for a failure, [`console::EXIT_USAGE`] for wrong usage, which is 1 in the
/// reference.
pub fn run<F: RoleFlags>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
    body: impl FnOnce(F, Environment) -> Result<(), Failure>,
) -> ExitCode {
    let banner = format!("{name}: v{}", env!("CARGO_PKG_VERSION"));
    let flags: F = match flags::read(name, args) {
        Ok(flags) => flags,
        Err(outcome) => {
            Console::default().announce(banner);
            let code = match outcome {
                FlagsError::Information(text) => {
                    if !text.is_empty() {
                        Console::default().announce(text.trim_end());
                    }
                    ExitCode::SUCCESS
                }
                FlagsError::Usage(text) => {
                    errln!("{}", text.trim_end());
                    ExitCode::from(console::EXIT_USAGE)
                }
            };
            return console::conclude(name, code);
        }
    };
    let output = flags.output().clone();
    let console = Console::new(output.output);
    console.announce(banner);
    if let Err(failure) = flags.check().and_then(|()| check_variables()) {
        errln!("{name}: error: {failure}");
        return console::conclude(name, ExitCode::from(console::EXIT_USAGE));
    }
    logging::start(flags.general(), output.log_format);
    for cpu in repeated(flags.cpu()) {
        tracing::warn!("--cpu {cpu} is given more than once: its worker threads share this CPU");
    }
    let result = environment(name, console, output.metrics.as_ref())
        .and_then(|environment| body(flags, environment));
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            errln!("{name}: error: {failure}");
            ExitCode::FAILURE
        }
    };
    console::conclude_role(name, code)
}

/// Returns the CPUs that are given more than once. The reference accepts repetitions, so they are not an error.
fn repeated(cpus: &[u32]) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    cpus.iter()
        .copied()
        .filter(|&cpu| !seen.insert(cpu))
        .collect()
}

/// Values of `SOFTDOCA_LOG`. softdoca itself, in other programs, only warns of an unknown value.
const SOFTDOCA_LEVELS: [&str; 7] = [
    "critical", "error", "warning", "warn", "info", "debug", "trace",
];

fn check_variables() -> Result<(), Failure> {
    match std::env::var_os("SOFTDOCA_LOG") {
        Some(level) if !SOFTDOCA_LEVELS.iter().any(|it| level == *it) => {
            Err(Failure::invalid(format!(
                "SOFTDOCA_LOG: expected critical, error, warning, info, debug or trace, got {:?}",
                level.display().to_string()
            )))
        }
        _ => Ok(()),
    }
}

fn environment(
    name: &'static str,
    console: Console,
    address: Option<&MetricsAddress>,
) -> Result<Environment, Failure> {
    let shutdown = Shutdown::on_signals().map_err(|error| {
        Failure::new(
            doca::ErrorCode::INITIALIZATION,
            format!("signal handlers: {error}"),
        )
    })?;
    let mut metrics = Metrics::default();
    if let Some(address) = address {
        let local;
        (metrics, local) = Metrics::serve(name, address)?;
        console.announce(format_args!("metrics at http://{local}/metrics"));
    }
    Ok(Environment {
        console,
        shutdown,
        metrics,
    })
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn each_repeated_cpu_is_named_once() {
        assert!(repeated(&[0, 1, 2]).is_empty());
        assert!(repeated(&[3, 1, 3, 3, 1, 0]).into_iter().eq([1, 3]));
    }
}

// Readiness notification for a service manager such as systemd: the protocol of `sd_notify(3)`, one datagram.

/// Notifies the socket named by `NOTIFY_SOCKET`, if set, that the program is ready. Does so once.
pub(crate) fn notify_ready() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
            && let Err(error) = send(&socket, b"READY=1")
        {
            tracing::warn!("NOTIFY_SOCKET {}: {error}", socket.display());
        }
    });
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    // Do not block on a manager that does not read.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(message, &address).map(|_| ())
}

#[cfg(test)]
mod notify_tests {
    use super::*;

    #[test]
    fn ready_message_reaches_path_and_abstract_sockets() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let name = format!("softdoca notify test {}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).expect("an address");
        for (receiver, socket) in [
            (UnixDatagram::bind(&path), path.as_os_str().to_owned()),
            (
                UnixDatagram::bind_addr(&abstract_address),
                format!("@{name}").into(),
            ),
        ] {
            let receiver = receiver.expect("bound");
            send(&socket, b"READY=1").expect("sent");
            let mut bytes = [0; 64];
            let length = receiver.recv(&mut bytes).expect("received");
            assert_eq!(&bytes[..length], b"READY=1");
        }
        assert!(send(directory.path().join("none").as_os_str(), b"x").is_err());
    }
}
