//! The usage text, in DOCA's layout.

use std::fmt::Write as _;

use super::{Definitions, Scope, general};

/// Column of the descriptions.
const COLUMN: usize = 36;

/// The usage text of a program that was called as `called`, or of one of its commands.
pub fn usage(definitions: &Definitions, called: Option<&str>, scope: &Scope) -> String {
    let name = definitions
        .program_name
        .as_deref()
        .or(called)
        .unwrap_or("program");
    let mut text = format!("Usage: {name}");
    for id in scope {
        let _ = write!(
            text,
            " {}",
            definitions.command(*id).name.as_deref().unwrap_or_default()
        );
    }
    if definitions.with_dpdk {
        text.push_str(" [DPDK Flags] --");
    }
    text.push_str(" [DOCA Flags] [Program Flags]");
    let commands: Vec<_> = definitions
        .following(scope)
        .iter()
        .map(|id| definitions.command(*id))
        .filter(|command| !command.hidden)
        .collect();
    if !commands.is_empty() {
        text.push_str(" <command>");
    }
    text.push('\n');
    if let Some(id) = scope.last()
        && let Some(description) = &definitions.command(*id).description
    {
        let _ = write!(text, "\n{description}\n");
    }

    let params: Vec<_> = definitions
        .visible(scope)
        .into_iter()
        .map(|id| definitions.param(id))
        .collect();
    text.push_str("\nDOCA Flags:\n");
    for general in &general::FLAGS {
        // A program's own flag takes the place of a short general one.
        let taken = |short: &&str| params.iter().any(|p| p.short.as_deref() == Some(short));
        let short = general.short.filter(|short| !taken(short));
        let left = flags(short, Some(general.long), general.argument);
        entry(&mut text, &left, general.text);
    }

    let params: Vec<_> = params.into_iter().filter(|param| !param.hidden).collect();
    if !params.is_empty() {
        text.push_str("\nProgram Flags:\n");
        for param in params {
            let left = flags(
                param.short.as_deref(),
                param.long.as_deref(),
                param.arguments.as_deref(),
            );
            entry(
                &mut text,
                &left,
                param.description.as_deref().unwrap_or_default(),
            );
        }
    }
    if !commands.is_empty() {
        text.push_str("\nCommands:\n");
        for command in commands {
            entry(
                &mut text,
                command.name.as_deref().unwrap_or_default(),
                command.description.as_deref().unwrap_or_default(),
            );
        }
    }
    text
}

fn flags(short: Option<&str>, long: Option<&str>, argument: Option<&str>) -> String {
    let names: Vec<String> = [
        short.map(|short| format!("-{short}")),
        long.map(|long| format!("--{long}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut text = names.join(", ");
    if let Some(argument) = argument {
        text.push(' ');
        text.push_str(argument);
    }
    text
}

fn entry(text: &mut String, left: &str, description: &str) {
    // Lines after the first one are aligned; a left side that is too long has a line of its own.
    let margin = " ".repeat(COLUMN);
    if left.len() + 4 > COLUMN {
        let _ = write!(text, "  {left}\n{margin}");
    } else {
        let _ = write!(text, "  {left:width$}", width = COLUMN - 2);
    }
    text.push_str(&description.replace('\n', &format!("\n{margin}")));
    text.push('\n');
}
