//! Valid and invalid schemas; the model and the generated code of a valid schema. One test binary, because each has to
//! be linked.

mod geometry;
mod options;

use std::fs;
use std::path::Path;

use wire_codegen::model::{ByteOrder, Form, Kind, Prefixed, Span};
use wire_codegen::{Error, Problem, Schema};

/// The options file of this project.
const OPTIONS: &str = include_str!("../../../../proto/options/layout.proto");

/// Checks a schema of one file, with the usual file header.
fn check(declarations: &str) -> Result<Schema, Error> {
    check_file(&format!("{}{declarations}", head("BYTE_ORDER_BIG_ENDIAN")))
}

/// Start of a schema file.
fn head(byte_order: &str) -> String {
    format!(
        r#"
        syntax = "proto3";
        package test;
        import "google/protobuf/empty.proto";
        import "options/layout.proto";
        option (doca_storage.layout.file) = {{ module: "test" byte_order: {byte_order} }};
        "#
    )
}

fn check_file(text: &str) -> Result<Schema, Error> {
    check_with_options(text, OPTIONS)
}

/// Checks a schema of one file that imports another options file.
fn check_with_options(text: &str, options: &str) -> Result<Schema, Error> {
    check_files(&[("test.proto", text)], options)
}

/// Checks a schema of several files.
fn check_files(files: &[(&str, &str)], options: &str) -> Result<Schema, Error> {
    let dir = tempfile::tempdir().expect("a directory for the schema");
    write(dir.path(), files, options);
    let names: Vec<_> = files.iter().map(|&(name, _)| name).collect();
    wire_codegen::check(&[dir.path()], &names)
}

/// Writes the files of a schema to a directory.
fn write(dir: &Path, files: &[(&str, &str)], options: &str) {
    fs::create_dir(dir.join("options")).expect("a directory for the options");
    fs::write(dir.join("options/layout.proto"), options).expect("the options can be written");
    for (name, text) in files {
        // Comments are mandatory; `#` is replaced by one in tests of other features.
        let text = text.replace('#', "\n// Documented.");
        fs::write(dir.join(name), text).expect("the schema can be written");
    }
}

/// Asserts that a schema is refused for one reason, and that the error names the location.
#[track_caller]
fn assert_refused(declarations: &str, place: &str, problem: Problem) {
    assert_error(check(declarations), place, problem);
}

/// Asserts that a check has failed with a particular error.
#[track_caller]
fn assert_error(result: Result<Schema, Error>, place: &str, problem: Problem) {
    assert_eq!(refusal(result, place), problem);
}

/// The reason why a schema is refused, at the given location.
#[track_caller]
fn refusal(result: Result<Schema, Error>, place: &str) -> Problem {
    let error = match result {
        Err(Error::Schema(error)) => error,
        Err(other) => panic!("expected an error in the schema, got {other}"),
        Ok(schema) => panic!("expected a refusal, the schema was accepted: {schema:#?}"),
    };
    let problem = error.problem.to_string();
    let location = match place {
        "" => String::new(),
        place => format!("{place}: "),
    };
    assert_eq!(
        error.to_string(),
        format!("test.proto: {location}{problem}")
    );
    error.problem
}

const SCHEMA: &str = r#"
    // The frame.
    //
    // More about it.
    message Frame {
      option (doca_storage.layout.message) = {
        form: FORM_FRAME
        size: 9
        frame { length { offset: 0 width: 4 } type { offset: 4 width: 1 } max_size: 64 }
      };
      #
      uint32 id = 1 [(doca_storage.layout.field) = { offset: 5 width: 4 byte_order: BYTE_ORDER_LITTLE_ENDIAN }];
      #
      oneof payload {
        #
        google.protobuf.Empty nothing = 10 [(doca_storage.layout.field) = { message_type: 0 }];
        #
        Note note = 11 [(doca_storage.layout.field) = { message_type: 3 }];
      }
    }
    #
    message Note {
      option (doca_storage.layout.message) = { form: FORM_PAYLOAD };
      #
      Colour colour = 1 [(doca_storage.layout.field) = { offset: 0 width: 2 }];
      #
      string text = 2 [(doca_storage.layout.field) = { offset: 2 length_prefix: 1 max_length: 20 }];
    }
    #
    enum Colour {
      #
      COLOUR_DARK_RED = 0;
      #
      BLUE = 7;
    }
    "#;

