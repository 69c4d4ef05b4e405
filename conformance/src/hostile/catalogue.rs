//! Catalogue of all attacks.

use std::time::Duration;

use super::attack::{
    AgentCalls, Attack, Bytes, Control, Cost, Descriptor, End, Frame, Frames, Manner, Play,
    RingWrite, Session, Silent, Step,
};
use super::network::{Authenticated, Exported, Input, NetworkAttack, Unauthenticated};
use super::raw::words;
use super::service::service_attacks;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// All attacks, in the order in which they are executed.
pub fn attacks() -> Vec<Attack> {
    [
        control(),
        floods(),
        frames(),
        agent_calls(),
        imports(),
        rings(),
        network(),
        service_attacks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn attack(name: &'static str, meaning: &'static str, play: Play) -> Attack {
    Attack {
        name,
        meaning,
        play,
        cost: Cost::USUAL,
    }
}

/// Attacks with a single invalid message on a control channel.
fn control() -> Vec<Attack> {
    use Bytes as B;
    let once = |name, meaning, bytes| attack(name, meaning, Play::Control(Control::once(bytes)));
    let with = |name, meaning, control| attack(name, meaning, Play::Control(control));
    vec![
        once("control-nothing", "Connects and closes", B::Nothing),
        with(
            "control-nothing-reset",
            "Connects and resets",
            Control {
                end: End::Reset,
                ..Control::once(B::Nothing)
            },
        ),
        with(
            "control-silent",
            "Connects and says nothing for 3 s",
            Control {
                hold: ms(3000),
                ..Control::once(B::Nothing)
            },
        ),
        with(
            "control-silent-half-closed",
            "Connects, says that nothing will come, and stays for 3 s",
            Control {
                hold: ms(3000),
                end: End::HalfClose,
                ..Control::once(B::Nothing)
            },
        ),
        once(
            "control-http",
            "Sends a request of HTTP",
            B::Raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ),
        once(
            "control-zeros",
            "Sends 64 KiB of zeros",
            B::Repeated(0, 65_536),
        ),
        once(
            "control-ones",
            "Sends 64 KiB of 0xff",
            B::Repeated(0xff, 65_536),
        ),
        once(
            "control-random",
            "Sends 64 KiB of any bytes",
            B::Random(65_536),
        ),
        once(
            "control-length-only",
            "Sends a length and no frame",
            B::Raw(&[0, 0, 0, 12]),
        ),
        once(
            "control-length-zero",
            "Sends a frame of no bytes",
            B::Raw(&[0, 0, 0, 0]),
        ),
        once(
            "control-length-short",
            "Sends a frame too short for its header",
            B::Raw(&[0, 0, 0, 4, 0, 0, 0, 1]),
        ),
        once(
            "control-length-max",
            "Sends a frame of 4 GiB",
            B::Header {
                len: u32::MAX,
                kind: 1,
            },
        ),
        once(
            "control-length-2-gib",
            "Sends a frame of 2 GiB",
            B::Header {
                len: 1 << 31,
                kind: 3,
            },
        ),
        once(
            "control-length-1-mib",
            "Sends a frame of 1 MiB, all of it",
            B::Frame {
                kind: 3,
                payload: 1 << 20,
            },
        ),
        once(
            "control-unknown-type",
            "Sends a frame of an unknown type",
            B::Frame {
                kind: 99,
                payload: 0,
            },
        ),
        once(
            "control-type-max",
            "Sends a frame of the highest type",
            B::Frame {
                kind: u32::MAX,
                payload: 8,
            },
        ),
        once(
            "control-query-with-payload",
            "Sends a query followed by 32 KiB",
            B::Frame {
                kind: 1,
                payload: 32_768,
            },
        ),
        once(
            "control-response",
            "Sends a response without a request",
            B::Frame {
                kind: 2,
                payload: 12,
            },
        ),
        once("control-error", "Sends an error response first", B::Error),
        once(
            "control-half-a-frame",
            "Sends half of a query and closes",
            B::Raw(&[0, 0, 0, 12, 0, 0, 0, 1, 0]),
        ),
        with(
            "control-half-a-frame-held",
            "Sends half of a query and stays for 3 s",
            Control {
                hold: ms(3000),
                ..Control::once(B::Raw(&[0, 0, 0, 12, 0, 0, 0, 1, 0]))
            },
        ),
        with(
            "control-byte-by-byte",
            "Sends a query, a byte every 100 ms",
            Control {
                piece: 1,
                pace: ms(100),
                ..Control::once(B::Query)
            },
        ),
        once(
            "control-start-first",
            "Starts before anything was prepared",
            B::Start,
        ),
        once(
            "control-stop-first",
            "Stops before anything was started",
            B::Stop,
        ),
        once(
            "control-shutdown-first",
            "Ends a session that has not begun",
            B::Shutdown,
        ),
        once(
            "control-query-twice",
            "Queries twice",
            B::All(&[B::Query, B::Query]),
        ),
        once(
            "control-create-first",
            "Connects a worker that does not exist",
            B::All(&[
                B::Query,
                B::Create {
                    index: u32::MAX,
                    blob: 64,
                },
            ]),
        ),
        once(
            "control-init-empty-blob",
            "Prepares a session with an empty export",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: 1,
                    blob: 0,
                },
            ]),
        ),
        once(
            "control-init-zero-blob",
            "Prepares a session with an export of zeros",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: 1,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-init-long-blob",
            "Prepares a session with an export of 32 KiB",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: 1,
                    blob: 32_768,
                },
            ]),
        ),
        once(
            "control-init-no-cores",
            "Prepares a session of 0 cores",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: 0,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-init-max-cores",
            "Prepares a session of 4294967295 cores",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: u32::MAX,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-init-no-transactions",
            "Prepares a session of 0 transactions",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 0,
                    cores: 1,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-init-max-transactions",
            "Prepares a session of 4294967295 transactions",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: u32::MAX,
                    cores: 1,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-init-65536-transactions",
            "Prepares a session of 65536 transactions",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 65_536,
                    cores: 1,
                    blob: 96,
                },
            ]),
        ),
        once(
            "control-everything-at-once",
            "Sends all requests of a session without waiting",
            B::All(&[
                B::Query,
                B::Init {
                    transactions: 1,
                    cores: 1,
                    blob: 96,
                },
                B::Create { index: 0, blob: 64 },
                B::Start,
                B::Stop,
                B::Shutdown,
            ]),
        ),
    ]
}

