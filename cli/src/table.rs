//! Tables that fit the terminal.

use std::io::IsTerminal as _;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::peaker::Priority;
use tabled::settings::width::Width;
use tabled::settings::{Alignment, Style};

/// Minimum width of a table.
const LEAST_WIDTH: usize = 40;

/// Layout of a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Columns with numbers.
    pub right: &'a [usize],
    /// Columns that are omitted, in this order, until the table fits.
    pub optional: &'a [usize],
}

/// Width of the terminal on standard output; `None` if it is not a terminal, for unlimited lines. `COLUMNS` overrides
/// both.
pub fn width() -> Option<usize> {
    let chosen = std::env::var("COLUMNS").ok()?.parse().ok();
    chosen.or_else(|| {
        let stdout = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
        (stdout.is_terminal() && size.ws_col != 0).then_some(usize::from(size.ws_col))
    })
}

/// Renders the table, at most [`width`] wide. Omitted columns are listed below it.
pub fn render(rows: Builder, layout: Layout<'_>) -> String {
    render_within(rows, layout, width())
}

fn render_within(mut rows: Builder, layout: Layout<'_>, width: Option<usize>) -> String {
    let width = width.map_or(usize::MAX, |width| width.max(LEAST_WIDTH));
    let headings: Vec<String> = rows.clone().build().get_records()[..1]
        .iter()
        .flat_map(|row| row.iter().map(|cell| cell.as_ref().to_owned()))
        .collect();
    let mut kept: Vec<usize> = (0..headings.len()).collect();
    let mut left_out = Vec::new();
    for &column in layout.optional {
        if rows.clone().build().with(Style::rounded()).total_width() <= width {
            break;
        }
        if let Some(position) = kept.iter().position(|&it| it == column) {
            rows.remove_column(position);
            kept.remove(position);
            left_out.push(headings[column].clone());
        }
    }
    let mut table = rows.build();
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
    let mut text = table.to_string();
    if !left_out.is_empty() {
        let note = format!("not shown for want of width: {}", left_out.join(", "));
        text.push('\n');
        text.push_str(&wrapped(&note, width));
    }
    text
}

/// Prose that fits [`width`]: longer lines are broken between words, and go on two columns further in.
pub fn prose(text: &str) -> String {
    match width() {
        None => text.to_owned(),
        Some(width) => prose_within(text, width.max(LEAST_WIDTH)),
    }
}

fn prose_within(text: &str, width: usize) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            if line.chars().count() <= width {
                return line.to_owned();
            }
            let indent: String = line.chars().take_while(|it| *it == ' ').collect();
            let within = wrapped(line, width.saturating_sub(indent.len() + 2).max(1));
            let more = format!("\n{indent}  ");
            format!("{indent}{}", within.replace('\n', &more))
        })
        .collect();
    lines.join("\n")
}

/// Text in lines of at most so many characters, broken between words.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Builder {
        let mut rows = Builder::new();
        rows.push_record(["name", "first number", "second number", "a comment"]);
        rows.push_record([
            "a session of some kind",
            "1",
            "22",
            "words that go on for long",
        ]);
        rows.push_record(["another one", "333", "4444", ""]);
        rows
    }

    const LAYOUT: Layout<'_> = Layout {
        right: &[1, 2],
        optional: &[3, 1],
    };

    #[test]
    fn without_a_width_each_row_is_one_line() {
        let text = render_within(rows(), LAYOUT, None);
        assert!(text.contains("words that go on for long"), "{text}");
        assert!(text.contains("│          333 │"), "{text}");
        assert!(!text.contains("not shown"), "{text}");
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
        let text = render_within(rows(), LAYOUT, Some(60));
        assert!(
            text.ends_with("not shown for want of width: a comment"),
            "{text}"
        );
        let text = render_within(rows(), LAYOUT, Some(44));
        assert!(
            text.contains("want of width: a comment,\nfirst number"),
            "{text}"
        );
    }

    #[test]
    fn prose_goes_on_further_in() {
        assert_eq!(
            prose_within("  a: one two three\nshort\n\nfour five six", 12),
            "  a: one\n    two\n    three\nshort\n\nfour five\n  six"
        );
    }

    #[test]
    fn what_cannot_be_left_out_is_wrapped() {
        let text = render_within(rows(), Layout::default(), Some(70));
        assert!(
            text.lines().all(|line| line.chars().count() <= 70),
            "{text}"
        );
        assert!(text.contains("second"), "{text}");
    }
}
