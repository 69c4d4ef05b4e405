//! The gga_offload service under the reference's name.

fn main() -> std::process::ExitCode {
    role_gga_offload::run(std::env::args_os())
}
