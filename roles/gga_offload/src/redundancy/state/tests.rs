use super::*;

fn after(losses: &[Target]) -> Redundancy {
    let mut redundancy = Redundancy::new();
    for &target in losses {
        redundancy.lose(target);
    }
    redundancy
}

#[test]
fn the_first_loss_degrades_and_the_second_fails() {
    assert_eq!(Redundancy::new().view(), View::WHOLE);
    for first in Target::ALL {
        let mut redundancy = after(&[first]);
        assert_eq!(redundancy.state(), State::Degraded(first));
        assert_eq!(redundancy.view().sinks(), Some(Targets::without(first)));
        assert!(!redundancy.lose(first), "known");
        assert_eq!(redundancy.view().generation, 1, "nothing new to see");
        for second in Targets::without(first).iter() {
            let failed = after(&[first, second]);
            assert_eq!(failed.view().sinks(), None);
            assert_eq!(View::missing_half(failed.view().sources(false)), None);
            assert!(failed.view().has_failed());
        }
    }
}
