//! The C API over the engine: a file implements one DOCA header, or the headers of one kind of object.
//!
//! A function in this module checks its pointers, calls the engine and maps the result to a `doca_error_t`. No panic
//! crosses into C, and no other module defines `extern "C"` functions for programs.

#[cfg(test)]
mod checks;
mod doca_aes_gcm;
mod doca_argp;
mod doca_buf;
mod doca_buf_inventory;
mod doca_clock;
mod doca_comch;
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
mod task;
#[cfg(test)]
pub(crate) mod testing;

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{self, Rc};
use std::sync::{self, Arc, Mutex, PoisonError};

use doca_abi::FILE;
pub use doca_abi::{DOCA_SUCCESS, doca_error_t};

use crate::check::{self, Mistake};
use crate::error::{Error, Result};

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
    // Unwind safety is up to the engine: it handles the poisoning of every lock.
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

/// Ownership of an object by its C handle; decides how a use after destruction is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The handle owns a reference from [`give`].
    Arc,
    /// The handle owns a reference from [`give_local`].
    Rc,
    /// None: another object owns it.
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
        // SAFETY: the pointer is from `Arc::into_raw`; `reclaim` has left a weak reference, or there are strong ones.
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

/// Keeps the memory of a destroyed object until the process exits, so that a later use of its handle is recognised:
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

    /// Writes and flushes a text. Failures are ignored: they cannot be reported.
    fn write(&self, text: &str) {
        // SAFETY: an open stream, and a buffer of the stated size.
        unsafe {
            libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0);
            libc::fflush(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
