//! Sync events through their C functions: configuration, operations on values, waiting, events shared with the other
//! side of PCIe within one process (between processes: `doca_rdma::tests::processes`), and tasks.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, doca_buf, doca_ctx, doca_data, doca_dev,
    doca_devinfo, doca_pe, doca_sync_event, doca_sync_event_remote_net, doca_sync_event_task_get,
    doca_sync_event_task_notify_add, doca_sync_event_task_notify_set, doca_sync_event_task_wait_eq,
    doca_sync_event_task_wait_neq, doca_task,
};

use super::super::doca_pe::*;
use super::super::give;
use super::*;
use crate::buffer::BufInventory;
use crate::device::Device;
use crate::error::Error;
use crate::memory::{Mmap, Permissions};

fn ok(code: u32) {
    assert_eq!(code, 0, "{:?}", Error::from_code(code));
}

fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").expect("the built-in topology has it")
}

struct Dev(*mut doca_dev);

impl Dev {
    fn open() -> Dev {
        Dev(give::<doca_dev>(device()))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // SAFETY: gives back the reference of `open`.
        drop(unsafe { Arc::from_raw(self.0.cast::<Device>()) });
    }
}

/// An event, which may be used by several threads.
struct Se(*mut doca_sync_event);

// SAFETY: the functions on values may be called from any thread, and the tests call no others from several.
unsafe impl Sync for Se {}

impl Se {
    fn create() -> Se {
        let mut event = null_mut();
        // SAFETY: a valid out-parameter.
        ok(unsafe { doca_sync_event_create(&mut event) });
        Se(event)
    }

    /// Creates an event only for the CPU.
    fn local() -> Se {
        let (event, dev) = (Se::create(), Dev::open());
        // SAFETY: live handles.
        unsafe {
            ok(doca_sync_event_add_publisher_location_cpu(event.0, dev.0));
            ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
        }
        event
    }

    /// Creates and starts an event only for the CPU.
    fn started() -> Se {
        let event = Se::local();
        event.start();
        event
    }

    /// The handle. A method, because a closure would capture only the field.
    fn raw(&self) -> *mut doca_sync_event {
        self.0
    }

    fn start(&self) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_start(self.0) });
    }

    fn get(&self) -> u64 {
        let mut value = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_get(self.0, &mut value) });
        value
    }

    fn set(&self, value: u64) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_update_set(self.0, value) });
    }

    fn add(&self, value: u64) -> u64 {
        let mut fetched = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_update_add(self.0, value, &mut fetched) });
        fetched
    }
}

impl Drop for Se {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: a live handle, not used afterwards; an event that is a context, or has not been started, cannot be
        // stopped in this way.
        unsafe {
            doca_sync_event_stop(self.0);
            ok(doca_sync_event_destroy(self.0));
        }
    }
}

#[test]
fn values_can_be_set_added_to_and_read() {
    let event = Se::started();
    assert_eq!(event.get(), 0);
    event.set(40);
    assert_eq!(event.get(), 40);
    assert_eq!(event.add(2), 40);
    assert_eq!(event.get(), 42);
    assert_eq!(event.add(u64::MAX), 42);
    assert_eq!(event.get(), 41, "adding wraps around");
    let invalid = Error::InvalidValue.code();
    let mut value = 0;
    // SAFETY: live handles and valid out-parameters, or NULL.
    unsafe {
        assert_eq!(doca_sync_event_get(event.0, null_mut()), invalid);
        assert_eq!(doca_sync_event_get(null_mut(), &mut value), invalid);
        assert_eq!(doca_sync_event_update_set(null_mut(), 1), invalid);
        assert_eq!(
            doca_sync_event_update_add(null_mut(), 1, &mut value),
            invalid
        );
        assert_eq!(doca_sync_event_update_add(event.0, 1, null_mut()), invalid);
    }
    assert_eq!(event.get(), 41);
}

#[test]
fn concurrent_additions_all_count() {
    let event = Se::started();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    event.add(1);
                }
            });
        }
    });
    assert_eq!(event.get(), 3000);
}

