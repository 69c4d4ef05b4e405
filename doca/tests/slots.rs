//! Slots: tasks whose ownership is transferred by submission and returned by completion.

mod support;

use std::mem;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use doca::{
    Access, BufInventory, CompletionHandler, Compress, ContextId, CtxState, Device, Dma,
    EcMatrixType, ErasureCoding, ErrorCode, Event, Lz4Stream, MemoryRegion, Mmap, OneBuffer, Pe,
    Rdma, RdmaConnection, Slot, Slots, TwoBuffers, WorkerPe,
};
use support::{TIMEOUT, devices, isolated, memory};

const MESSAGE: u32 = 64;
const SEND: usize = 0;
const RECEIVE: usize = 1;
const READ: usize = 0;
const WRITE: usize = 1;

/// State of each slot: a number, and a reference by which a test detects that the slot was dropped.
struct Tag {
    number: usize,
    _alive: Rc<()>,
    /// A slot that this one owns.
    message: Option<Slot<Tag>>,
    transfer: Option<TransferSlot>,
}

type TransferSlot = Slot<Tag, TwoBuffers>;

/// Collects slots, with the results of their tasks.
#[derive(Default)]
struct Collector {
    sent: Vec<(Slot<Tag>, Result<(), ErrorCode>)>,
    received: Vec<(Slot<Tag>, Result<(), ErrorCode>)>,
    transferred: Vec<(TransferSlot, Result<(), ErrorCode>)>,
    /// Called by the first completion of a send.
    first: Option<Box<dyn FnOnce()>>,
}

struct Sent;

impl CompletionHandler for Sent {
    type Worker = Collector;
    type State = Tag;
    type Buffers = OneBuffer;

    fn completed(collector: &mut Collector, slot: Slot<Tag>, result: Result<(), ErrorCode>) {
        if let Some(first) = collector.first.take() {
            first();
        }
        collector.sent.push((slot, result));
    }
}

struct Received;

impl CompletionHandler for Received {
    type Worker = Collector;
    type State = Tag;
    type Buffers = OneBuffer;

    fn completed(collector: &mut Collector, slot: Slot<Tag>, result: Result<(), ErrorCode>) {
        collector.received.push((slot, result));
    }
}

struct Transferred;

impl CompletionHandler for Transferred {
    type Worker = Collector;
    type State = Tag;
    type Buffers = TwoBuffers;

    fn completed(
        collector: &mut Collector,
        slot: Slot<Tag, TwoBuffers>,
        result: Result<(), ErrorCode>,
    ) {
        collector.transferred.push((slot, result));
    }
}

/// Two connected instances on one engine, fields in drop order.
struct World {
    pe: WorkerPe<Collector>,
    sender: Rdma,
    receiver: Rdma,
    connection: RdmaConnection,
    mmap: Mmap,
    inventory: BufInventory,
    alive: Rc<()>,
}

fn world(device: &Device) -> World {
    let pe = WorkerPe::new().unwrap();
    let start = || {
        let builder = Rdma::builder(device).receive_tasks(8).send_tasks(8);
        let rdma = builder
            .permissions(Access::RDMA_READ | Access::RDMA_WRITE)
            .read_tasks(8)
            .write_tasks(8)
            .send_handler::<Sent>()
            .receive_handler::<Received>()
            .read_handler::<Transferred>()
            .write_handler::<Transferred>()
            .start(&pe)
            .unwrap();
        let (description, connection) = rdma.export().unwrap();
        (rdma, description, connection)
    };
    let (sender, ours, connection) = start();
    let (receiver, theirs, other) = start();
    sender.connect(&connection, &theirs).unwrap();
    receiver.connect(&other, &ours).unwrap();
    while pe.poll().is_some() {}
    let (mmap, inventory) = memory(device, 4096, Access::LOCAL_READ_WRITE);
    World {
        pe,
        sender,
        receiver,
        connection,
        mmap,
        inventory,
        alive: Rc::new(()),
    }
}

impl World {
    fn tag(&self, number: usize) -> Tag {
        Tag {
            number,
            _alive: Rc::clone(&self.alive),
            message: None,
            transfer: None,
        }
    }

    fn slots(&self, first: usize, count: usize) -> Slots<Tag> {
        let place = (first * MESSAGE as usize, MESSAGE, count);
        let tag = |number| self.tag(number);
        Slots::new(&self.pe, &self.inventory, &self.mmap, place, tag).unwrap()
    }

