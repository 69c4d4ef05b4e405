//! Levels, complaints, and the arguments of DPDK.

use super::*;

#[test]
fn log_levels_are_set_and_told() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    let _alone = crate::capi::doca_log::tests::alone();
    let sdk = log::global_lower(Origin::Sdk);
    let (mut level, mut sdk_level) = (0, 0);
    ok(start(&["-l", "50", "--sdk-log-level", "40"]));
    // SAFETY: out-pointers.
    unsafe {
        ok(doca_argp_get_log_level(&mut level));
        ok(doca_argp_get_sdk_log_level(&mut sdk_level));
    }
    assert_eq!((level, sdk_level), (50, 40));
    assert_eq!(log::global_lower(Origin::Sdk), Level::Warning);
    log::set_global_lower(Origin::Sdk, sdk);
}

static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn complain(_: u32, format: *const c_char, args: va_list) -> u32 {
    unsafe extern "C" {
        fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, args: va_list) -> c_int;
    }
    let mut buffer = [0; 200];
    // SAFETY: a format with its arguments, and a buffer of the stated size.
    let text = unsafe {
        vsnprintf(buffer.as_mut_ptr(), buffer.len(), format, args);
        CStr::from_ptr(buffer.as_ptr())
    };
    COMPLAINTS
        .lock()
        .unwrap()
        .push(text.to_str().unwrap().to_owned());
    DOCA_SUCCESS
}

#[test]
fn complaints_go_to_the_programs_logger() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    // SAFETY: functions of these types.
    unsafe {
        assert_eq!(doca_argp_disable_logger_callback(), DOCA_ERROR_BAD_STATE);
        ok(doca_argp_register_logger_callback(Some(complain)));
        assert_eq!(
            doca_argp_register_logger_callback(Some(complain)),
            DOCA_ERROR_ALREADY_EXIST
        );
    }
    assert_eq!(start(&["--100%s"]), DOCA_ERROR_NOT_SUPPORTED);
    // SAFETY: nothing to get wrong.
    ok(unsafe { doca_argp_disable_logger_callback() });
    assert_eq!(start(&["--again"]), DOCA_ERROR_NOT_SUPPORTED);
    let complaints = COMPLAINTS.lock().unwrap();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(
        complaints[0].starts_with("tester: --100%s is no flag"),
        "{complaints:?}"
    );
}

static DPDK: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_dpdk(argc: c_int, argv: *mut *mut c_char) -> u32 {
    let mut seen = DPDK.lock().unwrap();
    for index in 0..argc as usize {
        // SAFETY: that many C strings.
        let text = unsafe { CStr::from_ptr(*argv.add(index)) };
        seen.push(text.to_str().unwrap().to_owned());
    }
    // SAFETY: a NULL ends them.
    assert!(unsafe { *argv.add(argc as usize) }.is_null());
    DOCA_SUCCESS
}

#[test]
fn dpdk_gets_its_arguments() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    // SAFETY: functions of that type.
    unsafe {
        doca_argp_set_dpdk_program(None);
        doca_argp_set_dpdk_program(Some(on_dpdk));
    }
    ok(start(&["-a", "03:00.0", "--"]));
    assert_eq!(*DPDK.lock().unwrap(), ["/bin/tester", "-a", "03:00.0"]);
}
