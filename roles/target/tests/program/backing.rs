//! Targets with backing files, as processes: reservation, refusals, and files that fail while in use.
//!
//! Full disks are a tmpfs of few MiB in the target's own user namespace or, if the system does not permit user
//! namespaces, a limit on file size, with which writes and reservations fail at the same points.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use deployment::log::{LogEvent, events};
use doca::ErrorCode;
use role_formats::stored_block::MatrixType;
use role_formats::superblock::{Epoch, Form, Format, SetId, Superblock};
use role_target::backing::{BackingFile, Options};
use role_target::content::{Content, Geometry};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use tempfile::TempDir;
use wire::control::{FEATURE_FLUSH, FeatureQuery, Payload, RecordState};
use wire::io_message::IoMessageType::{self, Flush, Read, Write, WriteFua};

use crate::{
    BLOCK, Client, Exit, Service, Target, command, cpu, init, listening, memory, request,
    run_to_exit, start,
};

/// Size of a backing file before the first block.
const CONTENT: u64 = 65536;
const BLOCKS: usize = 512;
/// The blocks, and twice as many slots for versions, each with an additional page for the record.
const LENGTH: u64 = CONTENT + (BLOCKS * BLOCK + 2 * BLOCKS * (BLOCK + 4096)) as u64;

/// Key of the statistics.
const MEDIA_ERRORS: &str = "Media errors";

fn flags(file: &Path) -> String {
    format!("--backing-file {} --block-count {BLOCKS}", file.display())
}

fn arguments(file: &Path) -> String {
    format!("-d 03:00.0 --listen-port 0 --cpu {} {}", cpu(), flags(file))
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Creates a backing file by starting and stopping a target.
fn made(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("blocks");
    let target = start(&flags(&path));
    let client = Client::new(target.connect());
    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert!(exit.has_logged(LogEvent::BlocksDurable), "{exit:?}");
    path
}

fn io(client: &mut Client, kind: IoMessageType, block: usize) -> ErrorCode {
    client.io(request(kind, 0, block * BLOCK, BLOCK))
}

/// Checks that the target reports the failure of its medium at exit: with an error, without being killed by a signal,
/// and without a clean state.
fn failed_end(client: Client, target: Target) -> Exit {
    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(!exit.has_logged(LogEvent::BlocksDurable), "{exit:?}");
    let lines = exit.stderr.lines();
    let count = lines.filter(|line| line.contains("ERROR")).count();
    assert!(
        (1..=2).contains(&count),
        "one line for the failure and one for the exit: {exit:?}"
    );
    assert!(exit.statistic(MEDIA_ERRORS).is_some(), "{exit:?}");
    exit
}

/// Returns a command that runs with little disk space in `directory`: `bytes` in total, a part of which `prepare`, a
/// shell command, may use. `after` is run when the target has exited. Returns `None` without user namespaces.
fn on_small_disk(directory: &Path, bytes: u64, prepare: &str, after: &str) -> Option<Command> {
    let available = Command::new("unshare")
        .args(["-Urm", "true"])
        .stderr(Stdio::null())
        .status();
    if !available.is_ok_and(|status| status.success()) {
        eprintln!("no user namespaces: a limit to the size of files is used instead");
        return None;
    }
    let script = format!(
        "mount -t tmpfs -o size={bytes} none {0} && cd {0} && {{ {prepare}; }} && \"$@\"; code=$?; {after}; exit $code",
        directory.display()
    );
    let mut shell = Command::new("unshare");
    shell.args(["-Urm", "sh", "-c", &script, "sh"]);
    Some(shell)
}

/// Returns a command that runs its arguments with a limit on file size (`RLIMIT_FSIZE`).
fn with_small_files(bytes: u64) -> Command {
    let script = format!("ulimit -f {} && exec \"$@\"", bytes / 512);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]);
    shell
}

fn target_in(mut shell: Command, arguments: &str) -> Command {
    shell.arg(command("").get_program());
    shell.args(arguments.split_whitespace());
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell
}

#[test]
fn holes_of_an_existing_file_are_reserved_when_it_is_opened() {
    let directory = directory();
    let whole = made(&directory);
    let header = fs::read(&whole).expect("read")[..4096].to_vec();
    let sparse = directory.path().join("sparse");
    let file = File::create(&sparse).expect("a file");
    file.write_all_at(&header, 0).expect("written");
    file.set_len(LENGTH).expect("longer");
    file.sync_all().expect("synced");
    let allocated = || fs::metadata(&sparse).expect("there").blocks() * 512;
    assert!(allocated() < LENGTH, "it has holes");
    let target = start(&flags(&sparse));
    assert!(
        allocated() >= LENGTH,
        "{} of {LENGTH} bytes reserved",
        allocated()
    );
    drop(target);
}

