use super::*;

/// The seeds that every test run goes through.
const SEEDS: std::ops::Range<u64> = 0..400;

#[test]
fn fixed_seeds_hold() {
    let mut totals = Totals::default();
    for seed in SEEDS {
        match run(seed) {
            Ok(one) => totals.add(one),
            Err(violation) => panic!("{violation}"),
        }
    }
    assert!(totals.sessions > 400 && totals.faults > 1000, "{totals:?}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 2, 77] {
        assert_eq!(run(seed), run(seed));
    }
}
