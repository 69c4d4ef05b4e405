//! Initial content of a target: `.sbc` and plain files.
#![no_main]

use fuzz_properties::sbc::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
