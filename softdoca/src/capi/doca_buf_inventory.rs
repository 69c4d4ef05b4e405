//! `doca_buf_inventory.h` and `doca_buf_pool.h`: owners of bufs.

use std::ffi::c_void;
use std::rc::Rc;

use doca_abi::{doca_buf, doca_buf_inventory, doca_buf_pool, doca_data, doca_mmap};

use super::doca_buf::handle;
use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give_local, guard, put, reclaim_local, share,
};
use crate::buffer::{BufInventory, BufPool};
use crate::check::{self, Object};
use crate::error::Error;

// SAFETY: inventories are given out by `give_local`.
unsafe impl Handle for doca_buf_inventory {
    type Engine = BufInventory;
    const KEEPER: Keeper = Keeper::Rc;
}

/// Creates an inventory.
///
/// # Safety
/// `inventory` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_create(
    num_elements: usize,
    inventory: *mut *mut doca_buf_inventory,
) -> doca_error_t {
    guard(|| {
        check_out(inventory)?;
        let created = Rc::new(BufInventory::new(num_elements)?);
        // SAFETY: guaranteed by the caller.
        unsafe { put(inventory, give_local(created)) }?;
        check::created(Object::Inventory);
        Ok(())
    })
}

/// Destroys an inventory; `DOCA_ERROR_IN_USE` while bufs are allocated.
///
/// # Safety
/// `inventory` is NULL or live, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_destroy(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(inventory) }?.check_unused()?;
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim_local(inventory) }.map(drop)?;
        check::destroyed(Object::Inventory);
        Ok(())
    })
}

/// Starts an inventory: bufs can be taken.
///
/// # Safety
/// `inventory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_start(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(inventory) }.map(BufInventory::start))
}

/// Stops an inventory: no further bufs can be taken.
///
/// # Safety
/// `inventory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_stop(
    inventory: *mut doca_buf_inventory,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(inventory) }.map(BufInventory::stop))
}

/// Takes a buf with data from an inventory.
///
/// # Safety
/// The handles are NULL or live, the inventory not used by another thread during the call; `buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_args(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(buf)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (inventory, mmap) = (borrow(inventory)?, share(mmap)?);
            let taken = inventory.get_by_args(
                &mmap,
                addr.addr() as u64,
                len,
                data.addr() as u64,
                data_len,
            )?;
            put(buf, handle(taken))
        }
    })
}

/// Takes a buf without data from an inventory.
///
/// # Safety
/// As [`doca_buf_inventory_buf_get_by_args`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_addr(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf) }
}

/// Takes a buf whose data is its whole range.
///
/// # Safety
/// As [`doca_buf_inventory_buf_get_by_args`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_get_by_data(
    inventory: *mut doca_buf_inventory,
    mmap: *mut doca_mmap,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        doca_buf_inventory_buf_get_by_args(inventory, mmap, data, data_len, data, data_len, buf)
    }
}

/// Sets a buf's range and data within its memory map; its links to other bufs are kept.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_args(
    buf: *mut doca_buf,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let buf = unsafe { borrow(buf) }?;
        buf.reuse_by_args(addr.addr() as u64, len, data.addr() as u64, data_len)
    })
}

/// Sets a buf's range, without data.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_addr(
    buf: *mut doca_buf,
    addr: *mut c_void,
    len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { doca_buf_inventory_buf_reuse_by_args(buf, addr, len, addr, 0) }
}

/// Sets a buf's range, all of which becomes its data.
///
/// # Safety
/// `buf` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_reuse_by_data(
    buf: *mut doca_buf,
    data: *mut c_void,
    data_len: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { doca_buf_inventory_buf_reuse_by_args(buf, data, data_len, data, data_len) }
}

