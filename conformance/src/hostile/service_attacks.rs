//! Behaviour of hostile services.

use std::time::Duration;

use wire::control::{ErrorResponse, Payload, StorageDetails};

use super::attack::{
    Action, Attack, Cost, Descriptor, Frame, Play, Point, RingWrite, ServiceAttack,
};
use super::bytes::Bytes;
use super::raw::words;

/// Cost that a hostile service may cause an initiator: the time-outs of control operations and of I/Os, 2 s each, and what an initiator with four
/// transactions takes anyway.
const COST: Cost = Cost {
    service: Duration::from_secs(8),
    held_up: Duration::ZERO,
    memory: 96,
    descriptors: 160,
    lines: 40,
};

fn attack(name: &'static str, meaning: &'static str, point: Point, action: Action) -> Attack {
    Attack {
        name,
        meaning,
        play: Play::Service(ServiceAttack { point, action }),
        cost: COST,
    }
}

/// One that may cost up to 20 lines of a kind in a second.
fn flood(name: &'static str, meaning: &'static str, point: Point, action: Action) -> Attack {
    let cost = Cost { lines: 120, ..COST };
    Attack {
        cost,
        ..attack(name, meaning, point, action)
    }
}

/// Things that a service may do instead of any answer.
macro_rules! instead_of {
    ($($point:ident $name:literal $request:literal,)*) => {
        [$(
            attack(
                concat!("service-closes-at-", $name),
                concat!("Closes the connection when ", $request, " has come"),
                Point::$point,
                Action::Close,
            ),
            attack(
                concat!("service-silent-at-", $name),
                concat!("Does not answer ", $request),
                Point::$point,
                Action::Silence,
            ),
            attack(
                concat!("service-garbage-at-", $name),
                concat!("Answers ", $request, " with garbage"),
                Point::$point,
                Action::Bytes(Bytes::Random(3000), 1),
            ),
            attack(
                concat!("service-long-frame-at-", $name),
                concat!("Answers ", $request, " with the header of a frame of 4 GiB"),
                Point::$point,
                Action::Bytes(Bytes::Header { len: u32::MAX, kind: 2 }, 1),
            ),
            attack(
                concat!("service-half-a-frame-at-", $name),
                concat!("Answers ", $request, " with half of a frame"),
                Point::$point,
                Action::Bytes(Bytes::Raw(&[0, 0, 0, 24, 0, 0, 0, 2, 0]), 1),
            ),
            attack(
                concat!("service-error-at-", $name),
                concat!("Answers ", $request, " with an error of 3000 bytes"),
                Point::$point,
                Action::Answer(Payload::ErrorResponse(ErrorResponse {
                    error_code: u32::MAX,
                    message: "\u{1b}[2J\r\n".repeat(500),
                })),
            ),
            attack(
                concat!("service-other-answer-at-", $name),
                concat!("Answers ", $request, " with the answer to another request"),
                Point::$point,
                // The answer to a request that an initiator never makes.
                Action::Bytes(Bytes::Frame { kind: 6, payload: 64 }, 1),
            ),
            attack(
                concat!("service-wrong-ids-at-", $name),
                concat!("Answers ", $request, " with another message id"),
                Point::$point,
                Action::WrongIds,
            ),
            flood(
                concat!("service-flood-at-", $name),
                concat!("Answers ", $request, " with query responses, for 2 s"),
                Point::$point,
                Action::Bytes(Bytes::Frame { kind: 2, payload: 12 }, usize::MAX),
            ),
        )*]
    };
}

/// All of them.
pub(super) fn service_attacks() -> Vec<Attack> {
    let mut all = instead_of![
        Query "query" "query_storage_request",
        Init "init" "init_storage_request",
        Start "start" "start_storage_request",
        Stop "stop" "stop_storage_request",
        Shutdown "shutdown" "shutdown_request",
    ]
    .to_vec();
    all.extend(hello());
    all.extend(answers());
    all.extend(frames());
    all.extend(rings());
    all.extend(agents());
    all
}

