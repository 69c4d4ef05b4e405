use super::*;

const SET: SetId = SetId(0xabcd << 96);

fn epoch(number: u64) -> Epoch {
    Epoch {
        number,
        id: number * 1000 + 1,
    }
}

fn superblock(member: u32, number: u64, state: RecordState) -> Superblock {
    Superblock {
        set: SET,
        member,
        epoch: epoch(number),
        next: Epoch::NONE,
        state,
        checksums: false,
    }
}

/// Three targets that have committed these epochs; 0 for empty ones.
fn epochs(epochs: [u64; 3], state: RecordState) -> [Found; 3] {
    std::array::from_fn(|member| match epochs[member] {
        0 => Found::Blank,
        number => Found::Superblock(superblock(member as u32, number, state)),
    })
}

fn instructions(rebuild: Option<Target>) -> Instructions {
    Instructions {
        rebuild,
        stale: None,
        writes_checksums: true,
        new_set: SetId(99),
        ids: EpochIds::new(5),
    }
}

fn judge(found: [Found; 3]) -> Result<Assembly, Refusal> {
    assemble(found, instructions(None))
}

fn members(assembly: &Assembly) -> Targets {
    let membership = assembly.membership.as_ref().expect("they have superblocks");
    let mut members = Targets::NONE;
    let those = Target::ALL
        .into_iter()
        .filter(|&target| membership.is_member(target));
    those.for_each(|target| members.insert(target));
    members
}

fn edit(found: &mut [Found; 3], target: Target, change: impl FnOnce(&mut Superblock)) {
    let Found::Superblock(superblock) = &mut found[target.number()] else {
        panic!("{target:?} has no superblock");
    };
    change(superblock);
}

/// The number of the epoch that the members have to prepare for, and that of the one before.
fn raised(assembly: &Assembly) -> (u64, u64) {
    let membership = assembly.membership.as_ref().expect("they have superblocks");
    let member = members(assembly).iter().next().expect("a member");
    let superblock = membership.superblock_of(member).expect("a member");
    (superblock.next.number, superblock.epoch.number)
}

#[test]
fn a_clean_shutdown_is_trusted_and_an_unclean_one_is_not() {
    for (state, is_unclean) in [
        (RecordState::Clean, false),
        (RecordState::Closing, false),
        (RecordState::InUse, true),
    ] {
        let assembly = judge(epochs([4; 3], state)).expect("a set");
        assert_eq!((assembly.stale, assembly.is_unclean), (None, is_unclean));
        assert_eq!(
            (members(&assembly), raised(&assembly)),
            (Targets::ALL, (5, 4))
        );
    }
}

#[test]
fn one_target_that_has_missed_an_epoch_or_is_empty_is_rebuilt() {
    for stale in Target::ALL {
        for of_stale in [0, 1, 3] {
            let mut all = [4; 3];
            all[stale.number()] = of_stale;
            let assembly = judge(epochs(all, RecordState::Clean)).expect("a set");
            assert_eq!(assembly.stale, Some(stale), "{all:?}");
            assert_eq!(members(&assembly), Targets::without(stale));
            assert!(!assembly.is_unclean && !assembly.is_degraded);
        }
        let mut found = epochs([4; 3], RecordState::Clean);
        found[stale.number()] = Found::Mute;
        assert_eq!(judge(found).expect("a set").stale, Some(stale));
    }
}

#[test]
fn two_copies_from_before_the_last_use_are_refused_and_rebuild_is_the_way_out() {
    for current in Target::ALL {
        let mut all = [4; 3];
        all[current.number()] = 5;
        let found = epochs(all, RecordState::Clean);
        let expected = Refusal::TooFew {
            found: Box::new(found),
            epoch: epoch(5),
        };
        assert_eq!(judge(found), Err(expected), "{all:?}");
        let insisted = assemble(found, instructions(Some(current))).expect("a set");
        assert_eq!(insisted.stale, Some(current));
        assert!(
            raised(&insisted).0 > 5,
            "above what the discarded one knows"
        );
        // Rebuilding one stale target does not make the other one current.
        for old in Target::ALL.into_iter().filter(|&old| old != current) {
            assert!(matches!(
                assemble(found, instructions(Some(old))),
                Err(Refusal::TooFew { .. })
            ));
        }
    }
}

