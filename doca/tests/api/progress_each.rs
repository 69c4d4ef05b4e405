//! Completions handled inside of progress.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::support::{devices, isolated, memory};
use doca::{
    Access, Buf, BufInventory, Completion, CtxState, Device, EcMatrixType, ErasureCoding,
    ErrorCode, Event, Mmap, Pe, Rdma, RdmaConnection, Task,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}");
    }
}

/// Two connected instances on one engine.
struct World {
    pe: Pe,
    sender: Rdma,
    receiver: Rdma,
    connection: RdmaConnection,
    mmap: Mmap,
    inventory: BufInventory,
}

fn world(device: &Device) -> World {
    let pe = Pe::new().unwrap();
    let start = || {
        let builder = Rdma::builder(device).receive_tasks(8).send_tasks(8);
        let rdma = builder.start(&pe).unwrap();
        let (description, connection) = rdma.export().unwrap();
        (rdma, description, connection)
    };
    let (sender, ours, connection) = start();
    let (receiver, theirs, other) = start();
    sender.connect(&connection, &theirs).unwrap();
    receiver.connect(&other, &ours).unwrap();
    let (mmap, inventory) = memory(device, 4096, Access::LOCAL_READ_WRITE);
    World {
        pe,
        sender,
        receiver,
        connection,
        mmap,
        inventory,
    }
}

impl World {
    fn buf(&self, place: u64) -> Buf {
        self.inventory.buf(&self.mmap, place * 64, 64).unwrap()
    }

    fn send(&self, place: u64, token: u64) -> Task {
        let buf = self.buf(place);
        buf.write_data(&token.to_ne_bytes()).unwrap();
        self.sender
            .send_task(&self.connection, &buf, token)
            .unwrap()
    }

    fn receive(&self, place: u64, token: u64) -> (Buf, Task) {
        let buf = self.buf(place);
        let task = self.receiver.receive_task(&buf, token).unwrap();
        (buf, task)
    }

    /// Progresses until `count` tasks have completed, without any other event.
    fn tokens(&mut self, count: usize) -> Vec<u64> {
        let mut tokens = Vec::new();
        until(|| {
            let others = self.pe.progress_each(|Completion { token, result }| {
                assert_eq!(result, Ok(()), "{token}");
                tokens.push(token);
            });
            assert!(!others);
            tokens.len() >= count
        });
        tokens
    }

    /// Takes the events of starting the instances.
    fn settle(&self) {
        while self.pe.poll().is_some() {}
    }
}

#[test]
fn tasks_are_handled_in_the_order_of_their_ends_and_submitted_again_in_the_handler() {
    isolated(
        "tasks_are_handled_in_the_order_of_their_ends_and_submitted_again_in_the_handler",
        || {
            let mut world = world(&devices().dpu);
            world.settle();
            let (buf, receive) = world.receive(0, 0);
            let send = world.send(1, 7);
            receive.submit().unwrap();
            send.submit().unwrap();
            let mut received = 0;
            until(|| {
                let others = world.pe.progress_each(|completion| {
                    assert_eq!(completion.result, Ok(()));
                    if completion.token == 7 {
                        return send.submit().unwrap();
                    }
                    assert_eq!(buf.data_len(), Ok(8));
                    assert!(!receive.is_in_flight());
                    received += 1;
                    buf.reset_data().unwrap();
                    receive.submit().unwrap();
                });
                assert!(!others);
                received >= 100
            });
        },
    );
}

#[test]
fn queued_completions_come_first() {
    isolated("queued_completions_come_first", || {
        let mut world = world(&devices().dpu);
        world.settle();
        let (_buf, receive) = world.receive(0, 1);
        let (send, later) = (world.send(1, 2), world.send(2, 3));
        receive.submit().unwrap();
        send.submit().unwrap();
        let second = Duration::from_secs(5);
        // The completions are queued.
        let ended = || world.sender.in_flight() == 0 && world.receiver.in_flight() == 0;
        assert!(world.pe.progress_until(second, ended));
        assert!(send.is_in_flight(), "its completion has not been taken");
        later.submit().unwrap();
        let (_other, again) = world.receive(3, 4);
        again.submit().unwrap();
        let tokens = world.tokens(4);
        let place = |token| tokens.iter().position(|other| *other == token);
        assert_eq!(tokens.len(), 4, "{tokens:?}");
        for early in [1, 2] {
            for late in [3, 4] {
                assert!(place(early) < place(late), "{tokens:?}");
            }
        }
    });
}