    /// Slots for transfers by the sender between its memory and `remote`.
    fn transfers(&self, remote: &Mmap, count: usize) -> Vec<TransferSlot> {
        let tag = |number| self.tag(number);
        let slots =
            Slots::with_two_buffers(&self.pe, &self.inventory, &self.mmap, remote, count, tag)
                .unwrap();
        let (sender, connection) = (&self.sender, &self.connection);
        sender
            .read_into::<READ, Transferred>(&slots, connection)
            .unwrap();
        sender
            .write_from::<WRITE, Transferred>(&slots, connection)
            .unwrap();
        slots.into_iter().collect()
    }

    fn sends(&self, first: usize, count: usize) -> Vec<Slot<Tag>> {
        let slots = self.slots(first, count);
        self.sender
            .send_from::<SEND, Sent>(&slots, &self.connection)
            .unwrap();
        slots.into_iter().collect()
    }

    fn receives(&self, first: usize, count: usize) -> Vec<Slot<Tag>> {
        let slots = self.slots(first, count);
        self.receiver
            .receive_into::<RECEIVE, Received>(&slots)
            .unwrap();
        slots.into_iter().collect()
    }

    /// Makes progress until `done`; fails for other events.
    fn until(&mut self, collector: &mut Collector, done: impl Fn(&Collector) -> bool) {
        let start = Instant::now();
        while !done(collector) {
            assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}");
            assert!(
                !self.pe.progress(collector),
                "an event: {:?}",
                self.pe.poll()
            );
        }
    }

    /// Number of existing slots.
    fn alive(&self) -> usize {
        Rc::strong_count(&self.alive) - 1
    }
}

fn submit<const TASK: usize>(slots: Vec<Slot<Tag>>) {
    for slot in slots {
        assert!(slot.submit::<TASK>().is_ok());
    }
}

#[test]
fn slots_come_back_with_their_data_in_order_and_are_submitted_again() {
    isolated(
        "slots_come_back_with_their_data_in_order_and_are_submitted_again",
        || {
            let mut world = world(&devices().dpu);
            let mut collector = Collector::default();
            let mut sends = world.sends(0, 4);
            submit::<RECEIVE>(world.receives(4, 4));
            for round in 0..100_u8 {
                for mut slot in sends.drain(..) {
                    let number = slot.state().number as u8;
                    slot.write_data(&[round, number, 3]).unwrap();
                    assert_eq!(slot.data_len(), 3);
                    assert!(slot.submit::<SEND>().is_ok());
                }
                world.until(&mut collector, |collector| {
                    collector.sent.len() == 4 && collector.received.len() == 4
                });
                for (number, (slot, result)) in collector.sent.drain(..).enumerate() {
                    assert_eq!((slot.state().number, result), (number, Ok(())));
                    sends.push(slot);
                }
                for (number, (mut slot, result)) in collector.received.drain(..).enumerate() {
                    assert_eq!((slot.state().number, result), (number, Ok(())));
                    assert_eq!(slot.data_len(), 3);
                    let mut bytes = [0; 3];
                    assert!(slot.read(&mut bytes));
                    assert_eq!(bytes, [round, number as u8, 3]);
                    assert!(!slot.read(&mut [0; 65]), "more than the buffer has");
                    slot.reset_data();
                    assert!(slot.submit::<RECEIVE>().is_ok());
                }
            }
        },
    );
}

#[test]
fn one_buffer_is_received_into_and_sent_from() {
    isolated("one_buffer_is_received_into_and_sent_from", || {
        let mut world = world(&devices().dpu);
        let mut collector = Collector::default();
        // The receiver's task and the sender's share one buffer: a message is forwarded from the buffer into which it
        // was received.
        let slots = world.slots(0, 1);
        world
            .receiver
            .receive_into::<RECEIVE, Received>(&slots)
            .unwrap();
        world
            .sender
            .send_from::<SEND, Sent>(&slots, &world.connection)
            .unwrap();
        submit::<RECEIVE>(slots.into_iter().collect());
        let mut first = world.sends(1, 1).pop().unwrap();
        first.write_data(b"forwarded").unwrap();
        assert!(first.submit::<SEND>().is_ok());
        world.until(&mut collector, |collector| collector.received.len() == 1);
        submit::<RECEIVE>(world.receives(2, 1));
        let (slot, _) = collector.received.pop().unwrap();
        assert!(slot.submit::<SEND>().is_ok());
        world.until(&mut collector, |collector| {
            collector.received.len() == 1 && collector.sent.len() == 2
        });
        let (slot, result) = collector.received.pop().unwrap();
        let mut bytes = [0; 9];
        assert!(slot.read(&mut bytes));
        assert_eq!((&bytes, slot.data_len(), result), (b"forwarded", 9, Ok(())));
    });
}