/// Every function that waits returns immediately if its condition is fulfilled, and otherwise after another thread has
/// changed the value.
#[test]
fn waits_end_when_the_masked_value_fulfils_their_condition() {
    type Wait = unsafe extern "C" fn(*mut doca_abi::doca_sync_event, u64, u64) -> u32;
    // The function, its operand for the low byte, a value that does not satisfy the condition, and a value that does.
    let cases: [(Wait, u64, u64, u64); 6] = [
        (doca_sync_event_wait_eq, 5, 0x0104, 0x0305),
        (doca_sync_event_wait_eq_yield, 5, 0x0106, 0x0205),
        (doca_sync_event_wait_neq, 5, 0x0105, 0x0204),
        (doca_sync_event_wait_neq_yield, 5, 0x0205, 0x0206),
        (doca_sync_event_wait_gt, 5, 0x0105, 0x0106),
        (doca_sync_event_wait_gt_yield, 5, 0x0304, 0x01ff),
    ];
    for (number, (wait, operand, before, after)) in cases.into_iter().enumerate() {
        let event = Se::started();
        event.set(before);
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: a live handle, which the scope keeps.
                ok(unsafe { wait(event.raw(), operand, 0xff) });
                waited.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waited.load(Ordering::SeqCst), "case {number}");
            event.set(after);
            waiter.join().expect("the wait ends");
        });
        // SAFETY: a live handle.
        ok(unsafe { wait(event.0, operand, 0xff) });
        // SAFETY: NULL.
        let none = unsafe { wait(null_mut(), operand, 0xff) };
        assert_eq!(none, Error::InvalidValue.code());
    }
}

#[test]
fn an_event_that_is_not_started_has_no_value() {
    let event = Se::local();
    let (mut value, state) = (0, Error::BadState.code());
    let check = |value: &mut u64| {
        // SAFETY: a live handle and a valid out-parameter.
        unsafe {
            assert_eq!(doca_sync_event_get(event.0, value), state);
            assert_eq!(doca_sync_event_update_set(event.0, 1), state);
            assert_eq!(doca_sync_event_update_add(event.0, 1, value), state);
            assert_eq!(doca_sync_event_wait_gt(event.0, 0, u64::MAX), state);
        }
    };
    check(&mut value);
    event.start();
    event.set(9);
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(doca_sync_event_start(event.0), state, "a second time");
        let in_use = Error::InUse.code();
        assert_eq!(doca_sync_event_destroy(event.0), in_use, "it is started");
        ok(doca_sync_event_stop(event.0));
        assert_eq!(doca_sync_event_stop(event.0), state, "a second time");
    }
    check(&mut value);
    event.start();
    assert_eq!(event.get(), 0, "it begins anew");
}

