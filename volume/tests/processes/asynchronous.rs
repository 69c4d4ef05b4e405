//! Futures of I/Os, on an executor of one thread.

use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;

use async_io::Async;
use volume::{AsyncQueue, IoError, Operation};

use crate::deployment::{BLOCK, Deployment, Plan, pattern};

pub const TESTS: &[(&str, fn())] = &[
    ("futures_read_and_write_at_the_same_time", concurrent),
    ("dropped_future_does_not_affect_others", dropped),
    ("blocking_calls_cover_large_ranges", blocking),
];

/// Runs `work` together with the queue's driver.
fn block_on<T>(queue: &AsyncQueue, work: impl Future<Output = T>) -> T {
    async_io::block_on(async {
        let fd = Async::new_nonblocking(queue.descriptor()).expect("a descriptor");
        let mut driver = pin!(queue.drive(async |_| fd.readable().await));
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            assert!(driver.as_mut().poll(context).is_pending(), "it cannot wait");
            work.as_mut().poll(context)
        })
        .await
    })
}

/// Waits for all futures.
async fn all(mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn concurrent() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    // Fewer than there are futures, so that some wait for buffers or for the queue.
    (config.depth, config.buffers) = (4, 6);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = queues.remove(0).into_async().expect("descriptors");
    let done = Cell::new(0);
    let one = async |number: u64| {
        let offset = number * 3 * BLOCK as u64 + 100;
        let bytes = pattern(number, 2 * BLOCK);
        queue.write_at(&bytes, offset).await.expect("written");
        let mut read = vec![0; bytes.len()];
        queue.read_at(&mut read, offset).await.expect("read");
        assert!(read == bytes);
        done.set(done.get() + 1);
    };
    block_on(&queue, async {
        let futures = (0..20).map(|number| Box::pin(one(number)) as _).collect();
        all(futures).await;
        queue.flush().await.expect("flushed");
        let size = volume.size();
        let error = queue.write_at(&[1], size).await.expect_err("outside");
        assert_eq!(
            error,
            IoError::OutOfRange {
                offset: size,
                len: 1,
                size
            }
        );
    });
    assert_eq!(done.get(), 20);
    drop(queue);
    volume.close().expect("a clean shutdown");
}

fn dropped() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    (config.depth, config.buffers) = (2, 2);
    let (volume, mut queues) = deployment.open_with(config);
    let queue = queues.remove(0).into_async().expect("descriptors");
    block_on(&queue, async {
        for round in 0..50_u8 {
            let mut buffer = queue.buffer(BLOCK).await.expect("not too large");
            buffer.fill(round);
            let write = Operation::Write { fua: false };
            let mut write = Box::pin(queue.run(write, 0, BLOCK as u32, Some(buffer)));
            // Polled once, which submits the I/O, and then dropped.
            std::future::poll_fn(|context| {
                let _ = write.as_mut().poll(context);
                Poll::Ready(())
            })
            .await;
            drop(write);
        }
        let mut bytes = [0; 8];
        queue.read_at(&mut bytes, 0).await.expect("read");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    });
    drop(queue);
    volume.close().expect("a clean shutdown");
}

fn blocking() {
    let deployment = Deployment::new(Plan::default());
    let mut config = deployment.config();
    (config.depth, config.buffers, config.largest_transfer) = (4, 3, 8192);
    let (volume, mut queues) = deployment.open_with(config);
    let mut queue = queues.remove(0).into_blocking();
    let mut expected = pattern(5, volume.size() as usize);
    queue.write_at(&expected, 0).expect("written");
    queue.write_at(&[1, 2, 3], 50_000).expect("written");
    expected[50_000..50_003].copy_from_slice(&[1, 2, 3]);
    queue.write_zeroes_at(60_001, 100_000).expect("written");
    expected[60_001..160_001].fill(0);
    queue.flush().expect("flushed");
    let mut bytes = vec![0; expected.len()];
    queue.read_at(&mut bytes, 0).expect("read");
    assert!(bytes == expected);
    let mut beyond = [0; 20_000];
    let error = queue
        .read_at(&mut beyond, volume.size() - 10_000)
        .expect_err("half of it is outside");
    assert!(matches!(error, IoError::OutOfRange { .. }), "{error:?}");
    // The failed call leaves no I/O behind.
    queue.read_at(&mut bytes, 0).expect("read");
    assert!(bytes == expected);
    drop(queue);
    volume.close().expect("a clean shutdown");
}