#[test]
fn a_task_that_cannot_be_submitted_gives_the_slot_back() {
    isolated(
        "a_task_that_cannot_be_submitted_gives_the_slot_back",
        || {
            let world = world(&devices().dpu);
            let slot = world.sends(0, 1).pop().unwrap();
            let refused = slot.submit::<RECEIVE>().unwrap_err();
            assert_eq!(refused.code, ErrorCode::BAD_STATE, "it has no such task");
            let World { sender, .. } = world;
            sender.stop().unwrap();
            let refused = refused.slot.submit::<SEND>().unwrap_err();
            assert_eq!(
                refused.code,
                ErrorCode::BAD_STATE,
                "its context has stopped"
            );
            assert_eq!(refused.slot.state().number, 0);
        },
    );
}

#[test]
fn slots_in_flight_come_back_from_a_context_that_is_stopped_after_its_events() {
    isolated(
        "slots_in_flight_come_back_from_a_context_that_is_stopped_after_its_events",
        || {
            let mut world = world(&devices().dpu);
            let mut collector = Collector::default();
            submit::<RECEIVE>(world.receives(0, 3));
            world.receiver.stop().unwrap();
            assert_eq!(Rc::strong_count(&world.alive), 4, "the slots wait");
            assert!(world.pe.progress(&mut collector), "events come first");
            assert!(collector.received.is_empty());
            while world.pe.poll().is_some() {}
            while collector.received.len() < 3 {
                assert!(!world.pe.progress(&mut collector));
            }
            for (number, (slot, result)) in collector.received.drain(..).enumerate() {
                assert_eq!(slot.state().number, number);
                assert!(result.is_err(), "{result:?}");
                let refused = slot.submit::<RECEIVE>().unwrap_err();
                assert_eq!(refused.code, ErrorCode::BAD_STATE);
            }
            assert_eq!(Rc::strong_count(&world.alive), 1, "they were dropped");
        },
    );
}

#[test]
fn nothing_sleeps_while_completed_slots_wait_for_their_handlers() {
    isolated(
        "nothing_sleeps_while_completed_slots_wait_for_their_handlers",
        || {
            let mut world = world(&devices().dpu);
            let mut collector = Collector::default();
            submit::<RECEIVE>(world.receives(0, 2));
            submit::<SEND>(world.sends(2, 2));
            // Progress without the worker: the handlers cannot be called.
            let start = Instant::now();
            while world.pe.arm().unwrap() {
                world.pe.disarm().unwrap();
                assert!(world.pe.poll().is_none());
                assert!(start.elapsed() < TIMEOUT, "armed beside completed slots");
            }
            let (never, _writer) = rustix::pipe::pipe().unwrap();
            let start = Instant::now();
            let sleep = || world.pe.sleep_until_readable(never.as_fd(), 2 * TIMEOUT);
            sleep().unwrap();
            assert!(start.elapsed() < TIMEOUT, "slept beside completed slots");
            world.until(&mut collector, |collector| {
                collector.sent.len() == 2 && collector.received.len() == 2
            });
            assert_eq!(world.pe.arm(), Ok(true), "nothing is queued any more");
            world.pe.disarm().unwrap();
        },
    );
}

/// Runs `stop` in a handler, and returns the states that a context has then.
fn states_after(
    mut world: World,
    context: ContextId,
    stop: impl FnOnce() + 'static,
) -> Vec<CtxState> {
    submit::<RECEIVE>(world.receives(0, 2));
    submit::<SEND>(world.sends(2, 2));
    let mut collector = Collector {
        first: Some(Box::new(stop)),
        ..Collector::default()
    };
    let mut states = Vec::new();
    let start = Instant::now();
    while states.last() != Some(&CtxState::Idle) || collector.sent.len() < 2 {
        assert!(start.elapsed() < TIMEOUT, "{states:?} within {TIMEOUT:?}");
        if world.pe.progress(&mut collector)
            && let Some(Event::State {
                context: id, next, ..
            }) = world.pe.poll()
            && id == context
        {
            assert!(collector.first.is_none(), "stopped before");
            states.push(next);
        }
    }
    states
}