/// A publisher or subscriber at any other location is equivalent to one on the CPU.
#[test]
fn an_event_needs_a_publisher_and_a_subscriber() {
    let dev = Dev::open();
    let cpu_publishes = doca_sync_event_add_publisher_location_cpu;
    let cpu_subscribes = doca_sync_event_add_subscriber_location_cpu;
    // SAFETY: live handles, or NULL.
    unsafe {
        for publish in [
            doca_sync_event_add_publisher_location_remote_net,
            doca_sync_event_add_publisher_location_remote_pci,
        ] {
            let event = Se::create();
            ok(publish(event.0));
            assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
            ok(cpu_subscribes(event.0, dev.0));
            event.start();
            let late = publish(event.0);
            assert_eq!(late, Error::BadState.code(), "it is started");
            assert_eq!(publish(null_mut()), Error::InvalidValue.code());
        }
        let subscribe = doca_sync_event_add_subscriber_location_remote_pci;
        let event = Se::create();
        ok(subscribe(event.0));
        assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
        ok(cpu_publishes(event.0, dev.0));
        event.start();
        assert_eq!(subscribe(event.0), Error::BadState.code());
        assert_eq!(subscribe(null_mut()), Error::InvalidValue.code());
        for add in [cpu_publishes, cpu_subscribes] {
            let invalid = Error::InvalidValue.code();
            assert_eq!(add(null_mut(), dev.0), invalid);
            let event = Se::create();
            assert_eq!(add(event.0, null_mut()), invalid);
            assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
        }
        assert_eq!(
            doca_sync_event_create(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_sync_event_destroy(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_sync_event_start(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(doca_sync_event_stop(null_mut()), Error::InvalidValue.code());
    }
}

#[test]
fn the_value_is_at_the_programs_address() {
    let place = Box::new(UnsafeCell::new([7_u64; 2]));
    let addr: *mut u64 = place.get().cast();
    let event = Se::local();
    // SAFETY: a live handle; the address is good until the event is stopped.
    unsafe {
        let crooked = addr.cast::<u8>().add(4).cast();
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_sync_event_set_addr(event.0, crooked), invalid);
        assert_eq!(doca_sync_event_set_addr(event.0, null_mut()), invalid);
        assert_eq!(doca_sync_event_set_addr(null_mut(), addr), invalid);
        ok(doca_sync_event_set_addr(event.0, addr));
        event.start();
        let late = doca_sync_event_set_addr(event.0, addr);
        assert_eq!(late, Error::BadState.code());
    }
    assert_eq!(event.get(), 7, "what was there");
    event.set(8);
    // SAFETY: not used by another thread at this moment.
    assert_eq!(unsafe { addr.read() }, 8);
    drop(event);
}

#[test]
fn the_value_lies_in_a_buf() {
    let place = Box::new(UnsafeCell::new([7_u64; 512]));
    let addr = place.get().cast::<u64>().expose_provenance() as u64;
    let map = |permissions: Permissions| {
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 4096).expect("a range");
        mmap.set_permissions(permissions).expect("not started");
        mmap.add_device(&device()).expect("a device");
        mmap.start().expect("mapped memory");
        Arc::new(mmap)
    };
    let everything = Permissions::LOCAL_READ_WRITE | Permissions::RDMA;
    let inventory = BufInventory::new(8).expect("memory");
    inventory.start();
    let event = Se::local();
    let (mmap, private) = (map(everything), map(Permissions::LOCAL_READ_WRITE));
    let buf = |mmap: &Arc<Mmap>, offset, len| -> *mut doca_buf {
        let buf = inventory
            .get_by_data(mmap, addr + offset, len)
            .expect("a buf");
        std::ptr::from_ref(buf).cast_mut().cast()
    };
    let refused = Error::NotPermitted.code();
    // SAFETY: live handles, or NULL.
    unsafe {
        let set_buf = |buf| doca_sync_event_set_doca_buf(event.0, buf);
        assert_eq!(set_buf(buf(&mmap, 8, 9)), refused);
        assert_eq!(set_buf(buf(&mmap, 8, 7)), refused);
        assert_eq!(set_buf(buf(&private, 8, 8)), refused);
        assert_eq!(set_buf(buf(&mmap, 4, 8)), Error::InvalidValue.code());
        assert_eq!(set_buf(null_mut()), Error::InvalidValue.code());
        ok(set_buf(buf(&mmap, 16, 8)));
    }
    event.start();
    event.set(99);
    assert_eq!(mmap.load(addr + 16), Ok(99));
    assert_eq!(mmap.load(addr + 8), Ok(7));
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_stop(event.0) });
    assert!(mmap.is_usable(), "it is the program's");
}

#[test]
fn capabilities_are_reported_and_the_rest_is_not_supported() {
    let device = device();
    let info: *const doca_devinfo = Arc::as_ptr(device.info()).cast();
    let invalid = Error::InvalidValue.code();
    let unsupported = Error::NotSupported.code();
    // SAFETY: a live device's information, live events, or NULL; the other pointers are not dereferenced.
    unsafe {
        for (capability, expected) in [
            (
                doca_sync_event_cap_is_create_from_export_supported as unsafe extern "C" fn(_) -> _,
                0,
            ),
            (doca_sync_event_cap_is_export_to_remote_net_supported, 0),
            (doca_sync_event_cap_is_export_to_remote_pci_supported, 0),
            (
                doca_sync_event_cap_remote_net_is_create_from_export_supported,
                0,
            ),
            (doca_sync_event_cap_task_get_is_supported, 0),
            (doca_sync_event_cap_task_notify_set_is_supported, 0),
            (doca_sync_event_cap_task_notify_add_is_supported, 0),
            (doca_sync_event_cap_task_wait_eq_is_supported, 0),
            (doca_sync_event_cap_task_wait_neq_is_supported, 0),
            (doca_sync_event_cap_is_export_to_dpa_supported, unsupported),
            (doca_sync_event_cap_is_export_to_gpu_supported, unsupported),
            (
                doca_sync_event_cap_remote_net_is_export_to_dpa_supported,
                unsupported,
            ),
            (
                doca_sync_event_cap_remote_net_is_export_to_gpu_supported,
                unsupported,
            ),
        ] {
            assert_eq!(capability(info), expected);
            assert_eq!(capability(null::<doca_devinfo>()), invalid);
        }
        let event = Se::create();
        let (dpa, gpu, mut out) = (null_mut(), null_mut(), 0);
        let remote: *mut doca_sync_event_remote_net = event.0.cast();
        for code in [
            doca_sync_event_add_publisher_location_dpa(event.0, dpa),
            doca_sync_event_add_subscriber_location_dpa(event.0, dpa),
            doca_sync_event_get_dpa_handle(event.0, dpa, &mut out),
            doca_sync_event_remote_net_get_dpa_handle(remote, dpa, &mut out),
            doca_sync_event_add_publisher_location_gpu(event.0, gpu),
            doca_sync_event_add_subscriber_location_gpu(event.0, gpu),
            doca_sync_event_get_gpu_handle(event.0, gpu, null_mut()),
            doca_sync_event_remote_net_get_gpu_handle(remote, gpu, &mut out),
        ] {
            assert_eq!(code, unsupported);
        }
        let none = doca_sync_event_get_dpa_handle(null_mut(), dpa, &mut out);
        assert_eq!(none, invalid);
    }
}

