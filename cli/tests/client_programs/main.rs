//! Programs without DOCA as clients of real deployments: NBD clients, file systems, a database, and virtual machines, over zero_copy and over
//! gga_offload, some while parts of the deployment are killed and restarted.
//!
//! `.ci/volume` installs the programs and runs these tests; `cargo test` alone reports them as ignored. A test that cannot run on
//! this machine is NOT RUN, which is a failure with `CI` set.

mod database;
mod disk;
mod file_system;
mod nbd_clients;
mod program;
mod readme;

use std::process::ExitCode;

use deployment::implementation::Layout;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use disk::Disk;
use file_system::Mounts;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let of_layout = |(prefix, layout)| {
        let checks = CHECKS.iter().chain(match layout {
            Layout::ZeroCopy => &[][..],
            Layout::Gga => &GGA_CHECKS,
        });
        checks.map(move |check: &'static Check| {
            let name = format!("{prefix}::{}", check.name);
            trial(name, check.needs, move || Disk::check(layout, check.run))
        })
    };
    let layouts = [("zero_copy", Layout::ZeroCopy), ("gga", Layout::Gga)];
    let mut trials: Vec<_> = layouts.into_iter().flat_map(of_layout).collect();
    trials.push(trial(
        "readme::printed_lines_make_ext4_and_the_disk_of_a_machine".to_owned(),
        &[
            Need::Program("nbdfuse"),
            Need::Program("mkfs.ext4"),
            Need::Program("e2fsck"),
            Need::Program("qemu-system-x86_64"),
            Need::Mount,
        ],
        readme::printed_lines_make_ext4_and_the_disk_of_a_machine,
    ));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Requirement of a test.
#[derive(Clone, Copy)]
enum Need {
    Program(&'static str),
    /// File systems in a file of nbdfuse can be mounted.
    Mount,
    /// As `Mount`, by the kernel: fuse2fs has no journal.
    LoopDevice,
}

impl Need {
    /// Why the requirement is not met on this machine; `None` if it is.
    fn missing(self) -> Option<String> {
        match self {
            Self::Program(program) => {
                (!program::is_installed(program)).then(|| format!("{program} is not installed"))
            }
            Self::Mount => Mounts::method().err(),
            Self::LoopDevice => match Mounts::method() {
                Ok(file_system::Method::Loop) => None,
                Ok(file_system::Method::Fuse2fs) => Some("no loop device".to_owned()),
                Err(why) => Some(why),
            },
        }
    }
}

/// A test that is run by `--ignored` only.
fn trial(
    name: String,
    needs: &'static [Need],
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let run = move || {
        let missing: Vec<_> = needs.iter().filter_map(|need| need.missing()).collect();
        if missing.is_empty() {
            return run().map(|()| Completion::Completed);
        }
        let missing = format!("NOT RUN: {}", missing.join(", "));
        if std::env::var_os("CI").is_some() {
            return Err(missing.into());
        }
        Ok(Completion::ignored_with(missing))
    };
    Trial::ignorable_test(name, run).with_ignored_flag(true)
}

/// A test of a deployment with an NBD server.
struct Check {
    name: &'static str,
    needs: &'static [Need],
    run: fn(&mut Disk) -> Result<(), Failed>,
}

const NBDCOPY: Need = Need::Program("nbdcopy");
/// Requirements of a mounted file system, without [`Need::Mount`].
const EXT4: [Need; 3] = [
    Need::Program("nbdfuse"),
    Need::Program("mkfs.ext4"),
    Need::Program("e2fsck"),
];
const SQLITE: Need = Need::Program("sqlite3");

/// Tests of both layouts.
const CHECKS: [Check; 12] = [
    Check {
        name: "unwritten_disk_reads_as_zeros",
        needs: &[NBDCOPY],
        run: nbd_clients::unwritten_disk_reads_as_zeros,
    },
    Check {
        name: "nbdinfo_shows_size_flush_fua_and_multi_conn",
        needs: &[Need::Program("nbdinfo")],
        run: nbd_clients::nbdinfo_shows_size_flush_fua_and_multi_conn,
    },
    Check {
        name: "nbdcopy_copies_there_and_back_over_4_connections",
        needs: &[NBDCOPY],
        run: nbd_clients::nbdcopy_copies_there_and_back_over_4_connections,
    },
    Check {
        name: "nbdkit_is_a_proxy",
        needs: &[NBDCOPY, Need::Program("nbdkit")],
        run: nbd_clients::nbdkit_is_a_proxy,
    },
    Check {
        name: "fio_verifies_unaligned_writes",
        needs: &[Need::Program("fio")],
        run: nbd_clients::fio_verifies_unaligned_writes,
    },
    Check {
        name: "qemu_img_converts_compares_and_checks",
        needs: &[NBDCOPY, Need::Program("qemu-img"), Need::Program("qemu-io")],
        run: nbd_clients::qemu_img_converts_compares_and_checks,
    },
    Check {
        name: "ext4_image_is_copied_checked_and_compared",
        needs: &[NBDCOPY, EXT4[1], EXT4[2], Need::Program("debugfs")],
        run: nbd_clients::ext4_image_is_copied_checked_and_compared,
    },
    Check {
        name: "copy_survives_a_killed_service",
        needs: &[NBDCOPY],
        run: nbd_clients::copy_survives_a_killed_service,
    },
    Check {
        name: "mounted_file_system_keeps_a_source_tree",
        needs: &[NBDCOPY, EXT4[0], EXT4[1], EXT4[2], Need::Mount],
        run: file_system::mounted_file_system_keeps_a_source_tree,
    },
    Check {
        name: "sqlite_commits_while_parts_are_killed",
        needs: &[SQLITE, EXT4[0], EXT4[1], EXT4[2], Need::Mount],
        run: database::sqlite_commits_while_parts_are_killed,
    },
    Check {
        name: "sqlite_keeps_commits_when_the_nbd_server_is_killed",
        needs: &[SQLITE, EXT4[0], EXT4[1], EXT4[2], Need::LoopDevice],
        run: database::sqlite_keeps_commits_when_the_nbd_server_is_killed,
    },
    Check {
        name: "server_without_requests_uses_no_cpu_time",
        needs: &[NBDCOPY],
        run: nbd_clients::server_without_requests_uses_no_cpu_time,
    },
];

/// Tests of sets of three targets.
const GGA_CHECKS: [Check; 2] = [
    Check {
        name: "first_scrub_initializes_all_stripes",
        needs: &[],
        run: nbd_clients::first_scrub_initializes_all_stripes,
    },
    Check {
        name: "copies_survive_two_targets_lost_one_after_the_other",
        needs: &[NBDCOPY],
        run: nbd_clients::copies_survive_two_targets_lost_one_after_the_other,
    },
];
