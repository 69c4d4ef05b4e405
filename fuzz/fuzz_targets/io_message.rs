//! I/O messages, as handled by targets, services and initiators.
#![no_main]

use fuzz_properties::io_message::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
