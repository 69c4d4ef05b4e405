//! Output of the commands: tables that fit the terminal, and lines wrapped to it.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::process::Command;

use role_common::console::{self, LEAST_WIDTH};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::peaker::Priority;
use tabled::settings::width::Width;
use tabled::settings::{Alignment, Style};

/// Minimum width of a wrapped flexible column.
const FLEXIBLE_WIDTH: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Indices of the right-aligned columns, which contain numbers.
    pub right: &'a [usize],
    /// Columns that are omitted, in this order, until the table fits.
    pub optional: &'a [usize],
    /// Index of the text column that is wrapped before other columns are omitted.
    pub flexible: Option<usize>,
}

/// Width of the terminal on standard output; `None` (unlimited) if it is not a terminal. `COLUMNS` overrides both.
pub fn width() -> Option<usize> {
    console::columns().map_or_else(
        || console::terminal_width(std::io::stdout()),
        |columns| Some(columns.max(LEAST_WIDTH)),
    )
}

/// Renders the table, at most [`width`] wide. Omitted columns are listed below it.
pub fn render(rows: Builder, layout: Layout<'_>) -> String {
    render_within(rows, layout, width())
}

/// As [`render`], for a given width; `None` for unlimited lines.
pub fn render_within(rows: Builder, layout: Layout<'_>, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let (mut text, left_out) = fit(rows, layout, width);
    if !left_out.is_empty() {
        let note = format!("not shown for want of width: {}", left_out.join(", "));
        text.push('\n');
        text.push_str(&console::wrapped(&note, width));
    }
    text
}

/// Renders the table, at most `width` wide. Returns it and the headings of the omitted columns.
fn fit(rows: Builder, layout: Layout<'_>, width: usize) -> (String, Vec<String>) {
    let mut rows: Vec<Vec<String>> = rows
        .build()
        .get_records()
        .iter()
        .map(|row| row.iter().map(|cell| cell.as_ref().to_owned()).collect())
        .collect();
    let mut kept: Vec<usize> = (0..rows[0].len()).collect();
    let mut left_out = Vec::new();
    // Narrows the flexible column until the table fits, but not below `FLEXIBLE_WIDTH`.
    let flexed = |rows: &[Vec<String>], kept: &[usize]| {
        let mut rows = rows.to_vec();
        let too_wide = total_width(&rows).saturating_sub(width);
        if too_wide > 0
            && let Some(position) = kept.iter().position(|it| layout.flexible == Some(*it))
        {
            let cells = rows.iter().map(|row| row[position].as_str());
            let widest = cells.flat_map(str::lines).map(columns).max().unwrap_or(0);
            let room = widest.saturating_sub(too_wide).max(FLEXIBLE_WIDTH);
            for row in &mut rows {
                row[position] = broken(&row[position], room);
            }
        }
        rows
    };
    for &column in layout.optional {
        if total_width(&flexed(&rows, &kept)) <= width {
            break;
        }
        if let Some(position) = kept.iter().position(|&it| it == column) {
            kept.remove(position);
            left_out.push(rows[0][position].clone());
            for row in &mut rows {
                row.remove(position);
            }
        }
    }
    let mut table = Builder::from(flexed(&rows, &kept)).build();
    table.with(Style::rounded());
    for (position, column) in kept.iter().enumerate() {
        if layout.right.contains(column) {
            table.modify(Columns::one(position), Alignment::right());
        }
    }
    if table.total_width() > width {
        table.with(
            Width::wrap(width)
                .keep_words(true)
                .priority(Priority::max(true)),
        );
    }
    (table.to_string(), left_out)
}

fn total_width(rows: &[Vec<String>]) -> usize {
    let mut table = Builder::from(rows.to_vec()).build();
    table.with(Style::rounded()).total_width()
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Breaks lines longer than `width` between words, and words longer than a line.
pub fn broken(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(String::new());
        for word in line.split_whitespace() {
            let last = lines.last_mut().expect("one at least");
            if last.is_empty() || columns(last) + 1 + columns(word) <= width {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
            while let Some((end, _)) = lines[lines.len() - 1].char_indices().nth(width) {
                let rest = lines.last_mut().expect("one at least").split_off(end);
                lines.push(rest);
            }
        }
    }
    lines.join("\n")
}

/// Wraps prose to [`width`] between words; continuation lines are indented by two more columns.
pub fn prose(text: &str) -> Cow<'_, str> {
    match width() {
        None => Cow::Borrowed(text),
        Some(width) => console::wrapped(text, width),
    }
}

