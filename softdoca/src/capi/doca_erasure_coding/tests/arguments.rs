//! What tasks and matrices are given, and what is refused.

use super::*;

#[test]
fn bad_tasks_fail_and_the_context_goes_on() {
    let (ec, memory, bufs) = (
        start(),
        Memory::new(
            65_536,
            Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
            Placement::Pages,
        ),
        Bufs::new(),
    );
    let read_only = Memory::new(4096, Permissions::empty(), Placement::Pages);
    let rdma = memory.import(ExportKind::Rdma);
    let coding = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 1).expect("a matrix");
    let data = |len| bufs.data(&memory.mmap, 0, len);
    let room = |len| bufs.room(&memory.mmap, 8192, len);
    for (from, to, error) in [
        (data(0), room(64), Error::InvalidValue),
        (data(64), room(64), Error::InvalidValue),
        (data(127), room(64), Error::InvalidValue),
        (data(192), room(96), Error::InvalidValue),
        (data(128), room(63), Error::TooBig),
        (
            data(128),
            bufs.room(&read_only.mmap, 0, 64),
            Error::NotPermitted,
        ),
        (bufs.data(&rdma, 0, 128), room(64), Error::NotPermitted),
    ] {
        let task = create(&ec, &coding, from, to);
        // SAFETY: a live task.
        let tried = unsafe { doca_task_try_submit(task.cast()) };
        assert_eq!((tried, ec.run(task)), (error.code(), error.code()));
        assert_eq!(to.data_len(), 0);
        ec.free_tasks();
    }
    let task = create(&ec, &coding, data(128), room(64));
    // SAFETY: a live task.
    unsafe { doca_ec_task_create_set_rdnc_blocks(task, null_mut()) };
    assert_eq!(ec.run(task), Error::InvalidValue.code());
    assert_eq!(ec.state(), DOCA_CTX_STATE_RUNNING);
    assert_eq!(ec.run(create(&ec, &coding, data(128), room(64))), 0);
}

