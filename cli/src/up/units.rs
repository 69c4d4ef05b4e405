//! Units of systemd for the processes of a disk.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The unit of a process that is started after those of `before` are ready, and stopped with `target`.
pub(super) fn service(
    description: &str,
    before: &[String],
    target: &str,
    data: &Path,
    command: &Command,
) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(quoted).collect();
    let mut text = format!("[Unit]\nDescription={}\n", escaped(description));
    let _ = writeln!(text, "PartOf={target}");
    if !before.is_empty() {
        let _ = writeln!(text, "After={}", before.join(" "));
    }
    let _ = writeln!(text, "RequiresMountsFor={}", quoted(data.as_os_str()));
    // A service is ready when its targets are connected. Status 2 means wrong flags, which another start does not correct.
    text.push_str("\n[Service]\nType=notify\nTimeoutStartSec=infinity\n");
    let _ = writeln!(text, "ExecStart={}", words.join(" "));
    text.push_str("Restart=always\nRestartSec=2\nRestartPreventExitStatus=2\n");
    text.push_str("LimitNOFILE=65536\nLimitMEMLOCK=infinity\n");
    text
}

/// The unit that starts and stops the services.
pub(super) fn target(description: &str, services: &[String]) -> String {
    format!(
        "[Unit]\nDescription={}\nWants={services}\nAfter={services}\n\n[Install]\nWantedBy=default.target\n",
        escaped(description),
        services = services.join(" ")
    )
}

/// Escapes what systemd expands in a value.
fn escaped(text: &str) -> String {
    text.replace('%', "%%").replace('\n', " ")
}

/// A word of a command line or of a list, quoted for systemd if necessary.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '%' | '$' => text.extend([c, c]),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_systemd() {
        for (word, expected) in [
            ("--cpu", "--cpu"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("100%", "\"100%%\""),
            ("$HOME", "\"$$HOME\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
        ] {
            assert_eq!(quoted(OsStr::new(word)), expected);
        }
    }

    #[test]
    fn service_follows_those_that_it_needs() {
        let mut command = Command::new("/usr/bin/doca-storage");
        command.args(["nbd", "--socket", "/srv/a disk/nbd.socket"]);
        let before = [
            "d-data_1.service".to_owned(),
            "d-service.service".to_owned(),
        ];
        let text = service(
            "100%",
            &before,
            "d.target",
            Path::new("/srv/a disk"),
            &command,
        );
        for line in [
            "Description=100%%",
            "PartOf=d.target",
            "After=d-data_1.service d-service.service",
            "RequiresMountsFor=\"/srv/a disk\"",
            "ExecStart=/usr/bin/doca-storage nbd --socket \"/srv/a disk/nbd.socket\"",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        let text = target("d", &before);
        assert!(text.contains("Wants=d-data_1.service d-service.service\n"));
    }
}
