//! Layout of help texts: paragraphs are wrapped once, to the terminal's width, and examples can be copied.

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// Maximum width of an example's command in columns, which every terminal is assumed to have.
const COLUMNS: usize = 80;

/// Indentation of continuation lines of a command.
const CONTINUATION: &str = "    ";

/// Appended to the help of a mandatory flag.
const REQUIRED: &str = "[required]";

/// Lays out the texts after the flags of a command and of its subcommands.
///
/// Lines of a paragraph are joined, so that only clap wraps them. Commands of examples, which are indented, are
/// broken between flags, with a backslash.
#[must_use]
pub fn lay_out(command: Command) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let command = match text {
        Some(text) => command.after_help(laid_out(&text)),
        None => command,
    };
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, lay_out)
    })
}

/// Marks a mandatory flag in its help.
pub(super) fn marked(arg: Arg) -> Arg {
    if !arg.is_required_set() {
        return arg;
    }
    let mark = |text: Option<&StyledStr>| text.map(|text| format!("{text} {REQUIRED}"));
    let (short, long) = (mark(arg.get_help()), mark(arg.get_long_help()));
    let arg = match short {
        Some(text) => arg.help(text),
        None => arg,
    };
    match long {
        Some(text) => arg.long_help(text),
        None => arg,
    }
}

fn laid_out(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    // The paragraph or the command of the last line continues.
    let mut goes_on = false;
    for line in text.lines() {
        let is_indented = line.starts_with(' ');
        let (content, continues) = match line.strip_suffix('\\') {
            Some(content) if is_indented => (content.trim_end(), true),
            _ => (
                line,
                !is_indented && !line.is_empty() && !line.ends_with(':'),
            ),
        };
        match lines.last_mut() {
            Some(last) if goes_on && !content.is_empty() => {
                last.push(' ');
                last.push_str(content.trim_start());
            }
            _ => lines.push(content.to_owned()),
        }
        goes_on = continues;
    }
    let lines: Vec<String> = lines.iter().map(|line| broken(line)).collect();
    lines.join("\n")
}

/// Breaks a command of an example that is longer than [`COLUMNS`]; other lines are unchanged.
fn broken(line: &str) -> String {
    let indentation = line.len() - line.trim_start().len();
    let is_command = indentation != 0 && !line.ends_with(':');
    if !is_command || line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    let indent = " ".repeat(indentation);
    // Width of a continued line before the space and the backslash.
    let room = COLUMNS - indentation - CONTINUATION.len() - 2;
    // A flag and its value stay on one line if they fit.
    let mut parts: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match parts.last_mut() {
            Some(last)
                if !word.starts_with('-')
                    && last.chars().count() + 1 + word.chars().count() <= room =>
            {
                last.push(' ');
                last.push_str(word);
            }
            _ => parts.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            // A space and a backslash follow.
            Some(last) if last.chars().count() + part.chars().count() + 3 <= COLUMNS => {
                last.push(' ');
                last.push_str(&part);
            }
            None => lines.push(format!("{indent}{part}")),
            Some(_) => lines.push(format!("{indent}{CONTINUATION}{part}")),
        }
    }
    lines.join(" \\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_and_commands_broken_between_flags() {
        let text = "\
First line of a paragraph,
and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 --second 2222222222222222222222222 \\
        --third 3 --fourth 44444444444444444444444444444
    program --flag 11111111111111111111111111111111111111111111111111111111111111111111
  program last";
        let expected = "\
First line of a paragraph, and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 \\
        --second 2222222222222222222222222 --third 3 \\
        --fourth 44444444444444444444444444444
    program --flag \\
        11111111111111111111111111111111111111111111111111111111111111111111
  program last";
        assert_eq!(laid_out(text), expected);
    }

    #[test]
    fn subcommands_are_laid_out_too() {
        let command = Command::new("program")
            .subcommand(Command::new("one").subcommand(Command::new("two").after_help("a\nb")));
        let mut command = lay_out(command);
        let one = command.find_subcommand_mut("one").expect("one");
        let two = one.find_subcommand("two").expect("two");
        let text = two.get_after_help().map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("a b"));
    }

    #[test]
    fn mandatory_flags_are_marked() {
        let arg = Arg::new("one").help("First").required(true);
        let text = marked(arg).get_help().map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("First [required]"));
        let text = marked(Arg::new("one").help("First"))
            .get_help()
            .map(ToString::to_string);
        assert_eq!(text.as_deref(), Some("First"));
    }
}
