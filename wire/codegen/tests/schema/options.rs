//! Options that are missing, unknown, or do not apply are refused, with the name of the message and the field.

use crate::{
    OPTIONS, assert_error, assert_refused, check, check_file, check_files, check_with_options,
    head, refusal,
};
use wire_codegen::{Construct, Declaration, Error, FieldType, Problem, Schema, Unsupported};

/// A payload with one field, whose type and options are given.
fn field(kind: &str, options: &str) -> String {
    format!(
        r#"
        #
        enum Choice {{
          #
          CHOICE_NONE = 0;
          #
          CHOICE_MANY = 300;
        }}
        #
        message Payload {{
          option (doca_storage.layout.message) = {{ form: FORM_PAYLOAD }};
          #
          {kind} one = 1 [(doca_storage.layout.field) = {{ {options} }}];
        }}"#
    )
}

/// A message with these options and one field of four bytes.
fn message(options: &str) -> String {
    format!(
        r#"
        #
        message Thing {{
          option (doca_storage.layout.message) = {{ {options} }};
          #
          uint32 one = 1 [(doca_storage.layout.field) = {{ offset: 0 width: 4 }}];
        }}"#
    )
}

/// Asserts that a schema is refused for lack of an option.
#[track_caller]
fn assert_missing(result: Result<Schema, Error>, place: &str, expected: &str) {
    let error = refusal(result, place);
    assert!(
        matches!(error, Problem::Missing { option, .. } if option == expected),
        "{expected}: {error}"
    );
}

/// Asserts that a schema is refused because of an option or a value that is unknown to protobuf.
#[track_caller]
fn assert_bad_option(declarations: &str, place: &str, name: &str) {
    let error = refusal(check(declarations), place);
    assert!(
        matches!(&error, Problem::BadOption(reason) if reason.contains(name)),
        "{name}: {error}"
    );
}

fn does_not_apply(option: &'static str, to: Construct) -> Problem {
    Problem::DoesNotApply { option, to }
}

#[test]
fn misspelled_option_names_its_field() {
    let schema = field("uint32", "offset: 0 widht: 4");
    assert_bad_option(&schema, "Payload.one", "'widht'");
}

#[test]
fn misspelled_option_names_its_message() {
    assert_bad_option(&message("form: FORM_RECORD sise: 4"), "Thing", "'sise'");
}

#[test]
fn misspelled_extension_names_its_field() {
    let schema = field("uint32", "offset: 0 width: 4").replace("layout.field", "layout.feild");
    assert_bad_option(&schema, "Payload.one", "doca_storage.layout.feild");
}

#[test]
fn option_of_a_wrong_type_names_its_field() {
    let schema = field("uint32", "offset: 0 width: \"four\"");
    assert_bad_option(&schema, "Payload.one", "four");
}

#[test]
fn option_that_the_generator_does_not_know_names_its_field() {
    let newer = OPTIONS.replace(
        "optional uint32 width = 2;",
        "optional uint32 width = 2; optional uint32 alignment = 90;",
    );
    let text = format!(
        "{}{}",
        head("BYTE_ORDER_BIG_ENDIAN"),
        field("uint32", "offset: 0 width: 4 alignment: 8")
    );
    assert_error(
        check_with_options(&text, &newer),
        "Payload.one",
        Problem::UnknownOption("alignment".into()),
    );
}

#[test]
fn nested_option_that_the_generator_does_not_know_is_refused() {
    let newer = OPTIONS.replace("message Span {", "message Span { uint32 colour = 90;");
    let text = format!(
        "{}{}",
        head("BYTE_ORDER_BIG_ENDIAN"),
        message("form: FORM_RECORD size: 6 reserved { offset: 4 width: 2 colour: 1 }")
    );
    assert_error(
        check_with_options(&text, &newer),
        "Thing",
        Problem::UnknownOption("reserved.colour".into()),
    );
}

#[test]
fn missing_width_is_refused() {
    assert_missing(check(&field("uint32", "offset: 0")), "Payload.one", "width");
}

#[test]
fn missing_offset_is_refused() {
    assert_missing(check(&field("uint32", "width: 4")), "Payload.one", "offset");
}

#[test]
fn missing_length_prefix_is_refused() {
    assert_missing(
        check(&field("bytes", "offset: 0 max_length: 8")),
        "Payload.one",
        "length_prefix",
    );
}

#[test]
fn missing_limit_is_refused() {
    assert_missing(
        check(&field("string", "offset: 0 length_prefix: 4")),
        "Payload.one",
        "max_length",
    );
}

#[test]
fn field_without_options_is_refused() {
    let schema = "
        #
        message Payload {
          option (doca_storage.layout.message) = { form: FORM_PAYLOAD };
          #
          uint32 one = 1;
        }";
    assert_missing(check(schema), "Payload.one", "(layout.field)");
}