/// Attacks with large amounts of data on control channels, or with many channels.
fn floods() -> Vec<Attack> {
    // Up to 20 lines of each of three kinds in each of the four seconds that an attack overlaps.
    let cost = Cost {
        lines: 240,
        ..Cost::USUAL
    };
    let with = |name, meaning, control| Attack {
        cost,
        ..attack(name, meaning, Play::Control(control))
    };
    let query = Control::once(Bytes::Query);
    let most = usize::MAX;
    vec![
        with(
            "flood-queries-unread",
            "Sends queries as long as the role reads them, 2 s at most, and reads no answer",
            Control {
                times: most,
                reads: false,
                ..query.clone()
            },
        ),
        with(
            "flood-queries-read",
            "Sends 20000 queries and reads the answers",
            Control {
                times: 20_000,
                ..query.clone()
            },
        ),
        with(
            "flood-unknown-types",
            "Sends frames of an unknown type, 2 s long, and reads no answer",
            Control {
                times: most,
                reads: false,
                ..Control::once(Bytes::Frame {
                    kind: 77,
                    payload: 0,
                })
            },
        ),
        with(
            "flood-wrong-inits",
            "Prepares sessions with exports of zeros, 2 s long",
            Control {
                times: most,
                ..Control::once(Bytes::Init {
                    transactions: 65_536,
                    cores: 1,
                    blob: 96,
                })
            },
        ),
        with(
            "flood-large-frames",
            "Sends frames of 32 KiB, 2 s long, and reads no answer",
            Control {
                times: most,
                reads: false,
                ..Control::once(Bytes::Frame {
                    kind: 1,
                    payload: 32_000,
                })
            },
        ),
        with(
            "flood-connections",
            "Connects and closes, 500 times or for 2 s",
            Control {
                connections: 500,
                hold: Duration::ZERO,
                ..Control::once(Bytes::Nothing)
            },
        ),
        with(
            "flood-connections-reset",
            "Connects, queries and resets, 200 times or for 2 s",
            Control {
                connections: 200,
                hold: Duration::ZERO,
                reads: false,
                end: End::Reset,
                ..query.clone()
            },
        ),
        with(
            "flood-connections-at-once",
            "Has 150 connections that say nothing, or as many as it gets in 2 s",
            Control {
                connections: 150,
                at_once: true,
                hold: ms(500),
                ..Control::once(Bytes::Nothing)
            },
        ),
        Attack {
            cost,
            ..attack(
                "flood-silent-connections",
                "Has 32 connections that say nothing, each replaced when it is closed, for 2 s",
                Play::Silent(Silent {
                    connections: 32,
                    pace: ms(5),
                    hold: ms(2000),
                }),
            )
        },
        with(
            "flood-garbage-connections",
            "Connects and sends garbage, 200 times or for 2 s",
            Control {
                connections: 200,
                hold: Duration::ZERO,
                ..Control::once(Bytes::Random(100))
            },
        ),
    ]
}