/// Takes copies of the descriptors of `src_buf`, a buf or a list.
///
/// # Safety
/// The handles are NULL or live, the inventory not used by another thread during the call; `dst_buf` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_buf_dup(
    inventory: *mut doca_buf_inventory,
    src_buf: *const doca_buf,
    dst_buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(dst_buf)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let taken = borrow(inventory)?.duplicate(borrow(src_buf)?)?;
            put(dst_buf, handle(taken))
        }
    })
}

/// Adds bufs; the inventory must be started.
///
/// # Safety
/// `inventory` is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_expand(
    inventory: *mut doca_buf_inventory,
    num_elements: u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(inventory)?.expand(num_elements as usize) })
}

/// Gets the total number of bufs.
///
/// # Safety
/// `inventory` is NULL or live, and not used by another thread during the call; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_num_elements(
    inventory: *const doca_buf_inventory,
    num_of_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(num_of_elements, count(borrow(inventory)?.count())?) })
}

/// Gets the number of free bufs.
///
/// # Safety
/// `inventory` is NULL or live, and not used by another thread during the call; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_num_free_elements(
    inventory: *const doca_buf_inventory,
    num_of_free_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put(
            num_of_free_elements,
            count(borrow(inventory)?.free_count())?,
        )
    })
}

/// Sets the user data.
///
/// # Safety
/// `inventory` is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_set_user_data(
    inventory: *mut doca_buf_inventory,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller; both views of the union are plain data.
    guard(|| unsafe {
        let inventory = borrow(inventory)?;
        if !inventory.is_started() {
            return Err(Error::BadState
                .because("the user data of an inventory is set after doca_buf_inventory_start"));
        }
        inventory.set_user_data(user_data.u64);
        Ok(())
    })
}

/// Gets the user data.
///
/// # Safety
/// `inventory` is NULL or live, and not used by another thread during the call; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_inventory_get_user_data(
    inventory: *const doca_buf_inventory,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let data = borrow(inventory)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

fn count(bufs: usize) -> crate::error::Result<u32> {
    u32::try_from(bufs).map_err(|_| Error::TooBig)
}

doca_abi::check_definitions!(
    doca_buf_inventory_functions,
    crate::capi::doca_buf_inventory
);

// SAFETY: pools are given out as pointers from `Box::into_raw`.
unsafe impl Handle for doca_buf_pool {
    type Engine = BufPool;
}

/// Creates a pool.
///
/// # Safety
/// `mmap` is NULL or live; `buf_pool` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_create(
    num_elements: usize,
    element_size: usize,
    mmap: *const doca_mmap,
    buf_pool: *mut *mut doca_buf_pool,
) -> doca_error_t {
    guard(|| {
        check_out(buf_pool)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let pool = BufPool::new(num_elements, element_size, share(mmap)?)?;
            put(buf_pool, Box::into_raw(Box::new(pool)).cast())?;
        }
        check::created(Object::BufPool);
        Ok(())
    })
}

/// Destroys a pool; `DOCA_ERROR_IN_USE` while bufs are allocated.
///
/// # Safety
/// `buf_pool` is NULL or live, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_destroy(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(buf_pool) }?.check_unused()?;
        // SAFETY: from `Box::into_raw` in `doca_buf_pool_create`, and taken back once.
        drop(unsafe { Box::from_raw(buf_pool.cast::<BufPool>()) });
        check::destroyed(Object::BufPool);
        Ok(())
    })
}

/// Starts a pool: bufs can be taken.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_start(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.start())
}

/// Stops a pool; `DOCA_ERROR_IN_USE` while bufs are allocated.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_stop(buf_pool: *mut doca_buf_pool) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.stop())
}

/// Takes a buf without data from an inventory.
///
/// # Safety
/// `buf_pool` is NULL or live, and not used by another thread during the call; `buf` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_buf_alloc(
    buf_pool: *mut doca_buf_pool,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    guard(|| {
        check_out(buf)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(buf, handle(borrow(buf_pool)?.take()?)) }
    })
}

