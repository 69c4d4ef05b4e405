use super::*;

fn rounds(seed: u64, layout: Layout) -> Vec<Round> {
    Plan::new(seed, layout, &[]).take(200).collect()
}

#[test]
fn plan_is_determined_by_the_seed() {
    assert_eq!(rounds(1, Layout::Gga), rounds(1, Layout::Gga));
    let order = |seed| {
        let rounds = rounds(seed, Layout::Gga).into_iter();
        rounds.map(|round| round.injection).collect::<Vec<_>>()
    };
    assert_ne!(order(1), order(2));
}

#[test]
fn every_kind_of_fault_occurs_before_one_repeats() {
    for layout in Layout::ALL {
        let all = Injection::all(layout);
        let mut injections: Vec<Injection> = Plan::new(3, layout, &[])
            .take(all.len())
            .map(|round| round.injection)
            .collect();
        injections.sort_unstable();
        let mut expected = all;
        expected.sort_unstable();
        assert_eq!(injections, expected);
        assert!(injections.is_sorted_by(|a, b| a < b), "none is there twice");
    }
}

#[test]
fn faults_below_a_front_end_leave_two_targets_of_gga() {
    let blows = Injection::all_below_front_end(Layout::Gga);
    assert!(
        blows
            .iter()
            .any(|injection| injection.faulty == FaultyRole::FrontEnd)
    );
    let of_target = |injection: &&Injection| injection.faulty == FaultyRole::Target;
    let mut phases = blows
        .iter()
        .filter(of_target)
        .map(|injection| injection.phase);
    assert!(phases.all(|phase| phase == Phase::Io));
}

#[test]
fn kinds_of_faults_can_be_selected() {
    let only = ["kill, target".to_owned()];
    let plan = Plan::new(3, Layout::Gga, &only);
    assert_eq!(plan.injections().len(), 6, "{:?}", plan.injections());
    let nothing = ["nothing".to_owned()];
    assert_eq!(Plan::new(3, Layout::Gga, &nothing).next(), None);
}

#[test]
fn gga_must_survive_the_loss_of_one_target() {
    let injection = Injection {
        faulty: FaultyRole::Target,
        fault: Fault::Kill,
        phase: Phase::Io,
    };
    assert_eq!(injection.expectation(Layout::Gga), Expectation::Survives);
    assert_eq!(
        injection.expectation(Layout::ZeroCopy),
        Expectation::MayFail
    );
    let second = Injection {
        phase: Phase::Degraded,
        ..injection
    };
    assert_eq!(second.expectation(Layout::Gga), Expectation::MayFail);
}

#[test]
fn link_faults_are_planned_for_several_machines_only() {
    let is_of_link = |injection: &Injection| injection.fault.conditions().is_some();
    for layout in Layout::ALL {
        assert!(!Injection::all(layout).iter().any(is_of_link));
        let all = Injection::all_over_network(layout);
        assert!(all.iter().filter(|injection| is_of_link(injection)).count() >= 8);
        let of_relay = all
            .iter()
            .filter(|injection| injection.fault.is_of_connection());
        assert_eq!(
            of_relay.count(),
            0,
            "there is no relay between the machines"
        );
        let cut = Injection {
            faulty: FaultyRole::Target,
            fault: Fault::Cut,
            phase: Phase::Io,
        };
        let expected = match layout {
            Layout::Gga => Expectation::Survives,
            Layout::ZeroCopy => Expectation::MayFail,
        };
        assert_eq!(cut.expectation(layout), expected);
    }
}
