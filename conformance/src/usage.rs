//! Flags that a program's `--help` lists, by which implementations and their versions are told apart.

use std::process::Command;
use std::time::{Duration, Instant};

use super::implementation::{Error, Implementation, Role};
use super::process::Process;

/// Time that a program gets to print its usage.
const PATIENCE: Duration = Duration::from_secs(20);
/// A flag that all our roles have and the reference's have not.
const OUR_FLAG: &str = "--output";
/// I/Os that an initiator has in flight; up to version 3.1 of the reference, and after it.
const TASK_COUNT: &str = "--task-count";
const TRANSACTION_COUNT: &str = "--transaction-count";

/// A program's usage.
#[derive(Debug, Clone, Default)]
pub struct Usage(String);

impl Usage {
    /// Asks the program of a role. One that hangs or cannot be started has an empty usage.
    ///
    /// # Errors
    ///
    /// There is no program of this role.
    pub fn of(implementation: &Implementation, role: Role) -> Result<Self, Error> {
        let mut command = implementation.command(role)?;
        command.arg("--help");
        Ok(Self(printed(role.name(), command)))
    }

    /// Returns `true` if the program knows a flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.0
            .split(|c: char| c.is_whitespace() || c == ',' || c == '=')
            .any(|word| word == flag)
    }

    /// Returns `true` for one of our programs, by a flag that the reference's do not have.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.has(OUR_FLAG)
    }

    /// The flag for the number of I/Os that an initiator has in flight.
    #[must_use]
    pub fn transactions_flag(&self) -> &'static str {
        if self.has(TASK_COUNT) {
            TASK_COUNT
        } else {
            TRANSACTION_COUNT
        }
    }
}

impl From<&str> for Usage {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Output of the program on both streams; empty when it hangs or cannot be started.
fn printed(role: &'static str, command: Command) -> String {
    let Ok(mut process) = Process::spawn(role, command) else {
        return String::new();
    };
    if process.wait(Instant::now() + PATIENCE).is_none() {
        return String::new();
    }
    let (stdout, stderr) = process.into_output();
    stdout + "\n" + &stderr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_for_transactions_is_the_one_that_the_program_knows() {
        let of = |usage: &str| Usage::from(usage).transactions_flag();
        assert_eq!(of("  --task-count     Number of tasks"), "--task-count");
        assert_eq!(of("  --transaction-count  N"), "--transaction-count");
        assert_eq!(of(""), "--transaction-count");
    }

    #[test]
    fn flag_is_a_whole_word() {
        let usage = Usage::from("-d, --device DEV\n--output=FORMAT");
        assert!(usage.has("--device") && usage.has("-d") && usage.is_ours());
        assert!(!usage.has("--dev"));
    }
}