/// Services that do not accept.
fn hello() -> Vec<Attack> {
    let frame = |bytes: Vec<u8>| {
        let descriptors = Vec::new();
        Action::Frames(vec![Frame { bytes, descriptors }], 1)
    };
    let at = |name, meaning, action| attack(name, meaning, Point::Hello, action);
    vec![
        at(
            "service-never-accepts",
            "Says nothing to an initiator that connects",
            Action::Silence,
        ),
        at(
            "service-hangs-up",
            "Closes the connection of an initiator that connects",
            Action::Close,
        ),
        at(
            "service-refuses",
            "Refuses an initiator, with a reason that is no text",
            frame([words(&[3, 9]), vec![0xff; 200]].concat()),
        ),
        at(
            "service-refuses-unknown",
            "Refuses an initiator with an error that does not exist",
            frame(words(&[3, u32::MAX])),
        ),
        at(
            "service-accepts-garbage",
            "Sends garbage instead of accepting an initiator",
            frame(vec![0xa5; 4000]),
        ),
        at(
            "service-accepts-other-size",
            "Accepts an initiator with messages of 4 GiB",
            frame(words(&[2, u32::MAX])),
        ),
        at(
            "service-message-first",
            "Sends a message instead of accepting an initiator",
            frame([words(&[4]), vec![0; 16]].concat()),
        ),
    ]
}

/// Storages that cannot be.
fn answers() -> Vec<Attack> {
    let storage = |name, meaning, total_size, block_size| {
        let details = StorageDetails {
            total_size,
            block_size,
        };
        let answer = Payload::QueryStorageResponse(details);
        attack(name, meaning, Point::Query, Action::Answer(answer))
    };
    vec![
        storage("storage-empty", "Has a storage of no bytes", 0, 4096),
        storage("storage-no-blocks", "Has blocks of no bytes", 1 << 20, 0),
        storage(
            "storage-max",
            "Has a storage of 2^64-1 bytes in blocks of 4 GiB",
            u64::MAX,
            u32::MAX,
        ),
        storage(
            "storage-block-larger",
            "Has a block that is larger than the storage",
            4096,
            1 << 30,
        ),
        storage(
            "storage-odd",
            "Has a storage of 33 bytes in blocks of 7",
            33,
            7,
        ),
    ]
}

/// Frames of Comch, when the initiator asks for the start.
fn frames() -> Vec<Attack> {
    use Descriptor as D;
    let frame = |bytes: Vec<u8>, descriptors: &[D]| Frame {
        bytes,
        descriptors: descriptors.to_vec(),
    };
    let one = |name, meaning, bytes, descriptors: &[D]| {
        let frames = vec![frame(bytes, descriptors)];
        attack(name, meaning, Point::Init, Action::Frames(frames, 1))
    };
    let consumer = |id: u32, size: u32| words(&[5, id, size]);
    vec![
        one("frame-unknown", "Sends an unknown frame", words(&[99]), &[]),
        one("frame-empty", "Sends a frame of no kind", vec![0], &[]),
        one(
            "frame-accept-twice",
            "Accepts the initiator again",
            words(&[2, 4080]),
            &[],
        ),
        one(
            "frame-long-message",
            "Sends a message that is too long",
            [words(&[4]), vec![0; 5000]].concat(),
            &[],
        ),
        one(
            "frame-descriptors",
            "Sends a message with 16 descriptors",
            [words(&[4]), vec![0; 8]].concat(),
            &[D::File; 16],
        ),
        one(
            "frame-consumer-pipes",
            "Announces a consumer with pipes",
            consumer(1, 64),
            &[D::Pipe, D::Pipe],
        ),
        one(
            "frame-consumer-unsealed",
            "Announces a consumer with a ring that is not sealed",
            consumer(1, 64),
            &[D::UnsealedRing, D::EventFd],
        ),
        one(
            "frame-consumer-lying",
            "Announces a consumer whose ring is shorter than it says",
            consumer(1, 64),
            &[D::LyingRing, D::EventFd],
        ),
        one(
            "frame-consumer-wrong-id",
            "Announces a consumer with an id of the other side",
            consumer(2, 64),
            &[D::Ring, D::EventFd],
        ),
        one(
            "frame-expiry",
            "Expires a consumer that it does not have",
            words(&[6, 1]),
            &[],
        ),
        Attack {
            // 512 consumers of a peer are allowed where the limit of descriptors is high, with two descriptors each.
            cost: Cost {
                descriptors: 1100,
                ..COST
            },
            ..attack(
                "frame-many-consumers",
                "Announces 600 consumers",
                Point::Init,
                Action::Frames(
                    (0..600)
                        .map(|id| frame(consumer(2 * id + 1, 64), &[D::Ring, D::EventFd]))
                        .collect(),
                    1,
                ),
            )
        },
        attack(
            "frame-consumers-come-and-go",
            "Announces consumers that expire at once, for 2 s",
            Point::Init,
            Action::Frames(
                vec![
                    frame(consumer(1, 64), &[D::Ring, D::EventFd]),
                    frame(words(&[6, 1]), &[]),
                ],
                usize::MAX,
            ),
        ),
        attack(
            "frame-lifeline-cut",
            "Closes its lifeline, and nothing else",
            Point::Start,
            Action::CutLifeline,
        ),
    ]
}