/// Formats a shell command to copy, indented; continued lines end with a backslash.
pub fn command(line: &str) -> String {
    let text = format!("  {line}");
    match width() {
        None => text,
        Some(width) => console::wrapped(&text, width - 2).replace('\n', " \\\n"),
    }
}

/// Shell command that starts a role, with its environment.
pub fn shell_line(command: &Command) -> String {
    let environment = command.get_envs().filter_map(|(name, value)| {
        let value = quoted(&value?.to_string_lossy());
        Some(format!("{}={value}", name.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    let all: Vec<String> = environment.chain(words).collect();
    format!("  {}", all.join(" "))
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Prints a line of text to standard output, wrapped to [`width()`].
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        ::role_common::outln!("{}", $crate::prose(&::std::format!($($argument)*)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMENT: &str = "words that go on for long";

    fn rows() -> Builder {
        let mut rows = Builder::new();
        rows.push_record(["name", "first number", "second number", "a comment"]);
        rows.push_record(["a session of some kind", "1", "22", COMMENT]);
        rows.push_record(["another one", "333", "4444", ""]);
        rows
    }

    const LAYOUT: Layout<'_> = Layout {
        right: &[1, 2],
        optional: &[3, 1],
        flexible: None,
    };

    #[test]
    fn without_a_width_each_row_is_one_line() {
        let (text, left_out) = fit(rows(), LAYOUT, usize::MAX);
        assert!(text.contains(COMMENT), "{text}");
        assert!(text.contains("│          333 │"), "{text}");
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!(render_within(rows(), LAYOUT, None), text);
    }

    #[test]
    fn table_fits_every_width_and_lists_omitted_columns() {
        for width in [40, 60, 80, 100, 120] {
            let text = render_within(rows(), LAYOUT, Some(width));
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(text.contains("name") && text.contains("4444"), "{text}");
        }
        let omitted = |width| {
            let (table, omitted) = fit(rows(), LAYOUT, width);
            let text = render_within(rows(), LAYOUT, Some(width));
            let note = text
                .strip_prefix(&table)
                .expect("the table first")
                .replace("\n  ", " ");
            assert!(note.ends_with(&omitted.join(", ")), "{note}");
            omitted
        };
        assert_eq!(omitted(60), ["a comment"]);
        assert_eq!(omitted(44), ["a comment", "first number"]);
    }

    #[test]
    fn lines_are_broken_between_words_and_in_long_ones() {
        assert_eq!(broken("a bc\ndefghij kl m", 4), "a bc\ndefg\nhij\nkl m");
        assert_eq!(broken("", 4), "");
    }

    #[test]
    fn flexible_column_is_wrapped_before_others_are_omitted() {
        let layout = Layout {
            flexible: Some(3),
            optional: &[1],
            ..LAYOUT
        };
        let (text, left_out) = fit(rows(), layout, 80);
        let first_line = COMMENT.rsplit_once(' ').expect("words").0;
        assert!(
            text.contains(first_line) && !text.contains(COMMENT),
            "{text}"
        );
        assert_eq!(left_out, Vec::<String>::new());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let (text, left_out) = fit(rows(), layout, 60);
        assert_eq!(left_out, ["first number"]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
    }

    #[test]
    fn mandatory_columns_are_wrapped() {
        let text = render_within(rows(), Layout::default(), Some(70));
        assert!(
            text.lines().all(|line| line.chars().count() <= 70),
            "{text}"
        );
        assert!(text.contains("second"), "{text}");
    }

    #[test]
    fn shell_line_has_environment_and_quoted_words() {
        let mut command = Command::new("it's here");
        command
            .args(["--cpu", "0", ""])
            .env("A", "b c")
            .env_remove("D");
        assert_eq!(shell_line(&command), r"  A='b c' 'it'\''s here' --cpu 0 ''");
    }
}
