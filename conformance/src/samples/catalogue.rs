//! All known scenarios.

use deployment::sandbox::{DPU_DEVICE, HOST_DEVICE};

use super::scenario::{
    Check, Content, Event, Lz4, Party, Reply, Scenario, Side, Step, Stream, crc32,
    deflate_checksum, xxh32,
};

/// Device of the DPU, its network representor, and device of the host, as in the guides.
const DPU: &str = DPU_DEVICE;
const HOST: &str = HOST_DEVICE;
const DPU_RDMA: &str = "mlx5_0";
const HOST_RDMA: &str = "mlx5_1";

pub fn catalogue() -> Vec<Scenario> {
    let mut all = comch_scenarios();
    all.extend(scenarios());
    all.extend(multi_connection_scenarios());
    all.extend(dma_scenarios());
    all.extend(compress_scenarios());
    all.extend(erasure_coding_scenarios());
    all.extend(common_scenarios());
    all.extend(crypto_scenarios());
    all
}

// `doca_comch`: one text in each direction, over the control path and over the fast path. Host and DPU run the same
// code with different flags.

const COMCH_LIBRARY: &str = "doca_comch";
/// Just below the samples' limit of 4080 bytes.
const COMCH_LONG: usize = 4000;

fn comch_scenarios() -> Vec<Scenario> {
    let samples = [
        ("comch_ctrl_path_server", "comch_ctrl_path_client"),
        (
            "comch_data_path_high_speed_server",
            "comch_data_path_high_speed_client",
        ),
    ];
    let texts = [
        (
            "short",
            "to the server".to_owned(),
            "to the client".to_owned(),
        ),
        ("long", "s".repeat(COMCH_LONG), "c".repeat(COMCH_LONG)),
    ];
    let mut scenarios = Vec::new();
    for (server, client) in samples {
        for (kind, to_server, to_client) in &texts {
            scenarios.push(
                Scenario::new(COMCH_LIBRARY, format!("{client}:{kind}"))
                    .party(
                        Party::new("server", server)
                            .arguments(["-p", DPU, "-r", HOST, "-t", to_client])
                            .says(format!("Message received: '{to_server}'")),
                    )
                    .party(
                        Party::new("client", client)
                            .arguments(["-p", HOST, "-t", to_server])
                            .starts_when(Event::says("server", "Waiting for clients"))
                            .says(format!("Message received: '{to_client}'")),
                    ),
            );
        }
    }
    scenarios
}

// `doca_common`: progress engines, graphs, the cache, and sync events between host and DPU.

const COMMON_LIBRARY: &str = "doca_common";

fn common_scenarios() -> Vec<Scenario> {
    let mut scenarios = vec![
        alone("pe_polling", |party| party.says("All tasks are completed")),
        alone("pe_event", |party| party.says("All tasks completed")),
        alone("pe_single_task_comp_cb", |party| {
            party.says("All tasks are completed")
        }),
        alone("pe_multi_context", |party| {
            // Printed once in total, and once for each of four contexts.
            party
                .says_times("Allocating tasks", 5)
                .says("All tasks are completed")
        }),
        alone("pe_reactive", |party| {
            party
                .says("All tasks have completed")
                .says("DMA context has been stopped")
        }),
        alone("pe_task_resubmit", |party| {
            // Sixteen pairs of buffers for four tasks.
            party
                .says_times("resubmitting", 12)
                .says("All tasks are completed")
        }),
        alone("pe_task_try_submit", |party| {
            party.says("All tasks are completed")
        }),
        // Stops with tasks in flight: some complete, the others are flushed.
        alone("pe_async_stop", |party| {
            party
                .says("completed successfully")
                .says("Stopping DMA in the middle")
                .says("Task flushed")
                .says("from stopping to idle")
        }),
        // The second task is invalid on purpose: the context stops by itself.
        alone("pe_task_error", |party| {
            party
                .says("Task failed with status")
                .says("moved to stopping state unexpectedly")
                .says("from stopping to idle")
                .shows_errors()
        }),
        alone("clock_cross_timestamp", |party| {
            party
                .arguments(["-p", DPU, "-c", "host_rt", "-n", "nic_rt"])
                .says("Cross-timestamp - ")
        }),
        alone("graph", |party| {
            party
                .says_times("user callback", 10)
                .says("All instances completed")
        }),
        alone("cache_invalidate", |party| {
            party
                .says("DMA completed")
                .says("Cache invalidate completed")
        }),
    ];
    for (mode, flags) in [
        ("set", &[][..]),
        ("add", &["--atomic"]),
        ("async_set", &["--async", "--async-num-tasks", "4"]),
        (
            "async_add",
            &["--async", "--async-num-tasks", "4", "--atomic"],
        ),
    ] {
        scenarios.push(sync_event(mode, flags, Side::Dpu));
        scenarios.push(sync_event(mode, flags, Side::Host));
    }
    scenarios
}

