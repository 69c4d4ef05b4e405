//! Requests that are not due, or ask for what cannot be had.

use bytes::Bytes;
use wire::control::{InitStorage, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole};

use super::messages::one_of_each;
use super::plan::{Plan, Step};
use super::service::Service;
use crate::role::{Bench, Check, During as _, Wrong};

/// What is no export of anything.
const GARBAGE: Bytes = Bytes::from_static(&[0xa5; 300]);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "unexpected-before-query",
        meaning: "A request that comes before the query gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Query, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-init",
        meaning: "A second query gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Init, Payload::QueryStorageRequest),
    },
    Check {
        name: "unexpected-before-connections",
        meaning: "A start without connections gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Connect, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-start",
        meaning: "A shutdown without a start gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Start, Payload::ShutdownRequest),
    },
    Check {
        name: "unexpected-before-stop",
        meaning: "A second start gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Stop, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-shutdown",
        meaning: "A second stop gets an error_response with its ids",
        play: |bench| unexpected(bench, Step::Shutdown, Payload::StopStorageRequest),
    },
    Check {
        name: "responses-are-no-requests",
        meaning: "An error_response or another answer from a service gets an error_response, and no other answer",
        play: responses,
    },
    Check {
        name: "refusals-leave-the-session",
        meaning: "After any message that is not due the session goes on where it was (the reference takes the next step instead)",
        play: leave_the_session,
    },
    Check {
        name: "cores-too-many",
        meaning: "More workers than the target has CPUs are refused, or end the target",
        play: |bench| refused_init(bench, |init| init.core_count = 2),
    },
    Check {
        name: "cores-absurd",
        meaning: "4294967295 workers are refused, or end the target",
        play: |bench| refused_init(bench, |init| init.core_count = u32::MAX),
    },
    Check {
        name: "cores-none",
        meaning: "0 workers are refused, or end the target (the reference takes them)",
        play: |bench| refused_init(bench, |init| init.core_count = 0),
    },
    Check {
        name: "transactions-none",
        meaning: "0 transactions are refused, or end the target",
        play: |bench| refused_init(bench, |init| init.transaction_count = 0),
    },
    Check {
        name: "transactions-absurd",
        meaning: "4294967295 transactions are refused, or end the target",
        play: |bench| refused_init(bench, |init| init.transaction_count = u32::MAX),
    },
    Check {
        name: "memory-empty",
        meaning: "An empty memory map export is refused, or ends the target",
        play: |bench| refused_init(bench, |init| init.mmap_export_blob = Bytes::new()),
    },
    Check {
        name: "memory-garbage",
        meaning: "Bytes that are no memory map export are refused, or end the target",
        play: |bench| refused_init(bench, |init| init.mmap_export_blob = GARBAGE),
    },
    Check {
        name: "memory-cut-off",
        meaning: "Half a memory map export is refused, or ends the target",
        play: |bench| {
            refused_init(bench, |init| {
                init.mmap_export_blob
                    .truncate(init.mmap_export_blob.len() / 2);
            })
        },
    },
    Check {
        name: "context-next",
        meaning: "A connection of the context behind the last is refused, or ends the target (the reference uses memory that is no worker)",
        play: |bench| refused_connection(bench, |details| details.context_index = 1),
    },
    Check {
        name: "context-absurd",
        meaning: "A connection of context 4294967295 is refused, or ends the target",
        play: |bench| refused_connection(bench, |details| details.context_index = u32::MAX),
    },
    Check {
        name: "connection-garbage",
        meaning: "Bytes that are no connection export are refused, or end the target",
        play: |bench| refused_connection(bench, |details| details.connection_details = GARBAGE),
    },
    Check {
        name: "connection-empty",
        meaning: "An empty connection export is refused, or ends the target",
        play: |bench| {
            refused_connection(bench, |details| details.connection_details = Bytes::new())
        },
    },
    Check {
        name: "connection-twice",
        meaning: "A second connection of the same context and role is refused, or ends the target",
        play: connection_twice,
    },
    Check {
        name: "impossible-requests-leave-the-session",
        meaning: "After requests for the impossible, and for what was had already, the session goes on where it was, and I/O works (the reference takes the next step instead)",
        play: impossible,
    },
];

