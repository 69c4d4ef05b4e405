//! Invalid offsets and widths are refused, with the name of the message and the field.

use crate::{assert_refused, check};
use wire_codegen::{Declaration, Problem, WrongAlternative, WrongExtension};

/// A payload with these fields.
fn payload(fields: &str) -> String {
    format!(
        r#"
        #
        message Payload {{
          option (doca_storage.layout.message) = {{ form: FORM_PAYLOAD }};
          {fields}
        }}"#
    )
}

/// A record with these options and fields.
fn record(options: &str, fields: &str) -> String {
    format!(
        r#"
        #
        message Record {{
          option (doca_storage.layout.message) = {{ form: FORM_RECORD {options} }};
          {fields}
        }}"#
    )
}

/// A frame with these payloads and a message `Payload` of at most 12 bytes.
fn frame(options: &str, payloads: &str) -> String {
    format!(
        r#"
        #
        message Frame {{
          option (doca_storage.layout.message) = {{ form: FORM_FRAME size: 8 frame {{ {options} }} }};
          #
          oneof payload {{ {payloads} }}
        }}
        {}"#,
        payload(
            "#
            bytes blob = 1 [(doca_storage.layout.field) = { offset: 0 length_prefix: 4 max_length: 8 }];"
        )
    )
}

const SPANS: &str = "length { offset: 0 width: 4 } type { offset: 4 width: 4 }";

#[test]
fn overlap_is_refused() {
    assert_refused(
        &payload(
            "#
            uint64 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 8 }];
            #
            uint32 second = 2 [(doca_storage.layout.field) = { offset: 6 width: 4 }];",
        ),
        "Payload.second",
        Problem::Overlap {
            offset: 6,
            previous: "first".into(),
            end: 8,
        },
    );
}

#[test]
fn two_fields_at_one_offset_are_refused() {
    assert_refused(
        &payload(
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];
            #
            uint32 second = 2 [(doca_storage.layout.field) = { offset: 0 width: 4 }];",
        ),
        "Payload.second",
        Problem::Overlap {
            offset: 0,
            previous: "first".into(),
            end: 4,
        },
    );
}

#[test]
fn overlap_with_a_length_prefix_is_refused() {
    assert_refused(
        &payload(
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];
            #
            bytes second = 2 [(doca_storage.layout.field) = { offset: 2 length_prefix: 4 max_length: 9 }];",
        ),
        "Payload.second",
        Problem::Overlap {
            offset: 2,
            previous: "first".into(),
            end: 4,
        },
    );
}

#[test]
fn overlap_with_reserved_bytes_is_refused() {
    assert_refused(
        &record(
            "size: 8 reserved { offset: 2 width: 6 }",
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];",
        ),
        "Record.reserved",
        Problem::Overlap {
            offset: 2,
            previous: "first".into(),
            end: 4,
        },
    );
}

#[test]
fn gap_between_fields_is_refused() {
    assert_refused(
        &payload(
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];
            #
            uint64 second = 2 [(doca_storage.layout.field) = { offset: 8 width: 8 }];",
        ),
        "Payload.second",
        Problem::Gap { from: 4, to: 8 },
    );
}

#[test]
fn gap_before_the_first_field_is_refused() {
    assert_refused(
        &payload(
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 4 width: 4 }];",
        ),
        "Payload.first",
        Problem::Gap { from: 0, to: 4 },
    );
}

#[test]
fn gap_at_the_end_is_refused() {
    assert_refused(
        &record(
            "size: 8",
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];",
        ),
        "Record.first",
        Problem::Gap { from: 4, to: 8 },
    );
}

#[test]
fn reserved_bytes_close_a_gap() {
    check(&record(
        "size: 16 reserved { offset: 0 width: 2 } reserved { offset: 6 width: 10 }",
        "#
        uint32 first = 1 [(doca_storage.layout.field) = { offset: 2 width: 4 }];",
    ))
    .expect("every byte is covered once");
}

#[test]
fn field_beyond_the_size_is_refused() {
    assert_refused(
        &record(
            "size: 6",
            "#
            uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];
            #
            uint32 second = 2 [(doca_storage.layout.field) = { offset: 4 width: 4 }];",
        ),
        "Record.second",
        Problem::BeyondSize { end: 8, size: 6 },
    );
}

#[test]
fn fields_out_of_order_are_refused() {
    assert_refused(
        &payload(
            "#
            uint32 second = 1 [(doca_storage.layout.field) = { offset: 4 width: 4 }];
            #
            uint32 first = 2 [(doca_storage.layout.field) = { offset: 0 width: 4 }];",
        ),
        "Payload.first",
        Problem::OutOfOrder {
            offset: 0,
            previous: "second".into(),
        },
    );
}