fn alone(sample: &'static str, party: impl Fn(Party) -> Party) -> Scenario {
    Scenario::new(COMMON_LIBRARY, sample).party(party(Party::new("sample", sample)))
}

/// An event on one side of PCIe that both sides update and wait for. The DPU runs the server.
fn sync_event(mode: &str, flags: &[&str], home: Side) -> Scenario {
    let local = "sync_event_local_pci";
    let remote = "sync_event_remote_pci";
    let (on_dpu, on_host, place) = match home {
        Side::Host => (remote, local, "host"),
        Side::Dpu | Side::Any => (local, remote, "dpu"),
    };
    let waits = "to be signaled from remote side";
    let dpu = Party::new("dpu", on_dpu)
        .on(Side::Dpu)
        .arguments(["-d", DPU, "-r", HOST])
        .arguments(flags.to_vec())
        .says(waits);
    let host = Party::new("host", on_host)
        .on(Side::Host)
        .arguments(["-d", HOST])
        .arguments(flags.to_vec())
        .starts_when(Event::rests("dpu"))
        .says(waits);
    Scenario::new(COMMON_LIBRARY, format!("{local}:{place}_{mode}"))
        .party(dpu)
        .party(host)
}

// `doca_compress`: deflate in both directions, with our decoder and encoder as counterparts, and LZ4 streams.

const COMPRESS_LIBRARY: &str = "doca_compress";

