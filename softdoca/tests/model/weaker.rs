//! Weakens each memory order and expects a model to fail; an order that no model needs is unnecessary.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use crate::machine::WEAKEN;

/// loom's messages for a data race and for a deadlock.
const RACE: &str = "Causality violation";
const DEADLOCK: &str = "deadlock";

/// The weakened order, the model that fails, and its message.
const NEEDED: &[(&str, &str, &str)] = &[
    ("store of descriptor", "small_messages_wrap_around", RACE),
    ("load of descriptor", "small_messages_wrap_around", RACE),
    (
        "store of slots consumed",
        "small_messages_wrap_around",
        RACE,
    ),
    ("load of slots consumed", "small_messages_wrap_around", RACE),
    (
        "store of units consumed",
        "payload_is_used_again_after_it_was_read",
        RACE,
    ),
    (
        "load of units consumed",
        "payload_is_used_again_after_it_was_read",
        RACE,
    ),
    (
        "store of receives posted",
        "data_read_before_a_receive_was_posted_may_be_overwritten",
        RACE,
    ),
    (
        "load of receives posted",
        "data_read_before_a_receive_was_posted_may_be_overwritten",
        RACE,
    ),
    (
        "store of producer closed",
        "messages_sent_before_the_producer_closed_are_received",
        "left: None",
    ),
    (
        "load of producer closed",
        "messages_sent_before_the_producer_closed_are_received",
        "left: None",
    ),
    (
        "store of consumer closed",
        "releases_before_the_consumer_closed_are_visible",
        RACE,
    ),
    (
        "load of consumer closed",
        "releases_before_the_consumer_closed_are_visible",
        RACE,
    ),
    (
        "addition of receives posted to all",
        "a_taken_receive_may_overwrite_data_read_before",
        RACE,
    ),
    (
        "load of receives posted to all",
        "a_taken_receive_may_overwrite_data_read_before",
        RACE,
    ),
    (
        "load of receives taken",
        "no_receive_is_taken_twice",
        "3 of 2 receives",
    ),
    (
        "exchange of receives taken",
        "no_receive_is_taken_twice",
        "3 of 2 receives",
    ),
    (
        "fence of the sleeper",
        "a_consumer_is_woken_by_a_message",
        DEADLOCK,
    ),
    (
        "fence of the waker",
        "a_consumer_is_woken_by_a_message",
        DEADLOCK,
    ),
    ("barrier", "a_consumer_is_woken_by_a_message", DEADLOCK),
    (
        "fence of the sleeper",
        "a_producer_is_woken_by_space",
        DEADLOCK,
    ),
    (
        "fence of the waker",
        "a_producer_is_woken_by_space",
        DEADLOCK,
    ),
    ("barrier", "a_producer_is_woken_by_space", DEADLOCK),
    (
        "fence of the sleeper",
        "a_producer_is_woken_by_a_receive",
        DEADLOCK,
    ),
    (
        "fence of the waker",
        "a_producer_is_woken_by_a_receive",
        DEADLOCK,
    ),
    ("barrier", "a_producer_is_woken_by_a_receive", DEADLOCK),
    (
        "store of use by the owner",
        "the_second_user_waits_for_the_biased_one",
        RACE,
    ),
    (
        "load of use by the owner",
        "the_second_user_waits_for_the_biased_one",
        RACE,
    ),
    (
        "fence of the waker",
        "the_second_user_waits_for_the_biased_one",
        RACE,
    ),
    ("barrier", "the_second_user_waits_for_the_biased_one", RACE),
    (
        "attention to a ring while arming",
        "a_producer_is_woken_for_every_piece_of_a_long_message",
        DEADLOCK,
    ),
];

/// Orders that no model needs.
const NOT_NEEDED: &[(&str, &str)] = &[
    (
        "update of slot",
        "a slot is one word that is only exchanged; the take is ordered by the words that follow",
    ),
    ("swap of slot", "as its update"),
];

/// Start of the line that lists the orders used by a model.
pub(crate) const ORDERS: &str = "orders: ";

/// Runs one model in a separate process, because loom's threads cannot always be unwound.
fn run(model: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", model, "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .envs(environment.iter().copied())
        .output()
        .expect("a process")
}

#[test]
fn every_order_that_is_listed_is_needed() {
    let unneeded: Vec<String> = NEEDED
        .iter()
        .filter_map(|(weaker, model, says)| {
            let output = run(model, &[(WEAKEN, weaker)]);
            let said = String::from_utf8_lossy(&output.stderr);
            (output.status.success() || !said.contains(says))
                .then(|| format!("{weaker}: {model} {}\n{said}", output.status))
        })
        .collect();
    assert!(unneeded.is_empty(), "{}", unneeded.join("\n"));
}

#[test]
fn every_order_is_listed() {
    let models: BTreeSet<&str> = NEEDED.iter().map(|(_, model, _)| *model).collect();
    let mut asked = BTreeSet::new();
    for model in models {
        // The first executions determine which orders exist.
        let output = run(model, &[("LOOM_MAX_PREEMPTIONS", "1")]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{model}: {printed}");
        let orders = printed.lines().filter_map(|line| line.strip_prefix(ORDERS));
        asked.extend(orders.flat_map(|line| line.split(", ").map(str::to_owned)));
    }
    asked.remove("");
    let needed = NEEDED.iter().map(|(order, ..)| *order);
    let listed: BTreeSet<String> = needed
        .chain(NOT_NEEDED.iter().map(|(order, _)| *order))
        .map(str::to_owned)
        .collect();
    let unlisted: Vec<_> = asked.difference(&listed).collect();
    assert!(
        unlisted.is_empty(),
        "nobody knows what they are for: {unlisted:?}"
    );
}