#[test]
fn field_after_a_blob_is_refused() {
    assert_refused(
        &payload(
            "#
            bytes blob = 1 [(doca_storage.layout.field) = { offset: 0 length_prefix: 4 max_length: 8 }];
            #
            uint32 after = 2 [(doca_storage.layout.field) = { offset: 4 width: 4 }];",
        ),
        "Payload.blob",
        Problem::VariableNotLast {
            next: "after".into(),
        },
    );
}

#[test]
fn text_in_a_fixed_size_is_refused() {
    assert_refused(
        &record(
            "size: 4",
            "#
            string text = 1 [(doca_storage.layout.field) = { offset: 0 length_prefix: 4 max_length: 8 }];",
        ),
        "Record.text",
        Problem::VariableInFixedSize,
    );
}

#[test]
fn duplicate_message_type_is_refused() {
    assert_refused(
        &frame(
            &format!("{SPANS} max_size: 64"),
            "#
            google.protobuf.Empty first = 1 [(doca_storage.layout.field) = { message_type: 7 }];
            #
            google.protobuf.Empty second = 2 [(doca_storage.layout.field) = { message_type: 7 }];",
        ),
        "Frame.second",
        Problem::DuplicateType {
            number: 7,
            other: "first".into(),
        },
    );
}

#[test]
fn message_type_that_does_not_fit_is_refused() {
    assert_refused(
        &frame(
            "length { offset: 0 width: 4 } type { offset: 4 width: 1 } max_size: 64",
            "#
            google.protobuf.Empty first = 1 [(doca_storage.layout.field) = { message_type: 256 }];",
        )
        .replace("size: 8", "size: 8 reserved { offset: 5 width: 3 }"),
        "Frame.first",
        Problem::TooLarge {
            option: "message_type",
            max: 255,
            found: 256,
        },
    );
}

#[test]
fn payload_over_the_largest_frame_is_refused() {
    let one = "#
        Payload one = 1 [(doca_storage.layout.field) = { message_type: 1 }];";
    assert_refused(
        &frame(&format!("{SPANS} max_size: 19"), one),
        "Frame.one",
        Problem::FrameTooLarge { max: 19, found: 20 },
    );
    check(&frame(&format!("{SPANS} max_size: 20"), one)).expect("the largest payload just fits");
}

#[test]
fn frame_whose_length_comes_later_is_refused() {
    assert_refused(
        &frame(
            "length { offset: 4 width: 4 } type { offset: 0 width: 4 } max_size: 64",
            "#
            google.protobuf.Empty one = 1 [(doca_storage.layout.field) = { message_type: 1 }];",
        ),
        "Frame.length",
        Problem::LengthNotFirst(4),
    );
}

#[test]
fn frame_exceeding_its_length_field_is_refused() {
    assert_refused(
        &frame(
            "length { offset: 0 width: 1 } type { offset: 1 width: 1 } max_size: 257",
            "#
            google.protobuf.Empty one = 1 [(doca_storage.layout.field) = { message_type: 1 }];",
        )
        .replace("size: 8", "size: 2"),
        "Frame.length",
        Problem::TooLarge {
            option: "max_size",
            max: 256,
            found: 257,
        },
    );
}

#[test]
fn header_field_over_the_frames_type_is_refused() {
    let schema = frame(
        &format!("{SPANS} max_size: 64"),
        "#
        google.protobuf.Empty one = 1 [(doca_storage.layout.field) = { message_type: 1 }];",
    )
    .replace(
        "oneof",
        "uint32 id = 9 [(doca_storage.layout.field) = { offset: 6 width: 2 }];
        #
        oneof",
    );
    assert_refused(
        &schema,
        "Frame.id",
        Problem::Overlap {
            offset: 6,
            previous: "type".into(),
            end: 8,
        },
    );
}

#[test]
fn message_that_is_not_a_payload_is_refused() {
    let schema = frame(
        &format!("{SPANS} max_size: 64"),
        "#
        Payload one = 1 [(doca_storage.layout.field) = { message_type: 1 }];",
    )
    .replace("FORM_PAYLOAD", "FORM_RECORD size: 4")
    .replace(
        "bytes blob = 1 [(doca_storage.layout.field) = { offset: 0 length_prefix: 4 max_length: 8 }]",
        "uint32 number = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }]",
    );
    assert_refused(
        &schema,
        "Frame.one",
        Problem::NotFound {
            what: Declaration::PayloadMessage,
            found: "Payload".into(),
        },
    );
}

