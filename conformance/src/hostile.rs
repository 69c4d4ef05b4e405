//! An attacker against one role: limits what a client that violates the protocol can cost.
//!
//! Each [`Attack`] is data: bytes on control channels, frames of Comch, requests to the role's agent, or a session with memory, an agent and rings
//! of the attacker's. A small driver executes it, then checks that the role still serves another client, and measures the role's resources
//! through the operating system. The attacker's sockets, rings and agent are built from the documented layouts, without softdoca's code.

mod attack;
mod catalogue;
mod endurance;
mod network;
mod raw;
mod server;
mod service;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deployment::Resources;
use deployment::implementation::{Implementation, Role};
use wire::control::{InitStorage, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole};

use crate::faults::relay::Moment;
use crate::report::{Case, Outcome, Report};
use crate::violation::Violation;
use attack::{
    AgentCalls, Control, Descriptor, Frames, Manner, Play, RingWrite, Session, Silent, Step,
};
use network::{Exported, NetworkAttack};
use raw::{Agent, Channel, Comch, ControlEndpoint, Packets, Probe, RawRing};
use server::Server;

pub use attack::{Attack, Cost};
pub use catalogue::attacks;
pub use endurance::Limit;
pub use server::ClientEndpoint;

/// Role under attack, attacks and limit of a run.
pub struct Settings {
    /// Programs of the role and its targets.
    pub implementation: Implementation,
    pub role: Role,
    /// Attacks; one runs at a time.
    pub attacks: Vec<Attack>,
    /// With a limit, the attacks run in random order until it is reached, while a well-behaved client is served;
    /// without a limit, each runs once.
    pub limit: Option<Limit>,
    /// Seed of the random order; random if `None`.
    pub seed: Option<u64>,
    /// Creates the command of the client's process, which calls [`ClientEndpoint::run`].
    pub client: Box<dyn Fn(&ClientEndpoint) -> Command>,
}

/// Maximum duration of an attack.
const LONGEST: Duration = Duration::from_secs(2);
/// Time limit for the role's answers to the valid requests of an attacker.
const ANSWER: Duration = Duration::from_secs(6);
/// Time limit for memory and descriptors to return to their allowed values.
const SETTLE: Duration = Duration::from_secs(3);

/// Runs the attacks. Calls `done` with the name of each attack when it has completed; skips the remaining ones once `interrupted` returns
/// `true`.
pub fn run(settings: &Settings, done: &dyn Fn(&str), interrupted: &dyn Fn() -> bool) -> Report {
    if let Some(limit) = settings.limit {
        return endurance::endure(settings, limit, done, interrupted);
    }
    let mut report = Report::default();
    let mut server = None;
    for attack in &settings.attacks {
        let case = if interrupted() {
            Case::new(
                &suite(settings.role),
                attack.name,
                Outcome::NotRun("interrupted".to_owned()),
            )
        } else {
            try_one(settings, attack, &mut server)
        };
        done(attack.name);
        report.cases.push(case);
    }
    report
}

fn suite(role: Role) -> String {
    format!("hostile.{role}")
}

fn try_one(settings: &Settings, attack: &Attack, server: &mut Option<Server>) -> Case {
    if settings.role == Role::Initiator {
        return service::try_one(settings, attack);
    }
    let begin = Instant::now();
    let running = match server.take() {
        Some(running) => Ok(running),
        None => Server::start(settings.role, &settings.implementation).and_then(|started| {
            // The role keeps some resources of its first session.
            started.serve_another()?;
            Ok(started)
        }),
    };
    let suite = suite(settings.role);
    let (outcome, note, output) = match running {
        Err(violation) => (Outcome::NotRun(violation.to_string()), None, None),
        Ok(running) => {
            let (result, note) = measure(&running, attack);
            let output = result.is_err().then(|| running.log());
            if result.is_ok() {
                *server = Some(running);
            }
            let outcome = result.map_or_else(
                |violation| Outcome::Failed(violation.to_string()),
                |()| Outcome::Passed,
            );
            (outcome, note, output)
        }
    };
    Case {
        meaning: attack.meaning.to_owned(),
        took: begin.elapsed(),
        note,
        output,
        ..Case::new(&suite, attack.name, outcome)
    }
}

