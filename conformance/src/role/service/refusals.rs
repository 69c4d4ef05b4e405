//! Requests of the initiator that are out of order, or ask for what cannot be.

use std::time::Duration;

use bytes::Bytes;
use wire::control::{
    ErrorResponse, InitStorage, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};

use super::cast::{Cast, TRANSACTIONS};
use super::heard::{Heard, expect_answer};
use super::layout::BLOCK;
use super::target::Reply;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

const WATCH: Duration = Duration::from_millis(60);

pub(super) const CHECKS: [Check; 6] = [
    Check {
        name: "unexpected-first-request",
        meaning: "any request but query_storage_request at the beginning is answered with an error_response, and asks the targets for \
                  nothing",
        play: unexpected_first,
    },
    Check {
        name: "unexpected-requests-leave-the-state",
        meaning: "requests out of order are answered with an error_response in every state, and the session goes on as if they had not \
                  come; the reference takes each for the end of the state",
        play: unexpected_later,
    },
    Check {
        name: "request-before-the-answer",
        meaning: "a request that comes while another is processed is refused, and the other one answered; the reference takes it for the \
                  next one",
        play: request_before_answer,
    },
    Check {
        name: "what-is-no-request",
        meaning: "a response, an error_response or a connection request of an initiator is answered with an error_response",
        play: no_request,
    },
    Check {
        name: "absurd-init",
        meaning: "init with no cores, more than the service has CPUs, no or absurdly many transactions is refused, and may be repeated; \
                  the reference tries, and takes the refusal for the end of the state",
        play: absurd_init,
    },
    Check {
        name: "init-blob-of-none",
        meaning: "a memory export that is none is answered with an error_response, or ends the service with an exit status other than 0",
        play: init_blob,
    },
];

/// A request of each step, whether it is due or not.
fn requests(cast: &Cast<'_>) -> Result<Vec<(Step, Payload)>, Wrong> {
    Step::ALL
        .into_iter()
        .map(|step| Ok((step, cast.payload(step)?)))
        .collect()
}

/// Says this, expects an error, and that nobody hears of it.
fn refused(cast: &mut Cast<'_>, payload: Payload) -> Result<(), Wrong> {
    let what = payload.message_type();
    let request = cast.request(payload);
    let before = cast.asked.len();
    let answer = cast.exchange(&request, &mut |_, _| Reply::Silence)?;
    Cast::expect_error(&answer)?;
    Wrong::unless(
        cast.asked.len() == before,
        format!("a refused {what} to be forwarded to nobody"),
        "another request at a target",
    )
}

fn unexpected_first(bench: &Bench<'_>) -> Result<(), Wrong> {
    for step in [Step::Init, Step::Start, Step::Stop, Step::Shutdown] {
        let mut cast = Cast::start(bench, &[])?;
        let payload = cast.payload(step)?;
        refused(&mut cast, payload)?;
        cast.expect_silence(WATCH, "after a request was refused")?;
    }
    Ok(())
}

fn unexpected_later(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        for (other, payload) in requests(&cast)? {
            if other != step {
                refused(&mut cast, payload)?;
            }
        }
        // What is prepared is not prepared twice.
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        let answer = cast.exchange(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn request_before_answer(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        cast.say(&request)?;
        let mut held = Vec::new();
        while held.len() < cast.targets.len() {
            match cast.listen(bench.patience())? {
                Heard::Target(index, message) => held.push((index, message)),
                heard => return Err(Wrong::expected("targets to be asked", heard.describe())),
            }
        }
        refused(&mut cast, Payload::QueryStorageRequest)?;
        for (index, message) in held {
            cast.targets[index].reply(&message, Reply::Honest)?;
        }
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn no_request(bench: &Bench<'_>) -> Result<(), Wrong> {
    let details = RdmaConnectionDetails {
        context_index: 0,
        role: RdmaConnectionRole::IoData,
        connection_details: Bytes::from_static(b"none"),
    };
    for payload in [
        Payload::QueryStorageResponse(StorageDetails {
            total_size: BLOCK as u64,
            block_size: BLOCK as u32,
        }),
        Payload::ErrorResponse(ErrorResponse {
            error_code: 17,
            message: "no request".to_owned(),
        }),
        Payload::CreateRdmaConnectionRequest(details),
        Payload::ShutdownResponse,
    ] {
        let mut cast = Cast::start(bench, &[])?;
        refused(&mut cast, payload)?;
    }
    Ok(())
}

fn absurd_init(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    cast.take(Step::Query)?;
    for (transaction_count, core_count) in [
        (TRANSACTIONS, 0),
        (TRANSACTIONS, 2),
        (TRANSACTIONS, u32::MAX),
        (0, 1),
        (1 << 20, 1),
        (1 << 31, 1),
        (u32::MAX, 1),
    ] {
        let init = InitStorage {
            transaction_count,
            core_count,
            ..cast.init()?
        };
        refused(&mut cast, Payload::InitStorageRequest(init))?;
    }
    cast.finish_from(Step::Init)
}

fn init_blob(bench: &Bench<'_>) -> Result<(), Wrong> {
    for blob in [&b""[..], b"none", &[0; 200], &[0xff; 512]] {
        let mut cast = Cast::start(bench, &[])?;
        cast.take(Step::Query)?;
        let init = InitStorage {
            mmap_export_blob: Bytes::copy_from_slice(blob),
            ..cast.init()?
        };
        let request = cast.request(Payload::InitStorageRequest(init));
        cast.say(&request)?;
        cast.expect_refusal("a blob that is none")?;
    }
    Ok(())
}
