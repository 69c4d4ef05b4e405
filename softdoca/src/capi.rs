//! The C API over the engine: each file implements one DOCA header, or the headers of one kind of object; `earlier`
//! contains the functions that exist only in earlier releases.
//!
//! A function in this module checks its pointers, calls the engine and maps the result to a `doca_error_t`. No panic
//! crosses into C, and no other module defines `extern "C"` functions for programs.

mod doca_aes_gcm;
mod doca_argp;
mod doca_buf;
mod doca_buf_inventory;
mod doca_clock;
mod doca_comch;
mod doca_comm_channel;
mod doca_compress;
mod doca_dev;
mod doca_dma;
mod doca_erasure_coding;
mod doca_error;
mod doca_graph;
mod doca_log;
mod doca_mmap;
mod doca_mmap_advise;
mod doca_pe;
mod doca_rdma;
mod doca_sha;
mod doca_sync_event;
mod earlier;
mod instance;
#[cfg(test)]
pub(crate) mod testing;

pub use doca_abi::{DOCA_SUCCESS, doca_error_t};

use std::any::Any;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::{self, Rc};
use std::sync::{self, Arc, Mutex, PoisonError};

use doca_abi::{FILE, doca_data, doca_devinfo, doca_task};

use crate::accelerator::BufSlot;
use crate::buffer::BufHandle;
use crate::check::{self, Mistake};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, TaskCallback, TaskOf};

/// Runs the body of a C function: a panic becomes `DOCA_ERROR_UNEXPECTED`.
#[inline(always)]
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> doca_error_t {
    guard_with(Error::Unexpected.code(), || match body() {
        Ok(()) => DOCA_SUCCESS,
        Err(error) => error.code(),
    })
}

/// As [`guard`], for functions that do not return an error: `fallback` is returned after a panic.
#[inline(always)]
pub(crate) fn guard_with<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    // The engine is responsible for unwind safety: it handles poisoning for every lock.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        report_panic(panic);
        fallback
    })
}

/// Not inlined, because panics are rare: inlining would make every C function save registers.
#[cold]
#[inline(never)]
fn report_panic(panic: Box<dyn Any + Send>) {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    let _ = Error::Unexpected.because(format_args!("a bug in softdoca, please report it: {text}"));
}

/// Ties an opaque C handle type to the engine's type behind it.
///
/// # Safety
/// Every non-null pointer of this C type that softdoca gives out points to a live `Engine`, until the C call that destroys it.
pub(crate) unsafe trait Handle: Sized {
    /// The engine's type behind the pointer.
    type Engine;

    /// Ownership of the object by its handle.
    const KEEPER: Keeper = Keeper::Other;
}

/// Ownership of an object by its C handle; determines how a use after destruction is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The handle owns a reference from [`give`].
    Arc,
    /// The handle owns a reference from [`give_local`].
    Rc,
    /// No list: another object owns it.
    Other,
}

/// Refuses a destroyed handle if [checks](crate::check) are on. Otherwise its memory may have been reused and is not
/// accessed.
///
/// # Safety
/// `handle` is not NULL, and a handle of this type that softdoca has given out.
#[inline(always)]
unsafe fn check_not_destroyed<H: Handle>(handle: *const H) -> Result<()> {
    if !matches!(H::KEEPER, Keeper::Other) && check::is_on() {
        // SAFETY: guaranteed by the caller.
        return unsafe { check_references(handle) };
    }
    Ok(())
}

/// # Safety
/// As [`check_not_destroyed`], and programs are checked: the memory of destroyed objects is kept.
#[cold]
unsafe fn check_references<H: Handle>(handle: *const H) -> Result<()> {
    let object = handle.cast::<H::Engine>();
    let references = match H::KEEPER {
        // SAFETY: the pointer is from `Arc::into_raw`; `reclaim` has left a weak reference, or strong references exist.
        Keeper::Arc => ManuallyDrop::new(unsafe { sync::Weak::from_raw(object) }).strong_count(),
        // SAFETY: the same for `Rc::into_raw`.
        Keeper::Rc => ManuallyDrop::new(unsafe { rc::Weak::from_raw(object) }).strong_count(),
        Keeper::Other => 1,
    };
    if references != 0 {
        return Ok(());
    }
    let name = name_of::<H>();
    check::report(
        Mistake::DestroyedHandleUsed,
        format_args!("{name} {handle:p}"),
    );
    Err(Error::BadState.because(format_args!("the {name} {handle:p} was destroyed")))
}

