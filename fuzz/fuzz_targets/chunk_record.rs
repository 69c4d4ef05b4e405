//! Records of stored chunks.
#![no_main]

use fuzz_properties::chunk_record::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