fn compress_scenarios() -> Vec<Scenario> {
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

/// Bytes of a content that needs no encoder.
fn plain(content: &Content) -> Vec<u8> {
    // Cannot fail, because no encoded content is requested here.
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

/// Compression by one sample and decompression by the other; our decoder reads the compressed file.
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
    Scenario::new(COMPRESS_LIBRARY, format!("compress_deflate:{variant}"))
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

/// Decompression of data compressed by this crate's encoder.
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

/// LZ4 with and without a frame, in all forms of blocks.
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
            // Checksum of an LZ4 frame as a big-endian number: samples swap the bytes of the frame's checksum to compare the two.
            let xxh32 = xxh32(&bytes).swap_bytes();
            let mut sample = party("decompress", "decompress_lz4_stream", framed)
                .says(format!("CRC Checksum is {}", crc32(&bytes)))
                .says(format!("xxHash Checksum is {xxh32}"));
            // The flag is in the header of a frame.
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
    Scenario::new(COMPRESS_LIBRARY, name)
        .input("{shared}/input", content.encoded(stream))
        .party(sample.arguments(["-f", "{shared}/input", "-o", "{dir}/output"]))
        .check(Check::File {
            path: "{shared}/decompress/output".to_owned(),
            content: content.clone(),
        })
}

// `doca_sha` and `doca_aes_gcm`: digests of the standard's example messages, and encryption and decryption of a file.

/// Examples of FIPS 180-4 for SHA-256, the algorithm of the samples; the second has more than one block.
const SHORT: (&str, &str) = (
    "abc",
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
);
const LONG_DIGEST: (&str, &str) = (
    "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
    "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
);

fn crypto_scenarios() -> Vec<Scenario> {
    vec![
        digest("sha_create", "short", SHORT),
        digest("sha_create", "long", LONG_DIGEST),
        digest("sha_partial_create", "long", LONG_DIGEST),
        there_and_back("key_128", "00112233445566778899aabbccddeeff", 16),
        there_and_back(
            "key_256",
            "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef",
            12,
        ),
    ]
}

fn digest(sample: &'static str, kind: &str, (message, digest): (&str, &str)) -> Scenario {
    let party = Party::new(sample, sample)
        .arguments(["-d", message])
        .says(format!("SHA256 output is: {digest}"));
    Scenario::new("doca_sha", format!("{sample}:{kind}")).party(party)
}

/// Encryption by one sample and decryption by the other, with additional authenticated data.
fn there_and_back(kind: &str, key: &str, tag_size: usize) -> Scenario {
    let content = Content::Noise(50_000);
    let tag_size = tag_size.to_string();
    let common = [
        "-p",
        DPU,
        "-k",
        key,
        "-i",
        "0102030405060708090a0b0c",
        "-t",
        &tag_size,
        "-a",
        "20",
    ];
    let encrypt = Party::new("encrypt", "aes_gcm_encrypt")
        .arguments(common)
        .arguments(["-f", "{shared}/input", "-o", "{dir}/output"])
        .says("encrypted successfully");
    let decrypt = Party::new("decrypt", "aes_gcm_decrypt")
        .arguments(common)
        .arguments(["-f", "{shared}/encrypt/output", "-o", "{dir}/output"])
        .starts_when(Event::ends("encrypt"))
        .says("decrypted successfully");
    Scenario::new("doca_aes_gcm", format!("aes_gcm_encrypt:{kind}"))
        .input("{shared}/input", content.clone())
        .party(encrypt)
        .party(decrypt)
        .check(Check::File {
            path: "{shared}/decrypt/output".to_owned(),
            content,
        })
}

// `doca_dma`: a copy on the DPU, and one from a host's memory.

const DMA_LIBRARY: &str = "doca_dma";
/// Maximum size of the samples in bytes.
const DMA_LONG: usize = 4096;

fn dma_scenarios() -> Vec<Scenario> {
    // Number of bufs in the chains of source and destination.
    let chains = [("1", "1"), ("3", "1"), ("1", "4"), ("5", "3")];
    let texts = [
        ("short", "what the host has".to_owned()),
        ("long", "d".repeat(DMA_LONG)),
    ];
    let mut scenarios = Vec::new();
    for (sources, destinations) in chains {
        for (kind, text) in &texts {
            let chain = ["-p", DPU, "-ns", sources, "-nd", destinations];
            let variant = format!("{kind}_{sources}_to_{destinations}");
            scenarios.push(
                Scenario::new(DMA_LIBRARY, format!("dma_local_copy:{variant}")).party(
                    Party::new("dpu", "dma_local_copy")
                        .on(Side::Dpu)
                        .arguments(chain)
                        .arguments(["-t", text])
                        .says("copied and verified"),
                ),
            );
            scenarios.push(from_host(&variant, text, &chain));
        }
    }
    scenarios
}

fn from_host(variant: &str, text: &str, chain: &[&str]) -> Scenario {
    let files = ["-d", "{dir}/descriptor", "-b", "{dir}/buffer"];
    let copy = Party::new("dpu", "dma_copy_dpu")
        .on(Side::Dpu)
        .arguments(chain.to_vec())
        .arguments(files)
        .starts_when(Event::says("host", "press enter"))
        .before(Step::copy("{shared}/host/descriptor", "{dir}/descriptor"))
        .before(Step::copy("{shared}/host/buffer", "{dir}/buffer"))
        .says(format!("Memory content: {text}"));
    Scenario::new(DMA_LIBRARY, format!("dma_copy_dpu:{variant}"))
        .party(
            Party::new("host", "dma_copy_host")
                .on(Side::Host)
                .arguments(["-p", HOST, "-t", text])
                .arguments(files)
                .reply(Reply::to("press enter").when(Event::says("dpu", "can be closed"))),
        )
        .party(copy)
}

// `doca_erasure_coding`: a file split into blocks, some of which are lost.

const ERASURE_CODING_LIBRARY: &str = "doca_erasure_coding";
const RECOVER_SAMPLE: &str = "erasure_coding_recover";

/// Split of a file into blocks, and the lost blocks.
struct Loss {
    matrix: &'static str,
    data: usize,
    redundancy: usize,
    lost: &'static [usize],
    /// Number of bufs in the chains of source and destination.
    chains: (usize, usize),
}

const LOSSES: [Loss; 9] = [
    loss("cauchy", 2, 2, &[0], (1, 1)),
    loss("cauchy", 2, 1, &[1], (1, 1)),
    loss("cauchy", 4, 2, &[0, 3], (1, 1)),
    loss("cauchy", 10, 4, &[0, 3, 4, 9], (1, 1)),
    loss("cauchy", 32, 8, &[1, 2, 3, 5, 8, 13, 21, 31], (3, 2)),
    loss("vandermonde", 2, 1, &[0], (1, 1)),
    loss("vandermonde", 2, 2, &[0, 1], (1, 1)),
    loss("vandermonde", 6, 3, &[2, 5], (2, 1)),
    loss("vandermonde", 16, 4, &[0, 7, 15], (4, 4)),
];

const fn loss(
    matrix: &'static str,
    data: usize,
    redundancy: usize,
    lost: &'static [usize],
    chains: (usize, usize),
) -> Loss {
    Loss {
        matrix,
        data,
        redundancy,
        lost,
        chains,
    }
}

fn erasure_coding_scenarios() -> Vec<Scenario> {
    // Not a multiple of the block size: the sample's padding must not occur in the result.
    let content = Content::Noise(100_003);
    LOSSES
        .iter()
        .flat_map(|loss| [loss.both(&content), loss.apart(&content)])
        .collect()
}

impl Loss {
    fn scenario(&self, way: &str, content: &Content) -> Scenario {
        let Self {
            matrix,
            data,
            redundancy,
            lost,
            ..
        } = self;
        let name = format!(
            "{RECOVER_SAMPLE}:{matrix}_{data}_{redundancy}_lost_{}{way}",
            lost.len()
        );
        Scenario::new(ERASURE_CODING_LIBRARY, name).input("{shared}/input", content.clone())
    }

    fn party(&self, name: &str) -> Party {
        let (sources, destinations) = self.chains;
        Party::new(name, RECOVER_SAMPLE)
            .arguments(["-p", DPU, "-x", self.matrix])
            .arguments(["-t".to_owned(), self.data.to_string()])
            .arguments(["-r".to_owned(), self.redundancy.to_string()])
            .arguments(["-ns".to_owned(), sources.to_string()])
            .arguments(["-nd".to_owned(), destinations.to_string()])
    }

    /// One process splits, deletes and recovers; the recovered file is written to the directory of the input.
    fn both(&self, content: &Content) -> Scenario {
        let lost: Vec<String> = self.lost.iter().map(usize::to_string).collect();
        let sample = self
            .party("both")
            .arguments(["-i", "{shared}/input", "-o", "{dir}", "-b"])
            .arguments(["-d".to_owned(), lost.join(",")])
            .says_times("Deleted successfully", self.lost.len())
            .says("data was recovered");
        self.scenario("", content).party(sample).check(Check::File {
            path: "{shared}/input_recovered".to_owned(),
            content: content.clone(),
        })
    }

    /// One process splits, the user deletes blocks, another one recovers.
    fn apart(&self, content: &Content) -> Scenario {
        let encode = self
            .party("encode")
            .arguments(["-i", "{shared}/input", "-o", "{dir}"])
            .says("redundancy blocks were created");
        let decode = self
            .party("decode")
            .arguments(["-i", "{shared}/encode", "-o", "{dir}/output"])
            .starts_when(Event::ends("encode"))
            .says("data was recovered");
        let decode = self.lost.iter().fold(decode, |decode, index| {
            decode.before(Step::Remove(format!(
                "{{shared}}/encode/data_block_{index}"
            )))
        });
        self.scenario("_apart", content)
            .party(encode)
            .party(decode)
            .check(Check::File {
                path: "{shared}/decode/output".to_owned(),
                content: content.clone(),
            })
    }
}

// `doca_rdma`: pairs of a passive and an active side, connected in each of the supported ways.

const LIBRARY: &str = "doca_rdma";

/// Behaviour of a pair of samples once they are connected.
struct Pair {
    /// Waiting side, and its sample.
    passive: (&'static str, &'static str),
    /// Acting side, and its sample.
    active: (&'static str, &'static str),
    /// The transferred text, and the side that has a flag for it.
    text: Option<(Flag, &'static str)>,
    /// Log text of the passive side that the active side must wait for.
    ready: &'static str,
    /// `true` if memory or an event of the passive side is exported, too.
    resource: bool,
    /// `true` if the passive side exits after Enter, which confirms that the active side has finished.
    waits_for_enter: bool,
    /// Expected text in the output of each side.
    passive_says: &'static str,
    active_says: &'static str,
}

#[derive(PartialEq, Eq)]
enum Flag {
    Passive,
    Active,
}

const TEXT: &str = "what goes over the wire";
/// Text of the active side when its task has completed.
const DONE: &str = "task was done";
/// Text of the passive side once it is connected.
const CONNECTED: &str = "finished initialization";
/// Text of the passive side once it is ready to receive.
const RECEIVING: &str = "Submitting RDMA receive task";

const PAIRS: [Pair; 6] = [
    Pair {
        passive: ("receiver", "rdma_receive"),
        active: ("sender", "rdma_send"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        waits_for_enter: false,
        passive_says: "from sender: \"what goes over the wire\"",
        active_says: "send task was done",
    },
    Pair {
        passive: ("receiver", "rdma_receive_immediate"),
        active: ("sender", "rdma_send_immediate"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        waits_for_enter: false,
        // 0xABCD
        passive_says: "\"what goes over the wire\" with immediate: 43981",
        active_says: "send with immediate task was done",
    },
    Pair {
        passive: ("responder", "rdma_read_responder"),
        active: ("requester", "rdma_read_requester"),
        text: Some((Flag::Passive, "-r")),
        ready: CONNECTED,
        resource: true,
        waits_for_enter: true,
        passive_says: "has been stopped",
        active_says: "from responder: \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_responder"),
        active: ("requester", "rdma_write_requester"),
        text: Some((Flag::Active, "-w")),
        ready: CONNECTED,
        resource: true,
        waits_for_enter: true,
        passive_says: "has written: \"what goes over the wire\"",
        active_says: "to responder \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_immediate_responder"),
        active: ("requester", "rdma_write_immediate_requester"),
        text: Some((Flag::Active, "-w")),
        ready: RECEIVING,
        resource: true,
        waits_for_enter: false,
        passive_says: "has written: \"what goes over the wire\" with immediate data: 43981",
        active_says: "to responder \"what goes over the wire\" with immediate value 43981",
    },
    Pair {
        passive: ("responder", "rdma_sync_event_responder"),
        active: ("requester", "rdma_sync_event_requester"),
        text: None,
        ready: CONNECTED,
        resource: true,
        waits_for_enter: false,
        passive_says: "to be notified for completion",
        // The requester's value 0xD0CA plus one.
        active_says: "sync event value 0xD0CB",
    },
];

fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for pair in &PAIRS {
        scenarios.push(pair.by_descriptors(false));
        scenarios.push(pair.by_descriptors(true));
        scenarios.push(pair.by_address("address", "127.0.0.1", "IPv4"));
        scenarios.push(pair.by_address("address_ipv6", "::1", "IPv6"));
        scenarios.push(pair.by_address("address_gid", "::ffff:127.0.0.1", "GID"));
        scenarios.push(pair.by_address_of_active());
    }
    scenarios
}

impl Pair {
    fn scenario(&self, way: &str) -> Scenario {
        Scenario::new(LIBRARY, format!("{}:{way}", self.active.1))
    }

    fn passive(&self) -> Party {
        let party = Party::new(self.passive.0, self.passive.1)
            .arguments(["-d", DPU_RDMA])
            .says(self.passive_says);
        self.with_text(party, Flag::Passive)
    }

    fn active(&self) -> Party {
        let party = Party::new(self.active.0, self.active.1)
            .arguments(["-d", HOST_RDMA])
            .says(self.active_says);
        self.with_text(party, Flag::Active)
    }

    fn with_text(&self, party: Party, side: Flag) -> Party {
        match &self.text {
            Some((flag, name)) if *flag == side => party.arguments([*name, TEXT]),
            _ => party,
        }
    }

    /// Descriptors in files, which the user copies between the sides. With dynamic connections, the passive side does
    /// not need the descriptor of the active side.
    fn by_descriptors(&self, dynamic: bool) -> Scenario {
        let transport = if dynamic { "DC" } else { "RC" };
        let flags = [
            "-ld",
            "{dir}/local",
            "-re",
            "{dir}/remote",
            "-tt",
            transport,
        ];
        let (passive_name, active_name) = (self.passive.0, self.active.0);
        let mut passive = self.passive().arguments(flags);
        if !dynamic {
            let fetch = Reply::to("press enter")
                .when(Event::says(active_name, "You can now copy"))
                .copy(format!("{{shared}}/{active_name}/local"), "{dir}/remote");
            passive = passive.reply(fetch);
        }
        let mut active = self
            .active()
            .arguments(flags)
            .starts_when(Event::says(passive_name, "You can now copy"));
        let mut connect = Reply::to("press enter")
            .when(Event::says(passive_name, self.ready))
            .copy(format!("{{shared}}/{passive_name}/local"), "{dir}/remote");
        if self.resource {
            passive = passive.arguments(["-m", "{dir}/resource"]);
            active = active.arguments(["-m", "{dir}/resource"]);
            connect = connect.copy(
                format!("{{shared}}/{passive_name}/resource"),
                "{dir}/resource",
            );
        }
        let way = if dynamic {
            "descriptors_dc"
        } else {
            "descriptors"
        };
        self.scenario(way)
            .party(self.confirming(passive))
            .party(active.reply(connect))
    }

    /// The passive side listens on a port, to which the active side connects.
    fn by_address(&self, way: &str, address: &str, kind: &str) -> Scenario {
        let listens = Event::says(self.passive.0, "started connection");
        self.scenario(way)
            .party(self.negotiating(self.passive().arguments(["-cm", "-lp", "{port}"])))
            .party(
                self.sending(self.active())
                    .arguments(["-cm", "-lp", "{port}", "-sa", address, "-sat", kind])
                    .starts_when(listens),
            )
    }

    /// The active side listens.
    fn by_address_of_active(&self) -> Scenario {
        let listens = Event::says(self.active.0, "started connection");
        self.scenario("address_reversed")
            .party(
                self.sending(self.active())
                    .arguments(["-cm", "-lp", "{port}"]),
            )
            .party(
                self.negotiating(self.passive())
                    .arguments(["-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                    .starts_when(listens),
            )
    }

    /// Without files, the passive side sends its descriptor after Enter, which confirms that the active side waits for
    /// it.
    fn negotiating(&self, mut passive: Party) -> Party {
        if self.resource {
            let expects = Event::says(self.active.0, "Negotiation receive task submission");
            passive = passive.reply(Reply::to("press enter").when(expects));
        }
        self.confirming(passive)
    }

    /// Without files, senders ask whether the other side is ready.
    fn sending(&self, active: Party) -> Party {
        if self.resource {
            return active;
        }
        active.reply(Reply::to("press enter").when(Event::says(self.passive.0, self.ready)))
    }

    fn confirming(&self, passive: Party) -> Party {
        if !self.waits_for_enter {
            return passive;
        }
        passive.reply(Reply::to("press enter").when(Event::says(self.active.0, DONE)))
    }
}

// `doca_rdma` with several connections: from one context to another, and from one context to a process each.

const SEND: &str = "rdma_multi_conn_send";
const RECEIVE: &str = "rdma_multi_conn_receive";
/// Numbers of connections, up to the samples' maximum.
const COUNTS: [usize; 4] = [1, 2, 5, 8];
const MULTI_CONNECTION_RECEIVING: &str = "All RDMA receive tasks";

fn multi_connection_scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for count in COUNTS {
        scenarios.push(by_descriptors(count));
        scenarios.push(to_one_receiver(count));
        scenarios.push(from_one_sender(count));
    }
    scenarios
}

/// All connections between two processes, made sequentially; each has its own pair of files.
fn by_descriptors(count: usize) -> Scenario {
    let flags = ["-ld", "{dir}/local", "-re", "{dir}/remote", "-nc"];
    let connections = count.to_string();
    let mut receiver = Party::new("receiver", RECEIVE)
        .arguments(["-d", DPU_RDMA])
        .arguments(flags)
        .arguments([&connections])
        .says_times("from sender: \"many times\"", count);
    let mut sender = Party::new("sender", SEND)
        .arguments(["-d", HOST_RDMA, "-s", "many times"])
        .arguments(flags)
        .arguments([&connections])
        .starts_when(Event::says("receiver", "You can now copy"))
        .says_times("send task was done", count);
    for index in 0..count {
        let file = format!("{index:04}");
        receiver = receiver.reply(
            Reply::to("press enter")
                .when(Event::says_times("sender", "You can now copy", index + 1))
                .copy(
                    format!("{{shared}}/sender/local-{file}"),
                    format!("{{dir}}/remote-{file}"),
                ),
        );
        sender = sender.reply(
            Reply::to("press enter")
                .when(Event::says("receiver", format!("connection [{index}] is")))
                .copy(
                    format!("{{shared}}/receiver/local-{file}"),
                    format!("{{dir}}/remote-{file}"),
                ),
        );
    }
    let sender = sender
        .reply(Reply::to("press enter").when(Event::says("receiver", MULTI_CONNECTION_RECEIVING)));
    Scenario::new(LIBRARY, format!("{SEND}:descriptors_{count}"))
        .party(receiver)
        .party(sender)
}

/// One process listens and receives, several connect and send.
fn to_one_receiver(count: usize) -> Scenario {
    let mut receiver = Party::new("receiver", RECEIVE)
        .arguments(["-d", DPU_RDMA, "-cm", "-lp", "{port}", "-nc"])
        .arguments([count.to_string()]);
    let mut senders = Vec::new();
    for index in 0..count {
        let text = format!("from number {index}");
        receiver = receiver.says(format!("from sender: \"{text}\""));
        senders.push(
            Party::new(format!("sender{index}"), SEND)
                .arguments(["-d", HOST_RDMA, "-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                .arguments(["-s", &text])
                .starts_when(Event::says("receiver", "started connection"))
                .reply(
                    Reply::to("press enter")
                        .when(Event::says("receiver", MULTI_CONNECTION_RECEIVING)),
                )
                .says("send task was done"),
        );
    }
    let scenario = Scenario::new(LIBRARY, format!("{SEND}:senders_{count}")).party(receiver);
    senders.into_iter().fold(scenario, Scenario::party)
}

/// One process listens and sends, several connect and receive.
fn from_one_sender(count: usize) -> Scenario {
    let mut ready = Reply::to("press enter");
    let mut receivers = Vec::new();
    for index in 0..count {
        let name = format!("receiver{index}");
        ready = ready.when(Event::says(&name, MULTI_CONNECTION_RECEIVING));
        receivers.push(
            Party::new(name, RECEIVE)
                .arguments(["-d", HOST_RDMA, "-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                .starts_when(Event::says("sender", "started connection"))
                .says("from sender: \"to everybody\""),
        );
    }
    let sender = Party::new("sender", SEND)
        .arguments(["-d", DPU_RDMA, "-cm", "-lp", "{port}", "-s", "to everybody"])
        .arguments(["-nc", &count.to_string()])
        .reply(ready)
        .says_times("send task was done", count);
    let scenario = Scenario::new(LIBRARY, format!("{SEND}:receivers_{count}")).party(sender);
    receivers.into_iter().fold(scenario, Scenario::party)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::samples::scenario::Event;

    #[test]
    fn scenario_names_are_unique() {
        let all = catalogue();
        let names: BTreeSet<_> = all.iter().map(|scenario| &scenario.name).collect();
        assert_eq!(names.len(), all.len());
    }

    /// Parties must not wait for a nonexistent party or for themselves, which would never end.
    #[test]
    fn parties_wait_for_existing_other_parties() {
        for scenario in catalogue() {
            let parties: BTreeSet<_> = scenario.parties.iter().map(|party| &party.name).collect();
            assert_eq!(parties.len(), scenario.parties.len(), "{}", scenario.name);
            for party in &scenario.parties {
                let replies = party.replies.iter().flat_map(|reply| &reply.when);
                let others = party.starts.iter().chain(replies).map(Event::party);
                for other in others {
                    assert!(
                        parties.iter().any(|party| *party == other) && party.name != other,
                        "{}: {} waits for {other}",
                        scenario.name,
                        party.name
                    );
                }
            }
            assert!(
                scenario.parties.iter().any(|party| party.starts.is_empty()),
                "{}: no party begins",
                scenario.name
            );
        }
    }

    /// Every sample of the eight directories.
    #[test]
    fn every_sample_has_a_scenario() {
        let samples: BTreeSet<_> = catalogue()
            .iter()
            .flat_map(|scenario| scenario.samples())
            .collect();
        assert_eq!(samples.len(), 43, "{samples:?}");
    }
}
