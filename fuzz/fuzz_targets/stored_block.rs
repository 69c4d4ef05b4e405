//! Stored blocks of the gga_offload service.
#![no_main]

use fuzz_properties::stored_block::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
