//! Handles and states.

use super::*;

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
