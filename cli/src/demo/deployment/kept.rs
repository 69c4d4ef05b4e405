//! A deployment that goes on after the demo has ended.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use conformance::port::Port;

use crate::demo::Error;
use crate::demo::plan::Run;

use super::Deployment;
use super::lines::quoted;

/// What to tell the user about a deployment that was left running.
pub struct Kept(String);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deployment<'_> {
    /// Starts the targets and the service of `run` once more and leaves them running. Their logs go to `directory`, which
    /// has to stay.
    pub fn keep(&self, run: &Run, directory: &Path) -> Result<Kept, Error> {
        let lines = self.lines(run, false);
        let names = run.layout.targets();
        // The ports are chosen here, so that the printed command lines are those that run.
        let reserved: Vec<Port> = names
            .iter()
            .map(|_| Port::reserve())
            .collect::<Result<_, _>>()
            .map_err(Error::io("a free port"))?;
        let ports: Vec<u16> = reserved.iter().map(Port::number).collect();
        let mut started: Vec<(&str, Vec<OsString>)> = std::iter::zip(names, &ports)
            .enumerate()
            .map(|(index, (name, port))| (*name, lines.target(index, *port)))
            .collect();
        let storages: Vec<String> = std::iter::zip(0.., &ports)
            .map(|(index, port)| self.storage(index, *port))
            .collect();
        started.push(("service", lines.service(&storages)));
        let mut processes = Vec::new();
        for (name, line) in &started {
            processes.push(self.spawn_detached(name, line, directory)?.to_string());
        }
        // The service goes first: it ends by itself when a target does, with a complaint.
        processes.reverse();
        let running: Vec<String> = started
            .iter()
            .map(|(_, line)| self.shell_line(line))
            .collect();
        Ok(Kept(format!(
            "\nRunning (for one session, logs in {directory}):\n{running}\n\
             Start the initiator with:\n{initiator}\n\
             End without one: kill {processes}; afterwards: rm -r {quoted_directory}",
            directory = directory.display(),
            running = running.join("\n"),
            initiator = self.shell_line(&lines.initiator()),
            processes = processes.join(" "),
            quoted_directory = quoted(&directory.to_string_lossy()),
        )))
    }

    /// Starts a role that outlives this program; answers its process id.
    fn spawn_detached(
        &self,
        name: &str,
        arguments: &[OsString],
        directory: &Path,
    ) -> Result<u32, Error> {
        let log = std::fs::File::create(directory.join(format!("{name}.log")))
            .map_err(Error::io("a log file"))?;
        let errors = log.try_clone().map_err(Error::io("a log file"))?;
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        // A group of its own: Ctrl-C in this terminal is not for it.
        command.process_group(0);
        let process = command
            .spawn()
            .map_err(Error::io(format!("start the {name}")))?;
        Ok(process.id())
    }

    /// What a person types to start a role of this deployment.
    fn shell_line(&self, arguments: &[OsString]) -> String {
        let words = std::iter::once(self.program.as_os_str())
            .chain(arguments.iter().map(OsString::as_os_str));
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        format!(
            "  SOFTDOCA_RUNTIME_DIR={} {}",
            quoted(&self.runtime.to_string_lossy()),
            words.join(" ")
        )
    }
}
