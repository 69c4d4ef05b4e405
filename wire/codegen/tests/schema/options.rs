//! Options that are missing, unknown, or do not apply are refused, with the name of the message and the field.

use crate::{
    OPTIONS, assert_error, assert_refused, check_file, check_files, check_with_options, head,
};
use wire_codegen::{Error, Problem};

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

fn missing(option: &'static str, what: &'static str) -> Problem {
    Problem::Missing { option, what }
}

fn does_not_apply(option: &'static str, to: &str) -> Problem {
    Problem::DoesNotApply {
        option,
        to: to.into(),
    }
}

#[test]
fn misspelled_option_names_its_field() {
    assert_refused(
        &field("uint32", "offset: 0 widht: 4"),
        "Payload.one",
        Problem::BadOption(
            "invalid value of type 'doca_storage.layout.FieldLayout' for option '(doca_storage.layout.field)': \
             field 'widht' not found for message 'doca_storage.layout.FieldLayout'"
                .into(),
        ),
    );
}

#[test]
fn misspelled_option_names_its_message() {
    assert_refused(
        &message("form: FORM_RECORD sise: 4"),
        "Thing",
        Problem::BadOption(
            "invalid value of type 'doca_storage.layout.MessageLayout' for option '(doca_storage.layout.message)': \
             field 'sise' not found for message 'doca_storage.layout.MessageLayout'"
                .into(),
        ),
    );
}

#[test]
fn misspelled_extension_names_its_field() {
    let schema = field("uint32", "offset: 0 width: 4").replace("layout.field", "layout.feild");
    let error = crate::check(&schema).expect_err("there is no such option");
    let text = error.to_string();
    assert!(text.starts_with("test.proto: Payload.one: "), "{text}");
    assert!(text.contains("doca_storage.layout.feild"), "{text}");
}

#[test]
fn option_of_a_wrong_type_names_its_field() {
    let error = crate::check(&field("uint32", "offset: 0 width: \"four\"")).expect_err("no number");
    assert!(
        error.to_string().starts_with("test.proto: Payload.one: "),
        "{error}"
    );
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
    assert_refused(
        &field("uint32", "offset: 0"),
        "Payload.one",
        missing("width", "the bytes of the number"),
    );
}

#[test]
fn missing_offset_is_refused() {
    assert_refused(
        &field("uint32", "width: 4"),
        "Payload.one",
        missing("offset", "the bytes before the field"),
    );
}

#[test]
fn missing_length_prefix_is_refused() {
    assert_refused(
        &field("bytes", "offset: 0 max_length: 8"),
        "Payload.one",
        missing("length_prefix", "the bytes of the length before it"),
    );
}

