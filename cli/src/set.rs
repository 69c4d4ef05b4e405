//! `doca-storage set`: sets of targets, from their backing files, without running targets or services; and commands to a
//! running service.

mod service;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use gga_engine::Target;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::{errln, outln, signals};
use role_formats::superblock::{Epoch, Form, Format, SetId};
use role_gga_offload::offline::{Assessment, Member, Stripe, assess, compare};
use role_target::offline::OfflineFile;
use role_target::versions::Version;
use serde::Serialize;
use tabled::builder::Builder;
use wire::control::RecordState;

use crate::{Result, exit_code, usage};

const EXAMPLES: &str = "\
Examples:
  doca-storage set examine /var/lib/doca-storage/data_1.blocks
  doca-storage set examine --json data_1.blocks data_2.blocks data_p.blocks
  doca-storage set verify data_1.blocks data_2.blocks data_p.blocks
  doca-storage set status
  doca-storage set rebuild data_2 --socket /tmp/gga.control";

const EXAMINE: &str = "\
Nothing is written, and targets may use the files meanwhile. With two or three files of a set, a line below the table says what a service would do:
which members are current, and how many blocks it would settle first, whose last write may have been interrupted. The state in_doubt says that the
machine was restarted while blocks were not durable; files that were copied from another machine look the same.
The exit status is 1 if a file cannot be read, is damaged or belongs to no set, or if a service would refuse the set.";

const VERIFY: &str = "\
Reads and compares all chunks of all blocks, without writing, while no target uses the files. Blocks that a service would settle first are counted
separately: their chunks may differ. The exit status is 0 if all other blocks are intact on all current members, otherwise 1.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what backing files belong to which set, which are current together, and what is to be settled
    Examine(Examine),
    /// Compare all chunks of the blocks of a set that no target uses
    Verify(Verify),
    #[command(flatten)]
    Service(service::Request),
}

#[derive(Debug, Args)]
#[command(after_help = EXAMINE)]
struct Examine {
    /// Backing files of targets, in any order
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = VERIFY)]
struct Verify {
    /// The backing files of the set, in any order; two suffice if the third one is lost
    #[arg(required = true, num_args = 2..=3, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Examine(examine) => examine.run(),
        Command::Verify(verify) => verify.run(),
        Command::Service(request) => request.run(),
    };
    result.unwrap_or_else(|error| crate::conclude("set", &*error))
}

// Examine.

/// Description of a file.
#[derive(Debug, Serialize)]
struct FileReport {
    file: PathBuf,
    /// Identity of its blocks.
    identity: String,
    block_size: u32,
    block_count: u64,
    /// `None` for a file of no set.
    member: Option<MemberReport>,
}

/// A superblock and the state of the log of versions.
#[derive(Debug, Serialize)]
struct MemberReport {
    set: String,
    /// `data_1`, `data_2` or `data_p`.
    target: Option<&'static str>,
    epoch: Option<EpochReport>,
    /// The epoch for which the target prepares.
    next_epoch: Option<EpochReport>,
    state: RecordState,
    form: Form,
    last_version: Option<VersionReport>,
    /// Versions below this one are complete and durable on all members.
    retired_below: Option<VersionReport>,
    /// Numbers of the blocks with versions that are not retired.
    unretired_blocks: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct EpochReport {
    number: u64,
    id: String,
}

#[derive(Debug, Serialize)]
struct VersionReport {
    epoch: u64,
    number: u64,
}

/// The members that a service would start with, or why it would refuse the set.
#[derive(Debug, Serialize)]
struct SetReport {
    set: String,
    /// Reason why a service would refuse the set.
    refusal: Option<String>,
    current: Vec<&'static str>,
    /// A target whose file was not given.
    missing: Option<&'static str>,
    /// A target that would be rebuilt.
    stale: Option<&'static str>,
    /// Numbers of the blocks whose last write may have been interrupted.
    blocks_to_settle: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct ExamineReport {
    files: Vec<FileReport>,
    sets: Vec<SetReport>,
}

impl Examine {
    fn run(&self) -> Result<ExitCode> {
        let mut files = Vec::new();
        let mut is_intact = true;
        for path in &self.files {
            match OfflineFile::open(path) {
                Ok(file) => files.push((path.as_path(), file)),
                Err(failure) => {
                    errln!("{failure}");
                    is_intact = false;
                }
            }
        }
        is_intact &= files.iter().all(|(_, file)| file.superblock().is_some());
        let mut ids: Vec<SetId> = Vec::new();
        for set in files
            .iter()
            .filter_map(|(_, file)| Some(file.superblock()?.set))
        {
            if !ids.contains(&set) {
                ids.push(set);
            }
        }
        let sets: Vec<SetReport> = ids
            .into_iter()
            .filter_map(|set| set_report(set, &files))
            .collect();
        is_intact &= sets.iter().all(|it| it.refusal.is_none());
        let report = ExamineReport {
            files: files
                .iter()
                .map(|(path, file)| file_report(path, file))
                .collect(),
            sets,
        };
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report)?);
        } else if !report.files.is_empty() {
            print(&report);
        }
        Ok(exit_code(is_intact))
    }
}

