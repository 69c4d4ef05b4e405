//! What a file of flags says, and how it is written down.

use arbitrary::Arbitrary;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Number, Value, json};

use super::Program;

/// What a file says.
#[derive(Debug, Clone, Arbitrary)]
pub struct Document {
    /// Whether the mandatory flags are all there, with values that are accepted where nothing else is said.
    complete: bool,
    general: Vec<(u8, AnyValue)>,
    program: Vec<(u8, AnyValue)>,
    /// What is no flag, or in the wrong object.
    odd: Option<(OddPlace, String, AnyValue)>,
}

#[derive(Debug, Clone, Arbitrary)]
enum OddPlace {
    Root,
    General,
    Program,
}

/// A value of a flag.
#[derive(Debug, Clone, Arbitrary)]
enum AnyValue {
    /// One that is probably accepted.
    Plausible(u8),
    Text(String),
    /// What a reader of comments stumbles over.
    Tricky(Vec<Fragment>),
    Number(i64),
    Large(u64),
    Fraction(f64),
    Truth(bool),
    Nothing,
    List(Vec<AnyValue>),
    Object(Vec<(String, AnyValue)>),
    /// Many lists in each other.
    Deep(u8),
}

/// A part of a text.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum Fragment {
    Quote,
    Backslash,
    Slash,
    LineComment,
    BlockComment,
    EndOfComment,
    LineEnd,
    Letter,
    Wide,
}

impl Fragment {
    fn text(self) -> &'static str {
        match self {
            Self::Quote => "\"",
            Self::Backslash => "\\",
            Self::Slash => "/",
            Self::LineComment => "//",
            Self::BlockComment => "/*",
            Self::EndOfComment => "*/",
            Self::LineEnd => "\n",
            Self::Letter => "a",
            Self::Wide => "\u{1F980}",
        }
    }
}

impl AnyValue {
    fn json(&self, arg: Option<&Arg>) -> Value {
        match self {
            Self::Plausible(choice) => arg.map_or(Value::Null, |arg| plausible(arg, *choice)),
            Self::Text(text) => json!(text),
            Self::Tricky(parts) => Value::String(parts.iter().map(|part| part.text()).collect()),
            Self::Number(number) => json!(number),
            Self::Large(number) => json!(number),
            Self::Fraction(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
            Self::Truth(truth) => json!(truth),
            Self::Nothing => Value::Null,
            Self::List(list) => list.iter().map(|value| value.json(arg)).collect(),
            Self::Object(object) => {
                let member = |(key, value): &(String, Self)| (key.clone(), value.json(arg));
                Value::Object(object.iter().map(member).collect())
            }
            Self::Deep(depth) => (0..*depth).fold(json!([]), |inner, _| json!([inner])),
        }
    }
}

/// Values that some flag accepts; the flag's own ones, where it has a list.
fn plausible(arg: &Arg, choice: u8) -> Value {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        2,
        50,
        60,
        128,
        4096,
        65_535,
        65_536,
        4_294_967_295,
        4_294_967_296,
        u64::MAX,
    ];
    const TEXTS: [&str; 5] = ["03:00.0", "127.0.0.1:12345", "", "--cpu", "a=b"];
    let choice = usize::from(choice);
    let of_its_own = arg.get_possible_values();
    if let Some(value) = of_its_own.get(choice % of_its_own.len().max(1)) {
        return json!(value.get_name());
    }
    if choice.is_multiple_of(2) {
        json!(NUMBERS[choice / 2 % NUMBERS.len()])
    } else {
        json!(TEXTS[choice / 2 % TEXTS.len()])
    }
}

const GENERAL: &str = "doca_general_flags";
const PROGRAM: &str = "doca_program_flags";

/// Flags that can be in an object of the file.
fn of_object(command: &Command, general: bool) -> Vec<&Arg> {
    command
        .get_arguments()
        .filter(|arg| (arg.get_help_heading() == Some("DOCA Flags")) == general)
        .filter(|arg| {
            arg.get_long()
                .is_some_and(|long| !["help", "version", "json"].contains(&long))
        })
        .collect()
}

impl Document {
    /// What is accepted, with any text as the device.
    pub(super) fn with_text(text: Vec<Fragment>) -> Self {
        Self {
            complete: true,
            general: Vec::new(),
            program: vec![(0, AnyValue::Tricky(text))],
            odd: None,
        }
    }