/// Sets the user data.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_set_user_data(
    buf_pool: *mut doca_buf_pool,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller; both views of the union are plain data.
    guard(|| unsafe { borrow(buf_pool)?.set_user_data(user_data.u64) })
}

/// Gets the user data.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_user_data(
    buf_pool: *const doca_buf_pool,
    user_data: *mut doca_data,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let data = borrow(buf_pool)?.user_data();
            put(user_data, doca_data { u64: data })
        }
    })
}

/// Sets the alignment of the bufs in bytes.
///
/// # Safety
/// `buf_pool` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_set_element_alignment(
    buf_pool: *mut doca_buf_pool,
    element_alignment: usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(buf_pool) }?.set_alignment(element_alignment))
}

/// Gets the alignment of the bufs in bytes.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_element_alignment(
    buf_pool: *const doca_buf_pool,
    element_alignment: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(element_alignment, borrow(buf_pool)?.alignment()) })
}

/// Gets the total number of bufs.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_num_elements(
    buf_pool: *const doca_buf_pool,
    num_of_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The number of bufs fits into 32 bits.
    guard(|| unsafe { put(num_of_elements, borrow(buf_pool)?.count() as u32) })
}

/// Gets the number of free bufs.
///
/// # Safety
/// `buf_pool` is NULL or live; the out-parameter is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_buf_pool_get_num_free_elements(
    buf_pool: *const doca_buf_pool,
    num_of_free_elements: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The number of bufs fits into 32 bits.
    guard(|| unsafe { put(num_of_free_elements, borrow(buf_pool)?.free_count() as u32) })
}

doca_abi::check_definitions!(doca_buf_pool_functions, crate::capi::doca_buf_inventory);

#[cfg(test)]
mod tests {
    use std::ptr::{null_mut, without_provenance_mut};

    use doca_abi::{
        DOCA_ERROR_BAD_STATE, DOCA_ERROR_IN_USE, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NO_MEMORY,
        DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS,
    };

    use super::super::doca_buf::*;
    use super::super::doca_mmap::*;
    use super::*;

    /// Head, length, data, data length.
    fn view(buf: *const doca_buf) -> (*mut c_void, usize, *mut c_void, usize) {
        let (mut head, mut len, mut data, mut data_len) = (null_mut(), 0, null_mut(), 0);
        // SAFETY: a live buf and out-pointers.
        unsafe {
            assert_eq!(doca_buf_get_head(buf, &mut head), DOCA_SUCCESS);
            assert_eq!(doca_buf_get_len(buf, &mut len), DOCA_SUCCESS);
            assert_eq!(doca_buf_get_data(buf, &mut data), DOCA_SUCCESS);
            assert_eq!(doca_buf_get_data_len(buf, &mut data_len), DOCA_SUCCESS);
        }
        (head, len, data, data_len)
    }