/// A started event for the other side of PCIe.
fn shared(dev: &Dev) -> Se {
    let event = Se::create();
    // SAFETY: live handles.
    unsafe {
        ok(doca_sync_event_add_publisher_location_remote_pci(event.0));
        ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
    }
    event.start();
    event
}

fn export_to_pci(event: &Se, dev: &Dev) -> std::result::Result<Vec<u8>, u32> {
    let (mut data, mut size) = (null(), 0);
    // SAFETY: live handles and valid out-parameters; the blob is readable for its size.
    unsafe {
        match doca_sync_event_export_to_remote_pci(event.0, dev.0, &mut data, &mut size) {
            0 => Ok(std::slice::from_raw_parts(data, size).to_vec()),
            code => Err(code),
        }
    }
}

fn import(dev: &Dev, blob: &[u8]) -> std::result::Result<Se, u32> {
    let mut event: *mut doca_sync_event = null_mut();
    // SAFETY: a live handle, readable bytes, and a valid out-parameter.
    match unsafe {
        doca_sync_event_create_from_export(dev.0, blob.as_ptr(), blob.len(), &mut event)
    } {
        0 => Ok(Se(event)),
        code => Err(code),
    }
}

#[test]
fn both_sides_see_one_value() {
    let dev = Dev::open();
    let ours = shared(&dev);
    let blob = export_to_pci(&ours, &dev).expect("it is for PCIe");
    assert!(blob.len() <= 512, "programs have buffers for it");
    assert_eq!(export_to_pci(&ours, &dev).as_ref(), Ok(&blob));
    let theirs = import(&dev, &blob).expect("an export");
    // SAFETY: a live handle.
    unsafe {
        let fixed = doca_sync_event_add_publisher_location_remote_pci(theirs.0);
        assert_eq!(
            fixed,
            Error::NotPermitted.code(),
            "an imported event is as it is"
        );
    }
    theirs.start();
    ours.set(5);
    assert_eq!(theirs.get(), 5);
    assert_eq!(theirs.add(2), 5);
    assert_eq!(ours.get(), 7);
    theirs.set(1);
    assert_eq!(ours.get(), 1);
    // The importer may be destroyed first, and import again.
    drop(theirs);
    let again = import(&dev, &blob).expect("an export");
    again.start();
    assert_eq!(again.get(), 1);
    // Importers lose access when the event is destroyed.
    drop(ours);
    let mut value = 0;
    // SAFETY: a live handle and a valid out-parameter.
    unsafe {
        let not_found = Error::NotFound.code();
        assert_eq!(doca_sync_event_get(again.0, &mut value), not_found);
        assert_eq!(doca_sync_event_update_set(again.0, 2), not_found);
        assert_eq!(doca_sync_event_wait_gt(again.0, 5, u64::MAX), not_found);
    }
    assert_eq!(import(&dev, &blob).err(), Some(Error::NotFound.code()));
}

