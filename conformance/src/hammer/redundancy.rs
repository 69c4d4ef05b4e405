//! What a gga service says of its targets, in its log.

/// Whether all targets hold all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redundancy {
    /// They do.
    Whole,
    /// This one is lost.
    Without(usize),
    /// This one is back, and gets what it has missed.
    Rebuilding(usize),
    /// All are there, and it is looked whether their halves fit each other.
    Verifying,
}

/// From the log so far of a service with these targets: what it says of the session at hand.
pub(super) fn of_log(log: &str, targets: &[&str]) -> Redundancy {
    let mut state = Redundancy::Whole;
    for line in log.lines() {
        let names = |before: &str, after: &str| {
            let of = |name: &&str| line.contains(&format!("{before}storage target {name}{after}"));
            targets.iter().position(of)
        };
        // When too few are left, it is the first one that has missed writes.
        if let Some(target) = names("detached ", ", going on without it") {
            state = Redundancy::Without(target);
        } else if let Some(target) = names("", " is online: rebuilding") {
            state = Redundancy::Rebuilding(target);
        } else if let Some(target) = names("", " is missing: starting without it") {
            state = Redundancy::Without(target);
        } else if line.contains("was not shut down cleanly: verifying") {
            state = Redundancy::Verifying;
        } else if names("", " is up to date").is_some()
            || line.contains("resync completed")
            // In the next session, it says anew what there is to do.
            || line.starts_with("waiting for the initiator")
        {
            state = Redundancy::Whole;
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [&str; 3] = ["data_1", "data_2", "data_p"];

    #[test]
    fn the_last_word_counts() {
        let lost = "WARN detached storage target data_2, going on without it: reset\n";
        let back = "INFO storage target data_2 is online: rebuilding 3 stripes, those that it has missed\n";
        let whole = "INFO storage target data_2 is up to date: 3 stripes rebuilt in 1ms\n";
        let doubt = "INFO the set was not shut down cleanly: verifying 64 stripes (resync)\n";
        let fit = "INFO resync completed: 64 stripes verified\n";
        let missing = "WARN storage target data_2 is missing: starting without it\n";
        let next = "waiting for the initiator on Comch \"name\"\n";
        let second = "ERROR detached storage target data_p, with which too few are left\n";
        let cases = [
            (String::new(), Redundancy::Whole),
            (lost.to_owned(), Redundancy::Without(1)),
            ([lost, back].concat(), Redundancy::Rebuilding(1)),
            ([lost, back, whole].concat(), Redundancy::Whole),
            ([lost, second].concat(), Redundancy::Without(1)),
            ([back, whole, doubt].concat(), Redundancy::Verifying),
            ([doubt, fit].concat(), Redundancy::Whole),
            ([lost, next].concat(), Redundancy::Whole),
            ([next, missing].concat(), Redundancy::Without(1)),
            ([next, missing, back].concat(), Redundancy::Rebuilding(1)),
            ([lost, next, back].concat(), Redundancy::Rebuilding(1)),
        ];
        for (log, expected) in cases {
            assert_eq!(of_log(&log, &TARGETS), expected, "{log}");
        }
    }
}
