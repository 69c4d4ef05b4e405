//! I/O messages of DOCA 3.1: a correlation id where those of 3.2 have nothing. [`crate::release::Release3_1`] reads and writes them for roles.

include!(concat!(env!("OUT_DIR"), "/io_message_3_1.rs"));