#[inline(always)]
fn not_null<T>(pointer: *const T) -> Result<()> {
    if pointer.is_null() {
        return Err(null(name_of::<T>()));
    }
    Ok(())
}

/// Name of a C type.
fn name_of<T>() -> &'static str {
    let path = std::any::type_name::<T>();
    path.rsplit("::").next().unwrap_or(path)
}

#[cold]
#[inline(never)]
fn null(name: &str) -> Error {
    Error::InvalidValue.because(format_args!("expected a pointer to {name}, got NULL"))
}

/// Borrows the engine's object behind a handle; NULL is `InvalidValue`.
///
/// # Safety
/// `handle` is NULL or a live handle, and stays live for `'a`.
#[inline(always)]
pub(crate) unsafe fn borrow<'a, H: Handle>(handle: *const H) -> Result<&'a H::Engine> {
    not_null(handle)?;
    // SAFETY: not null; the handle is live, guaranteed by the caller, or recognised as destroyed.
    unsafe { check_not_destroyed(handle) }?;
    // SAFETY: not null, and by `Handle` and the caller's guarantee it points to a live engine object.
    Ok(unsafe { &*handle.cast::<H::Engine>() })
}

/// Creates a handle that owns one reference to `object`. Taken back with [`reclaim`].
pub(crate) fn give<H: Handle>(object: Arc<H::Engine>) -> *mut H {
    Arc::into_raw(object).cast_mut().cast::<H>()
}

/// Adds a reference to the object behind a handle created by [`give`].
///
/// # Safety
/// As [`borrow`]; the handle came from [`give`].
pub(crate) unsafe fn share<H: Handle>(handle: *const H) -> Result<Arc<H::Engine>> {
    not_null(handle)?;
    // SAFETY: as in `borrow`.
    unsafe { check_not_destroyed(handle) }?;
    let pointer = handle.cast::<H::Engine>();
    // SAFETY: the handle is a pointer from `Arc::into_raw` whose reference is still alive; it gets a second one here.
    Ok(unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    })
}

/// Takes back the reference that the handle owns; the handle is invalid afterwards.
///
/// # Safety
/// As [`share`], and C does not use the handle again.
pub(crate) unsafe fn reclaim<H: Handle>(handle: *mut H) -> Result<Arc<H::Engine>> {
    not_null(handle)?;
    // SAFETY: as in `borrow`.
    unsafe { check_not_destroyed(handle.cast_const()) }?;
    // SAFETY: from `Arc::into_raw` in `give`, and taken back only once, guaranteed by the caller.
    let object = unsafe { Arc::from_raw(handle.cast_const().cast::<H::Engine>()) };
    if check::is_on() {
        keep(Arc::downgrade(&object));
    }
    Ok(object)
}

/// Creates a handle that owns one reference to a single-threaded object. Taken back with [`reclaim_local`].
pub(crate) fn give_local<H: Handle>(object: Rc<H::Engine>) -> *mut H {
    Rc::into_raw(object).cast_mut().cast::<H>()
}

/// Adds a reference to the object behind a handle created by [`give_local`].
///
/// # Safety
/// As [`borrow`]; the handle came from [`give_local`], and no other thread uses the object meanwhile.
pub(crate) unsafe fn share_local<H: Handle>(handle: *const H) -> Result<Rc<H::Engine>> {
    not_null(handle)?;
    // SAFETY: as in `borrow`.
    unsafe { check_not_destroyed(handle) }?;
    let pointer = handle.cast::<H::Engine>();
    // SAFETY: the handle is a pointer from `Rc::into_raw` whose reference is still alive; it gets a second one here.
    Ok(unsafe {
        Rc::increment_strong_count(pointer);
        Rc::from_raw(pointer)
    })
}