#[test]
fn a_context_stopped_or_dropped_in_a_handler_is_stopped_when_progress_returns() {
    isolated(
        "a_context_stopped_or_dropped_in_a_handler_is_stopped_when_progress_returns",
        || {
            let device = devices().dpu;
            for is_stopped in [true, false] {
                let world = world(&device);
                let other = Rdma::builder(&device)
                    .receive_tasks(1)
                    .start(&world.pe)
                    .unwrap();
                // A task that is flushed.
                let buf = world.inventory.buf(&world.mmap, 1024, 64).unwrap();
                let receive = other.receive_task(&buf, 7).unwrap();
                receive.submit().unwrap();
                while world.pe.poll().is_some() {}
                let states = states_after(world, other.id(), move || {
                    match is_stopped {
                        true => {
                            let stopped = other.stop().unwrap_err();
                            assert_eq!(stopped.code, ErrorCode::IN_PROGRESS);
                        }
                        false => drop(other),
                    }
                    assert!(receive.is_in_flight(), "not before progress returns");
                });
                assert_eq!(states, [CtxState::Stopping, CtxState::Idle]);
            }
        },
    );
}

/// An erasure-coding instance is not destroyed while a matrix of it exists, and is stopped in another way.
#[test]
fn an_instance_with_a_matrix_stopped_in_a_handler_is_stopped_when_progress_returns() {
    isolated(
        "an_instance_with_a_matrix_stopped_in_a_handler_is_stopped_when_progress_returns",
        || {
            let device = devices().dpu;
            let world = world(&device);
            let builder = ErasureCoding::builder(&device).create_tasks(1);
            let coding = builder.start(&world.pe).unwrap();
            let _matrix = coding.matrix(EcMatrixType::Vandermonde, 2, 1).unwrap();
            while world.pe.poll().is_some() {}
            let states = states_after(world, coding.id(), move || {
                let stopped = coding.stop().unwrap_err();
                assert_eq!(stopped.code, ErrorCode::IN_PROGRESS);
            });
            assert_eq!(states, [CtxState::Idle]);
        },
    );
}

#[test]
fn dropped_slots_go_with_their_contexts_and_forgotten_ones_leak() {
    isolated(
        "dropped_slots_go_with_their_contexts_and_forgotten_ones_leak",
        || {
            let device = devices().dpu;
            // Slots are in flight when the contexts and the engine, whose queue then contains the completions, are
            // dropped.
            let first = world(&device);
            submit::<RECEIVE>(first.receives(0, 3));
            let idle = first.receives(3, 1);
            drop(first.sends(4, 1));
            drop(first.slots(5, 1));
            assert_eq!(first.alive(), 4, "a slot that is dropped drops its state");
            let alive = Rc::clone(&first.alive);
            drop(first);
            assert_eq!(Rc::strong_count(&alive), 2, "the idle slot is left");
            drop(idle);
            assert_eq!(Rc::strong_count(&alive), 1);
            let second = world(&device);
            second.receives(0, 2).into_iter().for_each(mem::forget);
            let alive = Rc::clone(&second.alive);
            let World {
                sender, receiver, ..
            } = second;
            receiver.stop().unwrap();
            sender.stop().unwrap();
            // Including the world's own reference: the memory is never freed, although no context uses it.
            assert!(Rc::strong_count(&alive) >= 3);
        },
    );
}

