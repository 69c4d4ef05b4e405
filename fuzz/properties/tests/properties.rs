//! Checks every property with as many inputs as the time allows. `ARBTEST_BUDGET_MS` extends the time, as `.ci/nightly`
//! does; `ARBTEST_SEED` repeats a failure.

use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use arbtest::arbtest;
use fuzz_properties::{
    backing, chunk_record, control_frames, io_message, json_flags, nbd, sbc, settings, shared,
    stored_block, vhost_user, virtqueue,
};

/// Time per property.
const BUDGET: Duration = Duration::from_millis(500);

/// Runs a property with inputs generated from at most `size` random bytes.
fn run<I: for<'a> Arbitrary<'a>>(size: u32, property: impl Fn(&I)) {
    let mut inputs = 0;
    let test = |u: &mut Unstructured<'_>| -> Result<()> {
        property(&u.arbitrary()?);
        inputs += 1;
        Ok(())
    };
    let search = arbtest(test).size_max(size);
    if std::env::var_os("ARBTEST_BUDGET_MS").is_some() {
        search.run();
    } else {
        search.budget(BUDGET).run();
    }
    println!("{inputs} inputs");
}

#[test]
fn control_frames() {
    run(8192, control_frames::property);
}

#[test]
fn io_messages() {
    run(512, io_message::property);
}

#[test]
fn sbc_files() {
    run(2048, sbc::property);
}

#[test]
fn stored_blocks() {
    run(4096, stored_block::property);
}

#[test]
fn json_flags() {
    run(1024, json_flags::property);
}

#[test]
fn nbd_clients() {
    run(4096, nbd::property);
}

#[test]
fn virtqueues() {
    run(1024, virtqueue::property);
}

#[test]
fn vhost_user_front_ends() {
    run(16384, vhost_user::property);
}

#[test]
fn backing_headers() {
    run(256, backing::property);
}

#[test]
fn chunk_records() {
    run(256, chunk_record::property);
}

#[test]
fn shared_memory_messages() {
    run(512, shared::property);
}

#[test]
fn softdoca_configuration_files() {
    run(512, settings::property);
}