#[test]
fn missing_byte_order_is_refused() {
    let text = format!(
        "{}{}",
        head("BYTE_ORDER_UNSPECIFIED"),
        field("uint32", "offset: 0 width: 4")
    );
    assert_missing(check_file(&text), "Payload.one", "byte_order");
    let stated = text.replace("width: 4", "width: 4 byte_order: BYTE_ORDER_LITTLE_ENDIAN");
    check_file(&stated).expect("a field may state its own");
}

#[test]
fn message_without_options_is_refused() {
    assert_missing(
        check(
            "#
        message Thing {}",
        ),
        "Thing",
        "(layout.message)",
    );
}

#[test]
fn message_without_a_form_is_refused() {
    assert_missing(check(&message("size: 4")), "Thing", "form");
}

#[test]
fn record_without_a_size_is_refused() {
    assert_missing(check(&message("form: FORM_RECORD")), "Thing", "size");
}

#[test]
fn file_without_a_module_is_refused() {
    let text = head("BYTE_ORDER_BIG_ENDIAN").replace("module: \"test\"", "");
    assert_missing(check_file(&text), "", "module");
}

#[test]
fn frame_without_its_options_is_refused() {
    let schema = "
        #
        message Frame {
          option (doca_storage.layout.message) = { form: FORM_FRAME size: 8 };
          #
          oneof payload {
            #
            google.protobuf.Empty one = 1 [(doca_storage.layout.field) = { message_type: 1 }];
          }
        }";
    assert_missing(check(schema), "Frame", "frame");
    let without_size = schema.replace(
        "size: 8",
        "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } }",
    );
    assert_missing(check(&without_size), "Frame", "max_size");
    let without_type = schema
        .replace(
            "size: 8",
            "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } max_size: 64 }",
        )
        .replace("message_type: 1", "");
    assert_missing(check(&without_type), "Frame.one", "message_type");
    let with_offset = schema
        .replace(
            "size: 8",
            "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } max_size: 64 }",
        )
        .replace("message_type: 1", "message_type: 1 offset: 8");
    assert_refused(
        &with_offset,
        "Frame.one",
        does_not_apply("offset", Construct::FramePayload),
    );
}

#[test]
fn missing_comment_is_refused() {
    let schema = field("uint32", "offset: 0 width: 4");
    let (before, after) = schema.rsplit_once('#').expect("the field's comment");
    assert_refused(
        &format!("{before}{after}"),
        "Payload.one",
        Problem::NoComment,
    );
    let value = schema.replacen("#\n          CHOICE_MANY", "CHOICE_MANY", 1);
    assert_refused(&value, "Choice.CHOICE_MANY", Problem::NoComment);
}

#[test]
fn invalid_widths_are_refused() {
    for (kind, width, expected) in [
        ("uint32", 3, &[1, 2, 4][..]),
        ("uint32", 8, &[1, 2, 4][..]),
        ("uint32", 0, &[1, 2, 4][..]),
        ("uint64", 4, &[8]),
        ("Choice", 8, &[1, 2, 4][..]),
    ] {
        assert_refused(
            &field(kind, &format!("offset: 0 width: {width}")),
            "Payload.one",
            Problem::Width {
                expected,
                found: width,
            },
        );
    }
    assert_refused(
        &field("bytes", "offset: 0 length_prefix: 5 max_length: 1"),
        "Payload.one",
        Problem::Width {
            expected: &[1, 2, 4, 8],
            found: 5,
        },
    );
}

#[test]
fn enumeration_that_does_not_fit_is_refused() {
    assert_refused(
        &field("Choice", "offset: 0 width: 1"),
        "Payload.one",
        Problem::TooLarge {
            option: "width",
            max: 255,
            found: 300,
        },
    );
}

#[test]
fn limit_beyond_the_length_prefix_is_refused() {
    assert_refused(
        &field("bytes", "offset: 0 length_prefix: 1 max_length: 256"),
        "Payload.one",
        Problem::TooLarge {
            option: "max_length",
            max: 255,
            found: 256,
        },
    );
}

#[test]
fn constant_that_does_not_fit_is_refused() {
    assert_refused(
        &field("uint32", "offset: 0 width: 2 constant: 65536"),
        "Payload.one",
        Problem::TooLarge {
            option: "constant",
            max: 65535,
            found: 65536,
        },
    );
}

#[test]
fn range_without_numbers_is_refused() {
    assert_refused(
        &field("uint32", "offset: 0 width: 4 min: 3 max: 2"),
        "Payload.one",
        Problem::EmptyRange { min: 3, max: 2 },
    );
}