#[test]
fn an_existing_file_with_holes_is_refused_on_a_full_disk() {
    let directory = directory();
    let whole = made(&directory);
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let sparse = disk.join("blocks");
    // A quarter of the file fits; cp omits its zeros.
    let prepare = format!("cp --sparse=always {} blocks", whole.display());
    let Some(shell) = on_small_disk(&disk, LENGTH / 4, &prepare, "true") else {
        // A file longer than the limit cannot be reserved, unless it is already reserved; in that case, its writes fail
        // individually.
        let target = listening(target_in(with_small_files(CONTENT * 2), &arguments(&whole)));
        let mut client = Client::new(target.connect());
        assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
        assert_eq!(io(&mut client, Write, BLOCKS - 1), ErrorCode::IO_FAILED);
        failed_end(client, target);
        return;
    };
    let exit = run_to_exit(target_in(shell, &arguments(&sparse)));
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    let no_space = std::io::Error::from_raw_os_error(libc::ENOSPC).to_string();
    assert!(exit.stderr.contains(&no_space), "{exit:?}");
    let is_listening = |event| matches!(event, LogEvent::Listening { .. });
    assert!(!events(&exit.stdout).any(is_listening), "{exit:?}");
}

#[test]
fn writes_refused_by_the_system_are_error_results() {
    let directory = directory();
    let whole = made(&directory);
    let target = listening(target_in(with_small_files(CONTENT * 2), &arguments(&whole)));
    let mut client = Client::new(target.connect());
    for _ in 0..3 {
        assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
        assert_eq!(io(&mut client, Write, BLOCKS - 1), ErrorCode::IO_FAILED);
        assert_eq!(io(&mut client, Read, BLOCKS - 1), ErrorCode::SUCCESS);
    }
    let exit = failed_end(client, target);
    assert_eq!(exit.statistic(MEDIA_ERRORS), Some("3"), "{exit:?}");
}

#[test]
fn ios_fail_after_the_file_is_truncated() {
    for left in [0, CONTENT, LENGTH / 2, LENGTH - 1] {
        let directory = directory();
        let path = directory.path().join("blocks");
        let target = start(&flags(&path));
        let mut client = Client::new(target.connect());
        for block in [0, 7, BLOCKS - 1] {
            assert_eq!(io(&mut client, Write, block), ErrorCode::SUCCESS);
        }
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.set_len(left).expect("shorter");
        for kind in [Write, Read] {
            // The last block first, because writing it restores the file's length.
            for block in [BLOCKS - 1, 7] {
                assert_eq!(
                    io(&mut client, kind, block),
                    ErrorCode::IO_FAILED,
                    "{kind:?} of block {block} with {left} bytes left"
                );
            }
        }
        failed_end(client, target);
    }
}

#[test]
fn ios_fail_after_the_file_is_removed_or_replaced() {
    let remove = |path: &Path| fs::remove_file(path).expect("removed");
    let replace = |path: &Path| {
        let other = path.with_extension("other");
        fs::copy(path, &other).expect("copied");
        fs::rename(&other, path).expect("replaced");
    };
    for take_away in [&remove as &dyn Fn(&Path), &replace] {
        let directory = directory();
        let path = directory.path().join("blocks");
        let target = start(&flags(&path));
        let mut client = Client::new(target.connect());
        assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
        take_away(&path);
        for kind in [Write, Read] {
            assert_eq!(io(&mut client, kind, 0), ErrorCode::IO_FAILED, "{kind:?}");
        }
        failed_end(client, target);
    }
}

#[test]
fn moved_file_prevents_a_clean_shutdown() {
    let directory = directory();
    let path = directory.path().join("blocks");
    let target = start(&flags(&path));
    let mut client = Client::new(target.connect());
    assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
    fs::rename(&path, directory.path().join("elsewhere")).expect("moved");
    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(!exit.has_logged(LogEvent::BlocksDurable), "{exit:?}");
}