/// Attacks with Comch frames.
fn frames() -> Vec<Attack> {
    use Descriptor as D;
    let frame = |bytes: Vec<u8>, descriptors: &[D]| Frame {
        bytes,
        descriptors: descriptors.to_vec(),
    };
    let with = |name, meaning, frames| attack(name, meaning, Play::Frames(frames));
    let said = |frames: Vec<Frame>| Frames {
        hello: true,
        frames,
        times: 1,
        connections: 1,
        cut_lifeline: false,
        hold: ms(50),
    };
    let one = |name, meaning, bytes: Vec<u8>, descriptors: &[D]| {
        with(name, meaning, said(vec![frame(bytes, descriptors)]))
    };
    let consumer = |id: u32, size: u32| words(&[5, id, size]);
    vec![
        with(
            "comch-silent-connections",
            "Opens 100 connections that never send a hello, or as many as are accepted in 2 s",
            Frames {
                hello: false,
                connections: 100,
                ..said(vec![])
            },
        ),
        with(
            "comch-garbage-hello",
            "Says something else than hello",
            Frames {
                hello: false,
                ..said(vec![frame(vec![0xff; 4000], &[])])
            },
        ),
        with(
            "comch-hello-without-lifeline",
            "Says hello with a file for a lifeline",
            Frames {
                hello: false,
                ..said(vec![frame(words(&[1, 2, 3, 4]), &[D::File])])
            },
        ),
        one(
            "comch-second-hello",
            "Says hello again",
            words(&[1, 2, 3, 4]),
            &[D::Socket],
        ),
        one(
            "comch-unknown-frame",
            "Sends an unknown frame",
            words(&[99]),
            &[],
        ),
        one(
            "comch-empty-message",
            "Sends a message of no bytes",
            words(&[4]),
            &[],
        ),
        one(
            "comch-long-message",
            "Sends a message that is too long",
            [words(&[4]), vec![0; 5000]].concat(),
            &[],
        ),
        one(
            "comch-descriptors",
            "Sends a message with 16 descriptors",
            [words(&[4]), vec![0; 8]].concat(),
            &[D::File; 16],
        ),
        one(
            "comch-consumer-pipes",
            "Announces a consumer with pipes",
            consumer(2, 64),
            &[D::Pipe, D::Pipe],
        ),
        one(
            "comch-consumer-unsealed",
            "Announces a consumer with a ring that is not sealed",
            consumer(2, 64),
            &[D::UnsealedRing, D::EventFd],
        ),
        one(
            "comch-consumer-lying",
            "Announces a consumer whose ring is shorter than it says",
            consumer(2, 64),
            &[D::LyingRing, D::EventFd],
        ),
        one(
            "comch-consumer-too-large",
            "Announces a consumer of messages that are larger than its ring",
            consumer(2, u32::MAX),
            &[D::Ring, D::EventFd],
        ),
        one(
            "comch-consumer-wrong-id",
            "Announces a consumer with an id of the other side",
            consumer(3, 64),
            &[D::Ring, D::EventFd],
        ),
        one(
            "comch-consumer-full-doorbell",
            "Announces a consumer whose eventfd is full and blocks",
            consumer(2, 64),
            &[D::Ring, D::FullEventFd],
        ),
        with(
            "comch-many-consumers",
            "Announces 600 consumers",
            said(
                (1..=600)
                    .map(|id| frame(consumer(2 * id, 64), &[D::Ring, D::EventFd]))
                    .collect(),
            ),
        ),
        with(
            "comch-consumers-come-and-go",
            "Announces consumers that expire at once, 3000 times",
            Frames {
                times: 3000,
                ..said(vec![
                    frame(consumer(2, 64), &[D::Ring, D::EventFd]),
                    frame(words(&[6, 2]), &[]),
                ])
            },
        ),
        with(
            "comch-producers-attach",
            "Says 20000 times that it has producers",
            Frames {
                times: 20_000,
                ..said(vec![frame(words(&[7, 1]), &[D::EventFd])])
            },
        ),
        one(
            "comch-expiry",
            "Expires a consumer that it does not have",
            words(&[6, 2]),
            &[],
        ),
        with(
            "comch-lifeline-cut",
            "Closes its lifeline and stays for a second",
            Frames {
                cut_lifeline: true,
                hold: ms(1000),
                ..said(vec![])
            },
        ),
        with(
            "comch-many-clients",
            "Connects 100 times, or for 2 s, and says nothing more",
            Frames {
                connections: 100,
                hold: ms(300),
                ..said(vec![])
            },
        ),
    ]
}

