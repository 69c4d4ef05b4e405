//! Programs whose callbacks record their arguments.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io::Write as _;
use std::process::Output;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use doca_abi::{
    DOCA_ARGP_TYPE_BOOLEAN, DOCA_ARGP_TYPE_DEVICE, DOCA_ARGP_TYPE_DEVICE_REP, DOCA_ARGP_TYPE_INT,
    DOCA_ARGP_TYPE_STRING, DOCA_ERROR_ALREADY_EXIST, DOCA_ERROR_BAD_STATE, DOCA_ERROR_DRIVER,
    DOCA_ERROR_INITIALIZATION, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NOT_SUPPORTED, DOCA_SUCCESS,
    doca_argp_device_ctx, doca_argp_device_rep_ctx, va_list,
};

use super::*;
use crate::capi::doca_dev::{doca_dev_close, doca_dev_rep_close};
use crate::capi::testing::child;
use crate::log;

/// A process has one parser, so tests run one at a time.
struct Parser(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Parser {
    fn new(program: &Program) -> Parser {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let config = std::ptr::from_ref(program).cast_mut().cast();
        // SAFETY: a C string.
        ok(unsafe { doca_argp_init(c"tester".as_ptr(), config) });
        Parser(one)
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        // SAFETY: no pointers are passed. A test may have destroyed the parser.
        unsafe { doca_argp_destroy() };
    }
}

/// The configuration: arguments of the callbacks.
#[derive(Default)]
struct Program {
    seen: RefCell<Vec<String>>,
}

impl Program {
    fn says(&self, text: String) -> u32 {
        self.seen.borrow_mut().push(text);
        DOCA_SUCCESS
    }
}

fn ok(code: u32) {
    assert_eq!(code, DOCA_SUCCESS);
}

unsafe fn program<'a>(config: *mut c_void) -> &'a Program {
    // SAFETY: the configuration of these tests.
    unsafe { &*config.cast::<Program>() }
}

unsafe extern "C" fn on_text(value: *mut c_void, config: *mut c_void) -> u32 {
    // SAFETY: called with a C string and the configuration.
    let (text, program) = unsafe { (CStr::from_ptr(value.cast()), program(config)) };
    match text.to_str().unwrap() {
        "refuse" => DOCA_ERROR_DRIVER,
        text => program.says(format!("text {text}")),
    }
}

unsafe extern "C" fn on_int(value: *mut c_void, config: *mut c_void) -> u32 {
    // SAFETY: called with an int and the configuration.
    unsafe { program(config).says(format!("int {}", *value.cast::<c_int>())) }
}

unsafe extern "C" fn on_bool(value: *mut c_void, config: *mut c_void) -> u32 {
    // SAFETY: called with a bool and the configuration.
    unsafe { program(config).says(format!("bool {}", *value.cast::<bool>())) }
}

unsafe extern "C" fn on_device(value: *mut c_void, config: *mut c_void) -> u32 {
    // SAFETY: called with a device and the configuration; the device is the program's.
    unsafe {
        let device = &*value.cast::<doca_argp_device_ctx>();
        assert!(device.devargs.is_null());
        ok(doca_dev_close(device.dev));
        program(config).says("device".to_owned())
    }
}

unsafe extern "C" fn on_representor(value: *mut c_void, config: *mut c_void) -> u32 {
    // SAFETY: as above.
    unsafe {
        let both = &*value.cast::<doca_argp_device_rep_ctx>();
        let rest = CStr::from_ptr(both.dev_ctx.devargs).to_str().unwrap();
        ok(doca_dev_rep_close(both.dev_rep));
        ok(doca_dev_close(both.dev_ctx.dev));
        program(config).says(format!("representor {rest}"))
    }
}

unsafe extern "C" fn on_command(config: *mut c_void) -> u32 {
    // SAFETY: called with the configuration.
    unsafe { program(config) }.says("command".to_owned())
}

unsafe extern "C" fn on_end(config: *mut c_void) -> u32 {
    // SAFETY: called with the configuration.
    unsafe { program(config) }.says("valid".to_owned())
}

unsafe extern "C" fn on_version(value: *mut c_void, config: *mut c_void) -> u32 {
    assert!(value.is_null());
    // SAFETY: called with the configuration.
    unsafe { program(config) }.says("version".to_owned())
}

type ParamCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32;

/// A parameter with all required properties.
fn param(long: &CStr, arg_type: u32, callback: ParamCallback) -> *mut doca_argp_param {
    let mut param = null_mut();
    // SAFETY: live handles, C strings and out-pointers.
    unsafe {
        ok(doca_argp_param_create(&mut param));
        doca_argp_param_set_long_name(param, long.as_ptr());
        doca_argp_param_set_description(param, c"What it is for".as_ptr());
        doca_argp_param_set_callback(param, Some(callback));
        doca_argp_param_set_type(param, arg_type);
    }
    param
}

fn start(arguments: &[&str]) -> u32 {
    let arguments: Vec<CString> = std::iter::once("/bin/tester")
        .chain(arguments.iter().copied())
        .map(|argument| CString::new(argument).unwrap())
        .collect();
    let mut argv: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
    argv.push(null_mut());
    // SAFETY: that many C strings.
    unsafe { doca_argp_start(arguments.len() as c_int, argv.as_mut_ptr()) }
}

/// Registers one parameter of every type.
fn register_all() {
    // SAFETY: live handles and C strings.
    unsafe {
        let name = param(c"name", DOCA_ARGP_TYPE_STRING, on_text);
        doca_argp_param_set_short_name(name, c"nm".as_ptr());
        doca_argp_param_set_arguments(name, c"<name>".as_ptr());
        doca_argp_param_set_mandatory(name);
        ok(doca_argp_register_param(name));
        let count = param(c"count", DOCA_ARGP_TYPE_INT, on_int);
        doca_argp_param_set_multiplicity(count);
        ok(doca_argp_register_param(count));
        let quiet = param(c"quiet", DOCA_ARGP_TYPE_BOOLEAN, on_bool);
        doca_argp_param_set_hidden(quiet);
        doca_argp_param_set_cli_only(quiet);
        ok(doca_argp_register_param(quiet));
        let device = param(c"device", DOCA_ARGP_TYPE_DEVICE, on_device);
        ok(doca_argp_register_param(device));
        let rep = param(c"rep", DOCA_ARGP_TYPE_DEVICE_REP, on_representor);
        ok(doca_argp_register_param(rep));
        let alone = param(c"alone", DOCA_ARGP_TYPE_BOOLEAN, on_bool);
        doca_argp_param_set_singular(alone);
        ok(doca_argp_register_param(alone));
    }
}

#[test]
fn log_levels_can_be_set_and_read() {
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
    // SAFETY: no pointers are passed.
    ok(unsafe { doca_argp_disable_logger_callback() });
    assert_eq!(start(&["--again"]), DOCA_ERROR_NOT_SUPPORTED);
    let complaints = COMPLAINTS.lock().unwrap();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(
        complaints[0].starts_with("tester: --100%s is not a flag"),
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
    // SAFETY: the array is NULL-terminated.
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

/// Run by the test below in a process that may exit.
#[test]
fn exiting_child() {
    let Ok(arguments) = std::env::var("SOFTDOCA_TEST_ARGP") else {
        return;
    };
    let program = Program::default();
    let _parser = Parser::new(&program);
    if crate::api::Api::current() != crate::api::Api::V3_0 {
        register_all();
    }
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    println!("start answers {}", start(&arguments));
}

fn with_environment(environment: &[(&str, &str)]) -> Output {
    child("capi::doca_argp::tests::exiting_child", environment)
}

fn with_arguments(arguments: &str) -> Output {
    with_environment(&[("SOFTDOCA_TEST_ARGP", arguments)])
}

#[test]
fn help_and_version_are_printed_and_the_process_exits_with_success() {
    let help = with_arguments("--help");
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success(), "{help:?}");
    assert!(
        text.contains("Usage: tester [DOCA Flags] [Program Flags]\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  -nm, --name <name>                What it is for\n"),
        "{text}"
    );
    assert!(
        !text.contains("--quiet") && !text.contains("start answers"),
        "{text}"
    );

    for (api, expected) in [("", "3.3.0"), ("3.0", "3.0.0"), ("3.2", "3.2.0")] {
        let version = with_environment(&[("SOFTDOCA_TEST_ARGP", "-v"), ("SOFTDOCA_API", api)]);
        let text = String::from_utf8_lossy(&version.stdout);
        assert!(version.status.success(), "{version:?}");
        assert!(
            text.contains(&format!("DOCA Version: {expected}")),
            "{text}"
        );
        assert!(!text.contains("start answers"), "{text}");
    }

    let wrong = with_arguments("--wrong");
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        text.contains("tester: --wrong is not a flag of this program; -h shows the usage\n"),
        "{text}"
    );
    let text = String::from_utf8_lossy(&wrong.stdout);
    assert!(
        text.contains(&format!("start answers {DOCA_ERROR_NOT_SUPPORTED}\n")),
        "{text}"
    );
}

#[test]
fn handles_and_states_are_checked() {
    let program = Program::default();
    let parser = Parser::new(&program);
    let mut level = 0;
    // SAFETY: live, stale and NULL handles, none of them followed.
    unsafe {
        assert_eq!(doca_argp_init(null_mut(), null_mut()), DOCA_ERROR_BAD_STATE);
        let one = param(c"one", DOCA_ARGP_TYPE_INT, on_int);
        doca_argp_param_set_type(one, 99);
        assert_eq!(doca_argp_register_param(one), DOCA_ERROR_INITIALIZATION);
        ok(doca_argp_param_destroy(one));
        assert_eq!(doca_argp_param_destroy(one), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(
            doca_argp_param_destroy(null_mut()),
            DOCA_ERROR_INVALID_VALUE
        );
        assert_eq!(
            doca_argp_param_destroy(one.byte_add(1)),
            DOCA_ERROR_INVALID_VALUE
        );
        doca_argp_param_set_short_name(null_mut(), c"x".as_ptr());
        let two = param(c"two", DOCA_ARGP_TYPE_INT, on_int);
        doca_argp_param_set_short_name(two, null_mut());
        ok(doca_argp_register_param(two));
        assert_eq!(doca_argp_register_param(two), DOCA_ERROR_BAD_STATE);
        assert_eq!(doca_argp_param_destroy(two), DOCA_ERROR_BAD_STATE);
        assert_eq!(doca_argp_param_create(null_mut()), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(doca_argp_cmd_create(null_mut()), DOCA_ERROR_INVALID_VALUE);
        for refused in [
            doca_argp_register_version_callback(None),
            doca_argp_register_validation_callback(None),
            doca_argp_register_logger_callback(None),
            doca_argp_get_log_level(null_mut()),
            doca_argp_get_sdk_log_level(null_mut()),
        ] {
            assert_eq!(refused, DOCA_ERROR_INVALID_VALUE);
        }
        ok(doca_argp_destroy());
        let mut handle = null_mut();
        for refused in [
            doca_argp_destroy(),
            doca_argp_param_create(&mut handle),
            doca_argp_register_param(two),
            doca_argp_register_version_callback(Some(on_version)),
            doca_argp_disable_logger_callback(),
            start(&[]),
        ] {
            assert_eq!(refused, DOCA_ERROR_BAD_STATE);
        }
        doca_argp_usage();
        ok(doca_argp_get_log_level(&mut level));
        assert_eq!(level as u32, log::global_lower(Origin::Program) as u32);
    }
    drop(parser);
}

#[test]
fn callbacks_get_their_values_in_order() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    register_all();
    // SAFETY: a function of that type.
    ok(unsafe { doca_argp_register_validation_callback(Some(on_end)) });
    ok(start(&[
        "--count",
        "-3",
        "-nm",
        "a b",
        "--quiet",
        "--device",
        "mlx5_0",
        "--rep",
        "mlx5_0,3b:00.0,x=1",
        "--count=4",
    ]));
    let expected = [
        "int -3",
        "text a b",
        "bool true",
        "device",
        "representor x=1",
        "int 4",
        "valid",
    ];
    assert_eq!(*program.seen.borrow(), expected);
    program.seen.borrow_mut().clear();
    ok(start(&["--alone"]));
    assert_eq!(*program.seen.borrow(), ["bool true", "valid"]);
}

#[test]
fn json_files_set_parameters_unless_command_line_only() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    register_all();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(br#"{"doca_program_flags": { "count": [1, 2], "name": "file" }} // end"#)
        .unwrap();
    let path = file.path().to_str().unwrap();
    ok(start(&["-j", path]));
    assert_eq!(*program.seen.borrow(), ["int 1", "int 2", "text file"]);
    program.seen.borrow_mut().clear();
    std::fs::write(path, r#"{"doca_program_flags": {"quiet": true}}"#).unwrap();
    assert_eq!(start(&["-j", path, "-nm", "x"]), DOCA_ERROR_NOT_SUPPORTED);
    assert_eq!(program.seen.borrow().len(), 0);
}

#[test]
fn start_returns_errors_of_callbacks() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    register_all();
    assert_eq!(start(&[]), DOCA_ERROR_INVALID_VALUE);
    assert_eq!(start(&["--none"]), DOCA_ERROR_NOT_SUPPORTED);
    assert_eq!(start(&["--alone", "-nm", "x"]), DOCA_ERROR_INVALID_VALUE);
    assert_eq!(
        program.seen.borrow().len(),
        0,
        "no callback before all is read"
    );
    assert_eq!(
        start(&["--count", "1", "-nm", "refuse", "--count", "2"]),
        DOCA_ERROR_DRIVER
    );
    assert_eq!(*program.seen.borrow(), ["int 1"], "the refusal ends it");
    // SAFETY: invalid arguments are refused, which this test checks.
    unsafe {
        assert_eq!(doca_argp_start(1, null_mut()), DOCA_ERROR_INVALID_VALUE);
        let mut argv = [null_mut(); 1];
        assert_eq!(
            doca_argp_start(0, argv.as_mut_ptr()),
            DOCA_ERROR_INVALID_VALUE
        );
        assert_eq!(
            doca_argp_start(1, argv.as_mut_ptr()),
            DOCA_ERROR_INVALID_VALUE
        );
    }
}

#[test]
fn commands_call_and_have_parameters() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    let create = |name: &CStr| {
        let mut cmd = null_mut();
        // SAFETY: live handles, C strings and out-pointers.
        unsafe {
            ok(doca_argp_cmd_create(&mut cmd));
            doca_argp_cmd_set_name(cmd, name.as_ptr());
            doca_argp_cmd_set_description(cmd, c"Does it".as_ptr());
            doca_argp_cmd_set_callback(cmd, Some(on_command));
        }
        cmd
    };
    // SAFETY: live handles, or NULL, which is refused.
    unsafe {
        let all = param(c"all", DOCA_ARGP_TYPE_INT, on_int);
        doca_argp_param_set_inherited(all);
        ok(doca_argp_register_param(all));
        let (get, inner) = (create(c"get"), create(c"inner"));
        doca_argp_cmd_set_hidden(inner);
        let name = param(c"name", DOCA_ARGP_TYPE_STRING, on_text);
        ok(doca_argp_cmd_register_param(inner, name));
        assert_eq!(
            doca_argp_cmd_register_param(get, name),
            DOCA_ERROR_BAD_STATE
        );
        ok(doca_argp_cmd_register_cmd(get, inner));
        ok(doca_argp_register_cmd(get));
        assert_eq!(doca_argp_register_cmd(get), DOCA_ERROR_BAD_STATE);
        assert_eq!(doca_argp_register_cmd(null_mut()), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(doca_argp_cmd_destroy(get), DOCA_ERROR_BAD_STATE);
        let other = create(c"other");
        ok(doca_argp_cmd_destroy(other));
        assert_eq!(doca_argp_cmd_destroy(other), DOCA_ERROR_INVALID_VALUE);
        let mut nameless = null_mut();
        ok(doca_argp_cmd_create(&mut nameless));
        assert_eq!(doca_argp_register_cmd(nameless), DOCA_ERROR_INITIALIZATION);
    }
    ok(start(&["get", "inner", "--name", "x", "--all", "1"]));
    assert_eq!(
        *program.seen.borrow(),
        ["command", "command", "text x", "int 1"]
    );
    assert_eq!(start(&["get", "--name", "x"]), DOCA_ERROR_NOT_SUPPORTED);
}

#[test]
fn a_version_callback_may_let_the_program_continue() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    register_all();
    // SAFETY: a function of that type.
    ok(unsafe { doca_argp_register_version_callback(Some(on_version)) });
    ok(start(&["-v", "-nm", "x"]));
    assert_eq!(*program.seen.borrow(), ["version", "text x"]);
}
