//! Bytes from NBD clients.
#![no_main]

use fuzz_properties::nbd::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