/// Attacks on the role's agent.
fn agent_calls() -> Vec<Attack> {
    let with = |name, meaning, calls| attack(name, meaning, Play::Agent(calls));
    let calls = |bytes| AgentCalls {
        connections: 1,
        bytes,
        times: 1,
        hold: ms(50),
    };
    vec![
        with(
            "agent-nothing",
            "Connects to the role's agent and closes",
            calls(Bytes::Nothing),
        ),
        with(
            "agent-garbage",
            "Sends garbage to the role's agent",
            calls(Bytes::Random(300)),
        ),
        with(
            "agent-short",
            "Sends a byte to the role's agent",
            calls(Bytes::Raw(b"S")),
        ),
        with(
            "agent-unknown-key",
            "Asks the role's agent for what does not exist, 10000 times",
            AgentCalls {
                times: 10_000,
                ..calls(Bytes::Raw(
                    b"SDrq\x02\0\x02\0kkkkkkkkkkkkkkkk00000000111111112222222233333333",
                ))
            },
        ),
        with(
            "agent-400-connections",
            "Has 400 connections to the role's agent",
            AgentCalls {
                connections: 400,
                hold: ms(500),
                ..calls(Bytes::Nothing)
            },
        ),
        with(
            "agent-garbage-connections",
            "Connects to the role's agent and sends garbage, 300 times at once",
            AgentCalls {
                connections: 300,
                ..calls(Bytes::Random(60))
            },
        ),
    ]
}

