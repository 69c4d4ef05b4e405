//! Buffers, syslog, and what is no destination.

use super::*;

static BUFFERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep(buf: *mut c_char) {
    // SAFETY: a back end's buffer holds a C string.
    let text = unsafe { CStr::from_ptr(buf) }.to_str().unwrap().to_owned();
    BUFFERED.lock().unwrap().push(text);
    // What a handler logs must not come back to its own buffer.
    say(DOCA_LOG_LEVEL_ERROR, "from the handler");
}

#[test]
fn buffers_get_one_message_at_a_time() {
    let _alone = alone();
    // Never freed: a back end lives as long as the process.
    let buffer: &mut [c_char] = Box::leak(vec![1; 64].into_boxed_slice());
    let capacity = buffer.len() - 1;
    let mut backends = [null_mut(); 2];
    // SAFETY: live handles, out-pointers and a buffer that lives until the back ends are silent.
    unsafe {
        let start = buffer.as_mut_ptr();
        for (capacity, handler) in [(0, Some(keep as unsafe extern "C" fn(_))), (capacity, None)] {
            assert_eq!(
                doca_log_backend_create_with_buf(start, capacity, handler, &mut backends[0]),
                DOCA_ERROR_INVALID_VALUE
            );
        }
        assert_eq!(
            doca_log_backend_create_with_buf(start, capacity, Some(keep), &mut backends[0]),
            DOCA_SUCCESS
        );
        say(DOCA_LOG_LEVEL_INFO, "a");
        say(DOCA_LOG_LEVEL_INFO, &"long".repeat(100));
        silence(backends[0]);
        assert_eq!(
            doca_log_backend_create_with_buf_sdk(start, capacity, Some(keep), &mut backends[1]),
            DOCA_SUCCESS
        );
        let _ = Error::Full.because("b");
        assert_eq!(
            doca_log_backend_set_sdk_level(backends[1], 10),
            DOCA_SUCCESS
        );
    }
    assert_eq!(buffer[capacity], 1, "nothing is written behind the buffer");
    // Other tests make softdoca say things at the same time.
    let seen = BUFFERED.lock().unwrap();
    let (sdk, program): (Vec<_>, Vec<_>) = seen.iter().partition(|line| line.contains("SOFTDOCA"));
    assert_eq!(program.len(), 2, "{seen:?}");
    assert!(program[0].ends_with("[file.c:7][main] a\n"), "{seen:?}");
    assert_eq!(program[1].len(), capacity - 1, "cut, with room for the NUL");
    assert!(!sdk.is_empty(), "{seen:?}");
}

#[test]
fn wrong_arguments_are_refused() {
    let mut backend = null_mut();
    let mut source = 0;
    let null = std::ptr::null();
    // SAFETY: NULL and bad values are what is tested.
    unsafe {
        let refused = [
            doca_log_backend_create_with_file(null_mut(), &mut backend),
            doca_log_backend_create_with_file_sdk(null_mut(), &mut backend),
            doca_log_backend_create_with_fd(-1, &mut backend),
            doca_log_backend_create_with_fd_sdk(-1, &mut backend),
            doca_log_backend_create_with_fd(1, null_mut()),
            doca_log_backend_create_with_syslog(null, &mut backend),
            doca_log_backend_create_with_syslog_sdk(null, &mut backend),
            doca_log_backend_create_with_buf(null_mut(), 9, Some(keep), &mut backend),
            doca_log_backend_create_with_buf_sdk(null_mut(), 9, Some(keep), &mut backend),
            doca_log_backend_set_level_upper_limit(null_mut(), 30),
            doca_log_backend_set_level_lower_limit_strict(null_mut()),
            doca_log_backend_set_level_upper_limit_strict(null_mut()),
            doca_log_register_source(null, &mut source),
            doca_log_register_source(c"A".as_ptr(), null_mut()),
            doca_log_unregister_source(0),
            doca_log_level_set_global_sdk_limit(0),
            softdoca_log_formatted(30, 0, null, 0, null, null),
            say(DOCA_LOG_LEVEL_DISABLE, "no level"),
            say(35, "no level"),
        ];
        assert_eq!(refused, [DOCA_ERROR_INVALID_VALUE; 19]);
        assert!(backend.is_null());
        assert_eq!(
            doca_log_register_source(c"A::B".as_ptr(), &mut source),
            DOCA_SUCCESS
        );
        assert!(source > 0);
        assert_eq!(doca_log_unregister_source(source), DOCA_SUCCESS);
        assert_eq!(doca_log_unregister_source(source), DOCA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn syslog_back_ends_take_levels() {
    let _alone = alone();
    let (mut program, mut sdk) = (null_mut(), null_mut());
    // SAFETY: live handles and out-pointers.
    unsafe {
        let name = c"softdoca-test".as_ptr();
        assert_eq!(
            doca_log_backend_create_with_syslog(name, &mut program),
            DOCA_SUCCESS
        );
        assert_eq!(
            doca_log_backend_create_with_syslog_sdk(name, &mut sdk),
            DOCA_SUCCESS
        );
        silence(program);
        assert_eq!(doca_log_backend_set_sdk_level(sdk, 10), DOCA_SUCCESS);
    }
}
