//! The layout of usage texts and messages, after DOCA's.

use clap::Command;

use super::PROGRAM_HEADING;

const TEMPLATE: &str = "\
{about-with-newline}
Usage: {name} [DOCA Flags] [Program Flags]

{all-args}{after-help}
";

/// Gives a role's command the name and the usage layout of the reference.
pub(super) fn with_layout(command: Command, name: &'static str) -> Command {
    command
        .name(name)
        .bin_name(name)
        .version(env!("CARGO_PKG_VERSION"))
        // -h and -v are ordinary general flags here; clap's own -V would be one more.
        .disable_help_flag(true)
        .disable_version_flag(true)
        .help_template(TEMPLATE)
        .override_usage(format!("{name} [DOCA Flags] [Program Flags]"))
        // A repeated flag that takes one value is a mistake worth an error, negative numbers are
        // values out of range and not flags.
        .args_override_self(false)
        .mut_args(|arg| {
            let takes_value = arg.get_action().takes_values();
            let arg = arg.allow_negative_numbers(takes_value);
            if arg.get_help_heading().is_none() {
                arg.help_heading(PROGRAM_HEADING)
            } else {
                arg
            }
        })
}

/// The message itself, without clap's label, usage reminder and hints about `--help`.
pub(super) fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let body = text.strip_prefix("error: ").unwrap_or(&text);
    body.split("\n\n").next().unwrap_or(body).trim().to_owned()
}