/// Executes an attack and compares its cost with the limits.
fn measure(server: &Server, attack: &Attack) -> (Result<(), Violation>, Option<String>) {
    let (before, lines) = match server.resources() {
        Ok(before) => (before, server.lines()),
        Err(violation) => return (Err(violation), None),
    };
    // If the role cuts an attack off, only its cost matters.
    let mut observation = Observation::default();
    let stopped = play(server, &attack.play, &mut observation).err();
    let Observation { held_up, violation } = observation;
    let lines = server.lines() - lines;
    let result = judge(server, attack.cost, before, lines).and_then(|cost| {
        violation.map_or(Ok(()), Err)?;
        Violation::unless(
            held_up <= attack.cost.held_up,
            format!(
                "a reaction to other clients within {:?}",
                attack.cost.held_up
            ),
            format!("{:.1} s", held_up.as_secs_f64()),
        )?;
        Ok(cost)
    });
    let stopped = stopped.map_or(String::new(), |error| format!("; stopped by: {error}"));
    match result {
        Ok((service, after)) => {
            let note = format!(
                "{:.2} s, held up {:.2} s, {:+} KiB, {:+} descriptors, {lines} lines{stopped}",
                service.as_secs_f64(),
                held_up.as_secs_f64(),
                after.memory as i64 - before.memory as i64,
                after.descriptors as i64 - before.descriptors as i64,
            );
            (Ok(()), Some(note))
        }
        Err(violation) => (Err(violation), Some(format!("{lines} lines{stopped}"))),
    }
}

fn judge(
    server: &Server,
    cost: Cost,
    before: Resources,
    lines: usize,
) -> Result<(Duration, Resources), Violation> {
    let service = server.serve_another();
    if let Some(name) = server.ended() {
        return Err(Violation::expected(
            "all programs to go on",
            format!("the end of the {name}"),
        ));
    }
    let service = service?;
    Violation::unless(
        service <= cost.service,
        format!("another client to be served within {:?}", cost.service),
        format!("{:.1} s", service.as_secs_f64()),
    )?;
    Violation::unless(
        lines <= cost.lines,
        format!("at most {} lines in the log", cost.lines),
        lines,
    )?;
    let fits = |after: Resources| {
        after.memory <= before.memory + cost.memory * 1024
            && after.descriptors <= before.descriptors + cost.descriptors
    };
    let deadline = Instant::now() + SETTLE;
    let mut after = server.resources()?;
    while !fits(after) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        after = server.resources()?;
    }
    Violation::unless(
        fits(after),
        format!(
            "at most {} MiB and {} descriptors more than {before:?}",
            cost.memory, cost.descriptors
        ),
        format!("{after:?}"),
    )?;
    Ok((service, after))
}

#[derive(Debug, Default)]
struct Observation {
    /// The longest time that another client waited for a reaction.
    held_up: Duration,
    /// Violation observed by the attacker.
    violation: Option<Violation>,
}

fn play(server: &Server, play: &Play, observation: &mut Observation) -> io::Result<()> {
    let held_up = &mut observation.held_up;
    match play {
        // Attacks on initiators, which are started for each attack, are executed elsewhere.
        Play::Service(_) => Ok(()),
        Play::Control(control) => play_control(&server.endpoint(), control),
        Play::Silent(silent) => {
            *held_up = play_silent(server, silent);
            Ok(())
        }
        Play::Frames(frames) => play_frames(&server.endpoint(), frames),
        Play::Agent(calls) => play_agent(server, calls),
        Play::Session(session) => {
            let (held, longest) = play_session(server, session);
            *held_up = longest;
            held.map(drop)
        }
        Play::Network(NetworkAttack::Exported(attack)) => {
            play_exported(server, *attack, observation)
        }
        Play::Network(attack) => {
            // The role listens only after it has exported something.
            let session = Session {
                claims: false,
                ..Session::with(Step::Connect, Manner::Sound)
            };
            let hold = play_session(server, &session).0?;
            let endpoint = match hold.details.first() {
                Some(details) => network::Endpoint::of(details),
                None => server.listens()?.map(|address| network::Endpoint {
                    address,
                    process: [0; 16],
                    key: [0; 16],
                }),
            };
            let endpoint =
                endpoint.ok_or_else(|| io::Error::other("the role does not use the network"));
            let probe = Probe::start(server.endpoint());
            let played = endpoint
                .map_err(Violation::from)
                .and_then(|endpoint| network::play(attack, &endpoint));
            *held_up = probe.stop();
            match played {
                Ok(longest) => *held_up = longest.max(*held_up),
                Err(violation) => observation.violation = Some(violation),
            }
            Ok(())
        }
    }
}

