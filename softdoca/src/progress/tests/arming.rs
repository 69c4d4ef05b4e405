//! An engine whose descriptor has something just when the thread wants to sleep.

use std::os::fd::AsFd as _;

use super::*;
use crate::progress::{Arming, Urgency};
use crate::ring::EventFd;

/// Nothing ever happens to its context, but its descriptor can be read whenever it is armed: a timer that ran out between
/// two system calls.
struct Restless(EventFd);

impl Driver for Restless {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        ctx.pe()?.watch(self.0.as_fd(), ctx, 0, Urgency::Liveness)?;
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn next_event(&self, _: &Ctx) -> Option<Event> {
        None
    }

    fn flush(&self, _: &Ctx) {}

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        if let Ok(pe) = ctx.pe() {
            pe.unwatch(self.0.as_fd(), Urgency::Liveness);
        }
        true
    }

    fn arm(&self) {
        self.0.ring();
    }

    fn disarm(&self) {
        self.0.drain();
    }
}

/// Programs wait for a completion by progressing until the answer is not 0.
#[test]
fn a_descriptor_that_tells_the_program_nothing_is_no_progress() {
    let pe = Pe::new().expect("an engine");
    let ctx = Ctx::new(Restless(EventFd::new().expect("a descriptor")));
    pe.connect(&ctx).expect("a fresh context");
    ctx.start().expect("a context");
    for call in 0..2000 {
        assert!(!pe.progress(), "call {call}");
    }
    assert_eq!(pe.arm(), Arming::Stirred);
    assert!(!pe.is_armed());
    ctx.stop().expect("it stops");
    assert_eq!(pe.arm(), Arming::Armed);
    pe.wake_up();
}

/// Its peer rings just after it was armed.
struct Hasty;

impl Driver for Hasty {
    fn start(&self, _: &Ctx) -> Result<Started> {
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn next_event(&self, _: &Ctx) -> Option<Event> {
        None
    }

    fn flush(&self, _: &Ctx) {}

    fn finish_stop(&self, _: &Ctx) -> bool {
        true
    }
}

/// A peer rings once. It may have made room for one more piece of a long message: that is nothing for the program, but who sleeps then is
/// not woken for the next piece.
#[test]
fn an_engine_that_was_rung_is_not_armed_any_more() {
    let pe = Pe::new().expect("an engine");
    let ctx = Ctx::new(Hasty);
    pe.connect(&ctx).expect("a fresh context");
    ctx.start().expect("a context");
    pe.wake().ring();
    assert_eq!(pe.arm(), Arming::Stirred);
    assert_eq!(pe.arm(), Arming::Armed);
    pe.wake_up();
    ctx.stop().expect("it stops");
}
