//! Which messages reach which back ends.

use super::*;

#[test]
fn softdocas_messages_reach_descriptors_and_streams() {
    let _alone = alone();
    let kept = file();
    let mut file = kept.try_clone().unwrap();
    let mut backend = null_mut();
    // SAFETY: live handles and out-pointers; the stream is left open.
    unsafe {
        assert_eq!(
            doca_log_backend_create_with_fd_sdk(kept.as_raw_fd(), &mut backend),
            DOCA_SUCCESS
        );
        assert_eq!(doca_log_backend_set_sdk_level(backend, 30), DOCA_SUCCESS);
        for (backend, level) in [(backend, 31), (null_mut(), 30)] {
            assert_eq!(
                doca_log_backend_set_sdk_level(backend, level),
                DOCA_ERROR_INVALID_VALUE
            );
        }
        assert_eq!(
            doca_log_backend_set_level_lower_limit(backend, 30),
            DOCA_ERROR_INVALID_VALUE,
            "it is not for the program's messages"
        );
        let _ = Error::Full.because("capi-log-1");
        log::info!("capi-log-2");
        assert_eq!(say(DOCA_LOG_LEVEL_ERROR, "capi-log-program"), DOCA_SUCCESS);
        assert_eq!(doca_log_backend_set_sdk_level(backend, 10), DOCA_SUCCESS);
        let stream = libc::fdopen(libc::dup(kept.as_raw_fd()), c"a".as_ptr());
        assert_eq!(
            doca_log_backend_create_with_file_sdk(stream.cast(), &mut backend),
            DOCA_SUCCESS
        );
        let _ = Error::Full.because("capi-log-3");
        assert_eq!(doca_log_backend_set_sdk_level(backend, 10), DOCA_SUCCESS);
    }
    let seen = lines(&mut file, "capi-log");
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].ends_with("DOCA_ERROR_FULL: capi-log-1"), "{seen:?}");
    assert!(seen[1].ends_with("capi-log-3"), "{seen:?}");
}

#[test]
fn the_programs_messages_reach_descriptors_and_streams_within_limits() {
    let _alone = alone();
    let kept = file();
    let mut file = kept.try_clone().unwrap();
    let (mut backend, mut on_stream) = (null_mut(), null_mut());
    let all = |mark: &str| {
        for level in (20..=70).step_by(10) {
            assert_eq!(say(level, mark), DOCA_SUCCESS);
        }
    };
    let levels = |file: &mut File, mark: &str| -> String {
        let tag = |line: &String| line.split(['[', ']']).nth(1).unwrap_or_default().to_owned();
        lines(file, mark)
            .iter()
            .map(tag)
            .collect::<Vec<_>>()
            .join(" ")
    };
    // SAFETY: live handles and out-pointers; the stream is left open.
    unsafe {
        assert_eq!(
            doca_log_backend_create_with_fd(kept.as_raw_fd(), &mut backend),
            DOCA_SUCCESS
        );
        all("by-default");
        assert_eq!(
            levels(&mut file, "by-default"),
            "CRT ERR WRN INF",
            "information is where a back end begins"
        );
        let lower = |level| doca_log_backend_set_level_lower_limit(backend, level);
        let upper = |level| doca_log_backend_set_level_upper_limit(backend, level);
        assert_eq!(lower(DOCA_LOG_LEVEL_TRACE), DOCA_SUCCESS);
        assert_eq!(upper(DOCA_LOG_LEVEL_WARNING), DOCA_SUCCESS);
        all("both-set");
        assert_eq!(levels(&mut file, "both-set"), "WRN INF DBG TRC");
        assert_eq!(
            (lower(0), upper(71)),
            (DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_INVALID_VALUE)
        );
        assert_eq!(lower(DOCA_LOG_LEVEL_DEBUG), DOCA_SUCCESS);
        assert_eq!(
            doca_log_backend_set_level_lower_limit_strict(backend),
            DOCA_SUCCESS
        );
        assert_eq!(
            doca_log_backend_set_level_upper_limit_strict(backend),
            DOCA_SUCCESS
        );
        assert_eq!(lower(DOCA_LOG_LEVEL_TRACE), DOCA_SUCCESS);
        assert_eq!(upper(DOCA_LOG_LEVEL_CRIT), DOCA_SUCCESS);
        all("strict");
        assert_eq!(levels(&mut file, "strict"), "WRN INF DBG");
        silence(backend);

        let stream = libc::fdopen(libc::dup(kept.as_raw_fd()), c"a".as_ptr());
        assert_eq!(
            doca_log_backend_create_with_file(stream.cast(), &mut on_stream),
            DOCA_SUCCESS
        );
        all("on-stream");
        assert_eq!(
            lines(&mut file, "on-stream")[0],
            "[CRT][file.c:7][main] on-stream"
        );
        silence(on_stream);
        assert_eq!(
            doca_log_backend_set_sdk_level(on_stream, 30),
            DOCA_ERROR_INVALID_VALUE,
            "it is not for softdoca's messages"
        );
    }
}