#[test]
fn an_epoch_that_was_only_prepared_for_has_never_counted() {
    for ahead in Targets::ALL.iter() {
        let mut found = epochs([4; 3], RecordState::Clean);
        edit(&mut found, ahead, |it| it.next = epoch(5));
        let assembly = judge(found).expect("a set");
        assert_eq!(
            (members(&assembly), assembly.is_unclean),
            (Targets::ALL, false)
        );
        assert_eq!(raised(&assembly), (6, 4));
    }
}

#[test]
fn members_that_have_prepared_for_the_committed_epoch_are_current() {
    for stale in Target::ALL {
        let mut survivors = Targets::without(stale).iter();
        let (first, second) = (survivors.next(), survivors.next());
        let (first, second) = (first.expect("two"), second.expect("two"));
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, first, |it| it.epoch = epoch(5));
        edit(&mut found, second, |it| it.next = epoch(5));
        let assembly = judge(found).expect("a set");
        assert_eq!((assembly.stale, raised(&assembly)), (Some(stale), (6, 5)));
        // Another epoch of the same number is not the one that was committed.
        edit(&mut found, second, |it| it.next.id += 1);
        assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
    }
}

#[test]
fn copies_from_within_the_last_use_show_beside_a_clean_member() {
    for copy in Target::ALL {
        let mut found = epochs([4; 3], RecordState::Clean);
        edit(&mut found, copy, |it| it.state = RecordState::InUse);
        assert_eq!(judge(found).expect("a set").stale, Some(copy));
        let mut found = epochs([4; 3], RecordState::Clean);
        edit(&mut found, copy, |it| {
            (it.epoch, it.next) = (epoch(3), epoch(4));
        });
        assert_eq!(
            judge(found).expect("a set").stale,
            Some(copy),
            "prepared only"
        );
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, copy, |it| it.state = RecordState::Clean);
        assert!(
            matches!(judge(found), Err(Refusal::TooFew { .. })),
            "two copies"
        );
        let mut closing = epochs([4; 3], RecordState::Clean);
        edit(&mut closing, copy, |it| it.state = RecordState::Closing);
        let assembly = judge(closing).expect("a set");
        assert_eq!((assembly.stale, assembly.is_unclean), (None, false));
    }
}

#[test]
fn two_current_targets_start_without_the_third() {
    for missing in Target::ALL {
        let mut found = epochs([4; 3], RecordState::Clean);
        found[missing.number()] = Found::Missing;
        let assembly = judge(found).expect("a set");
        assert_eq!(assembly.stale, Some(missing));
        assert!(assembly.is_degraded && !assembly.is_unclean);
        let membership = assembly.membership.as_ref().expect("they have superblocks");
        assert_eq!(membership.superblock_of(missing), None);
        let present = Targets::without(missing).iter().next().expect("two");
        edit(&mut found, present, |it| it.epoch = epoch(3));
        assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
        found[present.number()] = Found::Blank;
        assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
    }
    let found = [Found::Blank, Found::Missing, Found::Blank];
    assert_eq!(judge(found), Err(Refusal::Missing(Target::Data2)));
}

#[test]
fn a_new_set_is_made_of_three_empty_targets() {
    let assembly = judge([Found::Blank; 3]).expect("a set");
    assert_eq!(
        (members(&assembly), raised(&assembly)),
        (Targets::ALL, (1, 0))
    );
    let membership = assembly.membership.expect("they have superblocks");
    assert_eq!(
        (membership.set(), membership.has_checksums()),
        (SetId(99), false)
    );
    // Interrupted, at any time.
    for prepared in 0..8 {
        let mut found = [Found::Blank; 3];
        for target in Targets::from_bits(prepared).iter() {
            found[target.number()] =
                Found::Superblock(membership.superblock_of(target).expect("a member"));
        }
        assert_eq!(
            members(&judge(found).expect("a set")),
            Targets::ALL,
            "{prepared}"
        );
    }
    let rebuilt = assemble([Found::Blank; 3], instructions(Some(Target::DataP))).expect("a set");
    assert_eq!(
        (rebuilt.stale, members(&rebuilt)),
        (Some(Target::DataP), Targets::DATA)
    );
}