fn file_report(path: &Path, file: &OfflineFile) -> FileReport {
    let header = file.header();
    FileReport {
        file: path.to_owned(),
        identity: header.identity.to_string(),
        block_size: header.geometry.block_size,
        block_count: header.geometry.block_count.into(),
        member: file.superblock().map(|it| MemberReport {
            set: format!("{:032x}", it.set.0),
            target: target_of(it.member).map(Target::name),
            epoch: epoch_report(it.epoch),
            next_epoch: epoch_report(it.next),
            state: it.state,
            form: it.form,
            last_version: version_report(file.last()),
            retired_below: version_report(file.retired()),
            unretired_blocks: file.unretired(),
        }),
    }
}

fn target_of(member: u32) -> Option<Target> {
    Target::ALL.get(member as usize).copied()
}

fn epoch_report(epoch: Epoch) -> Option<EpochReport> {
    (epoch != Epoch::NONE).then(|| EpochReport {
        number: epoch.number,
        id: format!("{:016x}", epoch.id),
    })
}

fn version_report(version: Version) -> Option<VersionReport> {
    let Version { epoch, number } = version;
    (version != Version::NONE).then_some(VersionReport { epoch, number })
}

/// `None` for a single file, which contains no information about the other targets.
fn set_report(set: SetId, files: &[(&Path, OfflineFile)]) -> Option<SetReport> {
    let of_set = files.iter().map(|(_, file)| file);
    let of_set: Vec<&OfflineFile> = of_set
        .filter(|file| file.superblock().is_some_and(|it| it.set == set))
        .collect();
    if of_set.len() < 2 {
        return None;
    }
    let mut report = SetReport {
        set: format!("{:032x}", set.0),
        refusal: None,
        current: Vec::new(),
        missing: None,
        stale: None,
        blocks_to_settle: Vec::new(),
    };
    let placed = placed(&of_set);
    let assessed = (placed.as_ref().map_err(String::clone))
        .and_then(|members| assess(&members.map(|it| it.map(member_of))));
    match assessed {
        Ok(assessment) => {
            let current = Target::ALL
                .into_iter()
                .filter(|&it| assessment.is_current(it));
            report.current = current.map(Target::name).collect();
            let is_given = |it: Target| placed.is_ok_and(|members| members[it.number()].is_some());
            let stale = assessment.stale.map(Target::name);
            (report.stale, report.missing) = match assessment.stale {
                Some(target) if is_given(target) => (stale, None),
                _ => (None, stale),
            };
            report.blocks_to_settle = assessment.unsettled;
        }
        Err(why) => report.refusal = Some(why),
    }
    Some(report)
}

/// Orders the files of a set by their members' numbers.
fn placed<'a>(files: &[&'a OfflineFile]) -> Result<[Option<&'a OfflineFile>; 3], String> {
    let mut members = [None; 3];
    for &file in files {
        let Some(superblock) = file.superblock() else {
            return Err("expected files of a set, got one of none".to_owned());
        };
        let number = superblock.member;
        let Some(target) = target_of(number) else {
            return Err(format!("expected members 0 to 2, got {number}"));
        };
        if members[target.number()].replace(file).is_some() {
            let name = target.name();
            return Err(format!(
                "expected one file of each member, got two of {name}: one is a copy"
            ));
        }
    }
    Ok(members)
}

