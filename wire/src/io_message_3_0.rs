//! I/O messages of DOCA 3.0: a correlation id, and addresses instead of offsets. [`crate::release::Release3_0`] reads and writes them for roles.

include!(concat!(env!("OUT_DIR"), "/io_message_3_0.rs"));