#[test]
fn options_of_another_kind_of_field_are_refused() {
    for (kind, options, problem) in [
        (
            "uint32",
            "width: 4 length_prefix: 4",
            does_not_apply("length_prefix", Construct::Number),
        ),
        (
            "uint32",
            "width: 4 max_length: 4",
            does_not_apply("max_length", Construct::Number),
        ),
        (
            "uint32",
            "width: 4 constant: 1 min: 1",
            does_not_apply("min", Construct::Constant),
        ),
        (
            "Choice",
            "width: 4 min: 1",
            does_not_apply("min", Construct::Enumeration),
        ),
        (
            "bytes",
            "width: 4 length_prefix: 4 max_length: 1",
            does_not_apply("width", Construct::Blob),
        ),
        (
            "string",
            "length_prefix: 4 max_length: 1 max: 1",
            does_not_apply("max", Construct::Text),
        ),
        (
            "uint32",
            "width: 4 message_type: 1",
            does_not_apply("message_type", Construct::FieldOutsideOneof),
        ),
    ] {
        assert_refused(
            &field(kind, &format!("offset: 0 {options}")),
            "Payload.one",
            problem,
        );
    }
}

#[test]
fn options_of_another_form_are_refused() {
    for (options, problem) in [
        (
            "form: FORM_PAYLOAD at_end: true",
            does_not_apply("at_end", Construct::OtherThanRecord),
        ),
        (
            "form: FORM_VIEW size: 4 product { name: \"p\" factors: \"one\" max: 1 }",
            does_not_apply("product", Construct::OtherThanRecord),
        ),
        (
            "form: FORM_VIEW size: 4 frame { max_size: 4 }",
            does_not_apply("frame", Construct::OtherThanFrame),
        ),
    ] {
        assert_refused(&message(options), "Thing", problem);
    }
}

#[test]
fn limits_in_a_view_are_refused() {
    for option in ["constant", "min", "max"] {
        let view = message("form: FORM_VIEW size: 4")
            .replace("width: 4", &format!("width: 4 {option}: 1"));
        assert_refused(
            &view,
            "Thing.one",
            does_not_apply(option, Construct::ViewField),
        );
    }
}

#[test]
fn product_of_unknown_fields_is_refused() {
    assert_refused(
        &message("form: FORM_RECORD size: 4 product { name: \"p\" factors: \"two\" max: 1 }"),
        "Thing",
        Problem::NotFound {
            what: Declaration::Factor,
            found: "two".into(),
        },
    );
}

#[test]
fn types_without_a_layout_are_refused() {
    for (kind, found) in [
        ("int32", FieldType::Named("int32".into())),
        ("bool", FieldType::Named("bool".into())),
        ("double", FieldType::Named("double".into())),
        ("repeated uint32", FieldType::Repeated),
        ("optional uint32", FieldType::Optional),
    ] {
        assert_refused(
            &field(kind, "offset: 0 width: 4"),
            "Payload.one",
            Problem::UnsupportedType(found),
        );
    }
}

#[test]
fn negative_value_is_refused() {
    assert_refused(
        &field("Choice", "offset: 0 width: 4").replace("= 300", "= -1"),
        "Choice.CHOICE_MANY",
        Problem::Unsupported(Unsupported::NegativeValue),
    );
}

#[test]
fn payloads_outside_of_a_frame_are_refused() {
    let schema = "
        #
        message Payload {
          option (doca_storage.layout.message) = { form: FORM_PAYLOAD };
          #
          oneof either {
            #
            uint32 one = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];
          }
        }";
    assert_refused(
        schema,
        "Payload",
        Problem::Unsupported(Unsupported::OneofOutsideFrame),
    );
}

#[test]
fn name_of_another_message_is_refused() {
    let first = message("form: FORM_RECORD size: 4 name: \"thing\"");
    let schema = format!("{first}{}", first.replace("Thing", "Other"));
    assert_refused(
        &schema,
        "Other",
        Problem::DuplicateName {
            name: "thing".into(),
            other: "test.Thing".into(),
        },
    );
}

#[test]
fn module_of_another_file_is_refused() {
    let text = head("BYTE_ORDER_BIG_ENDIAN");
    let other = text.replace("package test;", "package other;");
    assert_error(
        check_files(&[("first.proto", &other), ("test.proto", &text)], OPTIONS),
        "",
        Problem::DuplicateName {
            name: "test".into(),
            other: "first.proto".into(),
        },
    );
}

#[test]
fn syntax_error_names_its_file() {
    let error = check_file("syntax = \"proto3\"; message {").expect_err("not protobuf");
    assert!(error.to_string().contains("test.proto"), "{error}");
}

#[test]
fn missing_file_is_an_error() {
    let error = check_files(&[], OPTIONS).map(|_| ());
    assert!(error.is_ok(), "nothing is wrong with nothing");
    let dir = tempfile::tempdir().expect("a directory");
    let error =
        wire_codegen::check(&[dir.path()], &["absent.proto"]).expect_err("there is no file");
    assert!(matches!(error, Error::Compile(_)));
    assert!(error.to_string().contains("absent.proto"), "{error}");
}

#[test]
fn file_without_a_layout_is_no_module() {
    let schema =
        check_file("syntax = \"proto3\"; package notes; message Note { string text = 1; }")
            .expect("recordings need no layout");
    assert_eq!(schema.modules, []);
}