#[test]
fn exports_are_limited_to_the_declared_locations() {
    let dev = Dev::open();
    let (local, pci) = (Se::started(), shared(&dev));
    let (mut data, mut size) = (null(), 0);
    let (refused, invalid) = (Error::NotPermitted.code(), Error::InvalidValue.code());
    let other =
        crate::device::Device::open_by_name("mlx5_1").expect("the built-in topology has it");
    let other = Dev(crate::capi::give(other));
    assert_eq!(export_to_pci(&local, &dev), Err(refused));
    assert_eq!(
        export_to_pci(&pci, &other),
        Err(invalid),
        "a device that it does not know"
    );
    let blob = export_to_pci(&pci, &dev).expect("it is for PCIe");
    let mut remote = null_mut();
    // SAFETY: live handles and valid out-parameters, or NULL; readable bytes.
    unsafe {
        let to_net = doca_sync_event_export_to_remote_net;
        assert_eq!(to_net(pci.0, &mut data, &mut size), refused);
        assert_eq!(to_net(null_mut(), &mut data, &mut size), invalid);
        assert_eq!(to_net(pci.0, null_mut(), &mut size), invalid);
        assert_eq!(to_net(pci.0, &mut data, null_mut()), invalid);
        let to_pci = doca_sync_event_export_to_remote_pci;
        assert_eq!(to_pci(pci.0, null_mut(), &mut data, &mut size), invalid);
        assert_eq!(to_pci(pci.0, dev.0, null_mut(), &mut size), invalid);
        let make = doca_sync_event_remote_net_create_from_export;
        let wrong = make(dev.0, blob.as_ptr(), blob.len(), &mut remote);
        assert_eq!(wrong, invalid, "an export for PCIe is none for the network");
        assert_eq!(make(dev.0, null(), 5, &mut remote), invalid);
        assert_eq!(
            make(null_mut(), blob.as_ptr(), blob.len(), &mut remote),
            invalid
        );
        assert_eq!(make(dev.0, blob.as_ptr(), blob.len(), null_mut()), invalid);
        let invalid_destroy = doca_sync_event_remote_net_destroy(null_mut());
        assert_eq!(invalid_destroy, invalid);
    }
    for len in [0, 1, 20, blob.len() - 1] {
        assert_eq!(
            import(&dev, &blob[..len]).err(),
            Some(invalid),
            "{len} bytes"
        );
    }
    let mut stopped = blob.clone();
    // An address outside of the value's memory.
    stopped[16] ^= 1;
    assert_eq!(import(&dev, &stopped).err(), Some(invalid));
}

/// The value is one of several values in a map of the program.
#[test]
fn a_value_inside_of_a_larger_map_is_shared() {
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    use crate::buffer::BufInventory;
    use crate::memory::{Mmap, Permissions};

    // Less than a page, so peers access it through the agent.
    let place = Box::new(UnsafeCell::new([0_u64; 8]));
    let addr = place.get().cast::<u64>().expose_provenance() as u64;
    let mmap = Mmap::new();
    mmap.set_memrange(addr, 64).expect("a range");
    mmap.set_permissions(Permissions::LOCAL_READ_WRITE | Permissions::RDMA)
        .expect("not started");
    mmap.add_device(&device()).expect("a device");
    mmap.start().expect("mapped memory");
    let mmap = Arc::new(mmap);
    let inventory = BufInventory::new(1).expect("memory");
    inventory.start();
    let buf = inventory.get_by_data(&mmap, addr + 24, 8).expect("a buf");
    let dev = Dev::open();
    let event = Se::create();
    // SAFETY: live handles.
    unsafe {
        ok(doca_sync_event_add_publisher_location_remote_pci(event.0));
        ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
        let buf = std::ptr::from_ref(buf).cast_mut().cast();
        ok(doca_sync_event_set_doca_buf(event.0, buf));
    }
    event.start();
    let theirs = import(&dev, &export_to_pci(&event, &dev).expect("for PCIe")).expect("an export");
    theirs.start();
    theirs.set(3);
    assert_eq!(theirs.add(4), 3);
    assert_eq!((event.get(), mmap.load(addr + 24)), (7, Ok(7)));
    assert_eq!(theirs.get(), 7);
}

type Log = RefCell<Vec<(u64, u32)>>;

unsafe extern "C" fn done<T>(task: *mut T, task_data: doca_data, ctx_data: doca_data) {
    // SAFETY: called with a live task; the context data of a test points to its log.
    unsafe {
        let status = doca_task_get_status(task.cast());
        let log = &*ctx_data.ptr.cast::<Log>();
        log.borrow_mut().push((task_data.u64, status));
    }
}

struct Context {
    event: Se,
    pe: *mut doca_pe,
    log: Box<Log>,
    tasks: RefCell<Vec<*mut doca_task>>,
}