/// Takes back the reference that the handle owns; the handle is invalid afterwards.
///
/// # Safety
/// As [`share_local`], and C does not use the handle again.
pub(crate) unsafe fn reclaim_local<H: Handle>(handle: *mut H) -> Result<Rc<H::Engine>> {
    not_null(handle)?;
    // SAFETY: as in `borrow`.
    unsafe { check_not_destroyed(handle.cast_const()) }?;
    // SAFETY: from `Rc::into_raw` in `give_local`, and taken back only once, guaranteed by the caller.
    let object = unsafe { Rc::from_raw(handle.cast_const().cast::<H::Engine>()) };
    if check::is_on() {
        keep(Rc::downgrade(&object));
    }
    Ok(object)
}

/// Keeps the memory of a destroyed object until the process exits, so that a later use of its handle is detected:
/// stores a weak reference in a list, where leak checkers find it.
#[cold]
fn keep<W>(weak: W) {
    struct Kept(#[expect(dead_code, reason = "kept for leak checkers")] *const ());
    // SAFETY: the pointer is never followed.
    unsafe impl Send for Kept {}
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    let kept = Kept(Box::into_raw(Box::new(weak)).cast());
    KEPT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(kept);
}

/// Writes a NULL-terminated array of handles, which can be freed without its length. Taken back with [`take_list`].
///
/// # Safety
/// The out-parameters are NULL or writable.
pub(crate) unsafe fn put_list<H>(
    handles: impl IntoIterator<Item = *mut H>,
    list: *mut *mut *mut H,
    count: *mut u32,
) -> Result<()> {
    check_out(list)?;
    check_out(count)?;
    let handles: Box<[*mut H]> = handles.into_iter().chain([std::ptr::null_mut()]).collect();
    let len = u32::try_from(handles.len() - 1).map_err(|_| Error::TooBig)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        put(count, len)?;
        put(list, Box::into_raw(handles).cast())
    }
}

/// Takes back an array created by [`put_list`], including the terminating NULL.
///
/// # Safety
/// `list` is NULL or such an array, not used afterwards.
pub(crate) unsafe fn take_list<H>(list: *mut *mut H) -> Result<Box<[*mut H]>> {
    check_out(list)?;
    let mut len = 0;
    // SAFETY: the array ends with a NULL, and was a box of that length.
    unsafe {
        while !(*list.add(len)).is_null() {
            len += 1;
        }
        Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            list,
            len + 1,
        )))
    }
}

/// Refuses a NULL out-parameter before the call has any effect.
pub(crate) fn check_out<T>(out: *mut T) -> Result<()> {
    not_null(out.cast_const())
}

/// Writes an out-parameter; NULL is `InvalidValue`.
///
/// # Safety
/// `out` is NULL or valid for writing a `T`.
#[inline(always)]
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    not_null(out.cast_const())?;
    // SAFETY: not null, and writable guaranteed by the caller.
    unsafe { out.write(value) };
    Ok(())
}

/// Copies a string to `out`, a buffer of `size` bytes, with a terminating NUL; a longer text is `TooBig`.
///
/// # Safety
/// `out` is NULL or valid for writing `size` bytes.
pub(crate) unsafe fn put_text(out: *mut std::ffi::c_char, size: usize, text: &str) -> Result<()> {
    check_out(out)?;
    if text.len() >= size {
        return Err(Error::TooBig.because(format_args!(
            "{text:?} needs {} bytes, the caller has {size}",
            text.len() + 1
        )));
    }
    // SAFETY: `out` is large enough for the text and its NUL, and cannot overlap a Rust string.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// A string argument from C; NULL and bytes that are not UTF-8 are `InvalidValue`.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives for `'a`.
pub(crate) unsafe fn text<'a>(text: *const std::ffi::c_char) -> Result<&'a str> {
    not_null(text)?;
    // SAFETY: not null, terminated and alive guaranteed by the caller.
    unsafe { std::ffi::CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Error::InvalidValue.because("expected a UTF-8 string, got other bytes"))
}

/// Borrows bytes from C. NULL is `InvalidValue` unless `len` is 0.
///
/// # Safety
/// `data` is NULL or valid for reading `len` bytes for `'a`, and not written in the meantime.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    not_null(data)?;
    if isize::try_from(len).is_err() {
        return Err(Error::InvalidValue.because(format_args!(
            "expected a length of at most isize::MAX bytes, got {len}"
        )));
    }
    // SAFETY: not null, readable and unchanging, guaranteed by the caller, and not longer than an object can be.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A stream of the C library, so that softdoca's output is ordered with the program's.
struct Stream(*mut libc::FILE);

// SAFETY: stdio locks its streams, and it stays open.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

unsafe extern "C" {
    // The C library's symbols.
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

impl Stream {
    /// # Safety
    /// `stream` is open, and stays so.
    unsafe fn new(stream: *mut FILE) -> Stream {
        Stream(stream.cast())
    }

    fn output() -> Stream {
        // SAFETY: set before `main`, and no program assigns to it.
        Stream(unsafe { stdout })
    }

    fn errors() -> Stream {
        // SAFETY: as above.
        Stream(unsafe { stderr })
    }

    /// Writes and flushes a text. Failures are ignored, because they cannot be reported.
    fn write(&self, text: &str) {
        // SAFETY: an open stream, and a buffer of the stated size.
        unsafe {
            libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0);
            libc::fflush(self.0);
        }
    }
}

/// Runs `action` on the context behind an instance's handle, and on its driver.
///
/// # Safety
/// `instance` is NULL or a live instance, not used by another thread during the call.
unsafe fn with_driver<H: Handle<Engine = Ctx>, D: Driver, T>(
    instance: *const H,
    action: impl FnOnce(&Ctx, &D) -> Result<T>,
) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let ctx = unsafe { borrow(instance) }?;
    action(ctx, ctx.driver_as::<D>()?)
}

