//! `doca_dma.h`: memory copies.

use doca_abi::{doca_buf, doca_data, doca_devinfo, doca_dma, doca_dma_task_memcpy, doca_gpu_dma};

use super::instance::{instance_functions, limit_functions, task_handles};
use super::{buf, check_out, doca_error_t, guard, not_null, put_task, task_functions, with_driver};
use crate::accelerator::{Dma, MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Memcpy, Offload};
use crate::error::Error;
use crate::progress::TaskPool;

task_handles! { Memcpy: doca_dma_task_memcpy }

type Driver = Offload<Dma>;

fn copies(driver: &Driver) -> &TaskPool {
    &driver.accelerator().copies
}

instance_functions! {
    doca_dma over Dma;
    doca_dma_create, doca_dma_as_ctx, doca_dma_destroy(Error::InUse)
}

limit_functions! {
    /// Gets the maximum number of tasks of an instance.
    doca_dma_cap_get_max_num_tasks(*mut doca_dma) = MAX_TASKS, u32;
    /// Gets the maximum number of bufs in a list.
    doca_dma_cap_task_memcpy_get_max_buf_list_len(*const doca_devinfo) = MAX_BUF_LIST_LEN, u32;
    /// Gets the maximum number of bytes that a task can copy.
    doca_dma_cap_task_memcpy_get_max_buf_size(*const doca_devinfo) = MAX_BUF_SIZE, u64;
}

task_functions! {
    doca_dma_task_memcpy of doca_dma, pool copies;
    doca_dma_cap_task_memcpy_is_supported,
    doca_dma_task_memcpy_set_conf(doca_dma_task_memcpy_completion_cb_t),
    doca_dma_task_memcpy_as_task,
    doca_dma_task_memcpy_set_src, doca_dma_task_memcpy_get_src,
    doca_dma_task_memcpy_set_dst, doca_dma_task_memcpy_get_dst
}

/// Allocates a task that appends a copy of the source's data to the destination's data.
///
/// # Safety
/// As [`doca_dma_task_memcpy_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_task_memcpy_alloc_init(
    dma: *mut doca_dma,
    src: *const doca_buf,
    dst: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_dma_task_memcpy,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_task(task, || {
            with_driver(dma, |ctx, driver| {
                let copy = Memcpy::new(buf(src), buf(dst));
                copies(driver).allocate(ctx, copy, user_data)
            })
        })
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_get_gpu_handle(
    dma: *mut doca_dma,
    gpu_dma: *mut *mut doca_gpu_dma,
) -> doca_error_t {
    guard(|| {
        not_null(dma)?;
        check_out(gpu_dma)?;
        Err(Error::NotSupported.because("softdoca has no GPU data path"))
    })
}

