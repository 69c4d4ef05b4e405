//! Completions in shells, as generated for packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Sandbox, lossy, text};

/// Writes the completions of all shells; returns the directory.
fn generated(sandbox: &Sandbox) -> PathBuf {
    let directory = sandbox.path("stage");
    let output = sandbox.command(&["generate", text(&directory)]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    directory
}

/// Completions that a shell offers for the last of these words.
type Complete = fn(&Path, &[&str]) -> Vec<String>;

fn lines(mut command: Command) -> Vec<String> {
    let output = command.output().expect("it runs");
    assert!(output.stderr.is_empty(), "{output:?}");
    let words = lossy(&output.stdout);
    words.lines().map(|line| line.trim().to_owned()).collect()
}

fn bash(directory: &Path, words: &[&str]) -> Vec<String> {
    // As in bash: calls the function that is registered for the command, with the words of the line.
    const SCRIPT: &str = r#"
        source "$1"; shift
        name=$(complete -p "$1"); name=${name#*-F }; name=${name%% *}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        compopt() { :; }
        "$name" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let script = directory.join(format!(
        "usr/share/bash-completion/completions/{}.bash",
        words[0]
    ));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", SCRIPT, "bash"])
        .arg(script)
        .args(words);
    lines(bash)
}

fn zsh(directory: &Path, words: &[&str]) -> Vec<String> {
    // zsh completes only in an interactive shell. Texts that do not occur in its input show when it is ready and when
    // it has finished. `zle -R` displays the list even if the next input has arrived already.
    const SCRIPT: &str = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "PS1=; unsetopt zle_bracketed_paste; stty cols 500 rows 500"
        zpty -w shell "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D"
        zpty -w shell "list-now() { zle list-choices; zle -R; }; zle -N list-now"
        zpty -w shell "zstyle ':completion:*' verbose no; LISTMAX=1000; bindkey '^I' list-now; echo re''ady"
        zpty -r -m shell output '*ready'$'\r''*'
        zpty -w -n shell "$2"$'\t'
        zpty -w -n shell $'\C-U'"echo do''ne"$'\n'
        zpty -r -m shell output '*done'$'\r''*'
        print -r -- "$output"
    "#;
    let functions = directory.join("usr/share/zsh/vendor-completions");
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", SCRIPT, "zsh", text(&functions)])
        .arg(words.join(" "))
        .stdin(Stdio::null());
    let screen = lines(zsh).join(" ");
    // Escape sequences end with a letter.
    let mut pieces = screen.split('\u{1b}');
    let first = pieces.next().unwrap_or_default();
    let others =
        pieces.map(|it| it.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic()));
    std::iter::once(first)
        .chain(others.map(|it| it.get(1..).unwrap_or_default()))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

/// Checks that the expected words are offered, and that others are not.
fn check(complete: Complete) {
    let sandbox = Sandbox::new();
    let directory = generated(&sandbox);
    let cases: [(&[&str], &[&str], &[&str]); 7] = [
        (
            &["doca-storage", ""],
            &["bench", "conformance", "nbd", "vhost-user-blk"],
            &["generate", "yardstick", "first-ios"],
        ),
        (&["doca-storage", "gga"], &["gga-offload"], &["nbd"]),
        (
            &["doca-storage", "conformance", ""],
            &["hammer", "matrix", "record"],
            &["hostile-client", "hammer-load"],
        ),
        (
            &["doca-storage", "conformance", "hammer", "--d"],
            &["--duration"],
            &["--scrub-rate", "--version"],
        ),
        (
            &["doca-storage", "gga-offload", "--scrub"],
            &["--scrub-rate"],
            &["--duration"],
        ),
        (&["doca-storage", "sdk", "in"], &["install"], &["env"]),
        (
            &["doca_storage_target_rdma", "--backing-f"],
            &["--backing-file"],
            &["--backing-io"],
        ),
    ];
    for (words, expected, unexpected) in cases {
        let offered = complete(&directory, words);
        let has = |word: &&&str| offered.iter().any(|it| it == **word);
        let missing: Vec<_> = expected.iter().filter(|word| !has(word)).collect();
        let wrong: Vec<_> = unexpected.iter().filter(has).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "{words:?}: missing {missing:?}, wrong {wrong:?}, got {offered:?}"
        );
    }
}

#[test]
fn bash_completes_subcommands_and_flags() {
    check(bash);
}

#[test]
fn zsh_completes_subcommands_and_flags() {
    if Command::new("zsh").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "zsh is not installed");
        eprintln!("NOT RUN: zsh is not installed");
        return;
    }
    check(zsh);
}
