//! What callbacks get.

use super::*;

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
fn files_are_read_with_their_marks() {
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
fn errors_come_back_from_start() {
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
    // SAFETY: bad arguments are what is tested.
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
    // SAFETY: live handles, and NULL where it says so.
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
fn a_version_callback_may_let_the_program_go_on() {
    let program = Program::default();
    let _parser = Parser::new(&program);
    register_all();
    // SAFETY: a function of that type.
    ok(unsafe { doca_argp_register_version_callback(Some(on_version)) });
    ok(start(&["-v", "-nm", "x"]));
    assert_eq!(*program.seen.borrow(), ["version", "text x"]);
}
