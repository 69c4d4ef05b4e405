//! Frames of control messages, in pieces.
#![no_main]

use fuzz_properties::control_frames::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