/// Acts as the first target of a session, and attacks the memory that the service exports to it.
fn play_exported(
    server: &Server,
    attack: Exported,
    observation: &mut Observation,
) -> io::Result<()> {
    let trap = server.line()?.hold(Moment {
        channel: 0,
        message: MessageType::InitStorageRequest,
        after: 0,
    });
    let session = Session::with(Step::Init, Manner::Sound);
    let (descriptor, (held, longest)) = std::thread::scope(|scope| {
        let caught = scope.spawn(move || {
            let held = trap.wait(Instant::now() + LONGEST, || false)?;
            let Payload::InitStorageRequest(init) = &held.message().payload else {
                return None;
            };
            let descriptor = init.mmap_export_blob.clone();
            held.pass();
            Some(descriptor)
        });
        let played = play_session(server, &session);
        (caught.join().unwrap_or_default(), played)
    });
    observation.held_up = longest;
    let held = held?;
    let export = descriptor.and_then(|descriptor| network::Export::of(&descriptor));
    let export = export.ok_or_else(|| io::Error::other("the service exports no memory"))?;
    let probe = Probe::start(server.endpoint());
    observation.violation = network::play_exported(attack, &export, || drop(held)).err();
    observation.held_up = probe.stop().max(longest);
    Ok(())
}

fn play_control(endpoint: &ControlEndpoint, control: &Control) -> io::Result<()> {
    let bytes = control.bytes.make();
    let mut open = Vec::new();
    let mut refused = None;
    let begin = Instant::now();
    for _ in 0..control.connections {
        if begin.elapsed() > LONGEST {
            break;
        }
        let mut channel = match Channel::open(endpoint) {
            Ok(channel) => channel,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        let sent = send(&mut channel, &bytes, control);
        if control.at_once {
            open.push(channel);
        } else {
            channel.end(control.end, control.hold);
        }
        if let Err(error) = sent {
            refused = Some(error);
        }
    }
    if control.at_once {
        std::thread::sleep(control.hold);
    }
    refused.map_or(Ok(()), Err)
}

fn send(channel: &mut Channel, bytes: &[u8], control: &Control) -> io::Result<()> {
    let begin = Instant::now();
    for _ in 0..control.times {
        let size = if control.piece == 0 {
            bytes.len().max(1)
        } else {
            control.piece
        };
        for piece in bytes.chunks(size) {
            channel.send(piece)?;
            std::thread::sleep(control.pace);
        }
        if control.reads {
            // Received bytes are discarded.
            while let Ok(Some(read)) = channel.read(Duration::ZERO)
                && !read.is_empty()
            {}
        }
        if control.times > 1 && begin.elapsed() > LONGEST {
            break;
        }
    }
    Ok(())
}

/// Opens silent connections, and returns the longest time until another client was served while they were open.
fn play_silent(server: &Server, silent: &Silent) -> Duration {
    let begin = Instant::now();
    let stop = AtomicBool::new(false);
    let endpoint = server.endpoint();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                open.retain_mut(|channel: &mut Channel| {
                    // Received bytes are an error message that precedes the close.
                    matches!(channel.read(Duration::ZERO), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
                });
                if open.len() < silent.connections {
                    open.extend(Channel::open(&endpoint));
                }
                std::thread::sleep(silent.pace);
            }
        });
        let mut longest = Duration::ZERO;
        while begin.elapsed() < silent.hold {
            // By then, all connections are open.
            std::thread::sleep(silent.pace * 2 * silent.connections as u32);
            let turn = server.session_lock().enter();
            let attempt = Instant::now();
            // A client that is not served shows in the waiting time.
            let _ = server.serve_another();
            drop(turn);
            longest = longest.max(attempt.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        longest
    })
}