fn unexpected(bench: &Bench<'_>, step: Step, request: Payload) -> Result<(), Wrong> {
    // Held to the end: the target lives until its peer is gone.
    let (_running, mut service) = Service::at(bench, &[], Plan::SMALL, step)?;
    service.refused(request)
}

fn responses(bench: &Bench<'_>) -> Result<(), Wrong> {
    let [error, answer] = [
        MessageType::ErrorResponse,
        MessageType::QueryStorageResponse,
    ]
    .map(|message_type| {
        one_of_each()
            .into_iter()
            .find(|payload| payload.message_type() == message_type)
    });
    // The two steps that need no RDMA: a target may take a refusal for a step that was taken.
    let (_running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Query)?;
    error
        .into_iter()
        .chain(answer)
        .try_for_each(|payload| service.refused(payload))
}

fn leave_the_session(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Query)?;
    for (step, due) in [
        (Step::Query, MessageType::QueryStorageRequest),
        (Step::Init, MessageType::InitStorageRequest),
        (Step::Connect, MessageType::CreateRdmaConnectionRequest),
        (Step::Start, MessageType::StartStorageRequest),
        (Step::Stop, MessageType::StopStorageRequest),
        (Step::Shutdown, MessageType::ShutdownRequest),
    ] {
        service.go_to(step)?;
        for payload in one_of_each() {
            if payload.message_type() != due {
                service
                    .refused(payload)
                    .during(format!("where {due} is due"))?;
            }
        }
        if step == Step::Stop {
            service.works()?;
        }
    }
    service.finish(&mut running)
}

fn refused_init(bench: &Bench<'_>, spoil: fn(&mut InitStorage)) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Init)?;
    let mut init = service.init_request()?;
    spoil(&mut init);
    service.refused_or_over(Payload::InitStorageRequest(init), &mut running)
}

fn refused_connection(
    bench: &Bench<'_>,
    spoil: fn(&mut RdmaConnectionDetails),
) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    let mut details = service.connection_request(0, RdmaConnectionRole::IoData)?;
    spoil(&mut details);
    service.refused_or_over(Payload::CreateRdmaConnectionRequest(details), &mut running)
}

fn connection_twice(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    service.connect_one(0, RdmaConnectionRole::IoData)?;
    let details = service.connection_request(0, RdmaConnectionRole::IoData)?;
    service.refused_or_over(Payload::CreateRdmaConnectionRequest(details), &mut running)
}

fn impossible(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Init)?;
    let spoilt: [fn(&mut InitStorage); 5] = [
        |init| init.core_count = 0,
        |init| init.core_count = 2,
        |init| init.transaction_count = 0,
        |init| init.transaction_count = u32::MAX,
        |init| init.mmap_export_blob = GARBAGE,
    ];
    for spoil in spoilt {
        let mut init = service.init_request()?;
        spoil(&mut init);
        service.refused(Payload::InitStorageRequest(init))?;
    }
    service.go_to(Step::Connect)?;
    service.make_workers()?;
    for role in [RdmaConnectionRole::IoData, RdmaConnectionRole::IoControl] {
        let right = service.connection_request(0, role)?;
        for (context_index, blob) in [(1, None), (0, Some(GARBAGE))] {
            let mut details = right.clone();
            details.context_index = context_index;
            if let Some(blob) = blob {
                details.connection_details = blob;
            }
            service.refused(Payload::CreateRdmaConnectionRequest(details))?;
        }
        let request = Payload::CreateRdmaConnectionRequest(right);
        let answer = service.ask(request.clone())?;
        service.connected(0, role, answer)?;
        service
            .refused(request)
            .during("the same connection again")?;
    }
    service.workers[0].prepare()?;
    service.taken(Step::Connect);
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}
