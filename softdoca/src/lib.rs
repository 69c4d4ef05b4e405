//! The DOCA C API in software: a safe engine under a thin C layer ([`capi`]).
//!
//! Each module uses only its predecessors in this list: `log`, `check`, `error`; `runtime`; `topology`, `device`;
//! `argp`; `verbs`; `agent`; `memory`; `buffer`; `ring`; `progress`; `graph`; `engines`; `sync_event`; `comch`, `rdma`;
//! `accelerator`; `compress`, `sha`, `aes_gcm`; `capi`.

mod accelerator;
mod aes_gcm;
pub mod agent;
pub mod argp;
pub mod buffer;
pub mod capi;
mod check;
mod comch;
mod compress;
pub mod device;
pub mod engines;
pub mod error;
mod graph;
pub mod log;
pub mod memory;
mod progress;
mod rdma;
mod ring;
pub mod runtime;
mod sha;
mod sync_event;
pub mod topology;
mod verbs;

use std::ffi::CStr;
use std::sync::OnceLock;

use doca_abi::{RELEASE_MARKER, Release};
use error::{Error, Result};

/// Environment variable that names a release.
pub const API_VARIABLE: &str = "SOFTDOCA_API";

/// The DOCA release on which values depend that differ between releases: that of the installation, unless the
/// environment ([`API_VARIABLE`]) names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// 2.5 LTS, with `doca_cc_*`.
    V2_5,
    V2_6,
    /// 2.9 LTS.
    V2_9,
    /// 3.0: parameter type numbers before device types were inserted.
    V3_0,
    V3_1,
    V3_2,
    /// 3.3: the release of softdoca's own headers.
    V3_3,
}

impl Api {
    /// All releases, oldest first.
    pub const ALL: [Api; 7] = [
        Api::V2_5,
        Api::V2_6,
        Api::V2_9,
        Api::V3_0,
        Api::V3_1,
        Api::V3_2,
        Api::V3_3,
    ];

    /// The release of this process: the value of [`API_VARIABLE`], or that of the installation. Read once; an unknown
    /// release is logged.
    pub fn current() -> Api {
        static CURRENT: OnceLock<Api> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let Some(name) = std::env::var_os(API_VARIABLE).filter(|name| !name.is_empty()) else {
                return Api::installed();
            };
            let named = name.to_str().and_then(Api::from_name);
            named.unwrap_or_else(|| {
                let installed = Api::installed();
                let _ = Error::BadConfig.because(format_args!(
                    "{API_VARIABLE}: expected 2.5, 2.6, 2.9, 3.0, 3.1, 3.2 or 3.3, got {name:?}; going on with {}",
                    installed.version().to_string_lossy()
                ));
                installed
            })
        })
    }

    /// The release whose headers the library was installed with: the installation writes it to [`INSTALLED`].
    fn installed() -> Api {
        // SAFETY: a valid reference.
        let text = unsafe { std::ptr::read_volatile(&INSTALLED) };
        std::str::from_utf8(&text[RELEASE_MARKER.len()..])
            .ok()
            .and_then(Api::from_name)
            .unwrap_or(Api::V3_3)
    }

    /// Parses `3.2`, or `3.2.` followed by a patch level.
    fn from_name(name: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| {
            let version = api.version().to_str().unwrap_or_default();
            let release = version.strip_suffix(".0").unwrap_or(version);
            name.strip_prefix(release).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('.').is_some_and(|patch| {
                        !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit())
                    })
            })
        })
    }

    /// The version string reported to programs.
    pub fn version(self) -> &'static CStr {
        match self {
            Api::V2_5 => c"2.5.0",
            Api::V2_6 => c"2.6.0",
            Api::V2_9 => c"2.9.0",
            Api::V3_0 => c"3.0.0",
            Api::V3_1 => c"3.1.0",
            Api::V3_2 => c"3.2.0",
            Api::V3_3 => c"3.3.0",
        }
    }
}

/// The release of the installation, preceded by a marker with which the installation finds it in the library's file.
/// Must be read with `read_volatile`, because otherwise the compiler may use this value instead of the one that the
/// installation has written.
#[used]
static INSTALLED: [u8; RELEASE_MARKER.len() + 3] = {
    let mut text = [0; RELEASE_MARKER.len() + 3];
    let (marker, release) = text.split_at_mut(RELEASE_MARKER.len());
    marker.copy_from_slice(RELEASE_MARKER.as_bytes());
    release.copy_from_slice(Release::CURRENT.name().as_bytes());
    text
};

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

/// All decoders of data from other processes, for fuzzing.
///
/// Accepted data may still contain keys and addresses of objects that do not exist: the objects' owner checks them.
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
    use crate::*;

    #[test]
    fn releases_have_names_with_and_without_patch() {
        for (name, expected) in [
            ("2.5", Some(Api::V2_5)),
            ("2.6.0", Some(Api::V2_6)),
            ("3.0", Some(Api::V3_0)),
            ("3.2", Some(Api::V3_2)),
            ("3.2.2", Some(Api::V3_2)),
            ("3.3.0", Some(Api::V3_3)),
            ("3", None),
            ("3.", None),
            ("3.3.", None),
            ("3.30", None),
            ("2.9.1", Some(Api::V2_9)),
            ("3.2.x", None),
            ("2.7", None),
        ] {
            assert_eq!(Api::from_name(name), expected, "{name}");
        }
    }

    #[test]
    fn the_newest_is_that_of_the_headers() {
        use doca_abi::{DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH};
        let expected = format!("{DOCA_VERSION_MAJOR}.{DOCA_VERSION_MINOR}.{DOCA_VERSION_PATCH}");
        assert_eq!(Api::ALL.last(), Some(&Api::installed()));
        assert_eq!(Api::installed().version().to_str(), Ok(&*expected));
    }

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
