//! The zero copy service under the reference's name.

fn main() -> std::process::ExitCode {
    role_zero_copy::run(std::env::args_os())
}