/// Sessions with the attacker's exports and agents.
fn imports() -> Vec<Attack> {
    use Manner as M;
    let until = |name, meaning, step, manner| {
        attack(name, meaning, Play::Session(Session::with(step, manner)))
    };
    let init = |name, meaning, manner| until(name, meaning, Step::Init, manner);
    let with = |name, meaning, session| attack(name, meaning, Play::Session(session));
    vec![
        init(
            "import-no-agent",
            "Exports memory of a process that does not exist",
            M::Absent,
        ),
        init(
            "import-silent-agent",
            "Its agent does not answer",
            M::Silent,
        ),
        init("import-agent-hangs-up", "Its agent hangs up", M::HangsUp),
        init(
            "import-garbage-replies",
            "Its agent answers garbage",
            M::Garbage,
        ),
        init(
            "import-slow-describe",
            "Its agent describes a page at a time, one in 500 ms",
            M::Slow(ms(500)),
        ),
        init(
            "import-slower-describe",
            "Its agent describes a page at a time, one in 2.5 s",
            M::Slow(ms(2500)),
        ),
        init(
            "import-million-segments",
            "Its agent says that there are a million segments",
            M::Segments(1 << 20),
        ),
        init(
            "import-max-segments",
            "Its agent says that there are 2^64-1 segments",
            M::Segments(u64::MAX),
        ),
        init(
            "import-no-segments",
            "Its agent says that there are no segments",
            M::Segments(0),
        ),
        init(
            "import-misaligned",
            "Its memory is at another place of its page",
            M::Misaligned,
        ),
        init("import-unsealed", "Its memory can be shrunk", M::Unsealed),
        init(
            "import-short",
            "Its memory is shorter than it says",
            M::Short,
        ),
        init(
            "import-pipe",
            "Its memory is a pipe",
            M::Instead(Descriptor::Pipe),
        ),
        init(
            "import-file",
            "Its memory is a file",
            M::Instead(Descriptor::File),
        ),
        init(
            "import-socket",
            "Its memory is a socket",
            M::Instead(Descriptor::Socket),
        ),
        with(
            "init-65536-transactions",
            "Prepares a sound session of 65536 transactions, and goes",
            Session {
                transactions: 65_536,
                ..Session::with(Step::Init, M::Sound)
            },
        ),
        with(
            "init-1000-cores",
            "Prepares a sound session of 1000 cores, and goes",
            Session {
                cores: 1000,
                ..Session::with(Step::Init, M::Sound)
            },
        ),
        until(
            "session-leaves-after-init",
            "Goes after it has prepared a session",
            Step::Init,
            M::Sound,
        ),
        until(
            "session-leaves-after-connect",
            "Goes after its connections are made",
            Step::Connect,
            M::Sound,
        ),
        until(
            "session-leaves-after-start",
            "Goes after the start",
            Step::Start,
            M::Sound,
        ),
        until(
            "connect-never-answered",
            "Its agent does not answer connects of RDMA",
            Step::Connect,
            M::NoCalls,
        ),
        until(
            "connect-with-pipes",
            "Its agent hands out pipes for rings",
            Step::Connect,
            M::CallsWith(Descriptor::Pipe),
        ),
        until(
            "connect-with-unsealed-ring",
            "Its agent hands out a ring that is not sealed",
            Step::Connect,
            M::CallsWith(Descriptor::UnsealedRing),
        ),
        with(
            "session-held",
            "Starts and does nothing for 4 s",
            Session {
                hold: ms(4000),
                ..Session::with(Step::Start, M::Sound)
            },
        ),
    ]
}