#[test]
fn second_view_in_a_module_is_refused() {
    let view = record(
        "size: 4",
        "#
        uint32 first = 1 [(doca_storage.layout.field) = { offset: 0 width: 4 }];",
    )
    .replace("FORM_RECORD", "FORM_VIEW");
    let schema = format!("{view}{}", view.replace("Record", "Second"));
    assert_refused(
        &schema,
        "Second",
        Problem::DuplicateName {
            name: "Repr".into(),
            other: "Record: one view per module".into(),
        },
    );
}

/// A frame with an empty payload, a payload with a blob, and a third payload that extends one of them.
fn extended(third: &str) -> String {
    let option = |layout: &str| format!("[(doca_storage.layout.field) = {{ {layout} }}];");
    frame(
        &format!("{SPANS} max_size: 64"),
        &format!(
            "#\ngoogle.protobuf.Empty first = 1 {}\n#\nPayload second = 2 {}\n#\n{third}",
            option("message_type: 7"),
            option("message_type: 8"),
        ),
    )
}

#[test]
fn a_longer_form_has_the_type_and_the_beginning_of_another() {
    let longer = |message: &str, layout: &str| {
        extended(&format!(
            "{message} third = 3 [(doca_storage.layout.field) = {{ {layout} }}];"
        ))
    };
    check(&longer("Payload", r#"message_type: 7 extends: "first""#)).expect("a longer form");
    for (message, layout, problem) in [
        (
            "Payload",
            r#"message_type: 9 extends: "first""#,
            Problem::WrongExtension(WrongExtension::OtherType),
        ),
        (
            "Payload",
            r#"message_type: 7 extends: "nobody""#,
            Problem::NotFound {
                what: Declaration::ExtendedPayload,
                found: "nobody".into(),
            },
        ),
        (
            "google.protobuf.Empty",
            r#"message_type: 7 extends: "first""#,
            Problem::WrongExtension(WrongExtension::OtherFields),
        ),
        (
            "Payload",
            r#"message_type: 8 extends: "second""#,
            Problem::WrongExtension(WrongExtension::VariableSize),
        ),
        (
            "Payload",
            "message_type: 7",
            Problem::DuplicateType {
                number: 7,
                other: "first".into(),
            },
        ),
    ] {
        assert_refused(&longer(message, layout), "Frame.third", problem);
    }
    let twice = extended(
        r#"Payload third = 3 [(doca_storage.layout.field) = { message_type: 7 extends: "first" }];
        #
        Payload fourth = 4 [(doca_storage.layout.field) = { message_type: 7 extends: "first" }];"#,
    );
    let problem = Problem::WrongExtension(WrongExtension::NotDistinguished);
    assert_refused(&twice, "Frame.fourth", problem);
}

#[test]
fn an_alternative_has_the_type_of_a_payload_without_other_forms_and_bytes() {
    let option = |layout: &str| format!("[(doca_storage.layout.field) = {{ {layout} }}];");
    let third =
        |message: &str, layout: &str| extended(&format!("{message} third = 3 {}", option(layout)));
    let alternative = r#"message_type: 8 alternative_to: "second""#;
    check(&third("Payload", alternative)).expect("an alternative");
    for (message, layout, problem) in [
        (
            "Payload",
            r#"message_type: 9 alternative_to: "second""#,
            Problem::WrongAlternative(WrongAlternative::OtherType),
        ),
        (
            "Payload",
            r#"message_type: 8 alternative_to: "nobody""#,
            Problem::NotFound {
                what: Declaration::AlternativePayload,
                found: "nobody".into(),
            },
        ),
        (
            "Payload",
            r#"message_type: 7 alternative_to: "first""#,
            Problem::WrongAlternative(WrongAlternative::NoBytes),
        ),
        (
            "google.protobuf.Empty",
            alternative,
            Problem::WrongAlternative(WrongAlternative::NoBytes),
        ),
        (
            "Payload",
            r#"message_type: 8 alternative_to: "second" extends: "second""#,
            Problem::WrongAlternative(WrongAlternative::HasLongerForm),
        ),
    ] {
        assert_refused(&third(message, layout), "Frame.third", problem);
    }
    let twice = extended(&format!(
        "Payload third = 3 {0}\n#\nPayload fourth = 4 {0}",
        option(alternative)
    ));
    let problem = Problem::WrongAlternative(WrongAlternative::SecondAlternative);
    assert_refused(&twice, "Frame.fourth", problem);
}
