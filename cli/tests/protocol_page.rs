//! The protocol reference of the book: generated from the schema's table of offsets, and compared with the committed page.
//!
//! `UPDATE_DOCS=1 cargo test -p doca-storage --test command protocol_page` regenerates it.

use std::fmt::Write as _;
use std::path::Path;

use wire::layout::{ByteOrder, Field, Kind, Message, TABLE};

/// Bytes per row of a diagram.
const ROW: u32 = 8;
/// Columns per byte of a diagram.
const COLUMNS: usize = 8;

const INTRODUCTION: &str = "\
# Protocol reference

This page is generated from the schema in `proto/`, as the codecs are. `doca-storage conformance layout --print` shows an
example of each message with its bytes. [Releases and extensions](protocol-releases.md) says how the releases of DOCA differ.

Control messages go over TCP between service and targets, and over Comch between initiator and service. Each is a frame: the length of what follows, type, message id,
correlation id, payload. A frame may arrive in pieces, or several at once. I/O messages go over Comch producers, and over RDMA send; the blocks themselves go by RDMA
read and write. Numbers are big endian unless a field says otherwise.

A session: query, init, two RDMA connections for each worker and target (only between service and targets), start, I/O, stop, shutdown. Each request is answered before
the next one, by its response or by `error_response`.
";

/// Title of a module's chapter.
fn title(module: &str) -> &'static str {
    match module {
        "control" => "Control messages",
        "io_message" => "I/O messages",
        "io_message_3_1" => "I/O messages of DOCA 3.1",
        "io_message_3_0" => "I/O messages of DOCA 3.0",
        "sbc" => ".sbc files",
        "stored_block" => "Stored blocks and stored chunks of gga_offload",
        "backing" => "Backing files of targets",
        other => panic!("the chapter of {other} has no title"),
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut module = "";
    for message in TABLE {
        if message.module != module {
            module = message.module;
            let _ = write!(page, "\n## {}\n", title(module));
        }
        add(&mut page, message);
    }
    page
}

fn add(page: &mut String, message: &Message) {
    let number = message
        .message_type
        .map_or_else(String::new, |number| format!(" (type {number})"));
    let size = if message.size == message.max_size {
        format!("{} bytes", message.size)
    } else {
        format!("{} to {} bytes", message.size, message.max_size)
    };
    let at_end = if message.at_end {
        ", at the end of the structure"
    } else {
        ""
    };
    let _ = write!(
        page,
        "\n### {}{number}\n\n{} {size}{at_end}.\n\n```text\n{}```\n\n",
        message.name,
        message.meaning,
        diagram(message.fields)
    );
    page.push_str(
        "| offset | bytes | field | value | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for field in message.fields {
        let order = match field.byte_order {
            ByteOrder::Big => "",
            ByteOrder::Little if field.width > 1 => ", little endian",
            ByteOrder::Little => "",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {}{order} | {} |",
            field.offset,
            field.width,
            name(field),
            value(field.kind),
            field.meaning
        );
    }
}

fn name(field: &Field) -> String {
    match field.kind {
        Kind::Reserved => "(reserved)".to_owned(),
        _ => format!("`{}`", field.name),
    }
}

fn value(kind: Kind) -> String {
    match kind {
        Kind::Number => "number".to_owned(),
        Kind::Constant(value) if value < 1000 => value.to_string(),
        Kind::Constant(value) => format!("{value:#x}"),
        Kind::Enumeration(values) => values
            .iter()
            .map(|(number, name)| format!("{number} {name}"))
            .collect::<Vec<_>>()
            .join(", "),
        Kind::Length => "length".to_owned(),
        Kind::Text { max } => format!("length, at most {max}, and as many bytes of UTF-8"),
        Kind::Blob { max } => format!("length, at most {max}, and as many bytes"),
        Kind::Reserved => "zeros; not looked at".to_owned(),
    }
}

/// Part of a field in one row of a diagram: the first byte in the row, the number of bytes, and the text.
type Cell = (u32, u32, String);