#[test]
fn bad_matrices_are_refused() {
    let ec = start();
    let invalid = Error::InvalidValue.code();
    for (matrix_type, data, redundancy) in [
        (0, 2, 1),
        (3, 2, 1),
        (1, 0, 1),
        (1, 1, 0),
        (2, 255, 2),
        (1, usize::MAX, 2),
    ] {
        assert_eq!(
            coding(&ec, matrix_type, data, redundancy).err(),
            Some(invalid)
        );
    }
    let vandermonde = coding(&ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 10, 4).expect("a matrix");
    // Some losses of four blocks are fatal to it.
    let fatal = (0..1u32 << 14)
        .filter(|set| set.count_ones() == 4)
        .find(|set| {
            let mut missing: Vec<u32> = (0..14).filter(|block| set >> block & 1 == 1).collect();
            recovery(&ec, &vandermonde, &mut missing).is_err()
        });
    assert!(fatal.is_some());
    for missing in [&mut [][..], &mut [14], &mut [1, 0], &mut [0, 1, 2, 3, 4]] {
        assert_eq!(
            recovery(&ec, &vandermonde, missing).err(),
            Some(invalid),
            "{missing:?}"
        );
    }
    assert_eq!(updating(&ec, &vandermonde, &mut [10]).err(), Some(invalid));
    let recovery_matrix = recovery(&ec, &vandermonde, &mut [0]).expect("a matrix");
    assert_eq!(
        recovery(&ec, &recovery_matrix, &mut [0]).err(),
        Some(invalid),
        "no coding matrix"
    );
    // SAFETY: NULL, live handles, or valid out-parameters.
    unsafe {
        let mut out = null_mut();
        assert_eq!(
            doca_ec_matrix_create(null_mut(), 1, 2, 1, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create(ec.handle, 1, 2, 1, null_mut()),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_from_raw(ec.handle, null_mut(), 2, 1, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_from_raw(ec.handle, null_mut(), usize::MAX, 2, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_recover(ec.handle, null(), &mut 0, 1, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_recover(ec.handle, vandermonde.0, null_mut(), 1, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_recover(ec.handle, vandermonde.0, &mut 0, usize::MAX, &mut out),
            invalid
        );
        assert_eq!(
            doca_ec_matrix_create_update(ec.handle, null(), &mut 0, 1, &mut out),
            invalid
        );
        assert_eq!(doca_ec_matrix_destroy(null_mut()), invalid);
    }
}

#[test]
fn tasks_know_what_they_were_given() {
    let (ec, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
    let (first, second) = (
        bufs.data(&memory.mmap, 0, 128),
        bufs.room(&memory.mmap, 1024, 128),
    );
    let one = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 1).expect("a matrix");
    let two = coding(&ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 2, 1).expect("a matrix");
    macro_rules! check {
        ($new:ident: $as_task:ident, $set_matrix:ident, $get_matrix:ident, $set_from:ident, $get_from:ident, $set_to:ident, $get_to:ident) => {
            let task = $new(&ec, &one, first, second);
            // SAFETY: a live task, and NULL.
            unsafe {
                assert_eq!($as_task(task).cast(), task);
                assert_eq!($get_matrix(task), one.0.cast_const());
                assert_eq!(
                    ($get_from(task).cast_mut(), $get_to(task)),
                    (c(first), c(second))
                );
                $set_matrix(task, two.0);
                $set_from(task, c(second));
                $set_to(task, c(first));
                assert_eq!($get_matrix(task), two.0.cast_const());
                assert_eq!(
                    ($get_from(task).cast_mut(), $get_to(task)),
                    (c(second), c(first))
                );
                $set_matrix(task, null());
                assert_eq!($get_matrix(task), two.0.cast_const(), "a task has a matrix");
                $set_from(null_mut(), null());
                $set_to(null_mut(), null_mut());
                assert!(
                    $get_matrix(null()).is_null()
                        && $get_from(null()).is_null()
                        && $get_to(null()).is_null()
                );
            }
        };
    }
    check!(create: doca_ec_task_create_as_task, doca_ec_task_create_set_coding_matrix, doca_ec_task_create_get_coding_matrix,
        doca_ec_task_create_set_original_data_blocks, doca_ec_task_create_get_original_data_blocks,
        doca_ec_task_create_set_rdnc_blocks, doca_ec_task_create_get_rdnc_blocks);
    check!(update: doca_ec_task_update_as_task, doca_ec_task_update_set_update_matrix, doca_ec_task_update_get_update_matrix,
        doca_ec_task_update_set_original_updated_and_rdnc_blocks, doca_ec_task_update_get_original_updated_and_rdnc_blocks,
        doca_ec_task_update_set_updated_rdnc_blocks, doca_ec_task_update_get_updated_rdnc_blocks);
    check!(recover: doca_ec_task_recover_as_task, doca_ec_task_recover_set_recover_matrix, doca_ec_task_recover_get_recover_matrix,
        doca_ec_task_recover_set_available_blocks, doca_ec_task_recover_get_available_blocks,
        doca_ec_task_recover_set_recovered_data_blocks, doca_ec_task_recover_get_recovered_data);
    check!(galois_mul: doca_ec_task_galois_mul_as_task, doca_ec_task_galois_mul_set_coding_matrix, doca_ec_task_galois_mul_get_coding_matrix,
        doca_ec_task_galois_mul_set_src_buf, doca_ec_task_galois_mul_get_src_buf,
        doca_ec_task_galois_mul_set_dst_buf, doca_ec_task_galois_mul_get_dst_buf);
}

#[test]
fn limits_are_told_and_nulls_refused() {
    let invalid = Error::InvalidValue.code();
    let (mut len, mut size) = (0, 0);
    let ec = start();
    // SAFETY: NULL, a live handle, or a valid out-parameter.
    unsafe {
        for is_supported in [
            doca_ec_cap_task_galois_mul_is_supported,
            doca_ec_cap_task_create_is_supported,
            doca_ec_cap_task_update_is_supported,
            doca_ec_cap_task_recover_is_supported,
        ] {
            assert_eq!(
                (is_supported(any_devinfo()), is_supported(null())),
                (0, invalid)
            );
        }
        ok(doca_ec_cap_get_max_buf_list_len(any_devinfo(), &mut len));
        ok(doca_ec_cap_get_max_block_size(any_devinfo(), &mut size));
        assert!(len >= 32 && size >= 1 << 20, "{len} {size}");
        assert_eq!(doca_ec_cap_get_max_buf_list_len(null(), &mut len), invalid);
        assert_eq!(doca_ec_cap_get_max_block_size(null(), &mut size), invalid);
        assert_eq!(doca_ec_create(null_mut(), null_mut()), invalid);
        assert_eq!(doca_ec_destroy(null_mut()), invalid);
        assert_eq!(doca_ec_as_ctx(ec.handle), ec.ctx());
        let mut task = null_mut();
        let code = doca_ec_task_create_allocate_init(
            ec.handle,
            null(),
            null(),
            null_mut(),
            NONE,
            &mut task,
        );
        assert_eq!(code, invalid, "a task needs a matrix");
        assert_eq!(doca_ec_destroy(ec.handle), Error::BadState.code());
        let done = Some(done::<doca_ec_task_create> as _);
        assert_eq!(
            doca_ec_task_create_set_conf(ec.handle, done, done, 1),
            Error::BadState.code()
        );
        let mut state = 0;
        ok(doca_ctx_get_state(ec.ctx(), &mut state));
        assert_eq!(state, DOCA_CTX_STATE_RUNNING);
    }
}
