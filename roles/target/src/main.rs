//! The storage target under the reference's name.

fn main() -> std::process::ExitCode {
    role_target::run(std::env::args_os())
}