impl Context {
    fn start() -> Context {
        let (event, mut pe, log) = (Se::local(), null_mut(), Box::<Log>::default());
        // SAFETY: live handles and valid out-parameters.
        unsafe {
            ok(doca_pe_create(&mut pe));
            let ctx = doca_sync_event_as_ctx(event.0);
            assert!(!ctx.is_null());
            ok(doca_pe_connect_ctx(pe, ctx));
            let data = doca_data {
                ptr: std::ptr::from_ref(&*log).cast_mut().cast(),
            };
            ok(doca_ctx_set_user_data(ctx, data));
            macro_rules! configure {
                ($($set_conf:ident: $task:ty),*) => { $(
                    ok($set_conf(event.0, Some(done::<$task>), Some(done::<$task>), 2));
                )* };
            }
            configure!(
                doca_sync_event_task_get_set_conf: doca_sync_event_task_get,
                doca_sync_event_task_notify_set_set_conf: doca_sync_event_task_notify_set,
                doca_sync_event_task_notify_add_set_conf: doca_sync_event_task_notify_add,
                doca_sync_event_task_wait_eq_set_conf: doca_sync_event_task_wait_eq,
                doca_sync_event_task_wait_neq_set_conf: doca_sync_event_task_wait_neq
            );
            ok(doca_ctx_start(ctx));
        }
        Context {
            event,
            pe,
            log,
            tasks: RefCell::default(),
        }
    }

    fn ctx(&self) -> *mut doca_ctx {
        self.event.0.cast()
    }

    fn keep<T>(&self, task: *mut T) -> *mut T {
        self.tasks.borrow_mut().push(task.cast());
        task
    }

    #[track_caller]
    fn wait(&self, count: usize) -> Vec<(u64, u32)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.log.borrow().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.log.borrow());
            self.progress();
        }
        self.log.borrow().clone()
    }

    fn progress(&self) -> u8 {
        // SAFETY: a live handle.
        unsafe { doca_pe_progress(self.pe) }
    }

    fn state(&self) -> u32 {
        let mut state = 9;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_ctx_get_state(self.ctx(), &mut state) });
        state
    }

    fn get(&self, to: *mut u64, user: u64) -> *mut doca_sync_event_task_get {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: live handles and a valid out-parameter, here and below.
        ok(unsafe { doca_sync_event_task_get_alloc_init(self.event.0, to, user, &mut task) });
        self.keep(task)
    }

    fn notify_set(&self, value: u64, user: u64) -> *mut doca_sync_event_task_notify_set {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_notify_set_alloc_init(self.event.0, value, user, &mut task)
        });
        self.keep(task)
    }

    fn notify_add(
        &self,
        value: u64,
        to: *mut u64,
        user: u64,
    ) -> *mut doca_sync_event_task_notify_add {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_notify_add_alloc_init(self.event.0, value, to, user, &mut task)
        });
        self.keep(task)
    }

    fn wait_eq(&self, value: u64, mask: u64, user: u64) -> *mut doca_sync_event_task_wait_eq {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_wait_eq_alloc_init(self.event.0, value, mask, user, &mut task)
        });
        self.keep(task)
    }

    fn wait_neq(&self, value: u64, mask: u64, user: u64) -> *mut doca_sync_event_task_wait_neq {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: see above.
        ok(unsafe {
            doca_sync_event_task_wait_neq_alloc_init(self.event.0, value, mask, user, &mut task)
        });
        self.keep(task)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: live handles, not used afterwards; tasks in flight are flushed before they are freed.
        unsafe {
            doca_ctx_stop(self.ctx());
            let mut in_flight = 1;
            while in_flight != 0 {
                self.progress();
                ok(doca_ctx_get_num_inflight_tasks(self.ctx(), &mut in_flight));
            }
            for task in self.tasks.borrow_mut().drain(..) {
                doca_task_free(task);
            }
            self.progress();
            assert_eq!(self.state(), DOCA_CTX_STATE_IDLE);
            // The event must be destroyed before its engine, so it is destroyed here.
            let event = std::mem::replace(&mut self.event, Se::create());
            drop(event);
            ok(doca_pe_destroy(self.pe));
        }
    }
}

fn submit<T>(task: *mut T) {
    // SAFETY: a live task.
    ok(unsafe { doca_task_submit(task.cast()) });
}

