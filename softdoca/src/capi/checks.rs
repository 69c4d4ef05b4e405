//! Reports of `SOFTDOCA_CHECK=1` from processes that make each mistake twice.

use std::ptr::null_mut;

use doca_abi::{doca_data, doca_dma, doca_dma_task_memcpy, doca_task};

use super::doca_buf::{doca_buf_dec_refcount, doca_buf_set_data};
use super::doca_buf_inventory::{doca_buf_inventory_create, doca_buf_inventory_destroy};
use super::doca_dev::doca_devinfo_create_list;
use super::doca_dma::*;
use super::doca_mmap::*;
use super::doca_pe::{doca_ctx_stop, *};
use super::give;
use super::testing::{Bufs, Instance, Memory, Placement, c, child, done, ok, with_device};
use crate::error::Error;

const MISTAKE: &str = "SOFTDOCA_TEST_MISTAKE";

fn dma() -> Instance<doca_dma> {
    Instance::start(doca_dma_create, doca_dma_destroy, |dma| {
        let done = Some(done::<doca_dma_task_memcpy> as _);
        // SAFETY: a live instance.
        ok(unsafe { doca_dma_task_memcpy_set_conf(dma, done, done, 4) });
    })
}

/// Runs `make` with an instance and a task.
fn with_tasks(make: impl Fn(&Instance<doca_dma>, *mut doca_task)) {
    let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
    let (from, to) = (
        bufs.data(&memory.mmap, 0, 8),
        bufs.room(&memory.mmap, 99, 64),
    );
    let mut tasks = [null_mut::<doca_dma_task_memcpy>(); 2];
    for task in &mut tasks {
        let none = doca_data { u64: 0 };
        // SAFETY: live handles and valid out-parameters.
        ok(unsafe { doca_dma_task_memcpy_alloc_init(dma.handle, c(from), c(to), none, task) });
        make(&dma, task.cast());
    }
    while dma.progress() {}
    for task in tasks {
        // SAFETY: a live task, or one that was freed already, which is refused.
        unsafe { doca_task_free(task.cast()) };
    }
    for buf in [from, to] {
        // SAFETY: a live buf.
        ok(unsafe { doca_buf_dec_refcount(c(buf), null_mut()) });
    }
}

/// Does a refused action twice.
fn twice(action: impl Fn() -> u32) {
    for _ in 0..2 {
        assert_ne!(action(), 0);
    }
}

fn make(mistake: &str) {
    // SAFETY: live handles, or destroyed ones that softdoca refuses.
    unsafe {
        match mistake {
            "free in flight" => {
                let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
                let from = c(bufs.data(&memory.mmap, 0, 8));
                let to = c(bufs.room(&memory.mmap, 99, 64));
                for _ in 0..2 {
                    let (mut task, none) = (null_mut(), doca_data { u64: 0 });
                    ok(doca_dma_task_memcpy_alloc_init(
                        dma.handle, from, to, none, &mut task,
                    ));
                    ok(doca_task_submit(task.cast()));
                    doca_task_free(task.cast());
                }
                // Dropping the instance stops and destroys the context.
                drop(dma);
                for buf in [from, to] {
                    ok(doca_buf_dec_refcount(buf, null_mut()));
                }
            }
            "free twice" => with_tasks(|_, task| {
                doca_task_free(task);
                doca_task_free(task);
            }),
            "use after free" => with_tasks(|_, task| {
                doca_task_free(task);
                doca_task_submit(task);
            }),
            "submit twice" => with_tasks(|_, task| {
                ok(doca_task_submit(task));
                doca_task_submit(task);
            }),
            "destroy running" => {
                let dma = dma();
                twice(|| doca_dma_destroy(dma.handle));
            }
            "buf outside" => {
                let (memory, bufs) = (Memory::local(100), Bufs::new());
                let buf = bufs.data(&memory.mmap, 0, 50);
                let addr = memory.mmap.memrange().expect("a range").0;
                assert!(buf.reuse_by_addr(addr + 60, 50).is_err());
                assert!(buf.set_data(addr, 101).is_err());
                doca_buf_dec_refcount(c(buf), null_mut());
            }
            "data outside" => {
                let (memory, bufs) = (Memory::local(100), Bufs::new());
                let buf = c(bufs.data(&memory.mmap, 0, 50));
                let data = memory.addr() as usize + 60;
                for _ in 0..2 {
                    let data = std::ptr::with_exposed_provenance_mut(data);
                    ok(doca_buf_set_data(buf, data, 30));
                }
                ok(doca_buf_dec_refcount(buf, null_mut()));
            }
            "withdrawn" => {
                let (theirs, import) = Memory::shared(4096, Placement::Pages);
                ok(theirs.mmap.stop().map_or_else(Error::code, |()| 0));
                for _ in 0..2 {
                    assert_eq!(import.load(theirs.addr()), Err(Error::NotFound));
                }
            }
            "use after destroy" => {
                let (mut mmap, mut pe, mut dma) = (null_mut(), null_mut(), null_mut());
                let mut inventory = null_mut();
                ok(doca_buf_inventory_create(1, &mut inventory));
                ok(doca_mmap_create(&mut mmap));
                ok(doca_pe_create(&mut pe));
                ok(with_device(|dev| doca_dma_create(dev, &mut dma)));
                for destroy in 0..2 {
                    let codes = [
                        doca_mmap_destroy(mmap),
                        doca_pe_destroy(pe),
                        doca_dma_destroy(dma),
                        doca_buf_inventory_destroy(inventory),
                    ];
                    let expected = [0, Error::BadState.code()][destroy];
                    assert_eq!(codes, [expected; 4]);
                }
                assert_eq!(doca_pe_progress(pe), 0);
                assert_eq!(doca_ctx_stop(dma.cast()), Error::BadState.code());
                assert_eq!(doca_mmap_start(mmap), Error::BadState.code());
            }
            "buf back twice" => {
                let (memory, bufs) = (Memory::local(100), Bufs::new());
                let buf = c(bufs.data(&memory.mmap, 0, 50));
                ok(doca_buf_dec_refcount(buf, null_mut()));
                twice(|| doca_buf_dec_refcount(buf, null_mut()));
            }
            "mmap with bufs" => {
                let (memory, bufs) = (Memory::local(100), Bufs::new());
                let buf = bufs.data(&memory.mmap, 0, 50);
                let mmap = give(std::sync::Arc::clone(&memory.mmap));
                twice(|| doca_mmap_destroy(mmap));
                twice(|| doca_mmap_stop(mmap));
                doca_buf_dec_refcount(c(buf), null_mut());
            }
            "leak" => {
                let (mut mmap, mut pe) = (null_mut(), null_mut());
                ok(doca_mmap_create(&mut mmap));
                ok(doca_mmap_create(&mut mmap));
                ok(doca_mmap_create(&mut mmap));
                ok(doca_mmap_destroy(mmap));
                ok(doca_pe_create(&mut pe));
                let (mut list, mut count) = (null_mut(), 0);
                ok(doca_devinfo_create_list(&mut list, &mut count));
            }
            "nothing" => with_tasks(|dma, task| {
                ok(doca_task_submit(task));
                assert!(dma.progress());
            }),
            other => panic!("no mistake {other}"),
        }
    }
}