/// Attacks on the rings of a started session.
fn rings() -> Vec<Attack> {
    use RingWrite as R;
    let with =
        |name, meaning, ring: Vec<R>| attack(name, meaning, Play::Session(Session::ring(ring)));
    let fragment = |len, immediate, more, inline| R::Fragment {
        len,
        immediate,
        more,
        inline,
    };
    let slow = |name, meaning, delay: u64, hold: u64| {
        attack(
            name,
            meaning,
            Play::Session(Session {
                ring: vec![R::Io(1, 4096, 0, 0); 8],
                hold: ms(hold),
                ..Session::with(Step::Start, Manner::SlowCopies(ms(delay)))
            }),
        )
    };
    vec![
        with(
            "ring-immediate-35",
            "Sends a message with immediate data of 35 bytes",
            vec![fragment(0, Some(35), false, true)],
        ),
        with(
            "ring-immediate-0",
            "Sends a message with immediate data of 0 bytes",
            vec![fragment(64, Some(0), false, false)],
        ),
        with(
            "ring-immediate-4",
            "Sends a message with an immediate value",
            vec![fragment(0, Some(4), false, true)],
        ),
        with(
            "ring-immediate-8",
            "Sends the immediate of a write that was none",
            vec![fragment(0, Some(8), false, true)],
        ),
        with(
            "ring-empty",
            "Sends messages of no bytes",
            vec![fragment(0, None, false, true); 8],
        ),
        with(
            "ring-too-long",
            "Sends a message that is longer than the ring",
            vec![fragment(0x7f_ffff, None, false, false)],
        ),
        with(
            "ring-16-kib",
            "Sends a message of 16 KiB where 64 bytes are expected",
            vec![fragment(16_384, None, false, false)],
        ),
        with(
            "ring-unfinished",
            "Begins a message, and goes",
            vec![fragment(64, None, true, true)],
        ),
        with(
            "ring-empty-fragments",
            "Sends fragments without data that others follow",
            vec![fragment(0, None, true, true); 60],
        ),
        with(
            "ring-endless",
            "Sends a message of 200000 fragments",
            vec![R::Endless(200_000)],
        ),
        with(
            "ring-noise",
            "Writes any words all over the ring, 20000 times",
            vec![R::Noise(20_000)],
        ),
        with(
            "ring-closed",
            "Closes the ring in the middle of a message",
            vec![fragment(64, None, true, true), R::Close],
        ),
        with(
            "io-unknown-type",
            "Sends an I/O message of an unknown type",
            vec![R::Io(77, 4096, 0, 0)],
        ),
        with(
            "io-result",
            "Sends a result without a request",
            vec![R::Io(0, 4096, 0, 0)],
        ),
        with("io-no-bytes", "Reads no bytes", vec![R::Io(1, 0, 0, 0)]),
        with(
            "io-max-bytes",
            "Reads 4 GiB",
            vec![R::Io(1, u32::MAX, 0, 0)],
        ),
        with(
            "io-beyond-storage",
            "Reads beyond the end of the storage",
            vec![R::Io(1, 4096, 0, u64::MAX - 4095)],
        ),
        with(
            "io-beyond-memory",
            "Reads to beyond the end of its memory",
            vec![R::Io(1, 4096, u64::MAX - 4095, 0)],
        ),
        with(
            "io-odd",
            "Reads parts of blocks at odd places",
            vec![R::Io(1, 33, 7, 5); 4],
        ),
        with(
            "io-many",
            "Sends 60 reads at once",
            vec![R::Io(1, 4096, 0, 0); 60],
        ),
        slow(
            "copies-slow",
            "Reads to memory that its agent takes 400 ms to write",
            400,
            3000,
        ),
        slow(
            "copies-very-slow",
            "Reads to memory that its agent takes 2 s to write",
            2000,
            6000,
        ),
        slow(
            "copies-never",
            "Reads to memory that its agent never writes",
            600_000,
            6000,
        ),
    ]
}

