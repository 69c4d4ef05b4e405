//! Subjects of a bench run.

use std::collections::BTreeMap;

use ::bench::deployment::Mix;
use ::bench::file::Work;
use ::bench::series::{Layout, Operation, Point};
use ::bench::suite::{Exchanged, OURS, Runner, Subject, THEIRS};
use ::deployment::implementation::Implementation;

/// Mixes to measure: only our roles; with the reference's programs, also only the reference's roles, and with
/// `exchanged` each role exchanged for its counterpart.
///
/// All gga services read the same blocks, in the reference's form. Only the reference's services of releases 3.0 and
/// 3.1 use blocks of their own generator, which stores whole blocks on each target.
pub(super) fn mixes(
    ours: &Implementation,
    cpp: Option<&Implementation>,
    exchanged: bool,
) -> BTreeMap<String, Mix> {
    let all_ours = Mix::of(ours, true);
    let mut mixes = BTreeMap::from([(OURS.to_owned(), all_ours.clone())]);
    let Some(cpp) = cpp else { return mixes };
    let mut all_theirs = Mix::of(cpp, false);
    if all_theirs.writes_gga {
        all_theirs.generator = ours.clone();
    }
    for exchange in Exchanged::all().filter(|_| exchanged) {
        let (mut mix, other) = if exchange.among_theirs {
            (all_theirs.clone(), &all_ours)
        } else {
            (all_ours.clone(), &all_theirs)
        };
        mix.is_ours = false;
        match exchange.role {
            "initiator" => {
                mix.initiator = other.initiator.clone();
                mix.transactions_flag = other.transactions_flag;
                mix.prints_json = exchange.among_theirs;
            }
            "service" => {
                mix.service = other.service.clone();
                mix.generator = other.generator.clone();
                mix.writes_gga = other.writes_gga;
            }
            _ => mix.target = other.target.clone(),
        }
        mixes.insert(exchange.to_string(), mix);
    }
    mixes.insert(THEIRS.to_owned(), all_theirs);
    mixes
}

fn deployment(point: Point, mix: &str) -> Subject {
    Subject::Deployment {
        point,
        mix: mix.to_owned(),
    }
}

fn gga(operation: Operation) -> Point {
    Point {
        layout: Layout::Gga,
        operation,
        ..Point::ZERO_COPY_READ
    }
}

/// Subjects that the thresholds need.
pub(super) fn thresholds(runner: &Runner) -> Vec<Subject> {
    let base = Point::ZERO_COPY_READ;
    let mut subjects = Vec::new();
    for point in [
        base,
        Point {
            transactions: 1,
            ..base
        },
    ] {
        subjects.push(Subject::Ring { point });
        subjects.push(deployment(point, OURS));
    }
    subjects.push(Subject::Copy { point: base });
    // A program that is linked to NVIDIA's SDK has no such kernels, and reports that.
    if cfg!(not(doca_sdk)) {
        subjects.push(Subject::Kernels);
    }
    for point in [
        Point {
            transactions: 256,
            ..base
        },
        Point { workers: 2, ..base },
    ] {
        subjects.push(Subject::Copy { point });
        subjects.push(deployment(point, OURS));
    }
    for block_size in [64 << 10, 1 << 20] {
        let point = Point { block_size, ..base };
        subjects.push(Subject::Copy { point });
        subjects.push(deployment(point, OURS));
    }
    for operation in [Operation::Read, Operation::RecoveryRead, Operation::Write] {
        subjects.push(deployment(gga(operation), OURS));
    }
    for (name, mix) in runner.mixes.iter().filter(|(name, _)| *name != OURS) {
        let points = [base, gga(Operation::Read), gga(Operation::Write)];
        let points = if mix.writes_gga {
            &points[..]
        } else {
            &points[..2]
        };
        subjects.extend(points.iter().map(|&point| deployment(point, name)));
    }
    subjects.push(Subject::WakeUp);
    subjects.push(Subject::FirstIos { point: base });
    subjects
}

/// Adds the system calls at the points with 4 KiB and 64 transactions.
pub(super) fn add_system_calls(subjects: &mut Vec<Subject>) {
    let write = Point {
        operation: Operation::Write,
        ..Point::ZERO_COPY_READ
    };
    let points = [
        Point::ZERO_COPY_READ,
        write,
        gga(Operation::Read),
        gga(Operation::Write),
    ];
    subjects.extend(points.map(|point| Subject::SystemCalls { point }));
}

