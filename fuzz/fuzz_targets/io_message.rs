//! I/O messages, as targets, services and initiators judge them.
#![no_main]

use fuzz_properties::io_message::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
