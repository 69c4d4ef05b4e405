//! How many tasks one call of progress does.

use super::*;

/// The program is to hear of the first tasks before the last are begun, and other contexts wait meanwhile.
#[test]
fn of_the_tasks_that_wait_a_part_is_done_at_a_time() {
    let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
    let content = content(4096);
    let frame = frame(&content, false, true);
    memory.write(0, &frame);
    let (begin, end) = FRAME;
    let room = |number: usize| 100_000 + number * 10_000;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let from = bufs.data(&memory.mmap, begin, frame.len() - begin - end);
            let to = bufs.room(&memory.mmap, room(number), 10_000);
            lz4_stream(&compress, 0, 1, from, to)
        })
        .collect();
    for task in tasks {
        compress.submit(task);
    }
    let done_after_a_call = || {
        assert!(compress.progress());
        compress.log.completions.borrow().len()
    };
    let done: Vec<_> = (0..5).map(|_| done_after_a_call()).collect();
    assert_eq!(done, [3, 5, 6, 7, 8], "a quarter of them, and one");
    assert!(!compress.progress());
    for number in 0..8 {
        assert!(memory.read(room(number), 4096) == content);
    }
}
