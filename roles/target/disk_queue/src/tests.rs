use std::time::Duration;

use super::*;

fn queues() -> Vec<(Queue, Arc<File>, Arc<MemoryRegion>)> {
    let kinds: [&dyn Fn(Arc<File>, Arc<MemoryRegion>) -> Queue; 2] = [
        &|file, memory| Queue::io_uring(file, memory, 4).expect("io_uring"),
        &|file, memory| Queue::blocking(file, memory, 4),
    ];
    let queue = |kind: &dyn Fn(Arc<File>, Arc<MemoryRegion>) -> Queue| {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let memory = MemoryRegion::new(16 * 4096).expect("memory");
        let queue = kind(Arc::clone(&file), Arc::clone(&memory));
        (queue, file, memory)
    };
    // Without io_uring, this is reported and the blocking queue alone is tested.
    let file = Arc::new(tempfile::tempfile().expect("a file"));
    let memory = MemoryRegion::new(4096).expect("memory");
    match Queue::io_uring(file, memory, 1) {
        Ok(_) => kinds.into_iter().map(queue).collect(),
        Err(error) => {
            eprintln!("no io_uring here: {error}");
            vec![queue(kinds[1])]
        }
    }
}

fn wait(queue: &mut Queue, count: usize) -> Vec<Completed> {
    queue.submit();
    queue.drain();
    queue.reap();
    let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
    assert_eq!(all.len(), count);
    all
}

#[test]
fn more_operations_than_the_ring_has_entries_all_complete() {
    for (mut queue, file, memory) in queues() {
        for block in 0..16 {
            memory
                .fill(block * 4096, 4096, block as u8 + 1)
                .expect("inside");
            let range = Range {
                file_offset: (15 - block as u64) * 4096,
                memory_offset: block * 4096,
                len: 4096,
            };
            let durable = block % 2 == 0;
            queue.push(block as u64, Operation::Write { range, durable });
        }
        let mut tokens: Vec<_> = wait(&mut queue, 16)
            .into_iter()
            .map(|completed| {
                assert_eq!(completed.result, Ok(4096));
                completed.token
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..16).collect::<Vec<_>>());
        queue.push(7, Operation::Sync);
        let synced = Completed {
            token: 7,
            result: Ok(0),
        };
        assert_eq!(wait(&mut queue, 1), [synced]);
        assert_eq!(file.metadata().expect("a file").len(), 16 * 4096);
        let range = Range {
            file_offset: 4096,
            memory_offset: 0,
            len: 4096,
        };
        queue.push(8, Operation::Read(range));
        wait(&mut queue, 1);
        let mut byte = [0];
        memory.read(4095, &mut byte).expect("inside");
        assert_eq!(byte, [15]);
    }
}

#[test]
fn failed_operations_complete_with_their_error() {
    for (mut queue, _, memory) in queues() {
        let range = Range {
            file_offset: 0,
            memory_offset: memory.len() - 1,
            len: 2,
        };
        queue.push(1, Operation::Read(range));
        assert_eq!(wait(&mut queue, 1)[0].result, Err(Errno::FAULT));
        let range = Range { len: 1, ..range };
        queue.push(2, Operation::Read(range));
        assert_eq!(wait(&mut queue, 1)[0].result, Ok(0), "the end of the file");
        queue.push(3, Operation::Read(range));
        queue.fail_pending(Errno::IO);
        assert_eq!(wait(&mut queue, 1)[0].result, Err(Errno::IO));
    }
}

#[test]
fn dropping_a_queue_waits_for_its_operations() {
    for (mut queue, file, memory) in queues() {
        memory.fill(0, memory.len(), 9).expect("inside");
        for token in 0..4 {
            let range = Range {
                file_offset: token * 4 * 4096,
                memory_offset: token as usize * 4 * 4096,
                len: 4 * 4096,
            };
            let durable = true;
            queue.push(token, Operation::Write { range, durable });
        }
        queue.submit();
        drop(queue);
        assert_eq!(file.metadata().expect("a file").len(), 16 * 4096);
    }
}

#[test]
fn only_lone_syncs_of_a_fast_device_are_executed_inline() {
    for (mut queue, _, _) in queues() {
        let is_ring = matches!(queue.engine, Engine::Ring(_));
        queue.lone_syncs.completed(Duration::ZERO);
        queue.push(1, Operation::Sync);
        queue.submit();
        assert_eq!((queue.in_flight(), queue.has_pending()), (0, false));
        let result = Ok(0);
        assert!(queue.reap());
        assert_eq!(queue.next(), Some(Completed { token: 1, result }));

        queue.push(2, Operation::Sync);
        queue.push(3, Operation::Sync);
        queue.submit();
        assert_eq!(queue.in_flight(), if is_ring { 2 } else { 0 });
        wait(&mut queue, 2);

        queue.lone_syncs.completed(Duration::MAX);
        queue.push(4, Operation::Sync);
        queue.submit();
        assert_eq!(queue.in_flight(), usize::from(is_ring));
        assert_eq!(queue.timed.is_some(), is_ring);
        wait(&mut queue, 1);
        assert_eq!(queue.timed, None, "it was measured");
    }
}

#[test]
fn only_after_a_fast_sync_is_the_next_one_inline() {
    let mut syncs = LoneSyncs::default();
    assert_eq!(syncs.next(), Execution::Asynchronous);
    for (after, expected) in [
        (FAST, Execution::Asynchronous),
        (Duration::from_micros(30), Execution::Inline),
        (Duration::from_micros(999), Execution::Inline),
        (Duration::from_secs(1), Execution::Asynchronous),
    ] {
        syncs.completed(after);
        assert_eq!(syncs.next(), expected, "{after:?}");
    }
}
