//! `doca_compress`: deflate both ways, with our decoder and encoder at the other end, and LZ4 streams.

use super::DPU;
use crate::samples::content::{Content, Lz4, Stream, crc32, deflate_checksum, xxh32};
use crate::samples::scenario::{Check, Event, Party, Scenario};

const LIBRARY: &str = "doca_compress";

pub(super) fn scenarios() -> Vec<Scenario> {
    let contents = [
        ("prose", Content::Prose(300_000)),
        ("noise", Content::Noise(70_000)),
        ("one_byte", Content::Prose(1)),
    ];
    let mut scenarios = Vec::new();
    for (kind, content) in &contents {
        for stream in [Stream::Deflate, Stream::Zlib] {
            let framed = stream == Stream::Zlib;
            let variant = format!("{kind}{}", if framed { "_framed" } else { "" });
            scenarios.push(round_trip(&variant, content, stream));
            scenarios.push(inflate(&variant, content, stream));
        }
        scenarios.extend(lz4(kind, content));
    }
    scenarios
}

/// The bytes of a content that needs no encoder.
fn plain(content: &Content) -> Vec<u8> {
    // Without an encoder nothing can fail; nothing else is asked for here.
    content.bytes().unwrap_or_default()
}

fn party(name: &str, sample: &'static str, framed: bool) -> Party {
    let party = Party::new(name, sample)
        .arguments(["-p", DPU, "-c"])
        .says("saved in: ");
    if framed {
        return party.arguments(["-wf"]);
    }
    party
}

/// Compressed by one sample and decompressed by the other; our decoder reads what is between.
fn round_trip(variant: &str, content: &Content, stream: Stream) -> Scenario {
    let framed = stream == Stream::Zlib;
    let checksum = format!("Checksum is {}", deflate_checksum(&plain(content)));
    let compress = party("compress", "compress_deflate", framed)
        .arguments(["-f", "{shared}/input", "-o", "{dir}/output"])
        .says(checksum.clone());
    let decompress = party("decompress", "decompress_deflate", framed)
        .arguments(["-f", "{shared}/compress/output", "-o", "{dir}/output"])
        .starts_when(Event::ends("compress"))
        .says(checksum);
    Scenario::new(LIBRARY, format!("compress_deflate:{variant}"))
        .input("{shared}/input", content.clone())
        .party(compress)
        .party(decompress)
        .check(Check::Decodes {
            path: "{shared}/compress/output".to_owned(),
            stream,
            content: content.clone(),
        })
        .check(Check::File {
            path: "{shared}/decompress/output".to_owned(),
            content: content.clone(),
        })
}

/// What our encoder made.
fn inflate(variant: &str, content: &Content, stream: Stream) -> Scenario {
    let decompress = party("decompress", "decompress_deflate", stream == Stream::Zlib)
        .says(format!("Checksum is {}", deflate_checksum(&plain(content))));
    decompressed(
        format!("decompress_deflate:{variant}"),
        decompress,
        content,
        stream,
    )
}

/// LZ4 with and without frame, in the forms that blocks have.
fn lz4(kind: &str, content: &Content) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (independent, block_checksums) in
        [(true, false), (true, true), (false, false), (false, true)]
    {
        for framed in [true, false] {
            let options = Lz4 {
                independent,
                block_checksums,
                content_checksum: framed,
            };
            let stream = if framed {
                Stream::Lz4Frame(options)
            } else {
                Stream::Lz4Blocks(options)
            };
            let bytes = plain(content);
            // The bytes of an LZ4 frame's checksum, read as a big-endian number: samples turn round what a frame has to
            // compare the two.
            let xxh32 = xxh32(&bytes).swap_bytes();
            let mut sample = party("decompress", "decompress_lz4_stream", framed)
                .says(format!("CRC Checksum is {}", crc32(&bytes)))
                .says(format!("xxHash Checksum is {xxh32}"));
            // In a frame, its header says so.
            if !framed && independent {
                sample = sample.arguments(["-bi"]);
            }
            if !framed && block_checksums {
                sample = sample.arguments(["-bc"]);
            }
            let name = format!(
                "decompress_lz4_stream:{kind}_{}{}{}",
                if independent { "independent" } else { "linked" },
                if block_checksums { "_checksums" } else { "" },
                if framed { "_framed" } else { "" },
            );
            scenarios.push(decompressed(name, sample, content, stream));
        }
    }
    scenarios
}

fn decompressed(name: String, sample: Party, content: &Content, stream: Stream) -> Scenario {
    Scenario::new(LIBRARY, name)
        .input("{shared}/input", content.encoded(stream))
        .party(sample.arguments(["-f", "{shared}/input", "-o", "{dir}/output"]))
        .check(Check::File {
            path: "{shared}/decompress/output".to_owned(),
            content: content.clone(),
        })
}
