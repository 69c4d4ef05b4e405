//! Sessions of a vhost-user front end.
#![no_main]

use fuzz_properties::vhost_user::{Input, property};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| property(&input));
