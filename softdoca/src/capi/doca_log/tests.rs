//! Log back ends, their limits, and the standard back end.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use doca_abi::{
    DOCA_ERROR_INVALID_VALUE, DOCA_LOG_LEVEL_CRIT, DOCA_LOG_LEVEL_DEBUG, DOCA_LOG_LEVEL_DISABLE,
    DOCA_LOG_LEVEL_ERROR, DOCA_LOG_LEVEL_INFO, DOCA_LOG_LEVEL_TRACE, DOCA_LOG_LEVEL_WARNING,
    DOCA_SUCCESS,
};

use super::*;
use crate::capi::doca_argp::doca_argp_init;
use crate::capi::doca_dev::doca_devinfo_create_list;
use crate::capi::testing::child;

/// Back ends and global limits belong to the process: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(level: u32, text: &str) -> u32 {
    let text = CString::new(text).unwrap();
    // SAFETY: C strings.
    unsafe {
        softdoca_log_formatted(
            level,
            0,
            c"dir/file.c".as_ptr(),
            7,
            c"main".as_ptr(),
            text.as_ptr(),
        )
    }
}

/// Makes a back end drop all messages of the program, whatever the global limits.
unsafe fn silence(backend: *mut doca_log_backend) {
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(
            doca_log_backend_set_level_lower_limit(backend, DOCA_LOG_LEVEL_DISABLE),
            DOCA_SUCCESS
        );
        assert_eq!(
            doca_log_backend_set_level_lower_limit_strict(backend),
            DOCA_SUCCESS
        );
    }
}

/// A file that stays open, as a back end's must.
fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    std::mem::forget(file.try_clone().unwrap());
    file
}

/// The lines in the file that contain `mark`, each starting at its level.
fn lines(file: &mut File, mark: &str) -> Vec<String> {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.lines()
        .filter(|line| line.contains(mark))
        .map(|line| line.splitn(4, ']').last().unwrap().to_owned())
        .collect()
}

static BUFFERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep(buf: *mut c_char) {
    // SAFETY: a back end's buffer holds a C string.
    let text = unsafe { CStr::from_ptr(buf) }.to_str().unwrap().to_owned();
    BUFFERED.lock().unwrap().push(text);
    // A handler's own messages must not be written to its buffer.
    say(DOCA_LOG_LEVEL_ERROR, "from the handler");
}

#[test]
fn buffers_get_one_message_at_a_time() {
    let _alone = alone();
    // Never freed: a back end lives as long as the process.
    let buffer: &mut [c_char] = Box::leak(vec![1; 64].into_boxed_slice());
    let capacity = buffer.len() - 1;
    let mut backends = [null_mut(); 2];
    // SAFETY: live handles, out-pointers and a buffer that lives until the back ends are silenced.
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
    // Other tests cause messages of softdoca at the same time.
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
    // SAFETY: NULL and invalid values are refused, which this test checks.
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
    // SAFETY: a descriptor of its own, closed below; under the lock, no other test opens a descriptor that could be
    // affected.
    unsafe {
        let copy = libc::dup(kept.as_raw_fd());
        assert_eq!(
            doca_log_backend_create_with_fd(copy, &mut backend),
            DOCA_SUCCESS
        );
        drop(OwnedFd::from_raw_fd(copy));
    }
    assert_eq!(say(DOCA_LOG_LEVEL_CRIT, "discarded"), DOCA_SUCCESS);
    // SAFETY: a live handle.
    unsafe { silence(backend) };
}

const FIRST_CALL: &str = "SOFTDOCA_TEST_FIRST_CALL";

/// Run by [`an_unknown_level_in_the_environment_is_reported_once`].
#[test]
fn first_call_child() {
    let Ok(call) = std::env::var(FIRST_CALL) else {
        return;
    };
    let (mut source, mut devices, mut count) = (0, null_mut(), 0);
    for _ in 0..2 {
        // SAFETY: valid out-parameters and C strings.
        let code = unsafe {
            match call.as_str() {
                "log" => doca_log_register_source(c"SOURCE".as_ptr(), &mut source),
                "back end" => doca_log_backend_create_standard(),
                "devices" => doca_devinfo_create_list(&mut devices, &mut count),
                "arguments" => doca_argp_init(c"program".as_ptr(), null_mut()),
                other => panic!("no call {other}"),
            }
        };
        assert!(code == DOCA_SUCCESS || call == "arguments", "{code}");
    }
}

/// The function that nearly every program calls first reports it, although softdoca has nothing to log then.
#[test]
fn an_unknown_level_in_the_environment_is_reported_once() {
    let reports = |call, level| {
        let environment = [(FIRST_CALL, call), (log::VARIABLE, level)];
        let output = child("capi::doca_log::tests::first_call_child", &environment);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{call}: {text}");
        let of_variable = |line: &&str| line.contains(log::VARIABLE);
        let lines: Vec<String> = text
            .lines()
            .filter(of_variable)
            .map(str::to_owned)
            .collect();
        lines
    };
    for call in ["log", "back end", "devices", "arguments"] {
        let [report] = &reports(call, "verbose")[..] else {
            panic!("{call}: expected one report");
        };
        let words = [
            "critical",
            "error",
            "warning",
            "info",
            "debug",
            "trace",
            "\"verbose\"",
        ];
        assert!(words.iter().all(|word| report.contains(word)), "{report}");
        assert_eq!(reports(call, "warning"), [""; 0], "{call}");
    }
}

/// Run by [`the_standard_back_end_splits_by_severity`] in a process whose streams are captured.
#[test]
fn standard_child() {
    if std::env::var_os("SOFTDOCA_TEST_STANDARD").is_none() {
        return;
    }
    // SAFETY: no pointers are passed.
    unsafe {
        assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
        assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
        for level in [30, 50, 60] {
            say(level, &format!("standard-a-{level}"));
        }
        doca_log_level_set_global_lower_limit(60);
        for level in [40, 60] {
            say(level, &format!("standard-b-{level}"));
        }
        doca_log_level_set_global_lower_limit(30);
        for level in [30, 40, 50] {
            say(level, &format!("standard-c-{level}"));
        }
    }
}

#[test]
fn the_standard_back_end_splits_by_severity() {
    let test = "capi::doca_log::tests::standard_child";
    let output = child(test, &[("SOFTDOCA_TEST_STANDARD", "1")]);
    let marks = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text).into_owned();
        let of_line = |line: &str| line.split(' ').next_back().unwrap_or_default().to_owned();
        text.lines()
            .map(of_line)
            .filter(|mark| mark.starts_with("standard-"))
            .collect()
    };
    assert_eq!(marks(&output.stdout), ["standard-a-50", "standard-b-60"]);
    assert_eq!(
        marks(&output.stderr),
        ["standard-a-30", "standard-b-40", "standard-c-30"]
    );
}