#[test]
fn tasks_and_functions_have_the_same_effect() {
    let context = Context::start();
    let (value, old) = (Cell::new(0), Cell::new(0));
    submit(context.notify_set(40, 1));
    assert_eq!(
        context.progress(),
        1,
        "the sample stops at the first progress"
    );
    assert_eq!(context.wait(1), [(1, 0)]);
    submit(context.notify_add(2, old.as_ptr(), 2));
    context.wait(2);
    submit(context.get(value.as_ptr(), 3));
    assert_eq!(context.wait(3), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!((old.get(), value.get()), (40, 42));
    // Without a destination for the old value.
    submit(context.notify_add(1, null_mut(), 4));
    context.wait(4);
    assert_eq!(context.event.get(), 43, "the functions work as well");
    assert_eq!(context.state(), DOCA_CTX_STATE_RUNNING);
}

#[test]
fn waits_complete_only_when_their_condition_holds() {
    let context = Context::start();
    submit(context.wait_eq(0x05, 0xff, 1));
    submit(context.wait_neq(0x100, 0xf00, 2));
    // 0 & 0xf00 differs from 0x100 already.
    assert_eq!(context.wait(1), [(2, 0)]);
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        assert_eq!(context.progress(), 0, "nothing has happened");
    }
    // From a thread without the engine, while the engine sleeps.
    let event = &context.event;
    let set = std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            event.set(0xff05);
            Instant::now()
        });
        assert_eq!(context.wait(2)[1], (1, 0));
        let seen = Instant::now();
        seen.saturating_duration_since(setter.join().expect("it has set"))
    });
    // The engine sleeps for milliseconds at most between polls; a busy machine may add some hundred.
    assert!(set < Duration::from_secs(1), "seen after {set:?}");
}

/// Programs that wait on the engine's descriptor are woken to poll, because a change of a value causes no wake-up.
#[test]
fn an_armed_engine_polls_while_a_task_waits() {
    use rustix::event::{PollFd, PollFlags, Timespec};
    use std::os::fd::BorrowedFd;

    let context = Context::start();
    submit(context.wait_eq(3, u64::MAX, 1));
    let mut handle = -1;
    // SAFETY: a live engine and a valid out-parameter; the descriptor lives as long as the engine.
    let fd = unsafe {
        ok(doca_pe_get_notification_handle(context.pe, &mut handle));
        BorrowedFd::borrow_raw(handle)
    };
    context.progress();
    let wake = |timeout: Duration| {
        let timeout = Timespec::try_from(timeout).expect("a short time");
        // SAFETY: a live engine and its descriptor.
        unsafe {
            ok(doca_pe_request_notification(context.pe));
            let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
            ok(doca_pe_clear_notification(context.pe, handle));
            woken
        }
    };
    assert_eq!(wake(Duration::from_secs(5)), Ok(1));
    assert_eq!(context.progress(), 0);
    context.event.set(3);
    assert_eq!(wake(Duration::from_secs(5)), Ok(1));
    assert_eq!(context.wait(1), [(1, 0)]);
    // No task is pending, so there is no wake-up.
    assert_eq!(wake(Duration::from_millis(20)), Ok(0));
}

#[test]
fn stopping_flushes_waits() {
    let context = Context::start();
    submit(context.wait_eq(1, u64::MAX, 1));
    context.progress();
    // SAFETY: a live handle.
    let stopping = unsafe { doca_ctx_stop(context.ctx()) };
    assert_eq!(stopping, Error::InProgress.code());
    assert_eq!(context.wait(1), [(1, Error::ConnectionAborted.code())]);
}

