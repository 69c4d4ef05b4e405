//! The C and C++ examples, each as a pair of processes.

use crate::support;
use crate::support::{Language, Sdk};

#[test]
fn comch_messages_go_back_and_forth() {
    support::ping_pong(&Sdk::install(), &[]);
}

#[test]
fn a_process_writes_into_anothers_memory() {
    if !Language::Cxx.compilers().is_empty() {
        support::write_to_a_peer(&Sdk::install(), &[]);
    }
}
