//! SQLite on a mounted file system, while its disk fails: every transaction that it has acknowledged is found, and none partially.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use deployment::Part;
use deployment::implementation::Layout;
use libtest_mimic::Failed;

use crate::disk::Disk;
use crate::file_system::Mounts;
use crate::program::{expect_equal, run, wait_until};

/// Transactions, each by a process of its own, until one fails or `stopped` is set.
struct Transactions {
    acknowledged: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    writer: JoinHandle<Result<(), Failed>>,
}

impl Transactions {
    /// Creates the database.
    fn start(database: &str) -> Result<Self, Failed> {
        let database = database.to_owned();
        run(&format!(
            "sqlite3 {database} 'CREATE TABLE entries(number INTEGER PRIMARY KEY, content TEXT); CREATE TABLE total(number INTEGER); \
             INSERT INTO total VALUES(0)'"
        ))?;
        let acknowledged = Arc::new(AtomicU64::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let shared = (Arc::clone(&acknowledged), Arc::clone(&stopped));
        let writer = std::thread::spawn(move || {
            let (acknowledged, stopped) = shared;
            for number in 1.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                // With less than EXTRA, SQLite does not sync the deletion of its journal, and a crash then undoes the last transaction.
                run(&format!(
                    "sqlite3 {database} 'PRAGMA synchronous=EXTRA; BEGIN; INSERT INTO entries VALUES({number}, hex(randomblob(700))); \
                     UPDATE total SET number = number + 1; COMMIT;'"
                ))?;
                acknowledged.store(number, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Self {
            acknowledged,
            stopped,
            writer,
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until this number of transactions is acknowledged, or one has failed.
    fn wait_for(&self, count: u64) -> Result<(), Failed> {
        wait_until(&format!("{count} acknowledged transactions"), || {
            Ok(self.acknowledged() >= count || self.writer.is_finished())
        })
    }

    /// Number of acknowledged transactions, and the result of the last one.
    fn stop(self) -> (u64, Result<(), Failed>) {
        self.stopped.store(true, Ordering::Relaxed);
        let panicked = |_| Err("the writer has panicked".into());
        let result = self.writer.join().unwrap_or_else(panicked);
        (self.acknowledged.load(Ordering::Relaxed), result)
    }
}

/// At most one more than the acknowledged transactions is present.
fn expect_transactions(database: &str, acknowledged: u64) -> Result<(), Failed> {
    let query = |sql: &str| run(&format!("sqlite3 {database} '{sql}'"));
    expect_equal("integrity_check", "ok", &*query("PRAGMA integrity_check")?)?;
    let found = query(
        "SELECT (SELECT count(*) FROM entries), (SELECT max(number) FROM entries), number FROM total",
    )?;
    let whole = [acknowledged, acknowledged + 1].map(|count| format!("{count}|{count}|{count}"));
    if whole.contains(&found) {
        return Ok(());
    }
    Err(
        format!("count, maximum and total of the entries: expected {whole:?}, got {found:?}")
            .into(),
    )
}

pub fn sqlite_commits_while_parts_are_killed(disk: &mut Disk) -> Result<(), Failed> {
    let victims: &[Part] = match disk.deployment.layout() {
        // The service reports I/O errors of its only target, and clients do not retry.
        Layout::ZeroCopy => &[Part::Service; 2],
        Layout::Gga => &[
            Part::Service,
            Part::Target(0),
            Part::Service,
            Part::Target(2),
        ],
    };
    let mounts = Mounts::of(disk)?;
    mounts.make_file_system()?;
    mounts.mount()?;
    let database = mounts.path("mount/db");
    let transactions = Transactions::start(&database)?;
    let faults = (|| {
        for &victim in victims {
            transactions.wait_for(transactions.acknowledged() + 12)?;
            if let Part::Target(target) = victim {
                // With one that misses writes, the set cannot lose another one.
                disk.deployment.wait_until_complete()?;
                disk.deployment.kill(&[victim])?;
                disk.deployment.wait_until_offline(target)?;
            } else {
                disk.deployment.kill(&[victim])?;
            }
            disk.deployment.start(victim)?;
        }
        transactions.wait_for(60.max(transactions.acknowledged() + 12))
    })();
    // The writer uses the mount, so it ends before that, also after a failure.
    let (acknowledged, result) = transactions.stop();
    faults?;
    result?;
    expect_transactions(&database, acknowledged)?;
    mounts.unmount_and_check()?;
    mounts.detach()
}

/// The file system loses its disk, as in a crash of the machine. The next mount replays the journals of both.
pub fn sqlite_keeps_commits_when_the_nbd_server_is_killed(disk: &mut Disk) -> Result<(), Failed> {
    let mut mounts = Mounts::of(disk)?;
    mounts.make_file_system()?;
    mounts.mount()?;
    let database = mounts.path("mount/db");
    let transactions = Transactions::start(&database)?;
    let crashed = (|| {
        transactions.wait_for(90)?;
        disk.deployment.kill(&[Part::FrontEnd])?;
        mounts.crash()?;
        transactions.wait_for(u64::MAX)
    })();
    let (acknowledged, result) = transactions.stop();
    crashed?;
    if acknowledged < 90 || result.is_ok() {
        return Err(format!(
            "expected 90 transactions, and then an error, got {acknowledged}: {result:?}"
        )
        .into());
    }
    drop(mounts);
    disk.deployment.start(Part::FrontEnd)?;
    let mounts = Mounts::of(disk)?;
    mounts.mount()?;
    expect_transactions(&database, acknowledged)?;
    mounts.unmount_and_check()?;
    mounts.detach()
}
