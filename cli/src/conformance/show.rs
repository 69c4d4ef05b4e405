//! Display of a transcript, as text or JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::transcript::{Entry, Event, Side, Transcript, fields};
use clap::Args;
use role_common::{errln, out};
use serde::Serialize;
use tabled::builder::Builder;

use crate::table::{self, Layout};

use super::Result;

/// Bytes per line of a hex dump.
const DUMP_WIDTH: usize = 16;

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Transcript written by `record`
    #[arg(value_name = "FILE")]
    transcript: PathBuf,

    /// Also show the bytes of every message
    #[arg(long)]
    hex: bool,

    /// Print JSON, with all bytes in hexadecimal
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    header: &'a ::conformance::transcript::Header,
    entries: &'a [Entry],
    /// `true` if the recording is complete.
    whole: bool,
    truncated: Option<&'a str>,
}

/// An entry, with the position of its bytes in its side's stream.
struct Placed<'a> {
    number: usize,
    entry: &'a Entry,
    offset: usize,
    bytes: bytes::Bytes,
}

impl Show {
    /// Prints the transcript.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let transcript = read(&self.transcript)?;
        out!("{}", self.text(&transcript)?);
        if let Some(truncated) = &transcript.truncated {
            errln!("note: {truncated}");
        } else if !transcript.is_whole() {
            errln!("note: the recording has no end: its recorder was killed, or still runs");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, transcript: &Transcript) -> Result<String> {
        if self.json {
            let document = Document {
                header: &transcript.header,
                entries: &transcript.entries,
                whole: transcript.is_whole(),
                truncated: transcript.truncated.as_deref(),
            };
            return Ok(serde_json::to_string_pretty(&document)? + "\n");
        }
        let placed = placed(&transcript.entries);
        let mut text = table(transcript, &placed);
        if self.hex {
            let sent = placed.iter().filter(|placed| !placed.bytes.is_empty());
            sent.for_each(|placed| text += &format!("\n{}", dump(placed)));
        }
        Ok(text)
    }
}

/// Reads a transcript; errors name the file.
pub(super) fn read(path: &std::path::Path) -> Result<Transcript> {
    let transcript =
        Transcript::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(transcript)
}

fn placed(entries: &[Entry]) -> Vec<Placed<'_>> {
    let mut sent: HashMap<_, usize> = HashMap::new();
    let place = |(number, entry): (usize, &'_ Entry)| -> (usize, usize, bytes::Bytes) {
        let bytes = match &entry.event {
            Event::Frame(frame) => frame.to_bytes(),
            Event::Raw(bytes) => bytes.clone(),
            _ => bytes::Bytes::new(),
        };
        let stream = (entry.channel, entry.session, entry.from);
        let end = sent.entry(stream).or_default();
        let offset = *end;
        *end += bytes.len();
        (number, offset, bytes)
    };
    let places: Vec<_> = entries.iter().enumerate().map(place).collect();
    std::iter::zip(entries, places)
        .map(|(entry, (number, offset, bytes))| Placed {
            number,
            entry,
            offset,
            bytes,
        })
        .collect()
}

fn table(transcript: &Transcript, placed: &[Placed<'_>]) -> String {
    let header = &transcript.header;
    let (client, server) = (header.name(Side::Client), header.name(Side::Server));
    let mut text = format!(
        "recorded by {} at {:.6} (Unix time)\n",
        header.recorder,
        Duration::from_nanos(header.start_unix_ns).as_secs_f64()
    );
    for (number, address) in header.channels.iter().enumerate() {
        let _ = writeln!(text, "channel {number}: {server} at {address}");
    }
    let mut table = Builder::new();
    table.push_record([
        "entry",
        "seconds",
        "session",
        "direction",
        "at",
        "bytes",
        "message",
        "id",
        "corr.",
        "fields",
    ]);
    for placed in placed {
        let entry = placed.entry;
        let direction = match entry.from {
            Some(Side::Client) => format!("{client} → {server}"),
            Some(Side::Server) => format!("{client} ← {server}"),
            None => String::new(),
        };
        let (message_id, correlation_id, content) = match &entry.event {
            Event::Frame(frame) => {
                let message = &frame.message;
                let mut content: Vec<String> = fields(&message.payload)
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                if frame.bytes.is_some() {
                    content.push("(in other bytes than ours would be)".to_owned());
                }
                (
                    message.message_id.to_string(),
                    message.correlation_id.to_string(),
                    content.join("\n"),
                )
            }
            _ => Default::default(),
        };
        let (at, size) = match placed.bytes.len() {
            0 => Default::default(),
            size => (format!("{:#06x}", placed.offset), size.to_string()),
        };
        table.push_record([
            placed.number.to_string(),
            format!("{:.6}", entry.time.as_secs_f64()),
            format!("{}.{}", entry.channel, entry.session),
            direction,
            at,
            size,
            entry.event.to_string(),
            message_id,
            correlation_id,
            content,
        ]);
    }
    let layout = Layout {
        right: &[],
        // Optional columns, in the order in which they are hidden: times, places and ids; sender and message stay.
        optional: &[4, 5, 8, 1, 7, 2],
        flexible: Some(9),
    };
    let _ = writeln!(text, "{}", table::render(table, layout));
    text
}

/// Bytes of an entry, with offsets in their side's stream, as `xxd` shows a capture of it.
fn dump(placed: &Placed<'_>) -> String {
    let mut text = format!("entry {}: {}\n", placed.number, placed.entry.event);
    for (line, bytes) in placed.bytes.chunks(DUMP_WIDTH).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String = bytes
            .iter()
            .map(|&byte| {
                if byte.is_ascii_graphic() || byte == b' ' {
                    byte as char
                } else {
                    '.'
                }
            })
            .collect();
        let offset = placed.offset + line * DUMP_WIDTH;
        let width = DUMP_WIDTH * 3 - 1;
        let _ = writeln!(text, "  {offset:08x}  {:width$}  {plain}", hex.join(" "));
    }
    text
}