    /// The file as a value.
    pub(super) fn value(&self, program: Program) -> Value {
        let command = program.command();
        let object = |flags: &[&Arg], chosen: &[(u8, AnyValue)]| {
            let mut object = Map::new();
            for (flag, value) in chosen {
                if let Some(arg) = flags.get(usize::from(*flag) % flags.len().max(1)) {
                    let name = arg.get_long().expect("they have names").to_owned();
                    object.insert(name, value.json(Some(arg)));
                }
            }
            object
        };
        let mut general = object(&of_object(command, true), &self.general);
        let mut flags = object(&of_object(command, false), &self.program);
        if self.complete {
            for arg in of_object(command, false) {
                let name = arg.get_long().expect("they have names");
                if arg.is_required_set() {
                    flags.entry(name).or_insert_with(|| accepted(arg, name));
                }
            }
        }
        let mut odd = Map::new();
        if let Some((place, key, value)) = &self.odd {
            let object = match place {
                OddPlace::Root => &mut odd,
                OddPlace::General => &mut general,
                OddPlace::Program => &mut flags,
            };
            object.insert(key.clone(), value.json(None));
        }
        odd.insert(GENERAL.to_owned(), Value::Object(general));
        odd.insert(PROGRAM.to_owned(), Value::Object(flags));
        Value::Object(odd)
    }
}

/// A value that a mandatory flag accepts.
fn accepted(arg: &Arg, name: &str) -> Value {
    match name {
        "cpu" => json!([0]),
        "listen-port" => json!(12345),
        "storage-server" | "data-1-storage" | "data-2-storage" | "data-p-storage" => {
            json!("127.0.0.1:12345")
        }
        _ => arg
            .get_possible_values()
            .first()
            .map_or_else(|| json!("x"), |value| json!(value.get_name())),
    }
}

/// The arguments that say the same; none where the file says what the command line cannot.
pub(super) fn arguments(program: Program, file: &Value) -> Option<Vec<String>> {
    let command = program.command();
    let mut arguments = Vec::new();
    for (object, flags) in file.as_object()? {
        let known = of_object(command, object == GENERAL);
        if object != GENERAL && object != PROGRAM {
            return None;
        }
        for (name, value) in flags.as_object()? {
            let arg = known.iter().find(|arg| arg.get_long() == Some(name))?;
            let is_list = matches!(arg.get_action(), ArgAction::Append);
            let values = match value {
                Value::Array(values) if is_list => values.iter().collect(),
                value => vec![value],
            };
            for value in values {
                match value {
                    Value::Number(number) if is_number(name) || name == "sessions" => {
                        arguments.push(format!("--{name}={number}"));
                    }
                    Value::String(text) if !is_number(name) => {
                        arguments.push(format!("--{name}={text}"));
                    }
                    _ => return None,
                }
            }
        }
    }
    Some(arguments)
}

/// Flags that are numbers in a file, by the documentation.
fn is_number(name: &str) -> bool {
    [
        "log-level",
        "sdk-log-level",
        "cpu",
        "listen-port",
        "block-count",
        "block-size",
        "logical-block-size",
        "control-timeout",
        "io-timeout",
        "idle-timeout",
        "run-limit-operation-count",
        "transaction-count",
        "local-io-region-size",
        "blocks-per-io",
        "seed",
        "trigger-recovery-read-every-n",
    ]
    .contains(&name)
}

/// How a file is written down: what lies between its tokens, over and over.
#[derive(Debug, Clone, Arbitrary)]
pub struct Spacing(Vec<Space>);

#[derive(Debug, Clone, Arbitrary)]
enum Space {
    Nothing,
    Blank,
    Line,
    LineComment(String),
    BlockComment(String),
}

impl Space {
    fn text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Blank => " ".to_owned(),
            Self::Line => "\r\n".to_owned(),
            Self::LineComment(text) => format!("//{}\n", text.replace('\n', " ")),
            Self::BlockComment(text) => format!("/*{}*/", text.replace('*', "\"")),
        }
    }
}

impl Spacing {
    /// Writes a file.
    pub(super) fn write(&self, value: &Value) -> String {
        let mut text = String::new();
        let mut spaces = self.0.iter().cycle();
        self.put(value, &mut text, &mut spaces);
        text
    }

    fn put<'a>(
        &self,
        value: &Value,
        text: &mut String,
        spaces: &mut impl Iterator<Item = &'a Space>,
    ) {
        let mut space = |text: &mut String| text.extend(spaces.next().map(Space::text));
        space(text);
        match value {
            Value::Array(values) => {
                text.push('[');
                for (number, value) in values.iter().enumerate() {
                    if number != 0 {
                        text.push(',');
                    }
                    self.put(value, text, spaces);
                }
                text.push(']');
            }
            Value::Object(members) => {
                text.push('{');
                for (number, (key, value)) in members.iter().enumerate() {
                    if number != 0 {
                        text.push(',');
                    }
                    self.put(&Value::String(key.clone()), text, spaces);
                    text.push(':');
                    self.put(value, text, spaces);
                }
                text.push('}');
            }
            other => text.push_str(&other.to_string()),
        }
        text.extend(spaces.next().map(Space::text));
    }
}