/// The generic task of a task of any kind, which starts with the header.
fn as_task<H: Handle<Engine = TaskOf<B>>, B>(task: *mut H) -> *mut doca_task {
    task.cast()
}

/// Converts a buf argument of a task, which may be NULL.
///
/// # Safety
/// `handle` is NULL or a buf that stays valid while the task is in flight.
unsafe fn buf(handle: *const doca_abi::doca_buf) -> Option<BufHandle> {
    // SAFETY: guaranteed by the caller.
    (!handle.is_null()).then(|| unsafe { BufHandle::new(&*handle.cast()) })
}

/// The handle of a task's buf.
fn buf_handle(buf: Option<BufHandle>) -> *mut doca_abi::doca_buf {
    buf.map_or(std::ptr::null_mut(), |buf| buf.as_ptr().cast())
}

/// Converts a completion callback of one kind of task to the generic type.
fn generic<H: Handle>(
    callback: Option<unsafe extern "C" fn(*mut H, doca_data, doca_data)>,
) -> Option<TaskCallback> {
    // SAFETY: the two types differ only in the pointee of the first argument, a thin pointer; the passed task is always
    // of the kind that the callback was set for.
    callback.map(|callback| unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut H, doca_data, doca_data), TaskCallback>(
            callback,
        )
    })
}

/// `DOCA_SUCCESS` for every device.
fn supported(devinfo: *const doca_devinfo) -> doca_error_t {
    guard(|| not_null(devinfo))
}

/// Writes a limit common to all devices.
///
/// # Safety
/// `out` is NULL or writable. `object`, which has the limit, may be any pointer.
unsafe fn put_limit<H, T>(object: *const H, out: *mut T, limit: T) -> doca_error_t {
    guard(|| {
        not_null(object)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, limit) }
    })
}

/// Allocates a task and writes it to an out-parameter.
///
/// # Safety
/// `out` is NULL or writable.
unsafe fn put_task<H: Handle<Engine = TaskOf<B>>, B>(
    out: *mut *mut H,
    allocate: impl FnOnce() -> Result<NonNull<TaskOf<B>>>,
) -> Result<()> {
    check_out(out)?;
    let task = allocate()?;
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, task.as_ptr().cast::<H>()) }
}

/// A field of a task's body that can be set and read as a C type.
trait Slot<C> {
    /// # Safety
    /// If the value is a pointer, it is NULL or stays valid while the task is in flight.
    unsafe fn put(&self, value: C);

    fn value(&self) -> C;
}

impl Slot<*mut doca_abi::doca_buf> for BufSlot {
    unsafe fn put(&self, value: *mut doca_abi::doca_buf) {
        // SAFETY: guaranteed by the caller.
        self.set(unsafe { buf(value) });
    }

    fn value(&self) -> *mut doca_abi::doca_buf {
        buf_handle(self.get())
    }
}

impl Slot<*const doca_abi::doca_buf> for BufSlot {
    unsafe fn put(&self, value: *const doca_abi::doca_buf) {
        // SAFETY: guaranteed by the caller.
        self.set(unsafe { buf(value) });
    }

