//! ISA-L, if it is installed. Otherwise the test is reported as ignored and not as passed: the binary has its own harness,
//! because Rust's cannot decide that at run time.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use yardstick::isal::IsaL;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let name = "it_computes_in_the_field_of_doca";
    let trial = match IsaL::load() {
        Ok(library) => Trial::test(name, move || computes_in_the_field_of_doca(&library)),
        Err(error) => {
            eprintln!("NOT RUN: {name}: {error}");
            // Fails if it is requested explicitly (--ignored).
            Trial::test(name, move || Err(error.into())).with_ignored_flag(true)
        }
    };
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn computes_in_the_field_of_doca(library: &IsaL) -> Result<(), Failed> {
    let (a, b) = ([0x83_u8; 96], [5_u8; 96]);
    let (mut sum, mut weighted) = ([0; 96], [0; 96]);
    library
        .coder(2, &[1, 1, 2, 4])
        .code(&[&a, &b], &mut [&mut sum, &mut weighted]);
    // 2 * 0x83 is reduced by the polynomial 0x11d; 4 * 5 is not.
    for (what, came, expected) in [
        ("the sum", sum, 0x83 ^ 5),
        ("the weighted sum", weighted, (0x106 ^ 0x11d) as u8 ^ 20),
    ] {
        if came != [expected; 96] {
            return Err(format!("{what}: expected {expected:#x}, got {:#x}", came[0]).into());
        }
    }
    Ok(())
}