fn member_of(file: &OfflineFile) -> Member {
    let version = |Version { epoch, number }| (epoch, number);
    Member {
        superblock: file
            .superblock()
            .unwrap_or_else(|| unreachable!("it is a member")),
        last: version(file.last()),
        retired: version(file.retired()),
        unretired: file.unretired(),
    }
}

fn print(report: &ExamineReport) {
    let mut rows = Builder::new();
    rows.push_record([
        "file",
        "set",
        "member",
        "epoch",
        "state",
        "blocks",
        "stored as",
    ]);
    for it in &report.files {
        let blocks = format!("{} x {}", it.block_count, it.block_size);
        let name = it.file.display().to_string();
        let Some(member) = &it.member else {
            rows.push_record([&name, "none", "", "", "", &blocks, ""]);
            continue;
        };
        let epoch = match (&member.epoch, &member.next_epoch) {
            (None, None) => "not rebuilt".to_owned(),
            (epoch, next) => {
                let number = |it: &Option<EpochReport>| it.as_ref().map_or(0, |it| it.number);
                let next = next
                    .as_ref()
                    .map(|next| format!(", prepares {}", next.number));
                format!("{}{}", number(epoch), next.unwrap_or_default())
            }
        };
        let form = match member.form.format {
            Format::StoredChunks => format!("chunks of {}", member.form.logical_block_size),
            Format::StoredBlocks => "stored blocks".to_owned(),
        };
        let target = member.target.unwrap_or("unknown");
        let state = member.state.name();
        rows.push_record([
            &name,
            &member.set[..8],
            target,
            &epoch,
            state,
            &blocks,
            &form,
        ]);
    }
    let layout = table::Layout {
        right: &[],
        optional: &[6, 5, 1],
        flexible: Some(0),
    };
    table::say!("{}", table::render(rows, layout));
    for it in &report.sets {
        let name = &it.set[..8];
        match &it.refusal {
            Some(why) => outln!("set {name}: refused: {why}"),
            None => {
                let other = match (it.stale, it.missing) {
                    (Some(stale), _) => format!("; {stale} would be rebuilt"),
                    (_, Some(missing)) => format!("; {missing} is missing"),
                    _ => String::new(),
                };
                let current = it.current.join(", ");
                let blocks = it.blocks_to_settle.len();
                outln!("set {name}: current: {current}{other}; blocks to settle: {blocks}");
            }
        }
    }
}

// Verify.

/// Number of damaged blocks that are listed.
const LISTED: usize = 16;

#[derive(Debug, Default, Serialize)]
struct VerifyReport {
    set: String,
    stale: Option<&'static str>,
    blocks: u64,
    /// Blocks that were never written.
    unwritten: u64,
    /// Blocks with equal valid chunks on all current members.
    intact: u64,
    /// Blocks whose last write may have been interrupted.
    to_settle: u64,
    /// Blocks that can be read, with a chunk that is corrupt or of an earlier write.
    repairable: u64,
    /// Blocks without two valid chunks of the same write.
    lost: u64,
    /// Chunks of data_1, data_2 and data_p that are corrupt or of an earlier write.
    damaged_chunks: [u64; 3],
    /// The first damaged blocks.
    examples: Vec<Damage>,
}

#[derive(Debug, Serialize)]
struct Damage {
    block: u64,
    is_lost: bool,
    chunks: Vec<String>,
}

impl Verify {
    fn run(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        let mut files = Vec::new();
        for path in &self.files {
            files.push(OfflineFile::open_locked(path)?);
        }
        let files: Vec<&OfflineFile> = files.iter().collect();
        let members = placed(&files).map_err(usage)?;
        let assessment = assess(&members.map(|it| it.map(member_of)))?;
        if assessment.form.format != Format::StoredChunks {
            return Err(usage(
                "expected a set of chunks, of a service with --logical-block-size; stored blocks of the reference cannot be verified",
            ));
        }
        let members = Target::ALL
            .map(|target| members[target.number()].filter(|_| assessment.is_current(target)));
        let report = verify(&members, &assessment, self.json, &|| {
            shutdown.is_requested()
        })?;
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print_verified(&report);
        }
        Ok(exit_code(report.repairable == 0 && report.lost == 0))
    }
}