/// Run by the tests below in a process of its own.
#[test]
fn mistaken_child() {
    if let Ok(mistake) = std::env::var(MISTAKE) {
        make(&mistake);
    }
}

/// The reports of a process that makes a mistake.
fn reports(mistake: &str, check: &str) -> Vec<String> {
    let environment = [(MISTAKE, mistake), ("SOFTDOCA_CHECK", check)];
    let output = child("capi::checks::mistaken_child", &environment);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{mistake}: {text}");
    let of_check = |line: &&str| line.contains("SOFTDOCA_CHECK");
    text.lines().filter(of_check).map(str::to_owned).collect()
}

#[track_caller]
fn reported_once(mistake: &str, what: &str, object: &str) {
    let reports = reports(mistake, "1");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].contains(&format!("SOFTDOCA_CHECK: {what}: {object}")),
        "{reports:?}"
    );
    assert!(
        reports[0]
            .rsplit_once("; ")
            .is_some_and(|(_, hardware)| hardware.len() > 20),
        "{reports:?}"
    );
    assert_eq!(self::reports(mistake, "0"), [""; 0], "not enabled");
}

#[test]
fn a_task_that_is_freed_in_flight() {
    reported_once(
        "free in flight",
        "a task was freed while it is in flight",
        "task 0x",
    );
}

#[test]
fn a_task_that_is_freed_twice() {
    reported_once("free twice", "a task was freed twice", "task 0x");
}

#[test]
fn a_task_that_is_used_after_it_was_freed() {
    let reports = reports("use after free", "1");
    // The fixture frees it again.
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(
        reports[0].contains("a task was submitted after it was freed: task 0x"),
        "{reports:?}"
    );
}

#[test]
fn a_task_that_is_submitted_twice() {
    reported_once(
        "submit twice",
        "a task was submitted again while it is in flight",
        "task 0x",
    );
}

#[test]
fn a_context_that_is_destroyed_while_it_runs() {
    reported_once(
        "destroy running",
        "a context was destroyed before it was stopped",
        "context 0x",
    );
}

#[test]
fn a_buf_that_leaves_its_memory() {
    reported_once(
        "buf outside",
        "a buf reaches outside of its memory",
        "50 bytes at 0x",
    );
}

#[test]
fn data_outside_of_its_buf_that_is_accepted() {
    reported_once(
        "data outside",
        "a buf reaches outside of its memory",
        "30 bytes at 0x",
    );
}

#[test]
fn memory_that_its_owner_has_withdrawn() {
    let what = "memory of a peer was used after the peer stopped its mmap";
    reported_once("withdrawn", what, "8 bytes at 0x");
}

#[test]
fn objects_that_are_used_after_they_were_destroyed() {
    // Undefined without the check.
    let reports = reports("use after destroy", "1");
    assert_eq!(reports.len(), 1, "{reports:?}");
    let what = "an object was used after it was destroyed: doca_mmap 0x";
    assert!(reports[0].contains(what), "{reports:?}");
}

#[test]
fn a_buf_that_is_returned_twice() {
    reported_once("buf back twice", "a buf was returned twice", "buf 0x");
}

#[test]
fn a_map_destroyed_before_its_bufs() {
    let what = "an mmap was stopped or destroyed while bufs point into it";
    reported_once("mmap with bufs", what, "mmap 0x");
}

#[test]
fn objects_that_are_not_destroyed() {
    let what = "objects were not destroyed before the process exited";
    reported_once("leak", what, "1 list of devices, 2 doca_mmap, 1 doca_pe;");
}

#[test]
fn a_program_without_mistakes_gets_no_report() {
    assert_eq!(reports("nothing", "1"), [""; 0]);
}
