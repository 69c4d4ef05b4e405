//! `doca-storage generate`: man pages and completions, for packages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::{Generator as _, Shell};
use role_common::flags::lay_out;
use role_common::{errln, outln};

use role_programs::{ROLES, reference_roles};

use crate::{Cli, NAME};

#[derive(Debug, Args)]
pub struct Options {
    /// Directory for usr/share/man/man1 and the completions of bash, zsh and fish
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(options: &Options) -> ExitCode {
    match write(&options.directory) {
        Ok(files) => {
            outln!("{files} files in {}", options.directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            errln!(
                "doca-storage generate: error: {}: {error}",
                options.directory.display()
            );
            ExitCode::FAILURE
        }
    }
}

/// Command with the roles' flags, which clap does not parse here: the roles do.
fn whole() -> Command {
    let roles = ROLES.iter().map(|role| {
        (role.command)(role.name)
            .bin_name(format!("{NAME} {}", role.name))
            .override_usage(format!("{NAME} {} [DOCA Flags] [Program Flags]", role.name))
            .about(role.about)
    });
    lay_out(Cli::command())
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(roles)
}

/// Names the section of a manual page with a command's examples, which clap_mangen calls EXTRA, and keeps its lines.
fn with_examples(page: &str) -> String {
    const HEADING: &str = ".SH EXTRA\n";
    let Some((before, rest)) = page.split_once(HEADING) else {
        return page.to_owned();
    };
    let end = rest.find("\n.SH ").map_or(rest.len(), |at| at + 1);
    let (text, after) = rest.split_at(end);
    let (heading, text) = match text.strip_prefix("Examples:\n") {
        Some(examples) => ("EXAMPLES", examples),
        None => ("NOTES", text),
    };
    format!("{before}.SH {heading}\n.nf\n{text}.fi\n{after}")
}

/// A command with what completions need, without hidden subcommands, which `clap_complete` would otherwise complete.
fn without_hidden(command: &Command) -> Command {
    // The names of a command live as long as the program, which exits after it has written the files.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut visible = Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_version_flag(command.is_disable_version_flag_set())
        .args(command.get_arguments().cloned());
    if let Some(version) = command.get_version() {
        let version: &'static str = version.to_owned().leak();
        visible = visible.version(version);
    }
    let subcommands = command.get_subcommands();
    visible.subcommands(
        subcommands
            .filter(|it| !it.is_hide_set())
            .map(without_hidden),
    )
}

/// Completion script of a command for a shell.
fn completions(shell: Shell, name: &str, command: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut without_hidden(command), name, &mut script);
    if shell == Shell::Bash {
        // clap_complete 4.6 sets the name of a command with one replacement of its hyphens, and compares it with
        // another.
        let set = name.replace('-', "__");
        let compared = name.replace('-', "__subcmd__");
        script = String::from_utf8_lossy(&script)
            .replace(&set, &compared)
            .into_bytes();
    }
    script
}

fn write(directory: &Path) -> io::Result<usize> {
    let man = directory.join("usr/share/man/man1");
    fs::create_dir_all(&man)?;
    let programs = reference_roles().map(|role| (role.command)(role.program));
    for command in programs.chain([whole()]) {
        // Includes all subcommands that are not hidden.
        clap_mangen::generate_to(command.disable_help_subcommand(true), &man)?;
    }
    let mut files = 0;
    for page in fs::read_dir(&man)? {
        let page = page?.path();
        fs::write(&page, with_examples(&fs::read_to_string(&page)?))?;
        files += 1;
    }
    let shells = [
        (Shell::Bash, "usr/share/bash-completion/completions"),
        (Shell::Zsh, "usr/share/zsh/vendor-completions"),
        (Shell::Fish, "usr/share/fish/vendor_completions.d"),
    ];
    for (shell, place) in shells {
        let place = directory.join(place);
        fs::create_dir_all(&place)?;
        let named = reference_roles().map(|role| (role.program, (role.command)(role.program)));
        for (name, command) in named.chain([(NAME, whole())]) {
            let file = place.join(shell.file_name(name));
            fs::write(file, completions(shell, name, &command))?;
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_and_completions_have_the_flags_of_roles() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = write(directory.path()).expect("written");
        let read = |path: &str| {
            fs::read_to_string(directory.path().join(path))
                .unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        assert!(files > 40, "{files}");
        assert!(
            !directory
                .path()
                .join("usr/share/man/man1/doca-storage-yardstick.1")
                .exists()
        );
        read("usr/share/man/man1/doca-storage-conformance-hammer.1");
        let nbd = read("usr/share/man/man1/doca-storage-nbd.1");
        assert!(nbd.contains("tls\\-client\\-ca"), "{nbd}");
        for page in ["doca-storage-target", "doca_storage_target_rdma"] {
            let page = read(&format!("usr/share/man/man1/{page}.1"));
            assert!(page.contains("backing\\-file"), "{page}");
        }
        let whole = read("usr/share/man/man1/doca-storage.1");
        assert!(whole.contains("doca\\-storage"));
        let (_, examples) = whole
            .split_once(".SH EXAMPLES\n.nf\n")
            .expect("a section with examples");
        let (examples, _) = examples.split_once(".fi\n.SH ").expect("its end");
        // Without their heading, which is that of the section.
        let printed = crate::EXAMPLES.lines().skip(1);
        assert_eq!(
            examples.lines().count(),
            printed.clone().count(),
            "{examples}"
        );
        // Commands and explanations are aligned.
        let explained = |line: &&str| line.trim_start().contains("   ");
        let aligned = examples.lines().filter(explained).count();
        assert_eq!(
            (aligned, printed.filter(explained).count()),
            (3, 3),
            "{examples}"
        );
        assert!(!whole.contains("EXTRA"), "{whole}");
        let bash = read("usr/share/bash-completion/completions/doca-storage.bash");
        assert!(bash.contains("--data-p-storage") && bash.contains("conformance"));
        assert!(
            read("usr/share/zsh/vendor-completions/_doca_storage_initiator_comch")
                .contains("flush-every")
        );
        assert!(
            read("usr/share/fish/vendor_completions.d/doca-storage.fish").contains("scrub-rate")
        );
    }

    fn check(command: &Command) {
        let name = command.get_name();
        let text = command.get_after_help().map(ToString::to_string);
        for line in text.iter().flat_map(|text| text.lines()) {
            // Longer lines would be broken at places that a shell does not accept.
            let is_example = line.starts_with(' ') && !line.ends_with(':');
            assert!(!is_example || line.chars().count() <= 80, "{name}: {line}");
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn examples_fit_80_columns() {
        check(&whole());
    }

    #[test]
    fn mandatory_flags_of_roles_are_marked() {
        for role in &ROLES {
            let command = (role.command)(role.program);
            let required: Vec<_> = command
                .get_arguments()
                .filter(|flag| flag.is_required_set())
                .collect();
            assert!(!required.is_empty(), "{}", role.name);
            for flag in required {
                let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.ends_with("[required]"), "{}: {flag}", role.name);
            }
        }
    }
}
