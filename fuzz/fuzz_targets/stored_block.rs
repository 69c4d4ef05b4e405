//! Blocks as the gga_offload service stores them.
#![no_main]

use fuzz_properties::stored_block::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