#[test]
fn a_context_stopped_or_dropped_in_a_handler_is_stopped_when_the_call_returns() {
    isolated(
        "a_context_stopped_or_dropped_in_a_handler_is_stopped_when_the_call_returns",
        || {
            for is_stopped in [true, false] {
                let mut world = world(&devices().dpu);
                world.settle();
                let posted = world.receive(0, 3);
                posted.1.submit().unwrap();
                let sends = [world.send(1, 7), world.send(2, 8)];
                let receives = [world.receive(3, 1), world.receive(4, 2)];
                receives.iter().for_each(|(_, task)| task.submit().unwrap());
                sends.iter().for_each(|task| task.submit().unwrap());
                let id = world.receiver.id();
                let mut receiver = Some(world.receiver);
                let mut ended = Vec::new();
                let pe = &mut world.pe;
                until(|| {
                    let before = ended.len();
                    let others = pe.progress_each(|completion| {
                        ended.push(completion);
                        let Some(receiver) = receiver.take() else {
                            return;
                        };
                        match is_stopped {
                            true => {
                                let stopped = receiver.stop().unwrap_err();
                                assert_eq!(stopped.code, ErrorCode::IN_PROGRESS);
                            }
                            false => drop(receiver),
                        }
                        // Still in the list: DOCA is calling back for it, or for its neighbour.
                        assert!(posted.1.is_in_flight());
                    });
                    if ended.len() > before {
                        // It completed before the call returned.
                        assert!(others);
                    }
                    others
                });
                let mut states = Vec::new();
                while let Some(event) = world.pe.poll() {
                    match event {
                        Event::State { context, next, .. } if context == id => states.push(next),
                        Event::Task(completion) => ended.push(completion),
                        _ => {}
                    }
                }
                assert_eq!(states, [CtxState::Stopping, CtxState::Idle]);
                assert!(!posted.1.is_in_flight());
                assert_eq!(posted.1.submit(), Err(ErrorCode::BAD_STATE));
                let mut tokens: Vec<_> = ended.iter().map(|ended| ended.token).collect();
                tokens.sort_unstable();
                assert_eq!(tokens, [1, 2, 3, 7, 8], "each once");
            }
        },
    );
}

/// An erasure-coding instance is not destroyed while it has a matrix, and takes another way to its stop.
#[test]
fn an_instance_with_a_matrix_stopped_in_a_handler_is_stopped_when_the_call_returns() {
    isolated(
        "an_instance_with_a_matrix_stopped_in_a_handler_is_stopped_when_the_call_returns",
        || {
            let device = devices().dpu;
            let mut world = world(&device);
            let coding = ErasureCoding::builder(&device)
                .create_tasks(1)
                .start(&world.pe)
                .unwrap();
            let _matrix = coding.matrix(EcMatrixType::Vandermonde, 2, 1).unwrap();
            world.settle();
            let (send, receive) = (world.send(1, 7), world.receive(3, 1));
            receive.1.submit().unwrap();
            send.submit().unwrap();
            let id = coding.id();
            let mut coding = Some(coding);
            let pe = &mut world.pe;
            until(|| {
                pe.progress_each(|_| {
                    if let Some(coding) = coding.take() {
                        let stopped = coding.stop().unwrap_err();
                        assert_eq!(stopped.code, ErrorCode::IN_PROGRESS);
                    }
                })
            });
            let mut states = Vec::new();
            while let Some(event) = world.pe.poll() {
                if let Event::State { context, next, .. } = event
                    && context == id
                {
                    states.push(next);
                }
            }
            assert_eq!(states.last(), Some(&CtxState::Idle), "{states:?}");
        },
    );
}

fn describe(event: &Event) -> String {
    match event {
        Event::Task(Completion { token, result }) => format!("{token} {result:?}"),
        Event::State { next, .. } => format!("{next:?}"),
        event => format!("{event:?}"),
    }
}

/// Order of the queued events after stopping an instance with two receives in flight, as returned by `take`.
fn order_of_an_end(mut take: impl FnMut(&mut Pe, &mut dyn FnMut(Event))) -> Vec<String> {
    let world = world(&devices().dpu);
    let receives = [0, 1].map(|number| world.receive(number, number));
    receives.iter().for_each(|(_, task)| task.submit().unwrap());
    world.receiver.stop().unwrap();
    let mut pe = world.pe;
    let mut order = Vec::new();
    take(&mut pe, &mut |event| order.push(describe(&event)));
    order
}

#[test]
fn everything_is_handled_in_its_order() {
    isolated("everything_is_handled_in_its_order", || {
        let polled = order_of_an_end(|pe, note| {
            while let Some(event) = pe.poll() {
                note(event);
            }
        });
        assert!(polled.len() >= 6, "{polled:?}");
        let handled = order_of_an_end(|pe, note| {
            while pe.progress_each(|completion| note(Event::Task(completion))) {
                note(pe.poll().expect("it says that there is one"));
            }
        });
        assert_eq!(handled, polled);
    });
}

#[test]
fn a_task_may_go_while_it_is_in_flight_and_in_its_own_handler() {
    isolated(
        "a_task_may_go_while_it_is_in_flight_and_in_its_own_handler",
        || {
            let mut world = world(&devices().dpu);
            world.settle();
            let (buf, receive) = world.receive(0, 1);
            receive.submit().unwrap();
            drop(receive);
            let send = world.send(1, 2);
            send.submit().unwrap();
            let send = RefCell::new(Some(send));
            let mut tokens = Vec::new();
            until(|| {
                world.pe.progress_each(|completion| {
                    assert_eq!(completion.result, Ok(()));
                    tokens.push(completion.token);
                    if completion.token == 2 {
                        assert!(send.take().is_some());
                    }
                });
                tokens.len() == 2
            });
            tokens.sort_unstable();
            assert_eq!(tokens, [1, 2]);
            assert_eq!(buf.data_len(), Ok(8));
            buf.reset_data().unwrap();
            // Both slots are free again.
            let tasks: Vec<_> = (0..8).map(|i| world.send(2 + i, i)).collect();
            let full = world.sender.send_task(&world.connection, &buf, 9);
            assert_eq!(full.unwrap_err().code, ErrorCode::NO_MEMORY);
            drop(tasks);
        },
    );
}
