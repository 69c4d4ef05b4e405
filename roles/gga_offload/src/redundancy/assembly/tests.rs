use doca::ErrorCode;
use role_common::superblock::Epoch;

use super::*;

const SET: SetId = SetId(0xabcd << 96);

fn record(member: u32, epoch: u64, state: RecordState) -> Found {
    Found::Record(Superblock {
        set: SET,
        member,
        epoch: Epoch {
            number: epoch,
            id: 0,
        },
        next: Epoch::NONE,
        state,
        checksums: false,
    })
}

/// Three targets with these epochs, 0 for none, after a use that ended well or not.
fn epochs(epochs: [u64; 3], state: RecordState) -> [Found; 3] {
    std::array::from_fn(|member| match epochs[member] {
        0 => Found::Blank,
        epoch => record(member as u32, epoch, state),
    })
}

fn whole(found: [Found; 3]) -> Assembly {
    assemble(found, None, None).expect("a set")
}

fn members(assembly: &Assembly) -> Targets {
    let mut members = Targets::NONE;
    let membership = assembly.membership.as_ref().expect("they keep records");
    for target in Target::ALL {
        if membership.has(target) {
            members.insert(target);
        }
    }
    members
}

fn epoch(assembly: &Assembly) -> u64 {
    let membership = assembly.membership.as_ref().expect("they keep records");
    let records = Target::ALL
        .into_iter()
        .filter_map(|target| membership.record_of(target));
    let epochs = records.map(|record| record.epoch.number);
    epochs.max().expect("one that keeps records")
}

#[test]
fn a_good_end_is_trusted_and_a_bad_one_is_not() {
    for (state, is_unclean) in [(RecordState::Clean, false), (RecordState::InUse, true)] {
        let assembly = whole(epochs([4, 4, 4], state));
        assert_eq!((assembly.stale, assembly.is_unclean), (None, is_unclean));
        assert_eq!((members(&assembly), epoch(&assembly)), (Targets::ALL, 4));
    }
    let mut mixed = epochs([4, 4, 4], RecordState::Clean);
    mixed[1] = record(1, 4, RecordState::InUse);
    assert!(whole(mixed).is_unclean);
}

#[test]
fn who_has_missed_writes_or_is_empty_is_rebuilt() {
    for stale in Target::ALL {
        for of_stale in [0, 1, 3] {
            let mut all = [4; 3];
            all[stale.number()] = of_stale;
            let assembly = whole(epochs(all, RecordState::InUse));
            assert_eq!(assembly.stale, Some(stale), "{all:?}");
            assert_eq!(members(&assembly), Targets::without(stale));
            assert!(epoch(&assembly) == 4 && assembly.is_unclean);
        }
        let mut found = epochs([4; 3], RecordState::Clean);
        found[stale.number()] = Found::Mute;
        assert_eq!(whole(found).stale, Some(stale));
    }
}

#[test]
fn an_epoch_that_one_alone_has_heard_of_excludes_nobody() {
    for ahead in 0..3 {
        for lead in [1, 2] {
            let mut all = [4; 3];
            all[ahead] += lead;
            let assembly = whole(epochs(all, RecordState::InUse));
            assert_eq!((assembly.stale, assembly.is_unclean), (None, true));
            // Nobody goes back.
            assert_eq!(members(&assembly), Targets::ALL);
            assert_eq!(epoch(&assembly), 4 + lead);
        }
    }
    // The others do not agree, either: who has heard least was left behind.
    let assembly = whole(epochs([6, 4, 5], RecordState::InUse));
    assert_eq!((assembly.stale, epoch(&assembly)), (Some(Target::Data2), 6));
}

#[test]
fn with_less_than_two_nothing_is_served() {
    for all in [[5, 0, 4], [4, 5, 0], [0, 0, 5], [5, 0, 0]] {
        let refused = assemble(epochs(all, RecordState::InUse), None, None).expect_err("too few");
        assert!(refused.message.contains("epoch 5"), "{refused}");
        assert_eq!(refused.code, ErrorCode::INVALID_VALUE);
    }
    let alone = [record(0, 2, RecordState::Clean), Found::Mute, Found::Mute];
    assert!(assemble(alone, None, None).is_err());
}