fn verify(
    members: &[Option<&OfflineFile>; 3],
    assessment: &Assessment,
    is_silent: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<VerifyReport> {
    let geometry = members
        .iter()
        .flatten()
        .map(|it| it.header().geometry)
        .next();
    let geometry = geometry.ok_or("expected current members, got none")?;
    if members
        .iter()
        .flatten()
        .any(|it| it.header().geometry != geometry)
    {
        return Err("expected members with as many blocks of the same size".into());
    }
    let mut report = VerifyReport {
        set: format!("{:032x}", assessment.set.0),
        stale: assessment.stale.map(Target::name),
        blocks: geometry.block_count.into(),
        ..VerifyReport::default()
    };
    let mut unsettled = assessment.unsettled.iter().copied().peekable();
    let progress = progress(report.blocks, is_silent);
    let mut buffers = [(); 3].map(|()| vec![0; geometry.block_size as usize]);
    for block in 0..report.blocks {
        if block % 1024 == 0 {
            progress.set_position(block);
            if is_stopped() {
                progress.finish_and_clear();
                return Err(format!(
                    "stopped by a signal after {block} of {} blocks",
                    report.blocks
                )
                .into());
            }
        }
        if unsettled.next_if_eq(&block).is_some() {
            report.to_settle += 1;
            continue;
        }
        let mut chunks = [const { None }; 3];
        for ((chunk, member), buffer) in chunks.iter_mut().zip(members).zip(&mut buffers) {
            *chunk = member.map(|file| match file.read(block, buffer) {
                Ok(()) => Ok(&buffer[..]),
                Err(failure) => Err(format!("cannot be read: {failure}")),
            });
        }
        report.count(block, compare(assessment.set, block, chunks));
    }
    progress.finish_and_clear();
    Ok(report)
}

impl VerifyReport {
    fn count(&mut self, block: u64, stripe: Stripe) {
        let Stripe {
            is_written,
            is_readable,
            flaws,
        } = stripe;
        let count = match (is_readable, flaws.is_empty(), is_written) {
            (false, ..) => &mut self.lost,
            (true, false, _) => &mut self.repairable,
            (true, true, false) => &mut self.unwritten,
            (true, true, true) => &mut self.intact,
        };
        *count += 1;
        for (target, _) in &flaws {
            self.damaged_chunks[target.number()] += 1;
        }
        if (!flaws.is_empty() || !is_readable) && self.examples.len() < LISTED {
            let chunks = flaws
                .iter()
                .map(|(target, flaw)| format!("{} {flaw}", target.name()));
            self.examples.push(Damage {
                block,
                is_lost: !is_readable,
                chunks: chunks.collect(),
            });
        }
    }
}

fn progress(blocks: u64, is_silent: bool) -> ProgressBar {
    if is_silent || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{elapsed} {wide_bar} {percent} %, {eta} left")
        .expect("a template of known keys");
    let progress = ProgressBar::new(blocks).with_style(style);
    progress.enable_steady_tick(Duration::from_millis(200));
    progress
}

fn print_verified(report: &VerifyReport) {
    for it in &report.examples {
        let what = if it.is_lost { "lost" } else { "repairable" };
        outln!("block {}: {what}: {}", it.block, it.chunks.join("; "));
    }
    let VerifyReport {
        blocks,
        unwritten,
        intact,
        to_settle,
        repairable,
        lost,
        ..
    } = report;
    if let Some(stale) = report.stale {
        outln!("without {stale}, which is not current or not given");
    }
    outln!(
        "set {}: {blocks} blocks: {intact} intact, {unwritten} never written, {to_settle} to settle, {repairable} repairable, {lost} lost",
        &report.set[..8]
    );
    let [data_1, data_2, data_p] = report.damaged_chunks;
    if data_1 + data_2 + data_p != 0 {
        outln!("damaged chunks: {data_1} of data_1, {data_2} of data_2, {data_p} of data_p");
    }
}