/// Draws a box for each row of bytes, preceded by the offset of its first byte.
fn diagram(fields: &[Field]) -> String {
    let mut rows: Vec<(u32, Vec<Cell>)> = Vec::new();
    let mut put = |offset: u32, width: u32, text: String| {
        let row = offset - offset % ROW;
        match rows.last_mut() {
            Some((last, cells)) if *last == row => cells.push((offset - row, width, text)),
            _ => rows.push((row, vec![(offset - row, width, text)])),
        }
    };
    for field in fields {
        let name = match field.kind {
            Kind::Reserved => "-",
            Kind::Text { .. } | Kind::Blob { .. } => &format!("{}: length", field.name),
            _ => field.name,
        };
        let (mut offset, end) = (field.offset, field.offset + field.width);
        while offset < end {
            // Consecutive full rows of one field are merged.
            let rest = end - offset;
            let (width, shown) = match rest {
                _ if offset.is_multiple_of(ROW) && rest > ROW => (rest - rest % ROW, ROW),
                _ => {
                    let width = rest.min(ROW - offset % ROW);
                    (width, width)
                }
            };
            let text = match (width > shown, offset > field.offset) {
                (true, _) => format!("{name} ({width} bytes)"),
                (false, true) => format!("{name} (continued)"),
                (false, false) => name.to_owned(),
            };
            put(offset, shown, text);
            offset += width;
        }
        if let Kind::Text { .. } | Kind::Blob { .. } = field.kind {
            let row = end.next_multiple_of(ROW);
            // Fields after a field of variable length have no fixed offset.
            let start = end % ROW;
            if start != 0 {
                put(end, ROW - start, format!("{}: bytes …", field.name));
            } else {
                put(row, ROW, format!("{}: bytes …", field.name));
            }
        }
    }
    let mut text = String::new();
    let mut above: &[Cell] = &[];
    for (row, cells) in &rows {
        let _ = writeln!(text, "       {}", border(above, cells));
        let mut line = format!("{row:>6} ");
        for (_, width, label) in cells {
            let room = *width as usize * COLUMNS - 2;
            let _ = write!(line, "│ {:<room$}", shortened(label, room));
        }
        let _ = writeln!(text, "{line}│");
        above = cells;
    }
    let _ = writeln!(text, "       {}", border(above, &[]));
    text
}

fn shortened(label: &str, room: usize) -> String {
    if label.chars().count() <= room {
        return label.to_owned();
    }
    let kept: String = label.chars().take(room.saturating_sub(2)).collect();
    format!("{kept}… ")
}

/// Line between two rows of cells, above the first row or below the last.
fn border(above: &[Cell], below: &[Cell]) -> String {
    let length = |cells: &[Cell]| cells.last().map_or(0, |(start, width, _)| start + width);
    let end = length(above).max(length(below));
    let edge = |cells: &[Cell], byte: u32| {
        cells.iter().any(|(start, _, _)| *start == byte) || length(cells) == byte && byte > 0
    };
    let is_line = |cells: &[Cell], byte: u32| {
        cells
            .iter()
            .any(|(start, width, _)| (*start..start + width).contains(&byte))
    };
    let mut line = String::new();
    for byte in 0..=end {
        let (up, down) = (edge(above, byte), edge(below, byte));
        let left = byte > 0 && (is_line(above, byte - 1) || is_line(below, byte - 1));
        let right = is_line(above, byte) || is_line(below, byte);
        line.push(match (up, down, left, right) {
            (true, true, true, true) => '┼',
            (true, true, false, true) => '├',
            (true, true, true, false) => '┤',
            (true, false, true, true) => '┴',
            (true, false, false, true) => '└',
            (true, false, true, false) => '┘',
            (false, true, true, true) => '┬',
            (false, true, false, true) => '┌',
            (false, true, true, false) => '┐',
            _ => '─',
        });
        if byte < end {
            line.extend(std::iter::repeat_n('─', COLUMNS - 1));
        }
    }
    line
}

#[test]
fn protocol_page_is_generated_from_the_schema() {
    let page = page();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/protocol.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("readable");
    assert!(
        committed == page,
        "docs/src/protocol.md differs from the schema; UPDATE_DOCS=1 has this test write it"
    );
}

#[test]
fn diagrams_have_rows_of_eight_bytes() {
    let field = |name, offset, width, kind| Field {
        name,
        offset,
        width,
        byte_order: ByteOrder::Big,
        kind,
        meaning: "",
    };
    let text = diagram(&[
        field("one", 0, 4, Kind::Number),
        field("two", 4, 8, Kind::Number),
        field("", 12, 20, Kind::Reserved),
        field("blob", 32, 4, Kind::Blob { max: 9 }),
    ]);
    let expected = "       \
┌───────────────────────────────┬───────────────────────────────┐
     0 │ one                           │ two                           │
       ├───────────────────────────────┼───────────────────────────────┤
     8 │ two (continued)               │ -                             │
       ├───────────────────────────────┴───────────────────────────────┤
    16 │ - (16 bytes)                                                  │
       ├───────────────────────────────┬───────────────────────────────┤
    32 │ blob: length                  │ blob: bytes …                 │
       └───────────────────────────────┴───────────────────────────────┘
";
    assert_eq!(text, expected);
}
