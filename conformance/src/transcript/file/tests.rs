use std::time::Duration;

use bytes::Bytes;
use wire::control::{Message, Payload, RdmaConnectionDetails, RdmaConnectionRole};

use super::*;
use crate::transcript::{Frame, Side};

fn transcript() -> Transcript {
    let message = Message {
        message_id: 3,
        correlation_id: 5,
        payload: Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
            context_index: 1,
            role: RdmaConnectionRole::IoControl,
            connection_details: Bytes::from_static(b"blob"),
        }),
    };
    let odd = Frame {
        message: message.clone(),
        bytes: Some(Bytes::from_static(b"other bytes")),
    };
    let events = [
        (Some(Side::Client), Event::Opened),
        (Some(Side::Client), Event::Frame(Frame::of(message))),
        (Some(Side::Server), Event::Frame(odd)),
        (
            Some(Side::Server),
            Event::Raw(Bytes::from_static(b"\0garbage")),
        ),
        (Some(Side::Client), Event::Closed),
        (Some(Side::Server), Event::Failed("reset".to_owned())),
        (None, Event::Ended),
    ];
    let entry = |(number, (from, event))| Entry {
        time: Duration::from_nanos(u64::from(number) * 1_000_000_007),
        channel: number,
        session: 2,
        from,
        event,
    };
    Transcript {
        header: Header {
            client: Role::Service,
            server: Role::Target,
            start_unix_ns: 1_700_000_000_000_000_000,
            channels: vec!["localhost:1".to_owned(), "localhost:2".to_owned()],
            recorder: "test".to_owned(),
        },
        entries: std::iter::zip(0u32.., events).map(entry).collect(),
        truncated: None,
    }
}

fn file(transcript: &Transcript) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &transcript.header).expect("memory");
    for entry in &transcript.entries {
        writer.write(entry).expect("memory");
    }
    bytes
}

#[test]
fn transcript_round_trips() {
    let written = transcript();
    let read = Transcript::from_reader(&file(&written)[..]).expect("a transcript");
    assert_eq!(read, written);
    assert!(read.is_whole());
}

#[test]
fn truncated_file_yields_whole_entries_and_reports_the_rest() {
    let written = transcript();
    let file = file(&written);
    let ends: Vec<usize> = (0..=written.entries.len())
        .map(|count| {
            let entries = written.entries[..count].to_vec();
            self::file(&Transcript {
                entries,
                ..transcript()
            })
            .len()
        })
        .collect();
    for cut in 0..file.len() {
        match Transcript::from_reader(&file[..cut]) {
            Ok(read) => {
                let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
                assert_eq!(read.entries, written.entries[..whole], "{cut} bytes");
                assert_eq!(read.truncated.is_none(), ends[whole] == cut, "{cut} bytes");
                assert!(!read.is_whole());
            }
            Err(Error::Magic(_)) => assert!(cut < MAGIC.len()),
            Err(Error::Truncated { .. }) => assert!(cut < ends[0]),
            Err(other) => panic!("{cut} bytes: {other}"),
        }
    }
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: &[u8]| Transcript::from_reader(bytes).expect_err("no transcript");
    let text = refused(b"\x7fELF and more").to_string();
    assert!(text.contains(r"\x7fELF and"), "{text}");
    let header = recorded::Header {
        version: 2,
        ..Default::default()
    };
    let mut bytes = [&MAGIC[..], &header.encode_length_delimited_to_vec()].concat();
    assert!(matches!(refused(&bytes), Error::Version(2)));
    // A length that exceeds the file is refused before anything is read.
    bytes.truncate(MAGIC.len());
    bytes.extend([0xff; 9]);
    let text = refused(&bytes).to_string();
    assert!(text.contains("the header: expected at most"), "{text}");

    let mut damaged = file(&Transcript {
        entries: Vec::new(),
        ..transcript()
    });
    let nothing = recorded::Entry::default();
    damaged.extend(nothing.encode_length_delimited_to_vec());
    let text = refused(&damaged).to_string();
    assert_eq!(text, "entry 0: expected an event, it has none");
}

#[test]
fn changed_bytes_cause_errors_at_most() {
    let file = file(&transcript());
    let mut refused = 0;
    for index in 0..file.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[index] ^= change;
            match Transcript::from_reader(&changed[..]) {
                // Every entry takes at least two bytes.
                Ok(read) => assert!(read.entries.len() <= file.len() / 2),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        refused > file.len() / 2,
        "{refused} of {} bytes",
        file.len()
    );
}

/// The recordings of this crate are replayed by tests of the command: an incompatible change of the schema fails here.
#[test]
fn recordings_of_this_crate_are_complete() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("the recordings") {
        let path = entry.expect("an entry").path();
        let transcript = Transcript::read(&path).expect("a transcript");
        assert!(transcript.is_whole(), "{}", path.display());
        let odd = |entry: &&Entry| match &entry.event {
            Event::Frame(frame) => frame.bytes.is_some(),
            Event::Raw(_) | Event::Failed(_) => true,
            Event::Opened | Event::Closed | Event::Ended => false,
        };
        // All roles encode the same message to the same bytes.
        assert_eq!(
            transcript.entries.iter().find(odd),
            None,
            "{}",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 3, "{count} recordings");
}
