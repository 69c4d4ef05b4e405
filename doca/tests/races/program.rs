//! Threads that access the same bytes concurrently. `main.rs` compiles this program with ThreadSanitizer and runs it.

#[allow(dead_code)]
#[path = "../../src/memory/shared_bytes.rs"]
mod shared_bytes;

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use shared_bytes::SharedBytes;

const LEN: usize = 4096;
const ROUNDS: usize = 200;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

// Threads of the C library, which the sanitizer intercepts; it would report threads of the standard library, which is
// not compiled with the sanitizer.
unsafe extern "C" {
    fn pthread_create(
        thread: *mut c_ulong,
        attributes: *const c_void,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_join(thread: c_ulong, result: *mut *mut c_void) -> c_int;
}

struct Argument<'a> {
    each: &'a (dyn Fn(u8) + Sync),
    value: u8,
    /// Number of rounds started by both threads.
    begun: &'a AtomicUsize,
}

extern "C" fn thread(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `in_two_threads` keeps its argument until it has joined the thread.
    let argument = unsafe { &*argument.cast::<Argument<'_>>() };
    for round in 1..=ROUNDS {
        // The sanitizer forgets old accesses. The relaxed counter does not order the accesses of both threads.
        argument.begun.fetch_add(1, Relaxed);
        while argument.begun.load(Relaxed) < 2 * round {
            std::thread::yield_now();
        }
        (argument.each)(argument.value);
    }
    ptr::null_mut()
}

/// Runs `each` in two threads concurrently. Only their start and end are ordered.
fn in_two_threads(each: impl Fn(u8) + Sync) {
    let begun = AtomicUsize::new(0);
    let mut arguments = [1, 2].map(|value| Argument {
        each: &each,
        value,
        begun: &begun,
    });
    let threads = arguments.each_mut().map(|argument| {
        let (mut id, argument) = (0, ptr::from_mut(argument).cast());
        // SAFETY: the identifier is written before the call returns; the argument lives until the thread is joined below.
        let error = unsafe { pthread_create(&raw mut id, ptr::null(), thread, argument) };
        assert_eq!(error, 0);
        id
    });
    for id in threads {
        // SAFETY: created above, and joined once.
        assert_eq!(unsafe { pthread_join(id, ptr::null_mut()) }, 0);
    }
}

fn main() {
    let mut memory = vec![0_u8; LEN];
    let start = NonNull::new(memory.as_mut_ptr()).expect("an allocation");
    // SAFETY: the vector outlives the threads, and is used only through this value until they have ended.
    let shared = unsafe { SharedBytes::new(start, LEN) };
    // Lengths with and without whole blocks of 16, 64 and 128 bytes.
    let lengths = [1, 15, 16, 100, 255, 256, 1000, 4000];
    match std::env::args().nth(1).as_deref() {
        Some("write") => in_two_threads(|value| {
            for len in lengths {
                shared.write(3, &vec![value; len]).expect("inside");
            }
        }),
        Some("read") => in_two_threads(|value| {
            for len in lengths {
                let mut bytes = vec![0; len];
                match value {
                    1 => shared.read(5, &mut bytes).expect("inside"),
                    _ => shared.write(3, &bytes).expect("inside"),
                }
            }
        }),
        Some("fill") => in_two_threads(|value| {
            for len in lengths {
                shared.fill(7, len, value).expect("inside");
            }
        }),
        Some("copy") => in_two_threads(|value| {
            for len in lengths {
                shared
                    .copy_from(usize::from(value), &shared, 9, len)
                    .expect("inside");
            }
        }),
        // The race that must not occur otherwise: copies that are not atomic.
        Some("control") => {
            let to = start.as_ptr() as usize;
            in_two_threads(|value| {
                let bytes = [value; 100];
                // SAFETY: inside the vector. A data race, on purpose: the sanitizer has to report it.
                unsafe { std::ptr::copy(bytes.as_ptr(), to as *mut u8, bytes.len()) }
            });
        }
        other => panic!("expected the name of an access, got {other:?}"),
    }
}