#[test]
fn missing_limit_is_refused() {
    assert_refused(
        &field("string", "offset: 0 length_prefix: 4"),
        "Payload.one",
        missing("max_length", "the longest that is accepted"),
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
    assert_refused(
        schema,
        "Payload.one",
        missing("(layout.field)", "where the field lies"),
    );
}

#[test]
fn missing_byte_order_is_refused() {
    let text = format!(
        "{}{}",
        head("BYTE_ORDER_UNSPECIFIED"),
        field("uint32", "offset: 0 width: 4")
    );
    assert_error(
        check_file(&text),
        "Payload.one",
        missing(
            "byte_order",
            "which byte of the number comes first, here or for the file",
        ),
    );
    let stated = text.replace("width: 4", "width: 4 byte_order: BYTE_ORDER_LITTLE_ENDIAN");
    check_file(&stated).expect("a field may state its own");
}

#[test]
fn message_without_options_is_refused() {
    assert_refused(
        "#
        message Thing {}",
        "Thing",
        missing("(layout.message)", "what the message is on the wire"),
    );
}

#[test]
fn message_without_a_form_is_refused() {
    assert_refused(
        &message("size: 4"),
        "Thing",
        missing("form", "what the message is on the wire"),
    );
}

#[test]
fn record_without_a_size_is_refused() {
    assert_refused(
        &message("form: FORM_RECORD"),
        "Thing",
        missing("size", "the bytes of its fixed part"),
    );
}

#[test]
fn file_without_a_module_is_refused() {
    let text = head("BYTE_ORDER_BIG_ENDIAN").replace("module: \"test\"", "");
    assert_error(
        check_file(&text),
        "",
        missing("module", "the module of the wire crate"),
    );
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
    assert_refused(
        schema,
        "Frame",
        missing("frame", "where its length and type lie"),
    );
    let without_size = schema.replace(
        "size: 8",
        "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } }",
    );
    assert_refused(
        &without_size,
        "Frame",
        missing("max_size", "the largest frame that is accepted"),
    );
    let without_type = schema
        .replace(
            "size: 8",
            "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } max_size: 64 }",
        )
        .replace("message_type: 1", "");
    assert_refused(
        &without_type,
        "Frame.one",
        missing("message_type", "the number of its type"),
    );
    let with_offset = schema
        .replace(
            "size: 8",
            "size: 8 frame { length { offset: 0 width: 4 } type { offset: 4 width: 4 } max_size: 64 }",
        )
        .replace("message_type: 1", "message_type: 1 offset: 8");
    assert_refused(
        &with_offset,
        "Frame.one",
        does_not_apply("offset", "a payload, which lies after the frame's header"),
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
        ("uint32", 3, "1, 2 or 4"),
        ("uint32", 8, "1, 2 or 4"),
        ("uint32", 0, "1, 2 or 4"),
        ("uint64", 4, "8"),
        ("Choice", 8, "1, 2 or 4"),
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
            expected: "1, 2, 4 or 8",
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
            does_not_apply("length_prefix", "a number"),
        ),
        (
            "uint32",
            "width: 4 max_length: 4",
            does_not_apply("max_length", "a number"),
        ),
        (
            "uint32",
            "width: 4 constant: 1 min: 1",
            does_not_apply("min", "a constant"),
        ),
        (
            "Choice",
            "width: 4 min: 1",
            does_not_apply("min", "an enumeration"),
        ),
        (
            "bytes",
            "width: 4 length_prefix: 4 max_length: 1",
            does_not_apply("width", "a blob"),
        ),
        (
            "string",
            "length_prefix: 4 max_length: 1 max: 1",
            does_not_apply("max", "a text"),
        ),
        (
            "uint32",
            "width: 4 message_type: 1",
            does_not_apply("message_type", "a field outside of a frame's `oneof`"),
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
            does_not_apply("at_end", "anything but a record"),
        ),
        (
            "form: FORM_VIEW size: 4 product { name: \"p\" factors: \"one\" max: 1 }",
            does_not_apply("product", "anything but a record"),
        ),
        (
            "form: FORM_VIEW size: 4 frame { max_size: 4 }",
            does_not_apply("frame", "anything but a frame"),
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
            does_not_apply(option, "a field of a view"),
        );
    }
}

#[test]
fn product_of_unknown_fields_is_refused() {
    assert_refused(
        &message("form: FORM_RECORD size: 4 product { name: \"p\" factors: \"two\" max: 1 }"),
        "Thing",
        Problem::NotFound {
            what: "a field of this message as a factor",
            found: "two".into(),
        },
    );
}

#[test]
fn types_without_a_layout_are_refused() {
    for (kind, found) in [
        ("int32", "int32"),
        ("bool", "bool"),
        ("double", "double"),
        ("repeated uint32", "a repeated field"),
        ("optional uint32", "an optional field"),
    ] {
        assert_refused(
            &field(kind, "offset: 0 width: 4"),
            "Payload.one",
            Problem::UnsupportedType(found.into()),
        );
    }
}

#[test]
fn negative_value_is_refused() {
    assert_refused(
        &field("Choice", "offset: 0 width: 4").replace("= 300", "= -1"),
        "Choice.CHOICE_MANY",
        Problem::Unsupported("a negative value has no layout"),
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
        Problem::Unsupported("only a frame has a `oneof`, of its payloads"),
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