#[test]
fn others_are_refused_and_named() {
    let exchanged = [
        record(1, 4, RecordState::Clean),
        record(0, 4, RecordState::Clean),
        record(2, 4, RecordState::Clean),
    ];
    let refused = assemble(exchanged, None, None).expect_err("exchanged");
    for part in ["expected data_1 of its set, data_2 came", "exchange"] {
        assert!(refused.message.contains(part), "{refused}");
    }
    let mut strange = epochs([4; 3], RecordState::Clean);
    strange[2] = Found::Record(Superblock {
        set: SetId(0x1234 << 112),
        member: 2,
        epoch: Epoch { number: 9, id: 0 },
        next: Epoch::NONE,
        state: RecordState::Clean,
        checksums: false,
    });
    let refused = assemble(strange, None, None).expect_err("another set");
    for part in [
        "data_1 is of set 0000abcd",
        "data_p is of set 12340000",
        "--rebuild",
    ] {
        assert!(refused.message.contains(part), "{refused}");
    }
    // Named, it does not count.
    let assembly = assemble(strange, Some(Target::DataP), None).expect("a set");
    assert_eq!(assembly.stale, Some(Target::DataP));
    assert_eq!((members(&assembly), epoch(&assembly)), (Targets::DATA, 5));
    assert!(assemble(exchanged, Some(Target::Data1), None).is_err());
}

#[test]
fn who_is_named_is_rebuilt_by_two_that_do_not_contradict_each_other() {
    let rebuilt = |found| assemble(found, Some(Target::Data1), None);
    let assembly = rebuilt(epochs([4, 4, 4], RecordState::Clean)).expect("a set");
    // It is left behind at once.
    assert_eq!((assembly.stale, epoch(&assembly)), (Some(Target::Data1), 5));
    // It is the one that knows that data_p has missed writes.
    assert!(rebuilt(epochs([5, 5, 4], RecordState::InUse)).is_err());
    assert!(rebuilt(epochs([0, 5, 4], RecordState::InUse)).is_err());
    // Nobody has, data_2 alone has heard of an epoch that never counted.
    let assembly = rebuilt(epochs([4, 5, 4], RecordState::InUse)).expect("a set");
    assert_eq!(
        (members(&assembly), epoch(&assembly)),
        (Targets::without(Target::Data1), 6)
    );
    let assembly = rebuilt(epochs([6, 5, 5], RecordState::InUse)).expect("a set");
    assert_eq!(epoch(&assembly), 7, "more than it has heard of itself");
    let assembly = rebuilt(epochs([5, 0, 4], RecordState::InUse)).expect("the user's word");
    assert_eq!(members(&assembly), Targets::without(Target::Data1));
    let assembly = rebuilt([Found::Mute; 3]).expect("the user's word");
    assert_eq!(
        (assembly.membership, assembly.stale),
        (None, Some(Target::Data1))
    );
}

#[test]
fn where_nobody_knows_anything_all_are_trusted_but_who_the_last_session_has_lost() {
    let assembly = whole([Found::Blank; 3]);
    assert_eq!((assembly.stale, assembly.is_unclean), (None, false));
    assert_eq!((members(&assembly), epoch(&assembly)), (Targets::ALL, 1));
    let mixed = [Found::Blank, Found::Mute, Found::Blank];
    let nothing = whole(mixed);
    assert_eq!((nothing.membership, nothing.stale), (None, None));
    let assembly = assemble(mixed, None, Some(Target::Data2)).expect("as today");
    assert_eq!(assembly.stale, Some(Target::Data2));
}

#[test]
fn one_whose_machine_has_ended_is_rebuilt_by_the_others() {
    let mut found = epochs([4; 3], RecordState::InUse);
    found[0] = record(0, 4, RecordState::InDoubt);
    assert_eq!(whole(found).stale, Some(Target::Data1));
    // With two of them, it is the best that there is.
    found[1] = record(1, 4, RecordState::InDoubt);
    let assembly = whole(found);
    assert_eq!((assembly.stale, assembly.is_unclean), (None, true));
    // Doubt is no good end, whatever the end was.
    found[2] = record(2, 4, RecordState::Clean);
    assert!(whole(found).is_unclean);
    assert!(whole(epochs([4; 3], RecordState::InDoubt)).is_unclean);
}

/// Every combination of what targets may say, of two epochs: a target that lags behind two others is never used as it is.
#[test]
fn nobody_who_lags_behind_is_trusted() {
    let states = [RecordState::Clean, RecordState::InUse, RecordState::InDoubt];
    let options = |member: usize| -> Vec<Found> {
        let mut all = vec![Found::Mute, Found::Blank];
        for epoch in 1..=3 {
            all.extend(states.map(|state| record(member as u32, epoch, state)));
        }
        all
    };
    let epoch_of = |found: Found| match found {
        Found::Record(record) => record.epoch.number,
        _ => 0,
    };
    for data_1 in options(0) {
        for data_2 in options(1) {
            for data_p in options(2) {
                let found = [data_1, data_2, data_p];
                let Ok(assembly) = assemble(found, None, None) else {
                    continue;
                };
                for lag in Target::ALL {
                    let epochs = found.map(epoch_of);
                    let ahead = (0..3)
                        .filter(|&other| epochs[other] > epochs[lag.number()])
                        .count();
                    if ahead == 2 {
                        assert_eq!(assembly.stale, Some(lag), "{found:?}");
                    }
                }
            }
        }
    }
}
