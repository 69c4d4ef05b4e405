//! The generator of `.sbc` files under the reference's name.

fn main() -> std::process::ExitCode {
    role_sbc_generator::run(std::env::args_os())
}