#[test]
fn task_fields_can_be_set_and_read() {
    let context = Context::start();
    let (one, two) = (Cell::new(0), Cell::new(0));
    macro_rules! check {
        ($task:expr; $($set:ident, $get:ident: $before:expr, $after:expr;)+) => { $(
            assert_eq!($get($task), $before, stringify!($get));
            $set($task, $after);
            assert_eq!($get($task), $after, stringify!($set));
            $set(null_mut(), $before);
            assert_eq!($get(null()), 0);
        )+ };
    }
    // SAFETY: live tasks of their kinds, or NULL.
    unsafe {
        let get = context.get(one.as_ptr(), 1);
        assert_eq!(doca_sync_event_task_get_as_doca_task(get), get.cast());
        assert_eq!(doca_sync_event_task_get_get_ret_val_ptr(get), one.as_ptr());
        doca_sync_event_task_get_set_ret_val_ptr(get, two.as_ptr());
        assert_eq!(doca_sync_event_task_get_get_ret_val_ptr(get), two.as_ptr());
        assert!(doca_sync_event_task_get_get_ret_val_ptr(null()).is_null());

        let set = context.notify_set(3, 2);
        assert_eq!(
            doca_sync_event_task_notify_set_as_doca_task(set),
            set.cast()
        );
        check!(set; doca_sync_event_task_notify_set_set_set_val, doca_sync_event_task_notify_set_get_set_val: 3, 30;);

        let add = context.notify_add(4, one.as_ptr(), 3);
        assert_eq!(
            doca_sync_event_task_notify_add_as_doca_task(add),
            add.cast()
        );
        check!(add; doca_sync_event_task_notify_add_set_inc_val, doca_sync_event_task_notify_add_get_inc_val: 4, 12;);
        assert_eq!(
            doca_sync_event_task_notify_add_get_fetched_val_ptr(add),
            one.as_ptr()
        );
        doca_sync_event_task_notify_add_set_fetched_val_ptr(add, null_mut());
        assert!(doca_sync_event_task_notify_add_get_fetched_val_ptr(add).is_null());

        let eq = context.wait_eq(5, 6, 4);
        assert_eq!(doca_sync_event_task_wait_eq_as_doca_task(eq), eq.cast());
        check!(eq;
            doca_sync_event_task_wait_eq_set_wait_val, doca_sync_event_task_wait_eq_get_wait_val: 5, 2;
            doca_sync_event_task_wait_eq_set_mask, doca_sync_event_task_wait_eq_get_mask: 6, 0xf;);

        let neq = context.wait_neq(7, 8, 5);
        assert_eq!(doca_sync_event_task_wait_neq_as_doca_task(neq), neq.cast());
        check!(neq;
            doca_sync_event_task_wait_neq_set_wait_val, doca_sync_event_task_wait_neq_get_wait_val: 7, 0x2a;
            doca_sync_event_task_wait_neq_set_mask, doca_sync_event_task_wait_neq_get_mask: 8, 0xff;);

        // The values set last apply.
        submit(set);
        context.wait(1);
        submit(add);
        context.wait(2);
        submit(get);
        context.wait(3);
        submit(neq);
        submit(eq);
        context.log.borrow_mut().clear();
        assert_eq!(two.get(), 42);
        assert_eq!(
            context.progress(),
            0,
            "0x2a & 0xf is not 2, and 0x2a & 0xff is 0x2a"
        );
        context.event.set(0x12);
        context.wait(2);
    }
}

#[test]
fn an_event_is_used_with_or_without_its_context() {
    let invalid = Error::InvalidValue.code();
    let state = Error::BadState.code();
    let none = doca_data { u64: 0 };
    // SAFETY: live handles and valid out-parameters, or NULL.
    unsafe {
        let alone = Se::started();
        assert!(doca_sync_event_as_ctx(alone.0).is_null());
        assert!(doca_sync_event_as_ctx(null_mut()).is_null());
        let mut pe = null_mut();
        ok(doca_pe_create(&mut pe));
        ok(doca_pe_connect_ctx(pe, alone.0.cast()));
        assert_eq!(doca_ctx_start(alone.0.cast()), state);
        drop(alone);
        ok(doca_pe_destroy(pe));

        let context = Context::start();
        let event: *mut doca_sync_event = context.event.0;
        assert_eq!(doca_sync_event_start(event), state);
        assert_eq!(doca_sync_event_stop(event), state);
        assert_eq!(doca_sync_event_destroy(event), Error::InUse.code());
        let mut task = null_mut();
        let mut value = 0;
        let alloc = doca_sync_event_task_get_alloc_init;
        assert_eq!(alloc(event, null_mut(), none, &mut task), invalid);
        assert_eq!(alloc(null_mut(), &mut value, none, &mut task), invalid);
        assert_eq!(alloc(event, &mut value, none, null_mut()), invalid);
        let set_conf = doca_sync_event_task_get_set_conf;
        assert_eq!(
            set_conf(event, Some(done), Some(done), 1),
            Error::NotPermitted.code()
        );
        assert_eq!(set_conf(null_mut(), Some(done), Some(done), 1), invalid);
        for _ in 0..2 {
            context.wait_eq(1, 1, 1);
        }
        let mut third = null_mut();
        let full = doca_sync_event_task_wait_eq_alloc_init(event, 1, 1, none, &mut third);
        assert_eq!(full, Error::NoMemory.code());
    }
}