#[test]
fn failed_creation_on_a_full_disk_leaves_no_file() {
    let directory = directory();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let listing = directory.path().join("listing");
    let after = format!("ls -A >{}", listing.display());
    let path = disk.join("blocks");
    let exit = match on_small_disk(&disk, LENGTH / 4, "true", &after) {
        Some(shell) => {
            let exit = run_to_exit(target_in(shell, &arguments(&path)));
            assert_eq!(
                fs::read_to_string(&listing).expect("listed"),
                "",
                "{exit:?}"
            );
            exit
        }
        None => run_to_exit(target_in(with_small_files(LENGTH / 4), &arguments(&path))),
    };
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(!path.exists(), "{exit:?}");
    // Only with the limit, on any system.
    let exit = run_to_exit(target_in(with_small_files(LENGTH / 4), &arguments(&path)));
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(!path.exists(), "{exit:?}");
}

/// A target with a failing disk: system calls listed in `broken`, with conditions on their arguments, fail with EIO.
/// io_uring is disabled, because its operations are not system calls: the target uses preadv2, pwritev2 and fdatasync.
fn on_broken_disk(path: &Path, broken: Vec<(i64, Vec<SeccompRule>)>) -> Target {
    let io_uring = [(libc::SYS_io_uring_setup, Vec::new())];
    let filter = SeccompFilter::new(
        broken.into_iter().chain(io_uring).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EIO as u32),
        std::env::consts::ARCH.try_into().expect("known"),
    );
    let program = BpfProgram::try_from(filter.expect("a filter")).expect("a program");
    let command = command(&arguments(path));
    // Inherited by threads and processes, but applied only to this thread.
    let start = move || {
        seccompiler::apply_filter(&program).expect("any process may restrict itself");
        listening(command)
    };
    std::thread::spawn(start).join().expect("started")
}

/// Matches calls for this block of the file.
fn of_block(block: usize) -> Vec<SeccompRule> {
    let offset = CONTENT + (block * BLOCK) as u64;
    let condition = SeccompCondition::new(3, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, offset);
    let rule = SeccompRule::new(vec![condition.expect("an argument")]);
    vec![rule.expect("a condition")]
}

/// Makes the target persist a superblock of a set in use.
fn put_to_use(service: &mut Service) {
    let superblock = Superblock {
        set: SetId(7),
        member: 0,
        epoch: Epoch { number: 1, id: 9 },
        next: Epoch::NONE,
        state: RecordState::InUse,
        form: Form {
            format: Format::StoredChunks,
            matrix: MatrixType::Vandermonde,
            logical_block_size: 512,
        },
    };
    let request = Payload::IdentifyStorageRequest(superblock.request());
    match service.request(request) {
        Payload::IdentifiedStorageResponse(answer) => {
            assert_eq!(Superblock::of_answer(&answer), Ok(Some(superblock)));
        }
        other => panic!("expected the superblock, got {other:?}"),
    }
}

/// Returns `true` if the superblock records that written blocks may not be durable.
fn is_unclean(path: &Path) -> bool {
    let geometry = Geometry {
        block_size: BLOCK as u32,
        block_count: BLOCKS as u32,
    };
    let content = Content::open(None, geometry).expect("content");
    let file = BackingFile::open(path, content, Options::default()).expect("a backing file");
    file.superblock().expect("a superblock").since.is_some()
}

#[test]
fn file_of_a_set_is_not_served_to_a_service_that_does_not_know_superblocks() {
    let directory = directory();
    let path = made(&directory);
    let target = start(&flags(&path));
    let mut client = Client::new(target.connect());
    put_to_use(&mut client.service);
    assert_eq!(client.stop(target).status.code(), Some(0));

    let target = start(&flags(&path));
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    let (device, memory, memory_map) = memory(BLOCK * 2);
    let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
    let Payload::ErrorResponse(refused) =
        service.request(Payload::InitStorageRequest(init(export.clone(), 2)))
    else {
        panic!("expected an error");
    };
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::NOT_PERMITTED);
    put_to_use(&mut service);
    let mut client = Client::with_export(service, export, 2, (memory, memory_map));
    assert_eq!(io(&mut client, Read, 0), ErrorCode::SUCCESS);
    assert_eq!(client.stop(target).status.code(), Some(0));
}