    fn value(&self) -> *const doca_abi::doca_buf {
        buf_handle(self.get())
    }
}

macro_rules! plain_slots {
    ($($c:ty),*) => { $(
        impl Slot<$c> for Cell<$c> {
            unsafe fn put(&self, value: $c) {
                self.set(value);
            }

            fn value(&self) -> $c {
                self.get()
            }
        }
    )* };
}
plain_slots!(u32, u64, *mut u64);

/// Value returned for a NULL task.
trait Nothing {
    const NOTHING: Self;
}

impl<T> Nothing for *mut T {
    const NOTHING: Self = std::ptr::null_mut();
}

impl<T> Nothing for *const T {
    const NOTHING: Self = std::ptr::null();
}

impl Nothing for u8 {
    const NOTHING: Self = 0;
}

impl Nothing for u32 {
    const NOTHING: Self = 0;
}

impl Nothing for u64 {
    const NOTHING: Self = 0;
}

/// Changes the body of a task; no effect on NULL.
///
/// # Safety
/// `task` is NULL or a live task, not used by another thread during the call.
unsafe fn set<H: Handle<Engine = TaskOf<B>>, B: 'static>(
    task: *mut H,
    change: impl FnOnce(&B) -> Result<()>,
) {
    // SAFETY: guaranteed by the caller.
    let _ = guard(|| change(&unsafe { borrow(task) }?.body));
}

/// Reads the body of a task.
///
/// # Safety
/// As [`set`].
unsafe fn get<H: Handle<Engine = TaskOf<B>>, B: 'static, C: Nothing>(
    task: *const H,
    look: impl FnOnce(&B) -> C,
) -> C {
    // SAFETY: guaranteed by the caller.
    guard_with(C::NOTHING, || match unsafe { borrow(task) } {
        Ok(task) => look(&task.body),
        Err(_) => C::NOTHING,
    })
}

/// Defines `is_supported`, `set_conf` and `as_task` of a kind of task. `$pool` maps the driver to the pool.
macro_rules! task_kind {
    (
        $task:ident of $instance:ident, pool $pool:expr;
        $is_supported:ident, $set_conf:ident($callback:ident), $as_task:ident
    ) => {
        /// `DOCA_SUCCESS` for every device.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_supported(
            devinfo: *const doca_abi::doca_devinfo,
        ) -> doca_abi::doca_error_t {
            $crate::capi::supported(devinfo)
        }

        /// Sets the callbacks and the number of tasks; only before the start.
        ///
        /// # Safety
        /// The instance is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_conf(
            instance: *mut $instance,
            completion_cb: doca_abi::$callback,
            error_cb: doca_abi::$callback,
            num_tasks: u32,
        ) -> doca_abi::doca_error_t {
            use $crate::capi::{generic, with_driver};
            let (success, failure) = (generic(completion_cb), generic(error_cb));
            // SAFETY: guaranteed by the caller.
            $crate::capi::guard(|| unsafe {
                with_driver(instance, |ctx, driver| {
                    $pool(driver).configure(ctx, success, failure, num_tasks)
                })
            })
        }

        /// The generic task.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_task(task: *mut $task) -> *mut doca_abi::doca_task {
            $crate::capi::as_task(task)
        }
    };
}
use task_kind;

/// Defines setters and getters of fields of a task's body: `set, get
macro_rules! task_slots {
    ($task:ident: $($set:ident, $get:ident => $what:literal: $slot:ident as $c:ty;)+) => { $(
        #[doc = concat!("Sets the task's ", $what, "; not while it is in flight.")]
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; a pointer is NULL or stays valid
        /// while the task is in flight.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(task: *mut $task, value: $c) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::set(task, |body| {
                    $crate::capi::Slot::<$c>::put(&body.$slot, value);
                    Ok(())
                });
            }
        }

        #[doc = concat!("The ", $what, "; 0 or NULL for a NULL task.")]
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(task: *const $task) -> $c {
            // SAFETY: guaranteed by the caller.
            unsafe {
                $crate::capi::get(task, |body| {
                    $crate::capi::Slot::<$c>::value(&body.$slot)
                })
            }
        }
    )+ };
}
use task_slots;