#[test]
fn transfers_move_the_bytes_of_the_ranges_that_were_set() {
    isolated(
        "transfers_move_the_bytes_of_the_ranges_that_were_set",
        || {
            const LOCAL: usize = TwoBuffers::LOCAL;
            const REMOTE: usize = TwoBuffers::REMOTE;
            const LEN: usize = 100_000;
            let device = devices().dpu;
            let mut world = world(&device);
            let (local, _) = memory(&device, LEN, Access::LOCAL_READ_WRITE);
            world.mmap = local;
            let permissions = Access::RDMA_READ | Access::RDMA_WRITE;
            let (theirs, _) = memory(&device, LEN, permissions);
            let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
            let mut slots = world.transfers(&imported, 2);
            let mut collector = Collector::default();
            let bytes_of = |mmap: &Mmap, offset: u64, len: usize| {
                let mut bytes = vec![0; len];
                let region = mmap.region().unwrap();
                region.read(offset as usize, &mut bytes).unwrap();
                bytes
            };
            for (round, (local, remote, len)) in [
                (0, 0, LEN),
                (4096, 8192, 4096),
                (1, 99_999, 1),
                (777, 5, 33_333),
            ]
            .into_iter()
            .enumerate()
            {
                let content = contents::noise(round as u64, LEN);
                theirs.region().unwrap().write(0, &content).unwrap();
                world.mmap.region().unwrap().fill(0, LEN, 0).unwrap();
                let mut slot = slots.pop().unwrap();
                slot.set_data::<REMOTE>(remote, len).unwrap();
                slot.set_range::<LOCAL>(local, len).unwrap();
                // The ranges remain unchanged.
                for (offset, len) in [
                    (1, LEN),
                    (LEN as u64, 1),
                    (u64::MAX, 1),
                    (u64::MAX - 7, 8),
                    (0, usize::MAX),
                ] {
                    let invalid = Err(ErrorCode::INVALID_VALUE);
                    assert_eq!(slot.set_data::<REMOTE>(offset, len), invalid);
                    assert_eq!(slot.set_range::<LOCAL>(offset, len), invalid);
                }
                assert!(slot.submit::<READ>().is_ok());
                world.until(&mut collector, |collector| collector.transferred.len() == 1);
                let (mut slot, result) = collector.transferred.pop().unwrap();
                assert_eq!(result, Ok(()));
                assert!(bytes_of(&world.mmap, local, len) == content[remote as usize..][..len]);
                let around = bytes_of(&world.mmap, 0, LEN);
                let outside = &around[local as usize + len..];
                assert!(outside.iter().all(|&byte| byte == 0));
                theirs.region().unwrap().fill(0, LEN, 0).unwrap();
                slot.set_data::<LOCAL>(local, len).unwrap();
                slot.set_range::<REMOTE>(LEN as u64 - len as u64, len)
                    .unwrap();
                assert!(slot.submit::<WRITE>().is_ok());
                world.until(&mut collector, |collector| collector.transferred.len() == 1);
                let (slot, result) = collector.transferred.pop().unwrap();
                assert_eq!(result, Ok(()));
                let moved = bytes_of(&theirs, LEN as u64 - len as u64, len);
                assert!(moved == content[remote as usize..][..len]);
                slots.insert(0, slot);
            }
            let numbers: Vec<_> = slots.iter().map(Slot::index).collect();
            assert_eq!(numbers, [0, 1]);
            assert!(slots.iter().all(|slot| slot.index() == slot.state().number));
        },
    );
}

#[test]
fn a_failed_transfer_gives_the_slot_back() {
    isolated("a_failed_transfer_gives_the_slot_back", || {
        let device = devices().dpu;
        let mut world = world(&device);
        let (theirs, _) = memory(&device, 4096, Access::RDMA_READ | Access::LOCAL_READ_WRITE);
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let mut collector = Collector::default();
        let mut slot = world.transfers(&imported, 1).pop().unwrap();
        slot.set_data::<{ TwoBuffers::LOCAL }>(0, 64).unwrap();
        slot.set_range::<{ TwoBuffers::REMOTE }>(0, 64).unwrap();
        match slot.submit::<WRITE>() {
            Err(refused) => assert_eq!(refused.slot.state().number, 0),
            Ok(()) => {
                world.until(&mut collector, |collector| collector.transferred.len() == 1);
                let (slot, result) = collector.transferred.pop().unwrap();
                assert!(result.is_err(), "a write into read-only memory");
                assert_eq!(slot.state().number, 0);
            }
        }
    });
}