fn play_frames(endpoint: &ControlEndpoint, frames: &Frames) -> io::Result<()> {
    let ControlEndpoint::Comch { runtime, channel } = endpoint else {
        return Ok(());
    };
    let mut open = Vec::new();
    let opening = Instant::now();
    for _ in 0..frames.connections {
        if opening.elapsed() > LONGEST {
            break;
        }
        let mut comch = match frames.hello {
            true => Comch::open(runtime, channel, LONGEST)?,
            false => Comch::bare(runtime, channel)?,
        };
        let begin = Instant::now();
        for _ in 0..frames.times {
            for frame in &frames.frames {
                let descriptors: Vec<_> = frame
                    .descriptors
                    .iter()
                    .map(|kind| raw::descriptor(*kind))
                    .collect::<io::Result<_>>()?;
                let borrowed: Vec<BorrowedFd<'_>> =
                    descriptors.iter().map(|it| it.as_fd()).collect();
                comch.socket.send_or_stall(&frame.bytes, &borrowed)?;
            }
            if begin.elapsed() > LONGEST {
                break;
            }
        }
        if frames.cut_lifeline {
            comch.lifeline = None;
        }
        open.push(comch);
    }
    std::thread::sleep(frames.hold);
    Ok(())
}

fn play_agent(server: &Server, calls: &AgentCalls) -> io::Result<()> {
    // The role has an agent only while it exports something.
    let session = Session::with(Step::Connect, Manner::Sound);
    let hold = play_session(server, &session).0?;
    let address = match hold.agents.first() {
        Some(address) => *address,
        // A service's agent is found by its name; the other agent is that of its target, and both are attacked.
        None => return play_agents_by_name(server, calls),
    };
    call(server, &address, calls)
}

fn play_agents_by_name(server: &Server, calls: &AgentCalls) -> io::Result<()> {
    for entry in std::fs::read_dir(server.runtime())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let key = name
            .strip_prefix("a-")
            .and_then(|name| name.strip_suffix(".sock"));
        let Some(key) = key.and_then(|key| u128::from_str_radix(key, 16).ok()) else {
            continue;
        };
        let mut address = [0; 32];
        address[16..].copy_from_slice(&key.to_be_bytes());
        call(server, &address, calls)?;
    }
    Ok(())
}

fn call(server: &Server, address: &raw::Address, calls: &AgentCalls) -> io::Result<()> {
    let bytes = calls.bytes.make();
    let mut open = Vec::new();
    for _ in 0..calls.connections {
        let Ok(socket) = raw::connect(server.runtime(), address) else {
            // The queue is temporarily full.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        if !bytes.is_empty() {
            for _ in 0..calls.times {
                socket.send_or_stall(&bytes, &[])?;
                // Answers are discarded.
                let _ = socket.receive(Duration::ZERO);
            }
        }
        open.push(socket);
    }
    std::thread::sleep(calls.hold);
    Ok(())
}

/// Resources of a session.
struct Held {
    channel: Channel,
    agent: Agent,
    claims: Vec<Packets>,
    /// Agents of the role.
    agents: Vec<raw::Address>,
    /// RDMA connection details of the role.
    details: Vec<::bytes::Bytes>,
}

/// Runs a session while another client connects repeatedly, and returns the longest time that this client waited for a reaction.
fn play_session(server: &Server, session: &Session) -> (io::Result<Held>, Duration) {
    let turn = server.session_lock().enter();
    let begun = Channel::open(&server.endpoint()).and_then(|mut channel| {
        channel.ask(Payload::QueryStorageRequest, ANSWER)?;
        Ok(channel)
    });
    drop(turn);
    let channel = match begun {
        Ok(channel) => channel,
        Err(error) => return (Err(error), Duration::ZERO),
    };
    let probe = Probe::start(server.endpoint());
    let held = go_on(server, session, channel);
    (held, probe.stop())
}