#[test]
fn unreadable_or_unwritable_blocks_fail_only_their_ios() {
    let directory = directory();
    let path = made(&directory);
    let broken = [
        (libc::SYS_preadv2, of_block(7)),
        (libc::SYS_pwritev2, of_block(9)),
    ];
    let target = on_broken_disk(&path, broken.into());
    let (mut client, _) = announcing(&target);
    put_to_use(&mut client.service);
    for _ in 0..3 {
        assert_eq!(io(&mut client, Read, 7), ErrorCode::IO_FAILED);
        assert_eq!(io(&mut client, Write, 9), ErrorCode::IO_FAILED);
        assert_eq!(io(&mut client, WriteFua, 9), ErrorCode::IO_FAILED);
        for (kind, block) in [(Write, 7), (Read, 9), (Write, 8), (Read, 8)] {
            assert_eq!(io(&mut client, kind, block), ErrorCode::SUCCESS, "{kind:?}");
        }
    }
    let flush = request(Flush, 0, 0, 0);
    assert_eq!(client.io(flush), ErrorCode::SUCCESS);
    let exit = failed_end(client, target);
    assert_eq!(exit.statistic(MEDIA_ERRORS), Some("9"), "{exit:?}");
    assert!(is_unclean(&path));
}

#[test]
fn no_write_is_acknowledged_after_a_failed_sync() {
    let directory = directory();
    let path = made(&directory);
    // Superblocks are synced by the same system call, so none is sent before.
    let target = on_broken_disk(&path, vec![(libc::SYS_fdatasync, Vec::new())]);
    let (mut client, _) = announcing(&target);
    assert_eq!(io(&mut client, Write, 1), ErrorCode::SUCCESS);
    for (kind, size) in [(Flush, 0), (Write, BLOCK), (Read, BLOCK), (Flush, 0)] {
        let code = client.io(request(kind, 0, 0, size));
        assert_eq!(code, ErrorCode::IO_FAILED, "{kind:?}");
    }
    let exit = failed_end(client, target);
    assert_eq!(exit.statistic(MEDIA_ERRORS), Some("4"), "{exit:?}");
}

#[test]
fn failed_final_sync_prevents_a_clean_shutdown() {
    let directory = directory();
    let path = made(&directory);
    let target = on_broken_disk(&path, vec![(libc::SYS_fsync, Vec::new())]);
    let mut client = Client::new(target.connect());
    put_to_use(&mut client.service);
    assert_eq!(io(&mut client, Write, 1), ErrorCode::SUCCESS);
    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(!exit.has_logged(LogEvent::BlocksDurable), "{exit:?}");
    assert!(is_unclean(&path));
}

#[test]
fn empty_or_foreign_file_is_initialised_only_with_the_flag() {
    let letter = "Dear all, this is no backing file, and it must not become one. ".repeat(100);
    for content in ["", "short", &letter, "\0\0\0\0"] {
        let directory = directory();
        let path = directory.path().join("blocks");
        fs::write(&path, content).expect("written");
        let exit = run_to_exit(command(&arguments(&path)));
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains("--initialise"), "{exit:?}");
        assert_eq!(fs::read(&path).expect("there"), content.as_bytes());

        let target = start(&format!("{} --initialise", flags(&path)));
        let mut client = Client::new(target.connect());
        assert_eq!(io(&mut client, Read, 0), ErrorCode::SUCCESS);
        let mut bytes = [1; BLOCK];
        client.memory.read(0, &mut bytes).expect("inside");
        assert_eq!(bytes, [0; BLOCK], "nothing is left of {content:.10?}");
        client.memory.write(0, b"kept").expect("inside");
        assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
        assert_eq!(client.stop(target).status.code(), Some(0));

        // An existing backing file is not initialised again.
        let target = start(&format!("{} --initialise", flags(&path)));
        let mut client = Client::new(target.connect());
        assert_eq!(io(&mut client, Read, 0), ErrorCode::SUCCESS);
        client.memory.read(0, &mut bytes).expect("inside");
        assert_eq!(&bytes[..4], b"kept");
    }
}

#[test]
fn backing_file_is_accessible_by_its_owner_only() {
    let directory = directory();
    let path = directory.path().join("blocks");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0 && exec \"$@\"", "sh"]);
    let target = listening(target_in(shell, &arguments(&path)));
    let mode = fs::metadata(&path).expect("there").mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    drop(target);
}

/// Creates a client that has announced flush; returns it with the target's announcement.
fn announcing(target: &Target) -> (Client, u32) {
    let query = Payload::AnnounceStorageRequest(FeatureQuery {
        features: FEATURE_FLUSH,
    });
    match Client::with(target.connect(), BLOCK * 2, query) {
        (client, Payload::AnnouncedStorageResponse(answer)) => (client, answer.features),
        (_, other) => panic!("expected an announcement, got {other:?}"),
    }
}