#[test]
fn slots_that_own_each_other_are_dropped_with_their_contexts() {
    isolated(
        "slots_that_own_each_other_are_dropped_with_their_contexts",
        || {
            let device = devices().dpu;
            let mut world = world(&device);
            let permissions = Access::RDMA_READ | Access::RDMA_WRITE;
            let (theirs, _) = memory(&device, 4096, permissions);
            let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
            let mut messages = world.receives(0, 3);
            for (message, transfer) in messages.iter_mut().zip(world.transfers(&imported, 3)) {
                message.state_mut().transfer = Some(transfer);
            }
            assert_eq!(world.alive(), 6);
            // One pair is being received into, one is transferring, one is idle. The pool of each kind has slots that
            // are owned by slots of the other.
            let idle = messages.pop().unwrap();
            let mut message = messages.pop().unwrap();
            let mut transfer = message.state_mut().transfer.take().unwrap();
            transfer.state_mut().message = Some(message);
            transfer.set_data::<{ TwoBuffers::LOCAL }>(0, 64).unwrap();
            transfer.set_range::<{ TwoBuffers::REMOTE }>(0, 64).unwrap();
            assert!(transfer.submit::<WRITE>().is_ok());
            submit::<RECEIVE>(messages);
            drop(idle);
            assert_eq!(world.alive(), 4);
            let alive = std::mem::replace(&mut world.alive, Rc::new(()));
            drop(world);
            assert_eq!(Rc::strong_count(&alive), 1);
        },
    );
}

/// The slots of an accelerator, whose source and destination are in these maps.
fn steps(world: &World, source: &Mmap, destination: &Mmap) -> Slots<Tag, TwoBuffers> {
    let (pe, inventory) = (&world.pe, &world.inventory);
    let tag = |number| world.tag(number);
    Slots::with_two_buffers(pe, inventory, source, destination, 1, tag).unwrap()
}

/// Runs the one slot's task with data at `from`, and returns the bytes that it has written to `to`, which has space for
/// `room` bytes.
fn step(
    world: &mut World,
    slot: TransferSlot,
    from: (u64, usize),
    to: u64,
    room: usize,
) -> (TransferSlot, Result<Vec<u8>, ErrorCode>) {
    let mut slot = slot;
    // Of the start of the context.
    while world.pe.poll().is_some() {}
    slot.set_data::<{ TwoBuffers::SOURCE }>(from.0, from.1)
        .unwrap();
    slot.set_range::<{ TwoBuffers::DESTINATION }>(to, room)
        .unwrap();
    assert!(slot.submit::<0>().is_ok());
    let mut collector = Collector::default();
    world.until(&mut collector, |collector| collector.transferred.len() == 1);
    let (mut slot, result) = collector.transferred.pop().unwrap();
    let mut written = vec![0; slot.data_len::<{ TwoBuffers::DESTINATION }>()];
    let region = world.mmap.region().unwrap();
    region.read(to as usize, &mut written).unwrap();
    slot.reset_data::<{ TwoBuffers::DESTINATION }>();
    assert_eq!(slot.data_len::<{ TwoBuffers::DESTINATION }>(), 0);
    (slot, result.map(|()| written))
}

fn only(slots: Slots<Tag, TwoBuffers>) -> TransferSlot {
    slots.into_iter().next().unwrap()
}

#[test]
fn accelerators_append_their_results_to_the_destinations_of_slots() {
    isolated(
        "accelerators_append_their_results_to_the_destinations_of_slots",
        || {
            let device = devices().dpu;
            let mut world = world(&device);
            let map = world.mmap.clone();
            let blocks = contents::noise(7, 256);
            map.region().unwrap().write(0, &blocks).unwrap();

            let dma = Dma::start_with::<Transferred>(&world.pe, &device, 1).unwrap();
            let copies = steps(&world, &map, &map);
            dma.copy_in::<0, Transferred>(&copies).unwrap();
            let (_, copied) = step(&mut world, only(copies), (0, 256), 512, 1024);
            assert_eq!(copied.unwrap(), blocks);

            let coding = ErasureCoding::builder(&device)
                .create_tasks(1)
                .create_handler::<Transferred>()
                .recover_tasks(1)
                .recover_handler::<Transferred>()
                .start(&world.pe)
                .unwrap();
            let matrix = coding.matrix(EcMatrixType::Cauchy, 2, 1).unwrap();
            let creates = steps(&world, &map, &map);
            coding
                .create_in::<0, Transferred>(&creates, &matrix)
                .unwrap();
            let (create, parity) = step(&mut world, only(creates), (0, 256), 1024, 128);
            assert_eq!(parity.unwrap().len(), 128);

            // Recovers the second block from the first block and the redundancy, which are not contiguous.
            let recoveries = steps(&world, &map, &map);
            recoveries
                .append_data::<{ TwoBuffers::SOURCE }>(&world.inventory, &map, |_| (1024, 128))
                .unwrap();
            let lost = coding.recover_matrix(&matrix, &[1]).unwrap();
            coding
                .recover_in::<0, Transferred>(&recoveries, &lost)
                .unwrap();
            let mut recovery = only(recoveries);
            for _ in 0..2 {
                let recovered;
                (recovery, recovered) = step(&mut world, recovery, (0, 128), 2048, 128);
                assert_eq!(recovered.unwrap(), blocks[128..]);
            }

            let compress = Compress::builder(&device)
                .decompress_lz4_stream_tasks(1)
                .decompress_lz4_stream_handler::<Transferred>()
                .start(&world.pe)
                .unwrap();
            let decompressions = steps(&world, &map, &map);
            compress
                .decompress_lz4_stream_in::<0, Transferred>(&decompressions, Lz4Stream::default())
                .unwrap();
            // An LZ4 block of four literals and a match of 12 bytes at distance 4.
            let block = [9, 0, 0, 0, 0x48, b'a', b'b', b'c', b'd', 4, 0, 0x10, b'!'];
            map.region().unwrap().write(3072, &block).unwrap();
            let decompress = only(decompressions);
            let from = (3072, block.len());
            let (decompress, plain) = step(&mut world, decompress, from, 3328, 64);
            assert_eq!(plain.unwrap(), b"abcdabcdabcdabcd!");
            let (_, failed) = step(&mut world, decompress, from, 3328, 16);
            assert!(failed.is_err(), "17 bytes into 16");
            drop(create);
        },
    );
}

