//! A sample that runs: its two outputs as one list of lines, in the order in which they came, and somebody to press Enter.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that are kept: a sample that prints without end must not fill the memory.
const KEPT_LINES: usize = 20_000;
/// Time for the rest of the output once the program has ended; a process that it left may hold the pipes longer.
const REST: Duration = Duration::from_secs(2);

/// What a program has written.
#[derive(Default)]
pub(super) struct Output {
    /// Both outputs, in the order in which they came.
    pub(super) lines: Vec<String>,
    /// When the last one came.
    last: Option<Instant>,
}

/// A running program. Dropping it kills it.
pub(super) struct Program {
    child: Child,
    /// Kept open to the end: samples read until Enter comes and never look for the end of the input.
    stdin: ChildStdin,
    output: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
}

impl Program {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("piped above");
        let stdout = child.stdout.take().expect("piped above");
        let stderr = child.stderr.take().expect("piped above");
        let output = Arc::<Mutex<Output>>::default();
        let readers = vec![collect(stdout, &output), collect(stderr, &output)];
        Ok(Self {
            child,
            stdin,
            output,
            readers,
        })
    }

    /// What it has written so far.
    pub(super) fn output(&self) -> MutexGuard<'_, Output> {
        // A reader cannot panic while it holds this.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long ago it wrote its last line; `None` before the first.
    pub(super) fn quiet_for(&self) -> Option<Duration> {
        self.output().last.map(|last| last.elapsed())
    }

    /// Presses Enter. One that has ended in this moment does not need it any more.
    pub(super) fn press_enter(&mut self) {
        let _ = self.stdin.write_all(b"\n");
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            let deadline = Instant::now() + REST;
            while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(status)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, most of the time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds what comes to the output, until nothing more can come.
fn collect(source: impl Read + Send + 'static, output: &Arc<Mutex<Output>>) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.last = Some(Instant::now());
            if output.lines.len() < KEPT_LINES {
                output.lines.push(line);
            }
        }
    })
}
