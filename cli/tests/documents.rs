//! Documents: the program accepts every printed command, and every link has a target.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::PROGRAM;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
}

/// Directories of the workspace's crates.
fn workspace_members() -> Vec<String> {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace's manifest");
    let manifest: toml::Table = text.parse().expect("TOML");
    let members = manifest["workspace"]["members"]
        .as_array()
        .expect("an array");
    let directory = |member: &toml::Value| member.as_str().expect("a directory").to_owned();
    members.iter().map(directory).collect()
}

/// All Markdown files of the root, of `docs/` and of the crates' READMEs.
pub fn documents() -> Vec<PathBuf> {
    let members = workspace_members();
    let directories = [".", "docs/src", "proto"].into_iter();
    let mut found = Vec::new();
    for directory in directories.chain(members.iter().map(String::as_str)) {
        let Ok(entries) = fs::read_dir(root().join(directory)) else {
            continue;
        };
        let files = entries.map(|entry| entry.expect("an entry").path());
        found.extend(files.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    found.sort();
    assert!(found.len() > 40, "{found:?}");
    found
}

/// The shell commands of the `console` blocks, with continued lines joined and comments removed.
pub fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_console = false;
    let mut continued = None::<String>;
    for line in text.lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            is_console = kind == "console";
            continue;
        }
        let begun = line.strip_prefix("$ ").or(line.strip_prefix("# "));
        let Some(part) = continued
            .is_some()
            .then_some(line.trim_start())
            .or(begun)
            .filter(|_| is_console)
        else {
            continue;
        };
        let part = part.split("  #").next().unwrap_or(part).trim_end();
        let so_far = continued.take().unwrap_or_default();
        match part.strip_suffix('\\') {
            Some(part) => continued = Some(so_far + part),
            None => commands.push(so_far + part),
        }
    }
    commands
}

/// Arguments for this program, if the command calls it.
fn arguments(command: &str) -> Option<Vec<String>> {
    let mut words = shlex::split(command)?.into_iter();
    let program = words.next()?;
    let mut arguments: Vec<String> = match program.rsplit('/').next()? {
        "doca-storage" => words.collect(),
        "cargo" => words.skip_while(|word| word != "--").skip(1).collect(),
        _ => return None,
    };
    // Ends at pipes and redirections of the shell.
    let end = arguments
        .iter()
        .position(|word| ["|", ">", "&", "&&", "2>&1"].contains(&word.as_str()));
    arguments.truncate(end.unwrap_or(arguments.len()));
    Some(arguments)
}

#[test]
fn every_command_is_accepted() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("readable");
        for command in commands(&text) {
            let is_of_tests = ["test", "bench", "fuzz", "+nightly", "build"]
                .iter()
                .any(|word| command.starts_with(&format!("cargo {word}")));
            let Some(arguments) = arguments(&command).filter(|_| !is_of_tests) else {
                continue;
            };
            // Flags are parsed in order, so errors before the help flag are reported.
            let output = Command::new(PROGRAM)
                .args(&arguments)
                .arg("--help")
                .output()
                .expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}: {command}\n{said}",
                document.display()
            );
            count += 1;
        }
    }
    assert!(count >= 25, "{count} commands");
}

/// Anchors of a document: its headings, converted as by mdBook and GitHub.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.trim())
    });
    headings.map(|heading| {
        let words = heading.to_lowercase().replace(' ', "-");
        words.replace(
            |it: char| !it.is_alphanumeric() && it != '-' && it != '_',
            "",
        )
    })
}

#[test]
fn every_link_has_its_file_and_its_heading() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("readable");
        let directory = document.parent().expect("a directory");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or(link);
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") || path.contains(' ') {
                continue;
            }
            let target = match path {
                "" => document.clone(),
                _ => directory.join(path),
            };
            assert!(target.exists(), "{}: {link}", document.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("readable");
                assert!(
                    headings(&text).any(|heading| heading == anchor),
                    "{}: {link}",
                    document.display()
                );
            }
            count += 1;
        }
    }
    assert!(count >= 30, "{count} links");
}

/// A page that is missing in the summary is not in the book, and an mdBook include of a missing file renders as an empty page.
#[test]
fn every_page_is_in_the_summary_and_has_its_text() {
    let pages = root().join("docs/src");
    let summary = fs::read_to_string(pages.join("SUMMARY.md")).expect("a summary");
    for entry in fs::read_dir(&pages).expect("pages") {
        let name = entry.expect("a page").file_name();
        let name = name.to_str().expect("a name");
        let is_listed = name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        assert!(is_listed, "{name}");
        let text = fs::read_to_string(pages.join(name)).expect("text");
        for include in text.split("{{#include ").skip(1) {
            let path = include.split("}}").next().expect("closed");
            assert!(pages.join(path).is_file(), "{name}: {path}");
        }
    }
}
