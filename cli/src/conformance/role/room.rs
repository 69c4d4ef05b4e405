//! A runtime directory for the checks alone.
//!
//! The peers are part of this process, and softdoca looks at `SOFTDOCA_RUNTIME_DIR` of the process: so the command starts itself
//! again with another one.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use ::conformance::scene::entries;
use role_common::shutdown::Shutdown;
use rustix::process::{Pid, Signal, kill_process};

use super::Result;

/// Says that this process is the one inside.
const INSIDE: &str = "DOCA_STORAGE_CONFORMANCE_ROOM";
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(20);

pub(in crate::conformance) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Does the same in a process inside, and sees to it that nothing is left.
pub(in crate::conformance) fn enter(shutdown: &Shutdown) -> Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
    let runtime = directory.path().join("run");
    fs::DirBuilder::new().mode(0o700).create(&runtime)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env("SOFTDOCA_RUNTIME_DIR", &runtime)
        .env(INSIDE, "1")
        .spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if shutdown.is_requested() {
            interrupt(&child);
        }
        std::thread::sleep(TICK);
    };
    let left = entries(&runtime)?;
    // A role that hangs is killed, and cannot clear up: that is counted already.
    if status.success() && !left.is_empty() {
        return Err(format!(
            "expected the runtime directory to be empty at the end, found {left:?}"
        )
        .into());
    }
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        None => Err(format!("expected the checks to come to an end: {status}").into()),
    }
}

fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended in this moment.
        let _ = kill_process(pid, Signal::TERM);
    }
}
