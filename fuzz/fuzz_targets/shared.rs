//! softdoca's exports, connection details and frames.
#![no_main]

use fuzz_properties::shared::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