/// Connections over the network: by unauthenticated peers, and by peers that have the key.
fn network() -> Vec<Attack> {
    let unauthenticated = |name, meaning, input| {
        let attack = Unauthenticated {
            connections: 1,
            input,
            piece: 0,
            pace: Duration::ZERO,
        };
        (name, meaning, attack)
    };
    let slowly = |(name, meaning, attack)| {
        let attack = Unauthenticated {
            piece: 1,
            pace: ms(60),
            ..attack
        };
        (name, meaning, attack)
    };
    let unproven = [
        unauthenticated(
            "network-nothing",
            "Connects and says nothing",
            Input::Nothing,
        ),
        unauthenticated(
            "network-zeros",
            "Sends zeros instead of a proof of the key",
            Input::Zeros(104),
        ),
        unauthenticated(
            "network-random",
            "Sends any bytes instead of a proof of the key",
            Input::Random(104),
        ),
        unauthenticated(
            "network-oversized",
            "Sends 1 MiB of any bytes",
            Input::Random(1 << 20),
        ),
        unauthenticated("network-http", "Sends a request of HTTP", Input::Http),
        unauthenticated(
            "network-another-key",
            "Proves that it has another key",
            Input::AnotherKey,
        ),
        unauthenticated("network-no-key", "Proves that it has no key", Input::NoKey),
        unauthenticated(
            "network-replay",
            "Sends the proof of another connection",
            Input::Replayed,
        ),
        unauthenticated(
            "network-altered",
            "Sends a proof for another purpose",
            Input::Altered,
        ),
        unauthenticated(
            "network-unfinished",
            "Sends a proof without its last byte",
            Input::Unfinished,
        ),
        slowly(unauthenticated(
            "network-slow",
            "Sends a good proof, a byte every 60 ms",
            Input::Good,
        )),
        slowly(unauthenticated(
            "network-slow-random",
            "Sends any bytes, one every 60 ms",
            Input::Random(60),
        )),
    ];
    let many = [
        (
            "network-100-random",
            "Sends any bytes on 100 connections",
            Input::Random(104),
        ),
        (
            "network-100-another-key",
            "Proves on 100 connections that it has another key",
            Input::AnotherKey,
        ),
    ];
    let many = many.map(|(name, meaning, input)| {
        let (.., attack) = unauthenticated(name, meaning, input);
        let attack = Unauthenticated {
            connections: 100,
            ..attack
        };
        (name, meaning, attack)
    });
    let unproven = unproven
        .into_iter()
        .chain(many)
        .map(|(name, meaning, attack)| (name, meaning, NetworkAttack::Unauthenticated(attack)));
    let flood = |name, meaning, connections| {
        let hold = ms(2000);
        (name, meaning, NetworkAttack::Flood { connections, hold })
    };
    let floods = [
        flood(
            "network-64-silent",
            "Has 64 silent connections all the time",
            64,
        ),
        flood(
            "network-400-silent",
            "Has 400 silent connections all the time",
            400,
        ),
    ];
    const CREDITS: &[u8] = &[4, 0, 0, 0, 1, 0, 0, 0];
    const OVERSIZED: &[u8] = &[1, 1, 0, 0, 0xff, 0xff, 0xff, 0xff];
    const LONG: &[u8] = &[1, 1, 0, 0, 1, 0x80, 0, 0];
    const EMPTY: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 0];
    const UNENDING: &[u8] = &[1, 2, 0, 0, 1, 0, 0, 0, 7];
    const IMMEDIATE: &[u8] = &[1, 5, 9, 0, 0, 0, 0, 0];
    const WANT: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0];
    const END: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 7];
    let authenticated =
        |name, meaning, request| (name, meaning, NetworkAttack::Authenticated(request));
    let requests = [
        authenticated(
            "peer-another-process",
            "Has the key, and names a process that does not exist",
            Authenticated::AnotherProcess,
        ),
        authenticated(
            "peer-unknown-connection",
            "Requests an RDMA connection that does not exist",
            Authenticated::UnknownConnection,
        ),
        authenticated(
            "peer-second-claim",
            "Asks twice for the same RDMA connection",
            Authenticated::SecondClaim,
        ),
        authenticated(
            "peer-200-connections",
            "Has 200 connections that have proved the key, and asks for nothing",
            Authenticated::Connections(200),
        ),
        authenticated(
            "peer-unread-heartbeats",
            "Asks whether the process lives, and reads no reply",
            Authenticated::UnreadHeartbeats,
        ),
        authenticated(
            "peer-unknown-purpose",
            "Has the key, and an unknown purpose",
            Authenticated::UnknownPurpose,
        ),
        authenticated(
            "peer-unknown-memory",
            "Asks for memory that was not exported",
            Authenticated::UnknownMemory,
        ),
        authenticated(
            "peer-connection-as-memory",
            "Takes the key of a connection for one of memory",
            Authenticated::ConnectionAsMemory,
        ),
        authenticated(
            "peer-zero-request",
            "Sends a request of zeros",
            Authenticated::Request(&[0; 56]),
        ),
        authenticated(
            "peer-unknown-operation",
            "Sends a request of an unknown kind",
            Authenticated::Request(
                b"SDrq\x02\0\x63\0kkkkkkkkkkkkkkkk00000000111111112222222233333333",
            ),
        ),
        authenticated(
            "peer-unknown-version",
            "Sends a request of another version",
            Authenticated::Request(
                b"SDrq\x63\0\x02\0kkkkkkkkkkkkkkkk00000000111111112222222233333333",
            ),
        ),
        authenticated(
            "peer-oversized-write",
            "Announces a write of more than 2 GiB",
            Authenticated::OversizedWrite,
        ),
        authenticated(
            "peer-unfinished-write",
            "Sends a part of a write of 1 GiB",
            Authenticated::UnfinishedWrite,
        ),
        authenticated(
            "peer-unread-replies",
            "Sends requests and reads no reply",
            Authenticated::UnreadReplies,
        ),
        authenticated(
            "peer-frame-credits",
            "Sends the frame of a receiver over an RDMA connection",
            Authenticated::Frames(CREDITS, 1),
        ),
        authenticated(
            "peer-frame-oversized",
            "Sends a fragment of 4 GiB",
            Authenticated::Frames(OVERSIZED, 1),
        ),
        authenticated(
            "peer-frame-long",
            "Sends a fragment that is longer than any",
            Authenticated::Frames(LONG, 1),
        ),
        authenticated(
            "peer-frame-immediate",
            "Sends immediate data that is longer than any",
            Authenticated::Frames(IMMEDIATE, 1),
        ),
        authenticated(
            "peer-frame-empty",
            "Sends 100000 messages of no bytes",
            Authenticated::Frames(EMPTY, 100_000),
        ),
        authenticated(
            "peer-frame-unending",
            "Sends a message of 100000 fragments",
            Authenticated::Frames(UNENDING, 100_000),
        ),
        authenticated(
            "peer-frame-want",
            "Asks 100000 times for a receive",
            Authenticated::Frames(WANT, 100_000),
        ),
        authenticated(
            "peer-frame-end",
            "Sends a message after the end",
            Authenticated::Frames(END, 100),
        ),
    ];
    let exported = |name, meaning, attack| (name, meaning, NetworkAttack::Exported(attack));
    let exports = [
        exported(
            "peer-out-of-range",
            "Reads, writes and changes addresses beside memory that is exported to it",
            Exported::OutOfRange,
        ),
        exported(
            "peer-withdrawn-memory",
            "Uses memory after the session that it was exported for",
            Exported::Withdrawn,
        ),
        exported(
            "peer-unread-memory",
            "Asks for a whole memory again and again, and reads no reply",
            Exported::UnreadMemory,
        ),
    ];
    let attacks = unproven.chain(floods).chain(requests).chain(exports);
    let attacks = attacks.map(|(name, meaning, play)| attack(name, meaning, Play::Network(play)));
    attacks.collect()
}

#[cfg(test)]
mod tests {
    use deployment::implementation::Role;

    use super::*;

    #[test]
    fn there_are_many_and_each_has_a_name_of_its_own() {
        let mut names: Vec<_> = attacks().iter().map(|attack| attack.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count >= 60, "{count}");
        for role in [Role::Target, Role::ZeroCopy, Role::GgaOffload] {
            let played = attacks().iter().filter(|it| it.is_for(role)).count();
            assert!(played >= 60, "{role}: {played}");
        }
        let played = attacks()
            .into_iter()
            .filter(|it| it.is_for(Role::Initiator));
        assert!(played.count() >= 60, "initiator");
    }
}
