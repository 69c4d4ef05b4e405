//! Every decoder of untrusted bytes is given inputs, refuses some, accepts some, and never panics.

use fuzz_properties::harness::{ALL, Counts, Table, snapshot};

/// Default number of inputs of a property, for a run of a few seconds.
const INPUTS: u64 = 1500;

/// All decoders of the project. A new decoder must be added here, and to a property.
const DECODERS: [&str; 38] = [
    ".sbc file or plain content",
    ".sbc header",
    "Comch frame",
    "JSON flags of doca_argp",
    "JSON flags of the roles",
    "NBD handshake",
    "NBD request",
    "RDMA connection by address",
    "RDMA connection details",
    "backing file's header",
    "chunk record",
    "control frames: a stream of them",
    "control frames: header",
    "control payload: create_rdma_connection_request",
    "control payload: create_rdma_connection_response",
    "control payload: error_response",
    "control payload: init_storage_request",
    "control payload: init_storage_response",
    "control payload: query_storage_request",
    "control payload: query_storage_response",
    "control payload: shutdown_request",
    "control payload: shutdown_response",
    "control payload: start_storage_request",
    "control payload: start_storage_response",
    "control payload: stop_storage_request",
    "control payload: stop_storage_response",
    "io_message: a request at a target",
    "io_message: a request at gga_offload",
    "io_message: a request at zero_copy",
    "io_message: a result at an initiator",
    "io_message: the bytes",
    "mmap export",
    "recorded control message",
    "request to an agent",
    "stored block: LZ4 data blocks",
    "stored block: sizes",
    "sync event export",
    "topology file (TOML)",
];

#[test]
fn every_decoder_refuses_accepts_and_never_panics() {
    let mut failures = Vec::new();
    for search in ALL {
        search.run(1, INPUTS, |number| failures.push((search.name, number)));
    }
    let counts = snapshot();
    let table = Table(counts.clone());
    println!("{table}");
    assert_eq!(failures, [], "properties, and the numbers of their inputs");
    for name in DECODERS {
        let Counts {
            refused,
            accepted,
            panics,
        } = counts.get(name).copied().unwrap_or_default();
        assert!(
            refused >= 20 && accepted >= 20 && panics == 0,
            "{name}: {refused} refused, {accepted} accepted, {panics} panics\n{table}"
        );
    }
    let unknown = counts.keys().find(|name| !DECODERS.contains(name));
    assert_eq!(unknown, None, "a decoder that is not in the list");
}
