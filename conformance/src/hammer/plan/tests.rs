use super::*;

fn rounds(seed: u64, layout: Layout) -> Vec<Round> {
    Plan::new(seed, layout, &[]).take(200).collect()
}

#[test]
fn plan_is_determined_by_the_seed() {
    assert_eq!(rounds(1, Layout::Gga), rounds(1, Layout::Gga));
    let order = |seed| {
        let rounds = rounds(seed, Layout::Gga).into_iter();
        rounds.map(|round| round.blow).collect::<Vec<_>>()
    };
    assert_ne!(order(1), order(2));
}

#[test]
fn every_kind_of_fault_occurs_before_one_repeats() {
    for layout in Layout::ALL {
        let all = Blow::all(layout);
        let mut blows: Vec<Blow> = Plan::new(3, layout, &[])
            .take(all.len())
            .map(|round| round.blow)
            .collect();
        blows.sort_unstable();
        let mut expected = all;
        expected.sort_unstable();
        assert_eq!(blows, expected);
        assert!(blows.is_sorted_by(|a, b| a < b), "none is there twice");
    }
}

#[test]
fn faults_below_a_front_end_leave_two_targets_of_gga() {
    let blows = Blow::all_below_front_end(Layout::Gga);
    assert!(blows.iter().any(|blow| blow.victim == Victim::FrontEnd));
    let of_target = |blow: &&Blow| blow.victim == Victim::Target;
    let mut phases = blows.iter().filter(of_target).map(|blow| blow.phase);
    assert!(phases.all(|phase| phase == Phase::Io));
}

#[test]
fn kinds_of_faults_can_be_selected() {
    let only = ["kill, target".to_owned()];
    let plan = Plan::new(3, Layout::Gga, &only);
    assert_eq!(plan.blows().len(), 6, "{:?}", plan.blows());
    let nothing = ["nothing".to_owned()];
    assert_eq!(Plan::new(3, Layout::Gga, &nothing).next(), None);
}

#[test]
fn gga_must_survive_the_loss_of_one_target() {
    let blow = Blow {
        victim: Victim::Target,
        fault: Fault::Kill,
        phase: Phase::Io,
    };
    assert_eq!(blow.expectation(Layout::Gga), Expectation::Survives);
    assert_eq!(blow.expectation(Layout::ZeroCopy), Expectation::MayFail);
    let second = Blow {
        phase: Phase::Degraded,
        ..blow
    };
    assert_eq!(second.expectation(Layout::Gga), Expectation::MayFail);
}