/// Results of I/Os.
fn rings() -> Vec<Attack> {
    use RingWrite as R;
    let at = |name, meaning, action| attack(name, meaning, Point::Io, action);
    let ring = |name, meaning, writes: Vec<R>| at(name, meaning, Action::Ring(writes));
    let fragment = |len, immediate, more, inline| R::Fragment {
        len,
        immediate,
        more,
        inline,
    };
    vec![
        at("io-silent", "Does not answer I/Os", Action::Silence),
        at(
            "io-closes",
            "Closes the connection when I/Os have come",
            Action::Close,
        ),
        at(
            "io-fails",
            "Says that the first I/O has failed",
            Action::Results(17, 1),
        ),
        at(
            "io-results-twice",
            "Says 30 times that the first I/O has succeeded",
            Action::Results(0, 30),
        ),
        ring(
            "io-result-unknown",
            "Sends a result that belongs to no I/O",
            vec![R::Io(0, 4096, 0, 0)],
        ),
        ring(
            "io-request",
            "Sends a request instead of a result",
            vec![R::Io(1, 4096, 0, 0)],
        ),
        ring(
            "io-unknown-message",
            "Sends an I/O message of an unknown type",
            vec![R::Io(77, 4096, 0, 0)],
        ),
        ring(
            "ring-empty-results",
            "Sends results of no bytes",
            vec![fragment(0, None, false, true); 4],
        ),
        ring(
            "ring-immediate-result",
            "Sends a result with immediate data of 35 bytes",
            vec![fragment(0, Some(35), false, true)],
        ),
        ring(
            "ring-result-16-kib",
            "Sends a result of 16 KiB",
            vec![fragment(16_384, None, false, false)],
        ),
        ring(
            "ring-result-too-long",
            "Sends a result that is longer than the ring",
            vec![fragment(0x7f_ffff, None, false, false)],
        ),
        ring(
            "ring-result-unfinished",
            "Begins a result, and stays",
            vec![fragment(64, None, true, true)],
        ),
        ring(
            "ring-result-endless",
            "Sends a result of 200000 fragments",
            vec![R::Endless(200_000)],
        ),
        ring(
            "ring-result-noise",
            "Writes any words all over the ring, 20000 times",
            vec![R::Noise(20_000)],
        ),
        ring(
            "ring-result-closed",
            "Closes the ring in the middle of a result",
            vec![fragment(64, None, true, true), R::Close],
        ),
        at(
            "io-messages-flood",
            "Sends control messages during I/O, for 2 s",
            Action::Bytes(
                Bytes::Frame {
                    kind: 8,
                    payload: 0,
                },
                usize::MAX,
            ),
        ),
    ]
}

/// The initiator's agent.
fn agents() -> Vec<Attack> {
    let at = |name, meaning, bytes, connections| {
        let action = Action::Agent { bytes, connections };
        attack(name, meaning, Point::Io, action)
    };
    vec![
        at(
            "initiator-agent-garbage",
            "Sends garbage to the initiator's agent",
            Bytes::Random(300),
            1,
        ),
        at(
            "initiator-agent-400-connections",
            "Has 400 connections to the initiator's agent",
            Bytes::Raw(b"S"),
            400,
        ),
        at(
            "initiator-agent-unknown-key",
            "Asks the initiator's agent for what does not exist",
            Bytes::Raw(b"SDrq\x02\0\x02\0kkkkkkkkkkkkkkkk00000000111111112222222233333333"),
            20,
        ),
    ]
}