#[test]
fn model_contains_the_declarations_of_the_schema() {
    let schema = check(SCHEMA).expect("a sound schema");
    let [module] = schema.modules.as_slice() else {
        panic!("one module, not {schema:?}");
    };
    assert_eq!(module.name, "test");
    assert_eq!(module.package, "test");
    let [frame, note] = module.messages.as_slice() else {
        panic!("two messages, not {module:?}");
    };

    assert_eq!(frame.docs, "The frame.\n\nMore about it.");
    assert_eq!(frame.wire_name, "frame");
    assert_eq!(frame.size, Some(9));
    assert_eq!(frame.fields[0].byte_order, ByteOrder::Little);
    assert_eq!(frame.fields[0].offset, 5);
    let Form::Frame(form) = &frame.form else {
        panic!("a frame, not {frame:?}");
    };
    assert_eq!(
        form.length,
        Span {
            offset: 0,
            width: 4
        }
    );
    assert_eq!(
        form.discriminant,
        Span {
            offset: 4,
            width: 1
        }
    );
    assert_eq!(form.byte_order, ByteOrder::Big);
    assert_eq!(form.max_size, 64);
    let variants: Vec<_> = form
        .variants
        .iter()
        .map(|variant| {
            (
                variant.name.as_str(),
                variant.number,
                variant.payload.as_deref(),
            )
        })
        .collect();
    assert_eq!(variants, [("nothing", 0, None), ("note", 3, Some("Note"))]);

    assert_eq!(note.form, Form::Payload);
    let expected = Kind::Enumeration {
        width: 2,
        name: "Colour".into(),
    };
    assert_eq!(note.fields[0].kind, expected);
    assert_eq!(
        note.fields[1].kind,
        Kind::Text(Prefixed { prefix: 1, max: 20 })
    );
    assert_eq!((note.fixed_width(), note.variable_width()), (3, 20));

    let values: Vec<_> = module.enums[0]
        .values
        .iter()
        .map(|value| (value.name.as_str(), value.number))
        .collect();
    assert_eq!(values, [("dark_red", 0), ("blue", 7)]);
}

#[test]
fn generated_files_are_those_that_wire_includes() {
    let proto = tempfile::tempdir().expect("a directory for the schema");
    let out = tempfile::tempdir().expect("a directory for the code");
    let text = format!("{}{SCHEMA}", head("BYTE_ORDER_BIG_ENDIAN"));
    write(proto.path(), &[("test.proto", &text)], OPTIONS);
    wire_codegen::generate(&[proto.path()], &["test.proto"], &[], out.path())
        .expect("a sound schema");

    let read = |name: &str| {
        std::fs::read_to_string(out.path().join(name))
            .unwrap_or_else(|error| panic!("{name} is included by wire: {error}"))
    };
    let code = read("test.rs");
    assert!(code.contains("pub struct Frame"), "{code}");
    assert!(code.contains("put_u32_le(self.id)"), "{code}");
    assert!(code.contains("pub enum Payload"), "{code}");
    assert!(code.contains("DarkRed = 0"), "{code}");
    let table = read("layout_table.rs");
    assert!(table.contains("Kind::Text { max: 20 }"), "{table}");
    // The note's text follows the header of 9 bytes and the colour of 2.
    assert!(table.contains("offset: 11"), "{table}");
    assert!(read("recording.rs").contains("include!(\"prost/test.rs\")"));
    assert!(read("prost/test.rs").contains("::prost::Message"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let proto = tempfile::tempdir().expect("a directory for the schema");
    let text = format!("{}{SCHEMA}", head("BYTE_ORDER_BIG_ENDIAN"));
    write(proto.path(), &[("test.proto", &text)], OPTIONS);
    let nowhere = proto.path().join("absent");
    let error = wire_codegen::generate(&[proto.path()], &["test.proto"], &[], &nowhere)
        .expect_err("there is no such directory");
    assert!(
        matches!(&error, Error::Write { path, .. } if path.ends_with("absent/test.rs")),
        "{error}"
    );
}