/// Adds all sizes with 64 transactions and all depths with 4 KiB, for every layout and operation, with one worker and with two.
pub(super) fn add_axes(subjects: &mut Vec<Subject>) {
    let layouts: [(Layout, &[Operation]); 2] = [
        (Layout::ZeroCopy, &[Operation::Read, Operation::Write]),
        (
            Layout::Gga,
            &[Operation::Read, Operation::RecoveryRead, Operation::Write],
        ),
    ];
    let mut add = |subject: Subject| {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    };
    for (layout, operations) in layouts {
        for &operation in operations {
            for workers in [1, 2] {
                let base = Point {
                    layout,
                    operation,
                    workers,
                    ..Point::ZERO_COPY_READ
                };
                for shift in [9, 10, 11, 12, 14, 16, 18, 20] {
                    add(deployment(
                        Point {
                            block_size: 1 << shift,
                            ..base
                        },
                        OURS,
                    ));
                }
                for transactions in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
                    add(deployment(
                        Point {
                            transactions,
                            ..base
                        },
                        OURS,
                    ));
                }
            }
        }
    }
    let base = Point::ZERO_COPY_READ;
    for transactions in [1, 4, 16, 64, 256] {
        add(Subject::Ring {
            point: Point {
                transactions,
                ..base
            },
        });
    }
    for shift in [9, 12, 16, 20] {
        add(Subject::Ring {
            point: Point {
                block_size: 1 << shift,
                ..base
            },
        });
    }
}

/// Adds our NBD server and nbdkit. The first workload is also that of the first threshold, and is measured together
/// with it.
pub(super) fn add_nbd(subjects: &mut Vec<Subject>) {
    let both = |point| [Subject::Nbd { point }, Subject::NbdServer { point }];
    let first = subjects.len().min(2);
    let all = ::bench::front_ends::nbd_points().into_iter().flat_map(both);
    subjects.splice(first..first, all);
}

/// Adds our vhost-user-blk back end and QEMU's.
pub(super) fn add_vhost_user_blk(subjects: &mut Vec<Subject>) {
    let both = |point| [Subject::NullDisk { point }, Subject::VhostUserBlk { point }];
    subjects.extend(
        ::bench::front_ends::vhost_user_blk_points()
            .into_iter()
            .flat_map(both),
    );
}

/// Deployments with a file, and fio on the same file.
pub(super) fn files() -> Vec<Subject> {
    let both = |work| [Subject::File { work }, Subject::Fio { work }];
    Work::all().into_iter().flat_map(both).collect()
}

/// Deployments on two machines, a bare TCP connection between them, and with `with_nbdkit` also nbdkit.
pub(super) fn hosts(with_nbdkit: bool) -> Vec<Subject> {
    let all = |point| {
        let nbdkit = with_nbdkit.then_some(Subject::NbdTcp { point });
        let ours = [Subject::BareTcp { point }, Subject::Hosts { point }];
        ours.into_iter().chain(nbdkit)
    };
    ::bench::series::network_points()
        .into_iter()
        .flat_map(all)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use ::deployment::implementation::Role;

    use super::*;

    /// Programs that print this usage.
    fn implementation(name: &str, directory: &Path, usage: &str) -> Implementation {
        let directory = directory.join(name);
        std::fs::create_dir(&directory).expect("a directory");
        for role in Role::ALL {
            let path = directory.join(role.program());
            std::fs::write(&path, format!("#!/bin/sh\necho ' {usage}'\n")).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
        }
        Implementation::in_directory(name, &directory).expect("programs")
    }

    /// For each mix with exchanged roles, or with the reference's only: the implementations of its service and
    /// generator, the flag of its initiator, and `true` if its service supports writes in gga.
    fn exchanged(usage: &str) -> Vec<(String, String)> {
        let directory = tempfile::tempdir().expect("a directory");
        let of = |name, usage| implementation(name, directory.path(), usage);
        let (ours, cpp) = (of(OURS, "--transaction-count"), of(THEIRS, usage));
        let mixes = mixes(&ours, Some(&cpp), true);
        let described = mixes.into_iter().filter(|(name, _)| name != OURS);
        described
            .map(|(name, mix)| {
                let described = [
                    mix.service.name(),
                    mix.generator.name(),
                    mix.transactions_flag,
                    if mix.writes_gga { "writes" } else { "reads" },
                ];
                (name, described.join(" "))
            })
            .collect()
    }

    #[test]
    fn services_of_earlier_releases_read_blocks_of_their_own_generator() {
        let expected = |rows: [(&str, &str); 7]| rows.map(|(mix, row)| (mix.into(), row.into()));
        let (tasks, transactions) = ("--task-count", "--transaction-count");
        let rows: [(&str, &str); 7] = [
            ("cpp", "cpp cpp --task-count reads"),
            ("cpp + rust initiator", "cpp cpp --transaction-count reads"),
            ("cpp + rust service", "rust rust --task-count writes"),
            ("cpp + rust target", "cpp cpp --task-count reads"),
            ("rust + cpp initiator", "rust rust --task-count writes"),
            ("rust + cpp service", "cpp cpp --transaction-count reads"),
            ("rust + cpp target", "rust rust --transaction-count writes"),
        ];
        assert_eq!(exchanged(tasks), expected(rows));
        let rows = [
            ("cpp", "cpp rust --transaction-count writes"),
            (
                "cpp + rust initiator",
                "cpp rust --transaction-count writes",
            ),
            ("cpp + rust service", "rust rust --transaction-count writes"),
            ("cpp + rust target", "cpp rust --transaction-count writes"),
            (
                "rust + cpp initiator",
                "rust rust --transaction-count writes",
            ),
            ("rust + cpp service", "cpp rust --transaction-count writes"),
            ("rust + cpp target", "rust rust --transaction-count writes"),
        ];
        assert_eq!(exchanged(transactions), expected(rows));
    }
}