    #[test]
    fn a_program_takes_retargets_chains_and_returns_bufs() {
        let mut memory = [0_u8; 100];
        let base = memory.as_mut_ptr();
        let at = |offset: usize| base.wrapping_add(offset).cast::<c_void>();
        let (mut mmap, mut inventory) = (null_mut(), null_mut());
        let (mut a, mut b, mut c, mut next, mut count) =
            (null_mut(), null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: live handles and out-pointers; the memory outlives the map.
        unsafe {
            assert_eq!(doca_mmap_create(&mut mmap), DOCA_SUCCESS);
            assert_eq!(doca_mmap_set_memrange(mmap, at(0), 100), DOCA_SUCCESS);
            assert_eq!(doca_mmap_start(mmap), DOCA_SUCCESS);
            assert_eq!(
                doca_buf_inventory_create(0, &mut inventory),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(doca_buf_inventory_create(2, &mut inventory), DOCA_SUCCESS);
            let by_addr = |addr, len, buf| {
                doca_buf_inventory_buf_get_by_addr(inventory, mmap, addr, len, buf)
            };
            assert_eq!(by_addr(at(0), 10, &mut a), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_buf_inventory_start(inventory), DOCA_SUCCESS);
            assert_eq!(by_addr(at(1), 100, &mut a), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(
                by_addr(without_provenance_mut(usize::MAX), 2, &mut a),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(by_addr(at(0), 10, &mut a), DOCA_SUCCESS);
            assert_eq!(view(a), (at(0), 10, at(0), 0));
            assert_eq!(
                doca_buf_inventory_buf_get_by_data(inventory, mmap, at(20), 30, &mut b),
                DOCA_SUCCESS
            );
            assert_eq!(view(b), (at(20), 30, at(20), 30));
            assert_eq!(by_addr(at(0), 10, &mut c), DOCA_ERROR_NO_MEMORY);

            assert_eq!(doca_buf_set_data(a, at(4), 97), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(doca_buf_set_data(a, at(4), 7), DOCA_SUCCESS);
            assert_eq!(doca_buf_set_data(a, at(4), 6), DOCA_SUCCESS);
            assert_eq!(view(a), (at(0), 10, at(4), 6));
            assert_eq!(doca_buf_reset_data_len(a), DOCA_SUCCESS);
            assert_eq!(view(a), (at(0), 10, at(4), 0));

            assert_eq!(doca_buf_chain_list(a, b), DOCA_SUCCESS);
            assert_eq!(doca_buf_get_next_in_list(a, &mut next), DOCA_SUCCESS);
            assert_eq!(next, b);
            assert_eq!(
                doca_buf_inventory_buf_reuse_by_addr(b, at(50), 50),
                DOCA_SUCCESS
            );
            assert_eq!(view(b), (at(50), 50, at(50), 0));
            assert_eq!(
                doca_buf_inventory_buf_reuse_by_data(b, at(51), 50),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_buf_inventory_buf_reuse_by_data(b, at(0), 100),
                DOCA_SUCCESS
            );
            assert_eq!(
                doca_buf_inventory_buf_reuse_by_args(b, at(10), 20, at(11), 19),
                DOCA_SUCCESS
            );
            assert_eq!(view(b), (at(10), 20, at(11), 19));
            assert_eq!(
                doca_buf_inventory_buf_reuse_by_args(b, at(10), 20, at(11), 20),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(doca_buf_get_next_in_list(b, &mut next), DOCA_SUCCESS);
            assert!(next.is_null());

            assert_eq!(doca_buf_inventory_destroy(inventory), DOCA_ERROR_IN_USE);
            assert_eq!(doca_mmap_destroy(mmap), DOCA_ERROR_NOT_PERMITTED);
            assert_eq!(
                doca_buf_dec_refcount(b, null_mut()),
                DOCA_ERROR_NOT_PERMITTED
            );
            assert_eq!(doca_buf_dec_refcount(a, &mut count), DOCA_SUCCESS);
            assert_eq!(count, 1);
            assert_eq!(doca_buf_dec_refcount(a, null_mut()), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_buf_inventory_stop(inventory), DOCA_SUCCESS);
            assert_eq!(by_addr(at(0), 10, &mut a), DOCA_ERROR_BAD_STATE);
            assert_eq!(doca_buf_inventory_destroy(inventory), DOCA_SUCCESS);
            assert_eq!(doca_mmap_destroy(mmap), DOCA_SUCCESS);
        }
    }

    #[test]
    fn null_is_refused() {
        let mut buf = null_mut();
        // SAFETY: NULL is refused, which this test checks.
        unsafe {
            let get =
                doca_buf_inventory_buf_get_by_addr(null_mut(), null_mut(), null_mut(), 1, &mut buf);
            assert_eq!(get, DOCA_ERROR_INVALID_VALUE);
            assert_eq!(
                doca_buf_inventory_create(1, null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_buf_inventory_destroy(null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_buf_chain_list(null_mut(), null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_buf_get_data(null_mut(), &mut null_mut()),
                DOCA_ERROR_INVALID_VALUE
            );
        }
    }
}