/// Defines the functions of an accelerator's kind of task: [`task_kind!`] and the accessors of its bufs.
macro_rules! task_functions {
    (
        $task:ident of $instance:ident, pool $pool:expr;
        $is_supported:ident, $set_conf:ident($callback:ident), $as_task:ident,
        $set_source:ident, $get_source:ident, $set_destination:ident, $get_destination:ident
    ) => {
        $crate::capi::task_kind! {
            $task of $instance, pool $pool;
            $is_supported, $set_conf($callback), $as_task
        }
        $crate::capi::task_slots! {
            $task:
            $set_source, $get_source => "source": source as *const doca_abi::doca_buf;
            $set_destination, $get_destination => "destination": destination as *mut doca_abi::doca_buf;
        }
    };
}
use task_functions;

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use doca_abi::{doca_dma, doca_dma_task_memcpy};

    use super::doca_buf::{doca_buf_dec_refcount, doca_buf_set_data};
    use super::doca_buf_inventory::{doca_buf_inventory_create, doca_buf_inventory_destroy};
    use super::doca_dev::doca_devinfo_create_list;
    use super::doca_dma::*;
    use super::doca_mmap::*;
    use super::doca_pe::*;
    use super::testing::{Bufs, Instance, Memory, Placement, c, child, done, ok, with_device};
    use super::*;

    #[test]
    fn a_panic_becomes_unexpected() {
        assert_eq!(guard(|| panic!("on purpose")), Error::Unexpected.code());
        assert_eq!(guard(|| Err(Error::Full)), Error::Full.code());
        assert_eq!(guard(|| Ok(())), DOCA_SUCCESS);
    }

    #[test]
    fn null_and_long_texts_are_refused() {
        // SAFETY: NULL, or a buffer of the stated size.
        unsafe {
            assert_eq!(
                put::<u32>(std::ptr::null_mut(), 1),
                Err(Error::InvalidValue)
            );
            let mut buffer = [1 as std::ffi::c_char; 4];
            assert_eq!(put_text(buffer.as_mut_ptr(), 4, "abcd"), Err(Error::TooBig));
            assert_eq!(put_text(buffer.as_mut_ptr(), 4, "abc"), Ok(()));
            assert_eq!(text(buffer.as_ptr()), Ok("abc"));
            assert_eq!(text(std::ptr::null()), Err(Error::InvalidValue));
            assert_eq!(bytes(std::ptr::null(), 0), Ok(&[][..]));
            assert_eq!(bytes(std::ptr::null(), 1), Err(Error::InvalidValue));
        }
    }

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
            // SAFETY: a live task, or a task that has already been freed, which is refused.
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
                "instance after destroy" => with_device(|dev| {
                    use super::{doca_aes_gcm::*, doca_compress::*};
                    use super::{doca_erasure_coding::*, doca_sha::*};
                    macro_rules! destroyed {
                        ($($create:ident, $destroy:ident;)+) => { $(
                            let mut instance = null_mut();
                            ok($create(dev, &mut instance));
                            ok($destroy(instance));
                            assert_eq!($destroy(instance), Error::BadState.code());
                        )+ };
                    }
                    destroyed! {
                        doca_aes_gcm_create, doca_aes_gcm_destroy;
                        doca_compress_create, doca_compress_destroy;
                        doca_dma_create, doca_dma_destroy;
                        doca_ec_create, doca_ec_destroy;
                        doca_sha_create, doca_sha_destroy;
                    }
                }),
                other => panic!("no mistake {other}"),
            }
        }
    }

    /// Run by the tests below in a separate process.
    #[test]
    fn mistaken_child() {
        if let Ok(mistake) = std::env::var(MISTAKE) {
            make(&mistake);
        }
    }

    /// The reports of a process that makes a mistake.
    fn reports(mistake: &str, check: &str) -> Vec<String> {
        let environment = [(MISTAKE, mistake), ("SOFTDOCA_CHECK", check)];
        let output = child("capi::tests::mistaken_child", &environment);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{mistake}: {text}");
        let of_check = |line: &&str| line.contains("SOFTDOCA_CHECK");
        text.lines().filter(of_check).map(str::to_owned).collect()
    }

    /// `true` if a report is of this kind, and about this type of object.
    fn names(report: &str, kind: Mistake, object: &str) -> bool {
        report.contains(&format!("SOFTDOCA_CHECK: {}: {object}", kind.what()))
    }

    #[track_caller]
    fn reported_once(mistake: &str, kind: Mistake, object: &str) {
        let reports = reports(mistake, "1");
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(names(&reports[0], kind, object), "{reports:?}");
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
        reported_once("free in flight", Mistake::TaskFreedInFlight, "task 0x");
    }

    #[test]
    fn a_task_that_is_freed_twice() {
        reported_once("free twice", Mistake::TaskFreedTwice, "task 0x");
    }

    #[test]
    fn a_task_that_is_used_after_it_was_freed() {
        let reports = reports("use after free", "1");
        // The fixture frees it again.
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert!(
            names(&reports[0], Mistake::TaskUsedAfterFree, "task 0x"),
            "{reports:?}"
        );
    }

    #[test]
    fn a_task_that_is_submitted_twice() {
        reported_once("submit twice", Mistake::TaskSubmittedTwice, "task 0x");
    }

    #[test]
    fn a_context_that_is_destroyed_while_it_runs() {
        reported_once(
            "destroy running",
            Mistake::ContextDestroyedRunning,
            "context 0x",
        );
    }

    #[test]
    fn a_buf_that_leaves_its_memory() {
        reported_once("buf outside", Mistake::BufOutside, "50 bytes at 0x");
    }

    #[test]
    fn data_outside_of_its_buf_that_is_accepted() {
        reported_once("data outside", Mistake::DataOutsideBuf, "30 bytes at 0x");
    }

    #[test]
    fn memory_that_its_owner_has_withdrawn() {
        reported_once("withdrawn", Mistake::WithdrawnMemoryUsed, "8 bytes at 0x");
    }

    #[test]
    fn objects_that_are_used_after_they_were_destroyed() {
        // Undefined without the check.
        let reports = reports("use after destroy", "1");
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(
            names(&reports[0], Mistake::DestroyedHandleUsed, "doca_mmap 0x"),
            "{reports:?}"
        );
    }

    #[test]
    fn instances_of_all_accelerators_that_are_used_after_they_were_destroyed() {
        // All are refused, and the first one is reported.
        let reports = reports("instance after destroy", "1");
        assert_eq!(reports.len(), 1, "{reports:?}");
        let object = "doca_aes_gcm 0x";
        assert!(
            names(&reports[0], Mistake::DestroyedHandleUsed, object),
            "{reports:?}"
        );
    }

    #[test]
    fn a_buf_that_is_returned_twice() {
        reported_once("buf back twice", Mistake::BufReturnedTwice, "buf 0x");
    }

    #[test]
    fn a_map_destroyed_before_its_bufs() {
        reported_once("mmap with bufs", Mistake::MmapDestroyedWithBufs, "mmap 0x");
    }

    #[test]
    fn objects_that_are_not_destroyed() {
        let objects = "1 list of devices, 2 doca_mmap, 1 doca_pe;";
        reported_once("leak", Mistake::Leak, objects);
    }

    #[test]
    fn a_program_without_mistakes_gets_no_report() {
        assert_eq!(reports("nothing", "1"), [""; 0]);
    }

    /// A program that has the notification handle polls the engine when the handle is readable, and does other work
    /// otherwise.
    #[test]
    fn a_thread_whose_program_has_the_notification_handle_does_not_sleep() {
        let (mut pe, mut handle) = (std::ptr::null_mut(), -1);
        // SAFETY: an engine of this thread, and valid out-parameters.
        unsafe {
            assert_eq!(doca_pe_create(&mut pe), 0);
            assert_eq!(doca_pe_get_notification_handle(pe, &mut handle), 0);
        }
        let started = std::time::Instant::now();
        let sleep = std::time::Duration::from_secs(1);
        crate::progress::with_sleeps_of(sleep, || {
            // SAFETY: the engine is live, and of this thread.
            (0..2000).for_each(|_| _ = unsafe { doca_pe_progress(pe) });
        });
        let took = started.elapsed();
        assert!(took < 100 * sleep, "2000 calls took {took:?}");
        // SAFETY: live, without contexts, and not used afterwards.
        assert_eq!(unsafe { doca_pe_destroy(pe) }, 0);
    }
}
