//! The parts that are written by hand.

/// Texts for one header.
pub(super) struct Part {
    /// File name of the header.
    pub header: &'static str,
    /// What its declarations need: types.
    pub before: &'static str,
    /// What needs its declarations: macros.
    pub after: &'static str,
}

macro_rules! part {
    ($header:literal) => {
        Part {
            header: concat!($header, ".h"),
            before: include_str!(concat!("../../parts/", $header, ".h")),
            after: "",
        }
    };
    ($header:literal before) => {
        Part {
            header: concat!($header, ".h"),
            before: include_str!(concat!("../../parts/", $header, ".before.h")),
            after: "",
        }
    };
    ($header:literal after) => {
        Part {
            header: concat!($header, ".h"),
            before: "",
            after: include_str!(concat!("../../parts/", $header, ".after.h")),
        }
    };
}

const PARTS: &[Part] = &[
    part!("doca_build_config"),
    part!("doca_config"),
    part!("doca_common_defines"),
    part!("doca_compat"),
    part!("doca_bitfield"),
    part!("doca_buf_array" before),
    part!("doca_clock" before),
    part!("doca_rdma_bridge" before),
    part!("doca_version" after),
    part!("doca_error" after),
    part!("doca_types" before),
    part!("doca_argp" before),
    part!("doca_comch_consumer" before),
    part!("doca_comch_producer" before),
    part!("doca_mmap" before),
    part!("doca_rdma" before),
    part!("doca_sync_event" before),
    part!("doca_argp" before),
    part!("doca_log" after),
];

/// Headers whose parts everything else includes, so that they include nothing of the table.
const FOUNDATIONS: &[&str] = &[
    "doca_build_config.h",
    "doca_config.h",
    "doca_common_defines.h",
    "doca_compat.h",
];

/// Headers that have a part.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.header)
}

/// The part of a header.
pub(super) fn of(header: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.header == header)
}

/// Headers that a header includes whatever it declares.
///
/// Programs lean on what a header brings along: `doca_compat.h` has the C library's basic headers.
pub(super) fn includes(header: &str) -> &'static [&'static str] {
    match header {
        _ if FOUNDATIONS.contains(&header) => &[],
        "doca_version.h" => &[],
        "doca_error.h" => &["doca_common_defines.h", "doca_compat.h"],
        "doca_types.h" => &["doca_compat.h"],
        "doca_argp.h" => &[
            "doca_compat.h",
            "doca_dev.h",
            "doca_error.h",
            "doca_log.h",
            "doca_types.h",
        ],
        _ => &["doca_compat.h", "doca_error.h", "doca_types.h"],
    }
}

/// Headers of the C library that a header includes.
pub(super) fn system_includes(header: &str) -> &'static [&'static str] {
    match header {
        _ if FOUNDATIONS.contains(&header) => &[],
        "doca_argp.h" => &["stdarg.h"],
        "doca_log.h" => &["stddef.h", "stdint.h", "stdio.h"],
        "doca_aes_gcm.h"
        | "doca_dma.h"
        | "doca_compress.h"
        | "doca_erasure_coding.h"
        | "doca_sha.h" => &["inttypes.h", "stdbool.h", "stddef.h", "stdint.h"],
        "doca_version.h" => &["stddef.h", "stdint.h"],
        _ => &["stdbool.h", "stddef.h", "stdint.h"],
    }
}