fn go_on(server: &Server, session: &Session, mut channel: Channel) -> io::Result<Held> {
    let agent = Agent::start(server.runtime(), session.manner)?;
    let init = InitStorage {
        transaction_count: session.transactions,
        core_count: session.cores,
        mmap_export_blob: agent.memory(server.is_service()).into(),
    };
    let prepared = expect(
        channel.ask(Payload::InitStorageRequest(init), ANSWER)?,
        |answer| matches!(answer, Payload::InitStorageResponse).then_some(()),
    );
    let mut held = Held {
        channel,
        agent,
        claims: Vec::new(),
        agents: Vec::new(),
        details: Vec::new(),
    };
    prepared?;
    let mut rings = Vec::new();
    if session.until >= Step::Connect && !server.is_service() {
        rings = connect(server, &mut held, session.claims)?;
    }
    if session.until >= Step::Start {
        let channel = &mut held.channel;
        if let Channel::Comch(comch) = channel {
            // A service starts when its initiator has a consumer for each core.
            for core in 1..=session.cores.min(8) {
                let ring = raw::descriptor(Descriptor::Ring)?;
                let doorbell = raw::descriptor(Descriptor::EventFd)?;
                let frame = raw::words(&[5, 2 * core, 64]);
                comch
                    .socket
                    .send_or_stall(&frame, &[ring.as_fd(), doorbell.as_fd()])?;
            }
        }
        expect(
            channel.ask(Payload::StartStorageRequest, ANSWER)?,
            |answer| matches!(answer, Payload::StartStorageResponse).then_some(()),
        )?;
        if let Channel::Comch(comch) = channel {
            // Consumers are announced before the answer, or right after it.
            let deadline = Instant::now() + Duration::from_secs(1);
            while comch.rings.is_empty() && Instant::now() < deadline {
                if let Ok(Some((_, mut descriptors))) =
                    comch.socket.receive(Duration::from_millis(20))
                    && descriptors.len() == 2
                {
                    comch.rings.push(descriptors.swap_remove(0));
                }
            }
            rings = std::mem::take(&mut comch.rings)
                .into_iter()
                .map(RawRing::new)
                .collect::<io::Result<_>>()?;
        }
        for ring in &mut rings {
            for write in &session.ring {
                put(ring, *write)?;
            }
        }
    }
    std::thread::sleep(session.hold);
    Ok(held)
}

/// Creates both connections of the first worker, and claims the role's rings if `claims`.
fn connect(server: &Server, held: &mut Held, claims: bool) -> io::Result<Vec<RawRing>> {
    let mut rings = Vec::new();
    for role in [RdmaConnectionRole::IoData, RdmaConnectionRole::IoControl] {
        let details = RdmaConnectionDetails {
            context_index: 0,
            role,
            connection_details: held.agent.connection().into(),
        };
        let answer = held
            .channel
            .ask(Payload::CreateRdmaConnectionRequest(details), ANSWER)?;
        let theirs = expect(answer, |answer| match answer {
            Payload::CreateRdmaConnectionResponse(details) => Some(details.connection_details),
            _ => None,
        })?;
        held.agents
            .extend(raw::agent_of(&theirs).map(|(address, _)| address));
        held.details.push(theirs.clone());
        if !claims {
            continue;
        }
        let (socket, ring) = raw::claim(server.runtime(), &theirs)?;
        held.claims.push(socket);
        rings.push(RawRing::new(ring)?);
    }
    Ok(rings)
}

fn expect<T>(answer: Payload, wanted: impl FnOnce(Payload) -> Option<T>) -> io::Result<T> {
    let got = match &answer {
        Payload::ErrorResponse(error) => format!("error_response: {}", error.message),
        other => other.message_type().to_string(),
    };
    wanted(answer).ok_or_else(|| io::Error::other(got))
}

fn put(ring: &mut RawRing, write: RingWrite) -> io::Result<()> {
    const INLINE: u32 = 1 << 23;
    const MORE: u32 = 1 << 30;
    const IMMEDIATE: u32 = 1 << 31;
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    match write {
        RingWrite::Fragment {
            len,
            immediate,
            more,
            inline,
        } => {
            let immediate = immediate.map_or(0, |len| len << 24 | IMMEDIATE);
            let low = len | immediate | flag(inline, INLINE) | flag(more, MORE);
            ring.fragment(low, &[0x77; 56])
        }
        RingWrite::Endless(count) => {
            let begin = Instant::now();
            for _ in 0..count {
                let taken =
                    ring.fragment_when_free(1 | INLINE | MORE, Duration::from_millis(300))?;
                if !taken || begin.elapsed() > LONGEST {
                    break;
                }
            }
            Ok(())
        }
        RingWrite::Noise(words) => ring.noise(words),
        RingWrite::Close => ring.close(),
        RingWrite::Io(kind, size, requester, storage) => {
            let mut bytes = [0; 56];
            bytes[..4].copy_from_slice(&kind.to_be_bytes());
            bytes[8..16].copy_from_slice(&9_u64.to_be_bytes());
            bytes[20..24].copy_from_slice(&size.to_be_bytes());
            bytes[24..32].copy_from_slice(&requester.to_be_bytes());
            bytes[32..40].copy_from_slice(&storage.to_be_bytes());
            ring.fragment(64 | INLINE, &bytes)
        }
    }
}
