//! A C program that does not compile when C and Rust disagree.

use std::fmt::Write as _;
use std::mem::{align_of, size_of};

use doca_abi::{CALLBACKS, CONSTANTS, ENUMS, FUNCTION_TYPEDEFS};

use crate::headers::headers;

/// What C11 and C++17 name differently.
const PREAMBLE: &str = "\
#ifdef __cplusplus
#define ASSERT static_assert
#define ALIGNMENT_OF alignof
#else
#define ASSERT _Static_assert
#define ALIGNMENT_OF _Alignof
#endif
";

/// A C11 and C++17 source that includes every header and asserts that the values of all enums and constants, and the sizes of
/// what is passed by value or filled in by the library, are those of the Rust table.
pub fn assertions() -> String {
    let mut text = String::from(PREAMBLE);
    for header in headers() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "#include <{}>", header.name);
    }
    let mut assert = |condition: String| {
        let _ = writeln!(text, "ASSERT({condition}, \"{condition}\");");
    };
    for decl in ENUMS {
        assert(format!("sizeof(enum {}) == {}", decl.tag, size_of::<u32>()));
        for value in decl.values {
            assert(format!("{} == {}", value.name, value.value));
        }
    }
    for constant in CONSTANTS {
        assert(format!("{} == {}", constant.name, constant.value));
    }
    for callback in CALLBACKS {
        // The size of a function is none of C's; that of a pointer to one is.
        let star = if FUNCTION_TYPEDEFS.contains(&callback.name) {
            " *"
        } else {
            ""
        };
        assert(format!(
            "sizeof({}{star}) == {}",
            callback.name,
            size_of::<usize>()
        ));
    }
    macro_rules! types {
        ($($c:literal: $rust:ty),+ $(,)?) => {$(
            assert(format!("sizeof({}) == {}", $c, size_of::<$rust>()));
            assert(format!("ALIGNMENT_OF({}) == {}", $c, align_of::<$rust>()));
        )+};
    }
    types! {
        "union doca_data": doca_abi::doca_data,
        "struct doca_gather_list": doca_abi::doca_gather_list,
        "union doca_clock_timespec_t": doca_abi::doca_clock_timespec_t,
        "struct doca_argp_device_ctx": doca_abi::doca_argp_device_ctx,
        "struct doca_argp_device_rep_ctx": doca_abi::doca_argp_device_rep_ctx,
        "struct doca_rdma_gid": doca_abi::doca_rdma_gid,
        "doca_be16_t": doca_abi::doca_be16_t,
        "doca_be32_t": doca_abi::doca_be32_t,
        "doca_be64_t": doca_abi::doca_be64_t,
        "doca_event_handle_t": doca_abi::doca_event_handle_t,
        "doca_notification_handle_t": doca_abi::doca_notification_handle_t,
    }
    text
}
