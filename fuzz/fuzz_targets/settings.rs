//! Topology files, and files of flags for C programs.
#![no_main]

use fuzz_properties::settings::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