#[test]
fn flush_succeeds_only_if_it_was_announced() {
    let directory = directory();
    let path = made(&directory);
    for io in ["direct", "buffered"] {
        let target = start(&format!("{} --backing-io {io}", flags(&path)));
        let (mut client, features) = announcing(&target);
        assert_eq!(features, FEATURE_FLUSH);
        client.memory.fill(0, BLOCK, 0x77).expect("inside");
        assert_eq!(self::io(&mut client, Write, 1), ErrorCode::SUCCESS);
        let flush = request(Flush, 0, 0, 0);
        assert_eq!(client.io(flush), ErrorCode::SUCCESS);
        client.memory.fill(0, BLOCK, 0x78).expect("inside");
        assert_eq!(self::io(&mut client, WriteFua, 2), ErrorCode::SUCCESS);
        assert_eq!(
            client.io(request(WriteFua, 0, BLOCKS * BLOCK, BLOCK)),
            ErrorCode::INVALID_VALUE
        );
        // Bypasses the target by reading from the file system.
        let mut bytes = [0; 2 * BLOCK];
        let file = File::open(&path).expect("there");
        file.read_exact_at(&mut bytes, CONTENT + BLOCK as u64)
            .expect("read");
        assert_eq!(bytes[..BLOCK], [0x77; BLOCK]);
        assert_eq!(bytes[BLOCK..], [0x78; BLOCK]);
        assert_eq!(client.stop(target).status.code(), Some(0));

        let target = start(&flags(&path));
        let mut client = Client::new(target.connect());
        for unknown in [flush, request(WriteFua, 0, 0, BLOCK)] {
            assert_eq!(client.io(unknown), ErrorCode::INVALID_VALUE, "{unknown:?}");
        }
        assert_eq!(client.stop(target).status.code(), Some(0));
    }
    // Blocks in memory do not survive a power failure.
    let target = start("");
    let (mut client, features) = announcing(&target);
    assert_eq!(features, 0);
    assert_eq!(client.io(request(Flush, 0, 0, 0)), ErrorCode::INVALID_VALUE);
}

#[test]
fn flush_of_a_removed_file_fails() {
    let directory = directory();
    let path = made(&directory);
    let target = start(&flags(&path));
    let (mut client, _) = announcing(&target);
    assert_eq!(io(&mut client, Write, 0), ErrorCode::SUCCESS);
    fs::remove_file(&path).expect("removed");
    assert_eq!(client.io(request(Flush, 0, 0, 0)), ErrorCode::IO_FAILED);
    failed_end(client, target);
}

/// Pseudo-random numbers, which are the same in every run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    move |most| rng.usize(..most)
}

#[test]
fn any_block_size_and_alignment_round_trips() {
    for io in ["auto", "buffered"] {
        for (block_size, block_count) in [(512, 64), (520, 61), (4096, 16), (1 << 20, 3)] {
            let directory = directory();
            let path = directory.path().join("blocks");
            let flags = format!(
                "--backing-file {} --backing-io {io} --block-size {block_size} --block-count {block_count}",
                path.display()
            );
            let capacity = block_size * block_count;
            let mut expected = vec![0; capacity];
            let mut next = numbers(7);
            let target = start(&flags);
            let memory = 3 << 20;
            let (mut client, _) =
                Client::with(target.connect(), memory, Payload::QueryStorageRequest);
            for round in 0..60_u8 {
                // A block, several blocks, or a part of some blocks.
                let (offset, size) = match round % 3 {
                    0 => (next(block_count) * block_size, block_size),
                    1 => {
                        let first = next(block_count);
                        (
                            first * block_size,
                            (1 + next(block_count - first)) * block_size,
                        )
                    }
                    _ => {
                        let offset = next(capacity);
                        (offset, 1 + next(capacity - offset))
                    }
                };
                let size = size.min(memory);
                let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8 ^ round).collect();
                client.memory.write(0, &bytes).expect("inside");
                assert_eq!(
                    client.io(request(Write, 0, offset, size)),
                    ErrorCode::SUCCESS
                );
                expected[offset..offset + size].copy_from_slice(&bytes);
                let from = next(capacity);
                let count = (1 + next(capacity - from)).min(memory);
                assert_eq!(client.io(request(Read, 0, from, count)), ErrorCode::SUCCESS);
                let mut bytes = vec![0; count];
                client.memory.read(0, &mut bytes).expect("inside");
                assert!(
                    bytes == expected[from..from + count],
                    "{io} {block_size} {round}"
                );
            }
            assert_eq!(client.stop(target).status.code(), Some(0));
            let file = fs::read(&path).expect("there");
            let from = CONTENT as usize;
            assert!(file[from..from + capacity] == expected, "{io} {block_size}");
        }
    }
}