#[test]
fn a_new_context_gets_new_slots_from_the_same_inventory() {
    isolated(
        "a_new_context_gets_new_slots_from_the_same_inventory",
        || {
            let device = devices().dpu;
            let mut world = world(&device);
            world.inventory = BufInventory::new(2).unwrap();
            let map = world.mmap.clone();
            let read_only = Mmap::register(
                &device,
                MemoryRegion::new(64).unwrap(),
                Access::LOCAL_READ_ONLY,
            );
            let read_only = read_only.unwrap();
            for _ in 0..3 {
                let dma = Dma::start_with::<Transferred>(&world.pe, &device, 1).unwrap();
                let copies = steps(&world, &map, &read_only);
                dma.copy_in::<0, Transferred>(&copies).unwrap();
                let mut copy = only(copies);
                copy.set_data::<{ TwoBuffers::SOURCE }>(0, 64).unwrap();
                assert!(copy.submit::<0>().is_ok());
                let mut collector = Collector::default();
                let start = Instant::now();
                while collector.transferred.is_empty() {
                    assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}");
                    if world.pe.progress(&mut collector) {
                        // The failure stops the context.
                        world.pe.poll();
                    }
                }
                let (copy, result) = collector.transferred.pop().unwrap();
                assert_eq!(result, Err(ErrorCode::NOT_PERMITTED));
                let refused = copy.submit::<0>().unwrap_err();
                assert_eq!(refused.code, ErrorCode::BAD_STATE);
                drop(refused);
                dma.stop().unwrap();
                assert_eq!(world.alive(), 0);
            }
        },
    );
}

/// Another handler for the same type of workers.
struct Other;

impl CompletionHandler for Other {
    type Worker = Collector;
    type State = Tag;
    type Buffers = OneBuffer;

    fn completed(_: &mut Collector, _: Slot<Tag>, _: Result<(), ErrorCode>) {}
}

/// A handler of another worker type.
struct Foreign;

impl CompletionHandler for Foreign {
    type Worker = u8;
    type State = Tag;
    type Buffers = OneBuffer;

    fn completed(_: &mut u8, _: Slot<Tag>, _: Result<(), ErrorCode>) {}
}