#[test]
fn the_reference_s_targets_have_no_superblocks() {
    let mut found = [Found::Blank; 3];
    found[1] = Found::Mute;
    let assembly = judge(found).expect("a set");
    assert_eq!((assembly.membership, assembly.stale), (None, None));
    let mut known = instructions(None);
    known.stale = Some(Target::Data2);
    assert_eq!(
        assemble(found, known).expect("a set").stale,
        Some(Target::Data2)
    );
    let mut found = epochs([4; 3], RecordState::Clean);
    found[2] = Found::Mute;
    let rebuilt = assemble(found, instructions(Some(Target::Data1))).expect("a set");
    assert_eq!(
        (rebuilt.stale, members(&rebuilt)),
        (Some(Target::Data1), Targets::without(Target::Data1))
    );
}

#[test]
fn exchanged_targets_and_those_of_several_sets_are_refused() {
    let mut found = epochs([4; 3], RecordState::Clean);
    found.swap(0, 1);
    let expected = Refusal::Exchanged {
        target: Target::Data1,
        member: 1,
    };
    assert_eq!(judge(found), Err(expected));
    let mut found = epochs([4; 3], RecordState::Clean);
    edit(&mut found, Target::Data2, |it| it.set = SetId(1));
    assert_eq!(judge(found), Err(Refusal::SeveralSets(Box::new(found))));
    let rebuilt = assemble(found, instructions(Some(Target::Data2))).expect("a set");
    assert_eq!(rebuilt.stale, Some(Target::Data2));
}

#[test]
fn targets_that_were_used_apart_are_refused() {
    let mut found = epochs([5, 5, 5], RecordState::InUse);
    edit(&mut found, Target::DataP, |it| it.epoch.id += 1);
    assert_eq!(judge(found), Err(Refusal::Diverged(Box::new(found))));
    let rebuilt = assemble(found, instructions(Some(Target::DataP))).expect("a set");
    assert_eq!(rebuilt.stale, Some(Target::DataP));
}

#[test]
fn use_without_superblocks_counts_when_two_targets_took_part() {
    let all = epochs([4; 3], RecordState::Foreign);
    let assembly = judge(all).expect("a set");
    assert_eq!(
        (members(&assembly), assembly.is_unclean),
        (Targets::ALL, true)
    );
    for other in Target::ALL {
        let mut found = all;
        edit(&mut found, other, |it| it.state = RecordState::Clean);
        assert_eq!(judge(found).expect("a set").stale, Some(other));
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, other, |it| it.state = RecordState::Foreign);
        assert_eq!(judge(found), Err(Refusal::UsedAlone(other)));
    }
}

#[test]
fn a_target_whose_machine_was_restarted_is_rebuilt_and_two_are_verified() {
    for doubtful in Target::ALL {
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, doubtful, |it| it.state = RecordState::InDoubt);
        assert_eq!(judge(found).expect("a set").stale, Some(doubtful));
        let mut found = epochs([4; 3], RecordState::InDoubt);
        edit(&mut found, doubtful, |it| it.state = RecordState::InUse);
        let assembly = judge(found).expect("a set");
        assert_eq!((assembly.stale, assembly.is_unclean), (None, true));
    }
}

#[test]
fn checksums_are_a_property_of_the_set() {
    let mut found = epochs([4; 3], RecordState::Clean);
    edit(&mut found, Target::Data1, |it| it.checksums = true);
    let has = |assembly: Assembly| assembly.membership.expect("a set").has_checksums();
    assert!(has(judge(found).expect("a set")));
    let without = Instructions {
        writes_checksums: false,
        ..instructions(None)
    };
    assert!(!has(assemble(found, without).expect("a set")));
    for found in &mut found {
        let Found::Superblock(it) = found else {
            continue;
        };
        it.state = RecordState::Foreign;
    }
    assert!(!has(judge(found).expect("a set")));
}

#[test]
fn a_target_that_was_being_rebuilt_is_rebuilt_again() {
    let mut found = epochs([4; 3], RecordState::InUse);
    edit(&mut found, Target::Data2, |it| it.epoch = Epoch::NONE);
    assert_eq!(judge(found).expect("a set").stale, Some(Target::Data2));
}
