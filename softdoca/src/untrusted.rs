//! All decoders of data from other processes, for fuzzing.
//!
//! Accepted data may still refer to nothing: its keys and addresses are checked by the owner of the objects they name.

use crate::error::Result;

/// A decoder of untrusted bytes.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// Name of the format.
    pub name: &'static str,
    /// Decodes the bytes and returns their canonical encoding, or the reason why they are refused. Trailing bytes are
    /// refused, except in a request to an agent, whose payload follows.
    pub again: fn(&[u8]) -> std::result::Result<Vec<u8>, String>,
    /// Valid encodings of every kind.
    pub examples: fn() -> Result<Vec<Vec<u8>>>,
}

/// All decoders.
pub const DECODERS: [Decoder; 6] = [
    Decoder {
        name: "mmap export",
        again: |bytes| with_message(crate::memory::descriptor_again(bytes)),
        examples: crate::memory::example_descriptors,
    },
    Decoder {
        name: "RDMA connection details",
        again: |bytes| with_message(crate::rdma::details_again(bytes)),
        examples: crate::rdma::example_details,
    },
    Decoder {
        name: "RDMA connection by address",
        again: |bytes| with_message(crate::rdma::handshake_again(bytes)),
        examples: crate::rdma::example_handshakes,
    },
    Decoder {
        name: "sync event export",
        again: |bytes| with_message(crate::sync_event::blob_again(bytes)),
        examples: || Ok(crate::sync_event::example_blobs()),
    },
    Decoder {
        name: "Comch frame",
        again: |bytes| crate::comch::frame_again(bytes).map_err(|error| error.to_string()),
        examples: || Ok(crate::comch::example_frames()),
    },
    Decoder {
        name: "request to an agent",
        again: |bytes| with_message(crate::agent::request_again(bytes)),
        examples: || Ok(crate::agent::example_requests()),
    },
];

fn with_message(result: Result<Vec<u8>>) -> std::result::Result<Vec<u8>, String> {
    result.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_bytes_are_reencoded_identically() {
        for decoder in DECODERS {
            let examples = (decoder.examples)().expect("they are made");
            assert!(!examples.is_empty());
            for example in examples {
                assert_eq!(
                    (decoder.again)(&example).as_ref(),
                    Ok(&example),
                    "{}",
                    decoder.name
                );
            }
        }
    }
}