#[test]
fn what_does_not_belong_together_is_refused() {
    isolated("what_does_not_belong_together_is_refused", || {
        let device = devices().dpu;
        let world = world(&device);
        let invalid = |result: doca::Result<()>| {
            assert_eq!(result.unwrap_err().code, ErrorCode::INVALID_VALUE);
        };
        let slots = world.slots(0, 2);
        invalid(world.receiver.receive_into::<RECEIVE, Other>(&slots));
        invalid(
            world
                .sender
                .send_from::<SEND, Other>(&slots, &world.connection),
        );
        let receive = || world.receiver.receive_into::<RECEIVE, Received>(&slots);
        receive().unwrap();
        invalid(receive());
        // A kind of tasks has either queued completions or slots, not both.
        let buf = world.inventory.buf(&world.mmap, 512, 64).unwrap();
        invalid(world.receiver.receive_task(&buf, 0).map(drop));
        invalid(world.receiver.receive_any_task(Some(&buf), 0).map(drop));
        invalid(world.sender.send_task(&world.connection, &buf, 0).map(drop));
        let connection = &world.connection;
        invalid(world.sender.read_task(connection, &buf, &buf, 0).map(drop));
        invalid(world.sender.write_task(connection, &buf, &buf, 0).map(drop));
        // Engines of other workers, or of none.
        let builder = || Rdma::builder(&device).receive_tasks(1);
        let plain = Pe::new().unwrap();
        invalid(
            builder()
                .receive_handler::<Received>()
                .start(&plain)
                .map(drop),
        );
        invalid(
            builder()
                .send_handler::<Foreign>()
                .start(&world.pe)
                .map(drop),
        );
        let elsewhere = WorkerPe::<Collector>::new().unwrap();
        let place = (0, MESSAGE, 1);
        let tag = |number| world.tag(number);
        let slots = Slots::new(&elsewhere, &world.inventory, &world.mmap, place, tag).unwrap();
        invalid(world.receiver.receive_into::<RECEIVE, Received>(&slots));
        // An instance without handlers.
        let queued = builder().start(&world.pe).unwrap();
        let slots = world.slots(8, 1);
        invalid(queued.receive_into::<RECEIVE, Received>(&slots));
        let tag = |number| world.tag(number);
        let (inventory, map) = (&world.inventory, &world.mmap);
        let transfers = Slots::with_two_buffers(&world.pe, inventory, map, map, 1, tag).unwrap();
        let (_, connection) = queued.export().unwrap();
        invalid(queued.read_into::<READ, Transferred>(&transfers, &connection));
        invalid(queued.write_from::<WRITE, Transferred>(&transfers, &connection));
        // The same for accelerators.
        invalid(Dma::start_with::<Transferred>(&plain, &device, 1).map(drop));
        let dma = Dma::start_with::<Transferred>(&world.pe, &device, 1).unwrap();
        invalid(dma.copy_task(&buf, &buf, 0).map(drop));
        let unhandled = Dma::start(&world.pe, &device, 1).unwrap();
        invalid(unhandled.copy_in::<READ, Transferred>(&transfers));
        let coding = || {
            ErasureCoding::builder(&device)
                .create_tasks(1)
                .recover_tasks(1)
        };
        invalid(
            coding()
                .create_handler::<Transferred>()
                .start(&plain)
                .map(drop),
        );
        invalid(
            coding()
                .recover_handler::<Transferred>()
                .start(&plain)
                .map(drop),
        );
        let unhandled = coding().start(&world.pe).unwrap();
        let matrix = unhandled.matrix(EcMatrixType::Cauchy, 2, 1).unwrap();
        let lost = unhandled.recover_matrix(&matrix, &[0]).unwrap();
        invalid(unhandled.create_in::<READ, Transferred>(&transfers, &matrix));
        invalid(unhandled.recover_in::<READ, Transferred>(&transfers, &lost));
        let handled = coding()
            .create_handler::<Transferred>()
            .recover_handler::<Transferred>();
        let handled = handled.start(&world.pe).unwrap();
        invalid(handled.create_task(&matrix, &buf, &buf, 0).map(drop));
        invalid(handled.recover_task(&lost, &buf, &buf, 0).map(drop));
        let lz4 = || Compress::builder(&device).decompress_lz4_stream_tasks(1);
        let handled = || lz4().decompress_lz4_stream_handler::<Transferred>();
        invalid(handled().start(&plain).map(drop));
        let stream = Lz4Stream::default();
        let unhandled = lz4().start(&world.pe).unwrap();
        invalid(unhandled.decompress_lz4_stream_in::<READ, Transferred>(&transfers, stream));
        let handled = handled().start(&world.pe).unwrap();
        invalid(
            handled
                .decompress_lz4_stream_task(&buf, &buf, stream, 0)
                .map(drop),
        );
        let task = queued.receive_task(&buf, 7).unwrap();
        task.submit().unwrap();
        drop(queued);
        let flushed = std::iter::from_fn(|| world.pe.poll())
            .any(|event| matches!(event, Event::Task(completion) if completion.token == 7));
        assert!(flushed);
    });
}
