//! Programs whose callbacks keep what they get.

mod messages;
mod processes;
mod states;
mod values;

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io::Write as _;
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
use crate::log;

/// There is one parser in a process: one test at a time.
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
        // SAFETY: nothing to get wrong. A test may have destroyed it.
        unsafe { doca_argp_destroy() };
    }
}

/// The configuration: what the callbacks saw.
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

/// A parameter with everything that it must have.
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

/// The parameters of a program with one of every type.
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
