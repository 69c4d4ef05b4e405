//! Programs that wait on an engine's descriptor while a peer does not read.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

use doca_abi::DOCA_SUCCESS;

use super::fixture::*;
use crate::capi::doca_pe::*;

fn arm(engine: &Engine) {
    unsafe {
        while doca_pe_request_notification(engine.0) != DOCA_SUCCESS {
            doca_pe_progress(engine.0);
        }
    }
}

/// Whether an armed engine has something to do within this time.
fn wakes(engine: &Engine, seconds: i64) -> bool {
    let mut handle = std::io::stdin().as_raw_fd();
    let woken = unsafe {
        assert_ok(doca_pe_get_notification_handle(engine.0, &raw mut handle));
        let fd = BorrowedFd::borrow_raw(handle);
        let patience = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience));
        assert_ok(doca_pe_clear_notification(engine.0, handle));
        woken
    };
    woken == Ok(1)
}

#[test]
fn room_in_a_full_socket_wakes_who_has_more_to_send() {
    const COUNT: usize = 250;
    let pair = Pair::connect();
    let bytes = vec![7; 4080];
    for _ in 0..COUNT {
        assert_ok(pair.client.send(&bytes));
    }
    let log = &pair.client.context.log;
    let sent = || log.count(|seen| *seen == Seen::Sent(0));
    while pair.client_engine.progress() {}
    assert!(
        sent() < COUNT,
        "the socket took everything, which proves nothing"
    );
    arm(&pair.client_engine);
    assert!(!wakes(&pair.client_engine, 0), "there is no room yet");
    while sent() < COUNT {
        // The server reads after the client has gone to sleep on its descriptor.
        arm(&pair.client_engine);
        while pair.server_engine.progress() {}
        assert!(wakes(&pair.client_engine, 5), "{} of {COUNT}", sent());
        while pair.client_engine.progress() {}
    }
    pair.finish();
}
