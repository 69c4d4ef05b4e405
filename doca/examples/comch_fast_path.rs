//! The Comch fast path: a consumer on the DPU, a producer on the host, both on the connection of a server and a client.
//!
//! ```text
//! cargo run --example comch_fast_path -- server stream
//! cargo run --example comch_fast_path -- client stream
//! ```

mod comch_common;

use std::time::Duration;

use comch_common::{ClientSide, Result, Role, ServerSide, wait, wait_for_disconnect};
use doca::{
    Access, BufInventory, ComchEvent, Consumer, CtxState, ErrorCode, Event, MemoryRegion, Mmap, Pe,
    Producer, Task,
};

/// Length of a message in bytes, and number of messages.
const MESSAGE: usize = 4096;
const COUNT: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    match Role::from_arguments()? {
        Role::Server(name) => server(&ServerSide::start(&name)?),
        Role::Client(name) => client(ClientSide::connect(&name)?),
    }
}

/// Submits a task as soon as the peer has posted a buffer, and waits for its completion. Returns `true` if the peer has
/// disconnected in the meantime: that event may precede the completion of the peer's last message.
fn run(pe: &Pe, task: &Task) -> Result<bool> {
    let mut has_left = false;
    let mut poll = || {
        has_left |= matches!(pe.poll(), Some(Event::Comch(ComchEvent::Disconnected(_))));
    };
    loop {
        match task.submit() {
            Ok(()) => break,
            // The consumer has not posted a buffer yet.
            Err(ErrorCode::AGAIN) => poll(),
            Err(code) => return Err(code.to_string().into()),
        }
    }
    while task.is_in_flight() {
        poll();
    }
    Ok(has_left)
}

fn server(side: &ServerSide) -> Result<()> {
    let messages = Mmap::register(
        &side.device,
        MemoryRegion::new(MESSAGE)?,
        Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE,
    )?;
    let inventory = BufInventory::new(1)?;
    let consumer = Consumer::start(&side.pe, &side.client, &messages, 1)?;
    let running = || consumer.state() == CtxState::Running;
    assert!(side.pe.progress_until(TIMEOUT, running));

    let buf = inventory.buf(&messages, 0, MESSAGE)?;
    let receive = consumer.post_recv_immediate_task(Some(&buf), 0)?;
    let (mut bytes, mut sum) = (vec![0; MESSAGE], 0);
    let mut has_left = false;
    for _ in 0..COUNT {
        buf.reset_data()?;
        has_left |= run(&side.pe, &receive)?;
        buf.read_data(&mut bytes)?;
        sum += u64::from_ne_bytes(bytes[..8].try_into()?);
    }
    let last = receive.received().ok_or("the last receive failed")?;
    println!("received {COUNT} messages, the sum is {sum}");
    println!("the last one came with {:?}", last.immediate);
    consumer.stop()?;
    if has_left {
        return Ok(());
    }
    wait_for_disconnect(&side.pe)
}

fn client(side: ClientSide) -> Result<()> {
    let messages = Mmap::register(
        &side.device,
        MemoryRegion::new(MESSAGE)?,
        Access::LOCAL_READ_WRITE,
    )?;
    let inventory = BufInventory::new(1)?;
    let producer = Producer::start(&side.pe, &side.server, 2)?;
    let consumer = wait(&side.pe, |event| match event {
        ComchEvent::ConsumerAdded { id, .. } => Some(id),
        _ => None,
    })?;
    let running = || producer.state() == CtxState::Running;
    assert!(side.pe.progress_until(TIMEOUT, running));

    let buf = inventory.buf(&messages, 0, MESSAGE)?;
    let send = producer.send_task(&buf, consumer, 0)?;
    let mut bytes = vec![0; MESSAGE];
    for number in 1..COUNT {
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        buf.write_data(&bytes)?;
        run(&side.pe, &send)?;
    }
    // A few bytes of immediate data need no buffer.
    bytes[..8].copy_from_slice(&COUNT.to_ne_bytes());
    buf.write_data(&bytes)?;
    let last = producer.send_immediate_task(Some(&buf), b"the end", consumer, 1)?;
    run(&side.pe, &last)?;
    println!("sent {COUNT} messages");
    drop((send, last));
    producer.stop()?;
    side.client.stop()?;
    Ok(())
}
