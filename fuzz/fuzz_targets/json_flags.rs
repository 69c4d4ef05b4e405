//! JSON files of flags.
#![no_main]

use fuzz_properties::json_flags::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
