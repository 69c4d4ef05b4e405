//! Virtqueues in a guest's memory.
#![no_main]

use fuzz_properties::virtqueue::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
