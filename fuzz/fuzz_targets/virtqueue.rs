//! Virtqueues of a guest.
#![no_main]

use fuzz_properties::virtqueue::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
