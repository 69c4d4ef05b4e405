//! Commands, and what programs may define.

use super::*;

#[test]
fn commands_have_flags_of_their_own() {
    let mut d = Definitions::default();
    param(&mut d, None, ("", "outer"), ValueType::Int, |_| ());
    param(&mut d, None, ("", "all"), ValueType::Int, |param| {
        param.inherited = true
    });
    let create = |d: &mut Definitions, name: &str| {
        let id = d.create_command();
        d.command_mut(id).name = Some(name.to_owned());
        d.command_mut(id).description = Some(format!("To {name}"));
        id
    };
    let get = create(&mut d, "get");
    let deep = create(&mut d, "deep");
    param(
        &mut d,
        Some(get),
        ("", "limit"),
        ValueType::Boolean,
        |param| param.mandatory = true,
    );
    param(&mut d, Some(deep), ("", "limit"), ValueType::Int, |_| ());
    assert_eq!(d.register_command(Some(get), deep), Ok(()));
    assert_eq!(d.register_command(None, get), Ok(()));
    assert_eq!(d.register_command(None, get), Err(Error::BadState));
    assert_eq!(d.destroy_command(get), Err(Error::BadState));

    accepts(
        &d,
        "--outer 1 get --limit --all 2",
        "outer=1 get limit=true all=2",
    );
    accepts(
        &d,
        "get --limit deep --limit 3",
        "get limit=true deep limit=3",
    );
    accepts(&d, "--outer 1", "outer=1");
    refuses(&d, "get", Error::InvalidValue, "--limit is mandatory");
    refuses(&d, "get --outer 1", Error::NotSupported, "--outer");
    refuses(
        &d,
        "put",
        Error::NotSupported,
        "no command \"put\"; there are get",
    );
    assert!(matches!(parse(&d, "get -h"), Ok(Outcome::Help(scope)) if scope == [get]));
    let file = file(r#"{"doca_program_flags": {"limit": true, "outer": 4}}"#);
    accepts(
        &d,
        &format!("get -j {}", file.path().display()),
        "limit=true outer=4 get",
    );

    let text = usage(&d, Some("program"), &vec![get]);
    assert!(
        text.starts_with("Usage: program get [DOCA Flags] [Program Flags] <command>\n\nTo get\n"),
        "{text}"
    );
    assert!(text.contains("\nCommands:\n  deep "), "{text}");
    assert!(
        text.contains("--all") && !text.contains("--outer"),
        "{text}"
    );
}

#[test]
fn incomplete_and_double_definitions_are_refused() {
    let mut d = program();
    let id = d.create_param();
    assert_eq!(d.register_param(None, id), Err(Error::Initialization));
    let complete = |d: &mut Definitions, long: &str| {
        let id = d.create_param();
        let param = d.param_mut(id);
        param.long = Some(long.to_owned());
        param.description = Some(String::new());
        param.callback = Some(nothing);
        param.value_type = Some(ValueType::Int);
        id
    };
    for long in ["device", "help", "sdk-log-level"] {
        let id = complete(&mut d, long);
        assert_eq!(
            d.register_param(None, id),
            Err(Error::InvalidValue),
            "{long}"
        );
    }
    let id = complete(&mut d, "new");
    assert_eq!(d.register_param(None, id), Ok(()));
    assert_eq!(d.register_param(None, id), Err(Error::BadState));
    assert_eq!(d.destroy_param(id), Err(Error::BadState));
    let id = complete(&mut d, "other");
    assert_eq!(d.destroy_param(id), Ok(()));
    assert_eq!(d.param_of(id.number()), Err(Error::InvalidValue));
    assert_eq!(d.param_of(0), Err(Error::InvalidValue));
}

#[test]
fn the_usage_has_docas_layout() {
    let mut d = program();
    d.program_name = Some("storage".to_owned());
    param(&mut d, None, ("", "secret"), ValueType::Int, |param| {
        param.hidden = true
    });
    let text = usage(&d, Some("ignored"), &Scope::new());
    let expected = "\
Usage: storage [DOCA Flags] [Program Flags]

DOCA Flags:
  -h, --help                        Print a help synopsis
  -v, --version                     Print program version information
  -l, --log-level                   Set the (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
  --sdk-log-level                   Set the SDK (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>
  -j, --json <path>                 Parse command line flags from an input json file

Program Flags:
  -d, --device <device>             About ddevice
  --cpu                             About cpu
  -nd, --num-devices                About ndnum-devices
  -n, --name                        About nname
  -q, --quiet                       About qquiet
  --list                            About list
";
    assert_eq!(text, expected);
}