#[test]
fn global_limits_reach_all_back_ends_and_new_ones() {
    let _alone = alone();
    let kept = file();
    let mut file = kept.try_clone().unwrap();
    let mut before = null_mut();
    let mut after = null_mut();
    // SAFETY: live handles and out-pointers.
    unsafe {
        let fd = kept.as_raw_fd();
        assert_eq!(doca_log_level_get_global_lower_limit(), DOCA_LOG_LEVEL_INFO);
        assert_eq!(doca_log_level_get_global_upper_limit(), DOCA_LOG_LEVEL_CRIT);
        assert_eq!(doca_log_level_get_global_sdk_limit(), DOCA_LOG_LEVEL_INFO);
        assert_eq!(
            doca_log_backend_create_with_fd(fd, &mut before),
            DOCA_SUCCESS
        );
        assert_eq!(doca_log_level_set_global_lower_limit(60), DOCA_SUCCESS);
        assert_eq!(doca_log_level_set_global_upper_limit(60), DOCA_SUCCESS);
        assert_eq!(doca_log_level_get_global_lower_limit(), 60);
        assert_eq!(doca_log_level_get_global_upper_limit(), 60);
        assert_eq!(
            doca_log_backend_create_with_fd(fd, &mut after),
            DOCA_SUCCESS
        );
        for level in [50, 60, 70] {
            assert_eq!(say(level, &format!("global-{level}")), DOCA_SUCCESS);
        }
        assert_eq!(doca_log_level_set_global_lower_limit(50), DOCA_SUCCESS);
        assert_eq!(doca_log_level_set_global_upper_limit(20), DOCA_SUCCESS);
        silence(before);
        silence(after);
        assert_eq!(
            doca_log_level_set_global_lower_limit(55),
            DOCA_ERROR_INVALID_VALUE
        );

        let mut sdk = null_mut();
        assert_eq!(
            doca_log_backend_create_with_fd_sdk(fd, &mut sdk),
            DOCA_SUCCESS
        );
        assert_eq!(doca_log_level_set_global_sdk_limit(60), DOCA_SUCCESS);
        assert_eq!(doca_log_level_get_global_sdk_limit(), 60);
        log::debug!("global-sdk");
        assert_eq!(doca_log_level_set_global_sdk_limit(50), DOCA_SUCCESS);
        log::debug!("global-sdk-too-chatty");
        assert_eq!(doca_log_backend_set_sdk_level(sdk, 10), DOCA_SUCCESS);
    }
    let texts: Vec<String> = lines(&mut file, "global-")
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(texts, ["global-60", "global-60", "global-sdk"]);
}

#[test]
fn a_closed_descriptor_loses_messages_and_nothing_else() {
    let _alone = alone();
    let kept = file();
    let mut backend = null_mut();
    // SAFETY: a descriptor of its own, closed below; nobody else has opened anything under the lock that the test would harm.
    unsafe {
        let copy = libc::dup(kept.as_raw_fd());
        assert_eq!(
            doca_log_backend_create_with_fd(copy, &mut backend),
            DOCA_SUCCESS
        );
        drop(OwnedFd::from_raw_fd(copy));
    }
    assert_eq!(say(DOCA_LOG_LEVEL_CRIT, "nobody"), DOCA_SUCCESS);
    // SAFETY: a live handle.
    unsafe { silence(backend) };
}