doca_abi::check_definitions!(doca_dma_functions, crate::capi::doca_dma);

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use doca_abi::{DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING};

    use super::super::doca_pe::*;
    use super::super::testing::*;
    use super::*;
    use crate::buffer::Buf;
    use crate::memory::{ExportKind, Permissions};

    const POOL: u32 = 128;

    fn start() -> Instance<doca_dma> {
        Instance::start(doca_dma_create, doca_dma_destroy, |dma| {
            let done = Some(done::<doca_dma_task_memcpy> as _);
            // SAFETY: a live instance.
            ok(unsafe { doca_dma_task_memcpy_set_conf(dma, done, done, POOL) });
        })
    }

    fn copy(
        dma: &Instance<doca_dma>,
        from: &Buf,
        to: &Buf,
        user: u64,
    ) -> *mut doca_dma_task_memcpy {
        let user = doca_data { u64: user };
        // SAFETY: live handles and a valid out-parameter.
        dma.task(|task| unsafe {
            doca_dma_task_memcpy_alloc_init(dma.handle, c(from), c(to), user, task)
        })
    }

    #[test]
    fn data_is_appended_from_list_to_list() {
        let (dma, memory, bufs) = (start(), Memory::local(100_000), Bufs::new());
        let data = pattern(1, 30_000);
        memory.write(0, &data);
        let from = bufs.data_list(&memory.mmap, 0, &[10_000, 1, 19_999]);
        let to = bufs.room_list(&memory.mmap, 40_000, &[5, 29_000, 2_000]);
        to.set_data_len(3).expect("inside the buf");
        assert_eq!(dma.run(copy(&dma, from, to, 1)), 0);
        assert_eq!(to.list_data_len(), 30_003);
        assert!(memory.read(40_000, 3) == [0; 3] && memory.read(40_003, 30_000) == data);
        assert!(memory.read(70_003, 100) == [0; 100]);
    }

    #[test]
    fn memory_of_another_process_is_source_and_destination() {
        for placement in PLACEMENTS {
            let (dma, local, bufs) = (start(), Memory::local(20_000), Bufs::new());
            let (theirs, import) = Memory::shared(20_000, placement);
            theirs.write(100, &pattern(2, 9_000));
            let to = bufs.room(&local.mmap, 0, 9_000);
            assert_eq!(
                dma.run(copy(&dma, bufs.data(&import, 100, 9_000), to, 1)),
                0,
                "{placement:?}"
            );
            assert!(local.read(0, 9_000) == pattern(2, 9_000));
            let to = bufs.room(&import, 10_000, 9_000);
            assert_eq!(
                dma.run(copy(&dma, bufs.data(&local.mmap, 0, 9_000), to, 2)),
                0
            );
            assert!(theirs.read(10_000, 9_000) == pattern(2, 9_000));
        }
    }

    #[test]
    fn memory_of_a_stopped_map_is_inaccessible() {
        for placement in PLACEMENTS {
            let (local, bufs) = (Memory::local(64), Bufs::new());
            let permissions = Permissions::LOCAL_READ_WRITE
                | Permissions::PCI_READ_WRITE
                | Permissions::RDMA_READ;
            let theirs = Memory::new(20_000, permissions, placement);
            let import = theirs.import(ExportKind::Pci);
            theirs.write(0, &[7; 8]);
            let onward = crate::capi::testing::import(
                &import
                    .export(ExportKind::Rdma, &device())
                    .expect("permitted"),
            );
            let read = |mmap: &std::sync::Arc<crate::memory::Mmap>| {
                // A DMA context stops when one of its tasks fails.
                let dma = start();
                let from = bufs.data(mmap, 0, 8);
                dma.run(copy(&dma, from, bufs.room(&local.mmap, 0, 8), 1))
            };
            assert_eq!(read(&import), 0, "{placement:?}");
            theirs.mmap.stop().expect("it has no bufs");
            assert_eq!(read(&import), Error::NotFound.code(), "{placement:?}");
            let mut bytes = [0; 8];
            let (addr, _) = onward.memrange().expect("a range");
            // SAFETY: the array has that many bytes.
            let read_onward = unsafe { onward.read_into(addr, bytes.as_mut_ptr(), 8) };
            assert_eq!(read_onward, Err(Error::NotFound), "{placement:?}");
            // After another export, the memory is available to new importers.
            theirs.mmap.start().expect("the range is mapped");
            let again = theirs.import(ExportKind::Pci);
            assert_eq!(read(&again), 0, "{placement:?}");
            assert_eq!(read(&import), Error::NotFound.code(), "{placement:?}");
            let dma = start();
            let to = bufs.room(&import, 8, 8);
            let write = copy(&dma, bufs.data(&local.mmap, 0, 8), to, 2);
            assert_eq!(dma.run(write), Error::NotFound.code(), "{placement:?}");
            assert_eq!(theirs.read(0, 16), [[7; 8], [0; 8]].concat());
        }
    }

    #[test]
    fn a_task_can_be_retargeted_and_resubmitted() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        memory.write(0, b"onetwo");
        let (one, two) = (bufs.data(&memory.mmap, 0, 3), bufs.data(&memory.mmap, 3, 3));
        let (first, second) = (
            bufs.room(&memory.mmap, 100, 9),
            bufs.room(&memory.mmap, 200, 9),
        );
        let task = copy(&dma, one, first, 1);
        // SAFETY: a live task.
        unsafe {
            assert_eq!(doca_dma_task_memcpy_get_src(task).cast_mut(), c(one));
            assert_eq!(doca_dma_task_memcpy_get_dst(task), c(first));
            assert_eq!(doca_dma_task_memcpy_as_task(task).cast(), task);
            assert_eq!((dma.run(task), dma.run(task)), (0, 0));
            doca_dma_task_memcpy_set_src(task, c(two));
            doca_dma_task_memcpy_set_dst(task, c(second));
            assert_eq!(doca_dma_task_memcpy_get_src(task).cast_mut(), c(two));
            assert_eq!(doca_dma_task_memcpy_get_dst(task), c(second));
        }
        assert_eq!(dma.run(task), 0);
        assert_eq!(
            (memory.read(100, 9), memory.read(200, 4)),
            (b"oneone\0\0\0".to_vec(), b"two\0".to_vec())
        );
    }

    #[test]
    fn a_task_that_fails_stops_its_context() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (from, small) = (
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 100, 7),
        );
        let room = || bufs.room(&memory.mmap, 200, 8);
        let (good, bad, late) = (
            copy(&dma, from, room(), 1),
            copy(&dma, from, small, 2),
            copy(&dma, from, room(), 3),
        );
        [good, bad, late]
            .into_iter()
            .for_each(|task| dma.submit(task));
        dma.log.resubmissions.set(3);
        let (too_big, shutdown) = (Error::TooBig.code(), Error::Shutdown.code());
        assert_eq!(
            dma.wait(4),
            [(1, 0), (2, too_big), (3, shutdown), (1, shutdown)]
        );
        let bad_state = Error::BadState.code();
        assert_eq!(
            *dma.log.resubmitted.borrow(),
            [0, bad_state, bad_state],
            "the context stops first"
        );
        assert_eq!(dma.state(), DOCA_CTX_STATE_STOPPING);
        assert_eq!(small.data_len(), 0);
        dma.free_tasks();
        dma.wait_until("the idle state", || dma.state() == DOCA_CTX_STATE_IDLE);
        let states = [
            DOCA_CTX_STATE_RUNNING,
            DOCA_CTX_STATE_STOPPING,
            DOCA_CTX_STATE_IDLE,
        ];
        assert_eq!(*dma.log.states.borrow(), states);
        // SAFETY: a live handle.
        ok(unsafe { doca_ctx_start(dma.ctx()) });
        assert_eq!(dma.run(copy(&dma, from, room(), 4)), 0);
    }

    #[test]
    fn failures_have_their_error_codes() {
        let memory = Memory::new(
            4096,
            Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
            Placement::Pages,
        );
        let read_only = Memory::new(4096, Permissions::empty(), Placement::Pages);
        let rdma = memory.import(ExportKind::Rdma);
        let bufs = Bufs::new();
        let (data, room) = (
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 100, 4000 - 100),
        );
        let long = [1; crate::accelerator::MAX_BUF_LIST_LEN + 1];
        for (from, to, error) in [
            (bufs.room(&memory.mmap, 0, 8), room, Error::InvalidValue),
            (
                bufs.data_list(&memory.mmap, 0, &long),
                room,
                Error::InvalidValue,
            ),
            (
                data,
                bufs.room_list(&memory.mmap, 100, &long),
                Error::InvalidValue,
            ),
            (data, bufs.room(&memory.mmap, 100, 7), Error::TooBig),
            (data, bufs.room(&read_only.mmap, 0, 8), Error::NotPermitted),
            (bufs.data(&rdma, 0, 8), room, Error::NotPermitted),
            (data, bufs.room(&rdma, 0, 8), Error::NotPermitted),
        ] {
            let dma = start();
            assert_eq!(dma.run(copy(&dma, from, to, 1)), error.code());
        }
        let dma = start();
        let task = copy(&dma, data, room, 1);
        // SAFETY: a live task.
        unsafe { doca_dma_task_memcpy_set_src(task, std::ptr::null()) };
        assert_eq!(dma.run(task), Error::InvalidValue.code());
        assert_eq!(room.data_len(), 0);
        // Reading from read-only memory is allowed.
        assert_eq!(start_and_copy(bufs.data(&read_only.mmap, 0, 8), room), 0);
    }

    #[test]
    fn try_submit_reports_errors_immediately() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (from, small) = (
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 100, 7),
        );
        let task = copy(&dma, from, small, 1);
        // SAFETY: a live task.
        let attempt = || unsafe { doca_task_try_submit(task.cast()) };
        assert_eq!(attempt(), Error::TooBig.code());
        // SAFETY: as above.
        unsafe { doca_dma_task_memcpy_set_dst(task, null_mut()) };
        assert_eq!(attempt(), Error::InvalidValue.code());
        assert!(!dma.progress(), "nothing is in flight");
        assert_eq!(
            dma.state(),
            DOCA_CTX_STATE_RUNNING,
            "and nothing has failed"
        );
        // SAFETY: as above.
        unsafe { doca_dma_task_memcpy_set_dst(task, c(bufs.room(&memory.mmap, 200, 8))) };
        assert_eq!(attempt(), 0);
        assert_eq!(attempt(), Error::BadState.code(), "it is in flight");
        assert_eq!(dma.wait(1), [(1, 0)]);
    }

    fn start_and_copy(from: &Buf, to: &Buf) -> u32 {
        let dma = start();
        dma.run(copy(&dma, from, to, 1))
    }

    #[test]
    fn stopping_waits_for_tasks_and_flushes_those_in_flight() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let task = copy(
            &dma,
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 100, 8),
            7,
        );
        dma.submit(task);
        // SAFETY: a live handle.
        unsafe {
            assert_eq!(doca_ctx_stop(dma.ctx()), Error::InProgress.code());
            assert_eq!(doca_task_submit(task.cast()), Error::BadState.code());
            assert_eq!(doca_dma_destroy(dma.handle), Error::InUse.code());
        }
        assert_eq!(dma.wait(1), [(7, Error::Shutdown.code())]);
        assert_eq!(dma.state(), DOCA_CTX_STATE_STOPPING, "a task is allocated");
        dma.free_tasks();
        dma.wait_until("the idle state", || dma.state() == DOCA_CTX_STATE_IDLE);
        // SAFETY: a live handle.
        unsafe {
            ok(doca_ctx_stop(dma.ctx()));
            ok(doca_ctx_start(dma.ctx()));
            ok(doca_ctx_stop(dma.ctx()));
        }
        assert_eq!(dma.state(), DOCA_CTX_STATE_IDLE);
    }

    #[test]
    fn a_pool_has_a_fixed_number_of_tasks() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 1),
            bufs.room(&memory.mmap, 8, 2000),
        );
        let tasks: Vec<_> = (0..POOL)
            .map(|user| copy(&dma, from, to, user.into()))
            .collect();
        let mut task = null_mut();
        let none = doca_data { u64: 0 };
        // SAFETY: live handles and a valid out-parameter.
        let one_more =
            unsafe { doca_dma_task_memcpy_alloc_init(dma.handle, c(from), c(to), none, &mut task) };
        assert_eq!(one_more, Error::NoMemory.code());
        tasks.iter().for_each(|task| dma.submit(*task));
        // All tasks, in submission order.
        let expected: Vec<(u64, u32)> = (0..POOL).map(|user| (user.into(), 0)).collect();
        assert_eq!(dma.wait(POOL as usize), expected);
        assert_eq!(to.data_len(), POOL as usize);
    }

    #[test]
    fn long_tasks_do_not_starve_other_contexts() {
        const LEN: usize = 1 << 20;
        const TASKS: u64 = 8;
        let (dma, memory, bufs) = (start(), Memory::local(2 * LEN), Bufs::new());
        for user in 0..TASKS {
            dma.submit(copy(
                &dma,
                bufs.data(&memory.mmap, 0, LEN),
                bufs.room(&memory.mmap, LEN, LEN),
                user,
            ));
        }
        for calls in 1..=TASKS {
            assert!(dma.progress());
            assert_eq!(dma.log.completions.borrow().len() as u64, calls);
        }
        assert!(!dma.progress());
    }

    #[test]
    fn limits_are_reported_and_nulls_refused() {
        let invalid = Error::InvalidValue.code();
        let (mut len, mut size, mut tasks) = (0, 0, 0);
        let dma = start();
        // SAFETY: NULL, a live handle, or a valid out-parameter.
        unsafe {
            ok(doca_dma_cap_task_memcpy_is_supported(any_devinfo()));
            ok(doca_dma_cap_task_memcpy_get_max_buf_list_len(
                any_devinfo(),
                &mut len,
            ));
            ok(doca_dma_cap_task_memcpy_get_max_buf_size(
                any_devinfo(),
                &mut size,
            ));
            ok(doca_dma_cap_get_max_num_tasks(dma.handle, &mut tasks));
            assert!(
                len >= 32 && size >= 2 << 20 && tasks >= 1024,
                "{len} {size} {tasks}"
            );
            assert_eq!(doca_dma_cap_task_memcpy_is_supported(null_mut()), invalid);
            assert_eq!(
                doca_dma_cap_task_memcpy_get_max_buf_list_len(null_mut(), &mut len),
                invalid
            );
            assert_eq!(
                doca_dma_cap_task_memcpy_get_max_buf_size(any_devinfo(), null_mut()),
                invalid
            );
            assert_eq!(
                doca_dma_cap_get_max_num_tasks(null_mut(), &mut tasks),
                invalid
            );
            assert_eq!(doca_dma_create(null_mut(), null_mut()), invalid);
            assert_eq!(doca_dma_destroy(null_mut()), invalid);
            assert_eq!(doca_dma_as_ctx(null_mut()), null_mut());
            assert_eq!(doca_dma_as_ctx(dma.handle), dma.ctx());
            assert_eq!(
                doca_dma_task_memcpy_set_conf(null_mut(), None, None, 1),
                invalid
            );
            let data = doca_data { u64: 0 };
            assert_eq!(
                doca_dma_task_memcpy_alloc_init(
                    dma.handle,
                    null_mut(),
                    null_mut(),
                    data,
                    null_mut()
                ),
                invalid
            );
            let mut task = null_mut();
            assert_eq!(
                doca_dma_task_memcpy_alloc_init(
                    null_mut(),
                    null_mut(),
                    null_mut(),
                    data,
                    &mut task
                ),
                invalid
            );
            assert!(
                doca_dma_task_memcpy_get_src(null_mut()).is_null()
                    && doca_dma_task_memcpy_get_dst(null_mut()).is_null()
            );
            doca_dma_task_memcpy_set_src(null_mut(), null_mut());
            doca_dma_task_memcpy_set_dst(null_mut(), null_mut());
            // Not permitted after the start.
            let done = Some(done::<doca_dma_task_memcpy> as _);
            assert_eq!(
                doca_dma_task_memcpy_set_conf(dma.handle, done, done, 1),
                Error::BadState.code()
            );
        }
    }

    #[test]
    fn a_context_stopped_in_a_completion_callback_is_stopping_until_the_callback_returns() {
        let (dma, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let from = bufs.data(&memory.mmap, 0, 8);
        let task = copy(&dma, from, bufs.room(&memory.mmap, 100, 8), 1);
        dma.log.free.set(true);
        dma.log.stop.set(true);
        dma.submit(task);
        assert!(dma.progress());
        assert_eq!(
            *dma.log.stopped.borrow(),
            [(Error::InProgress.code(), DOCA_CTX_STATE_STOPPING)],
            "although no task is left"
        );
        let states = [
            DOCA_CTX_STATE_RUNNING,
            DOCA_CTX_STATE_STOPPING,
            DOCA_CTX_STATE_IDLE,
        ];
        assert_eq!(*dma.log.states.borrow(), states, "in the same call");
    }

    /// A context and its engine, both destroyed by the context's callback.
    struct Doomed {
        pe: *mut doca_abi::doca_pe,
        dma: *mut doca_dma,
        /// Another context of the engine, which is polled after the first one.
        other: *mut doca_dma,
        /// Numbers of references to both contexts right after they were destroyed.
        left: std::cell::Cell<(usize, usize)>,
        weak: (
            std::rc::Weak<crate::progress::Pe>,
            std::rc::Weak<crate::progress::Ctx>,
        ),
    }

    impl Doomed {
        fn references(&self) -> (usize, usize) {
            (self.weak.0.strong_count(), self.weak.1.strong_count())
        }
    }

    unsafe extern "C" fn stop_in_callback(
        task: *mut doca_dma_task_memcpy,
        _task_user_data: doca_data,
        ctx_user_data: doca_data,
    ) {
        // SAFETY: the test's data and the completed task.
        unsafe {
            doca_task_free(task.cast());
            let doomed = &*ctx_user_data.ptr.cast::<Doomed>();
            let stopped = doca_ctx_stop(doomed.dma.cast());
            assert_eq!(stopped, Error::InProgress.code());
        }
    }

    unsafe extern "C" fn destroy_in_callback(
        user_data: doca_data,
        _ctx: *mut doca_abi::doca_ctx,
        _previous: u32,
        next: u32,
    ) {
        if next == DOCA_CTX_STATE_IDLE {
            // SAFETY: the test's data; context and engine are not used afterwards.
            unsafe {
                let doomed = &*user_data.ptr.cast::<Doomed>();
                // Nested polls do not poll the destroyed context.
                assert_eq!(doca_pe_progress(doomed.pe), 0);
                ok(doca_dma_destroy(doomed.dma));
                ok(doca_dma_destroy(doomed.other));
                ok(doca_pe_destroy(doomed.pe));
                doomed.left.set(doomed.references());
            }
        }
    }

    #[test]
    fn a_callback_may_destroy_its_context_and_its_engine() {
        let (memory, bufs) = (Memory::local(64), Bufs::new());
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 32, 8),
        );
        let (mut pe, mut dma, mut task) = (null_mut(), null_mut(), null_mut());
        let mut other = null_mut();
        // SAFETY: live handles and valid out-parameters; the data outlives the context.
        unsafe {
            ok(doca_pe_create(&mut pe));
            ok(with_device(|dev| doca_dma_create(dev, &mut dma)));
            ok(with_device(|dev| doca_dma_create(dev, &mut other)));
            let weak = (
                std::rc::Rc::downgrade(&crate::capi::share_local(pe).expect("live")),
                std::rc::Rc::downgrade(&crate::capi::share_local(dma).expect("live")),
            );
            let doomed = Doomed {
                pe,
                dma,
                other,
                left: Default::default(),
                weak,
            };
            let user_data = doca_data {
                ptr: std::ptr::from_ref(&doomed).cast_mut().cast(),
            };
            ok(doca_pe_connect_ctx(pe, dma.cast()));
            ok(doca_pe_connect_ctx(pe, other.cast()));
            ok(doca_ctx_set_user_data(dma.cast(), user_data));
            ok(doca_ctx_set_state_changed_cb(
                dma.cast(),
                Some(destroy_in_callback),
            ));
            let done = Some(stop_in_callback as _);
            ok(doca_dma_task_memcpy_set_conf(dma, done, done, 1));
            ok(doca_ctx_start(dma.cast()));
            let none = doca_data { u64: 0 };
            ok(doca_dma_task_memcpy_alloc_init(
                dma,
                c(from),
                c(to),
                none,
                &mut task,
            ));
            ok(doca_task_submit(task.cast()));
            assert_eq!(doomed.references(), (3, 2), "handles, contexts and engine");
            assert_eq!(doca_pe_progress(pe), 1);
            assert_eq!(doomed.left.get(), (1, 1), "alive until progress returns");
            assert_eq!(doomed.references(), (0, 0), "dropped when it has returned");
        }
    }
}
