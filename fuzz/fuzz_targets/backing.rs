//! Headers of targets' backing files.
#![no_main]

use fuzz_properties::backing::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
