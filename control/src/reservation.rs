//! Reservations of targets: which one of several services may use a target.
//!
//! A service that takes over reserves all targets that it can reach, with a generation higher than that of any earlier
//! reservation. A target ends the session of the earlier holder before it answers, and refuses it from then on, so the
//! earlier holder cannot read or write any more, even if it was stopped meanwhile and does not know. This is what
//! persistent reservations are in SCSI and NVMe, with a generation instead of registered keys.
//!
//! [`Reservation`] is the rule by which a target decides, and [`Holder`] the state machine of a service. Neither does I/O.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use doca::ErrorCode;
use wire::control::{
    MAX_HOLDER_NAME, Message, MessageIds, Payload, Reservation as Request, ReservedStorage,
    StorageDetails,
};

use crate::failure::{Failure, text_of_peer};

/// First pause after a refusal by a service that takes over at the same time. It doubles, so that it soon exceeds the time
/// that targets need to answer.
const YIELD: Duration = Duration::from_millis(50);

/// Maximum number of times that the pause doubles.
const LONGEST_YIELD: u32 = 7;

/// Reservation of a storage for one process of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The higher one wins. Not 0.
    pub generation: u64,
    /// Random identifier of the holder.
    pub holder: u128,
    /// Name of the holder, for users: at most [`MAX_HOLDER_NAME`] bytes.
    name: String,
}

impl Reservation {
    /// Returns the reservation, with a name that is truncated to its longest length; `None` if the generation is 0.
    #[must_use]
    pub fn new(generation: u64, holder: u128, name: &str) -> Option<Self> {
        (generation != 0).then(|| Self {
            generation,
            holder,
            name: name[..name.floor_char_boundary(MAX_HOLDER_NAME)].to_owned(),
        })
    }

    /// The reservation in a request; `None` if it requests only the one in force.
    #[must_use]
    pub fn of_request(request: &Request) -> Option<Self> {
        let holder = u128::from(request.holder_high) << 64 | u128::from(request.holder_low);
        Self::new(request.generation, holder, &request.name)
    }

    fn of_answer(answer: &ReservedStorage) -> Option<Self> {
        let holder = u128::from(answer.holder_high) << 64 | u128::from(answer.holder_low);
        Self::new(answer.generation, holder, &answer.name)
    }

    /// The request for this reservation.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            generation: self.generation,
            holder_high: (self.holder >> 64) as u64,
            holder_low: self.holder as u64,
            name: self.name.clone(),
        }
    }

    /// The response of a storage where `in_force` is the reservation in force.
    #[must_use]
    pub fn answer(in_force: Option<&Self>, storage: &StorageDetails) -> ReservedStorage {
        ReservedStorage {
            total_size: storage.total_size,
            block_size: storage.block_size,
            generation: in_force.map_or(0, |it| it.generation),
            holder_high: in_force.map_or(0, |it| (it.holder >> 64) as u64),
            holder_low: in_force.map_or(0, |it| it.holder as u64),
            name: in_force.map_or_else(String::new, |it| it.name.clone()),
        }
    }

    /// Returns `true` if a storage where `in_force` is the reservation in force accepts this one.
    #[must_use]
    pub fn replaces(&self, in_force: Option<&Self>) -> bool {
        in_force.is_none_or(|old| {
            self.generation > old.generation
                || (self.generation, self.holder) == (old.generation, old.holder)
        })
    }

    /// Name of the holder, for users, escaped.
    #[must_use]
    pub fn name(&self) -> String {
        text_of_peer(&self.name)
    }

    /// The name's bytes.
    #[must_use]
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Why a service without this reservation is refused.
    #[must_use]
    pub fn refusal(&self) -> Failure {
        Failure::new(
            ErrorCode::NOT_PERMITTED,
            format!(
                "the storage is reserved for {self}; to use it from this service instead, start it with --takeover"
            ),
        )
    }

    /// Why the session of an earlier holder ends.
    #[must_use]
    pub fn preemption(&self) -> Failure {
        Failure::new(ErrorCode::NOT_PERMITTED, format!("{self} has taken over"))
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {})", self.name(), self.generation)
    }
}

/// The reservations that one process of a service has made.
///
/// Before the service serves initiators, it *settles* on a generation: one that is higher than those of all targets that
/// it reaches, which are at least a quorum. Once settled, it never chooses another one by itself, so that of two
/// services, the one that was started last stays in charge: a target that refuses the generation is taken as evidence
/// of a newer service, and the service is [fenced](Self::fenced).
#[derive(Debug)]
pub struct Holder {
    id: u128,
    name: String,
    /// Number of targets without which the service cannot serve initiators.
    quorum: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    generation: u64,
    is_settled: bool,
    /// The newer reservation that has fenced this service.
    newer: Option<Reservation>,
    /// Refusals since the service last began to settle.
    refusals: u32,
    targets: Vec<Held>,
}

/// State of one target's reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// No connection.
    Disconnected,
    /// Connected, and not reserved.
    Connected,
    /// The target has accepted this generation.
    Reserved(u64),
}

/// Next step of the connection to a target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this request.
    Reserve(Message),
    /// Wait for the other targets.
    Wait,
    /// The reservation is in force: the connection may be used.
    Use,
}

impl Holder {
    /// Creates a holder of the reservations of `targets` targets, of which `quorum` are needed to serve initiators.
    /// `id` must be random.
    #[must_use]
    pub fn new(id: u128, name: String, targets: usize, quorum: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            quorum,
            state: Mutex::new(State {
                generation: 1,
                is_settled: false,
                newer: None,
                refusals: 0,
                targets: vec![Held::Disconnected; targets],
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete when the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failure with which initiators are refused, once another service has taken over.
    #[must_use]
    pub fn fenced(&self) -> Option<Failure> {
        let state = self.state();
        let newer = state.newer.as_ref()?;
        Some(Failure::new(
            ErrorCode::NOT_PERMITTED,
            format!(
                "{newer} has taken over from this service (generation {}); restart this service with --takeover, or \
                 use its takeover command, to take over from that one",
                state.generation
            ),
        ))
    }

    /// Generation of the reservations; 0 until it is settled.
    #[must_use]
    pub fn generation(&self) -> u64 {
        let state = self.state();
        if state.is_settled {
            state.generation
        } else {
            0
        }
    }

    /// Takes the targets over again from the service that has [fenced](Self::fenced) this one. Returns `false` if none has.
    pub fn take_over(&self) -> bool {
        let mut state = self.state();
        let Some(newer) = state.newer.take() else {
            return false;
        };
        state.generation = newer.generation.saturating_add(1);
        state.is_settled = false;
        state.refusals = 0;
        true
    }

    pub(crate) fn connected(&self, target: usize) {
        self.set(target, Held::Connected);
    }

    pub(crate) fn disconnected(&self, target: usize) {
        self.set(target, Held::Disconnected);
    }

    fn set(&self, target: usize, held: Held) {
        if let Some(target) = self.state().targets.get_mut(target) {
            *target = held;
        }
    }

    /// Next step of a target that is connected, and whose answer is not outstanding.
    pub(crate) fn next(&self, target: usize) -> Step {
        let mut state = self.state();
        if state.newer.is_some() {
            return Step::Wait;
        }
        let generation = state.generation;
        let is_current = |held: &Held| *held == Held::Reserved(generation);
        let is_settled = state.is_settled;
        let connected = state.targets.iter().filter(|&&it| it != Held::Disconnected);
        let reserved = state.targets.iter().filter(|it| is_current(it)).count();
        let is_reserved = state.targets.get(target).is_some_and(is_current);
        if !is_reserved {
            // A service that cannot serve must not end the session of one that can.
            if !is_settled && connected.count() < self.quorum {
                return Step::Wait;
            }
            let reservation = Reservation {
                generation,
                holder: self.id,
                name: self.name.clone(),
            };
            let payload = Payload::ReserveStorageRequest(reservation.request());
            return Step::Reserve(MessageIds::for_superblocks().request(0, payload));
        }
        let has_older = (state.targets.iter())
            .any(|it| matches!(it, Held::Reserved(other) if *other != generation));
        if !is_settled && (reserved < self.quorum || has_older) {
            return Step::Wait;
        }
        state.is_settled = true;
        Step::Use
    }

    /// Handles a target's answer. Returns the time to wait before the next request to this target: of two services that
    /// take over at once, and refuse each other's generations, one has to be slower.
    ///
    /// # Errors
    ///
    /// The target has no reservations, or a newer one of another service, or has failed.
    pub(crate) fn answered(&self, target: usize, answer: Message) -> Result<Duration, Failure> {
        let answer = match answer.payload {
            Payload::ReservedStorageResponse(answer) => answer,
            Payload::ErrorResponse(error) => return Err(Failure::from(error)),
            Payload::QueryStorageResponse(_) => {
                return Err(Failure::new(
                    ErrorCode::NOT_SUPPORTED,
                    "--takeover needs targets that can be reserved (doca_storage_target_rdma of this project), got one without reservations",
                ));
            }
            other => {
                let came = other.message_type();
                return Err(Failure::unexpected(format!(
                    "expected an answer to a reserve_storage_request, got a {came}"
                )));
            }
        };
        let in_force = Reservation::of_answer(&answer);
        let mut state = self.state();
        match in_force {
            Some(it) if it.holder == self.id => {
                if let Some(target) = state.targets.get_mut(target) {
                    *target = Held::Reserved(it.generation);
                }
                Ok(Duration::ZERO)
            }
            // Refused, or answered for an older generation of this service.
            Some(newer) if newer.generation >= state.generation && state.is_settled => {
                let failure = newer.refusal();
                state.newer = Some(newer);
                Err(failure)
            }
            Some(newer) => {
                state.generation = state.generation.max(newer.generation.saturating_add(1));
                // The first refusals are those of earlier holders.
                let rivalry = state.refusals / (1 + state.targets.len() as u32);
                state.refusals += 1;
                if newer.holder > self.id && rivalry != 0 {
                    Ok(YIELD * (1 << (rivalry - 1).min(LONGEST_YIELD)))
                } else {
                    Ok(Duration::ZERO)
                }
            }
            None => Err(Failure::unexpected(
                "expected a reservation in force, got none",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORAGE: StorageDetails = StorageDetails {
        total_size: 1 << 20,
        block_size: 512,
    };

    fn reservation(generation: u64, holder: u128) -> Reservation {
        Reservation::new(generation, holder, "dpu").expect("a generation")
    }

    fn holder(id: u128, targets: usize, quorum: usize) -> Arc<Holder> {
        Holder::new(id, format!("dpu-{id}"), targets, quorum)
    }

    /// Three targets, and the rule by which they decide.
    #[derive(Default)]
    struct Storage {
        in_force: [Option<Reservation>; 3],
    }

    impl Storage {
        /// Answers one request of the holder for this target. Returns its next step, if that is another one, and the pause
        /// after the answer.
        fn advance(&mut self, holder: &Holder, target: usize) -> Result<Option<Step>, Failure> {
            self.paused_advance(holder, target).map(|(step, _)| step)
        }

        fn paused_advance(
            &mut self,
            holder: &Holder,
            target: usize,
        ) -> Result<(Option<Step>, Duration), Failure> {
            let request = match holder.next(target) {
                Step::Reserve(request) => request,
                other => return Ok((Some(other), Duration::ZERO)),
            };
            let Payload::ReserveStorageRequest(reservation) = &request.payload else {
                panic!("{request:?}");
            };
            let in_force = &mut self.in_force[target];
            let reservation = Reservation::of_request(reservation).expect("a generation");
            if reservation.replaces(in_force.as_ref()) {
                *in_force = Some(reservation);
            }
            let answer = Reservation::answer(in_force.as_ref(), &STORAGE);
            let answer = request.response(Payload::ReservedStorageResponse(answer));
            let pause = holder.answered(target, answer)?;
            Ok((None, pause))
        }

        /// Lets the holder use these targets, which are connected.
        fn settle(&mut self, holder: &Holder, targets: &[usize]) -> Result<(), Failure> {
            for _ in 0..10 {
                let mut used = 0;
                for &target in targets {
                    used += usize::from(self.advance(holder, target)? == Some(Step::Use));
                }
                if used == targets.len() {
                    return Ok(());
                }
            }
            panic!("{holder:?} does not settle");
        }

        fn generations(&self) -> [u64; 3] {
            let generation = |it: &Option<Reservation>| it.as_ref().map_or(0, |it| it.generation);
            std::array::from_fn(|target| generation(&self.in_force[target]))
        }
    }

    fn connect(holder: &Holder, targets: &[usize]) {
        for &target in targets {
            holder.connected(target);
        }
    }

    #[test]
    fn higher_generation_and_the_holder_itself_replace_a_reservation() {
        let old = reservation(7, 1);
        for (generation, holder, expected) in [
            (8, 2, true),
            (8, 1, true),
            (7, 1, true),
            (7, 2, false),
            (6, 1, false),
            (6, 2, false),
        ] {
            let new = reservation(generation, holder);
            assert_eq!(
                new.replaces(Some(&old)),
                expected,
                "{generation} of {holder}"
            );
            assert!(new.replaces(None));
        }
        assert_eq!(Reservation::new(0, 1, "x"), None);
    }

    #[test]
    fn messages_carry_every_field_and_long_names_are_truncated() {
        let long = "ä".repeat(40);
        let reservation = Reservation::new(7, (5 << 64) | 6, &long).expect("a generation");
        assert_eq!(reservation.name_bytes().len(), MAX_HOLDER_NAME);
        let request = reservation.request();
        assert_eq!(Reservation::of_request(&request), Some(reservation.clone()));
        let answer = Reservation::answer(Some(&reservation), &STORAGE);
        assert_eq!(Reservation::of_answer(&answer), Some(reservation));
        let none = Reservation::answer(None, &STORAGE);
        assert_eq!(Reservation::of_answer(&none), None);
        let lines = Reservation::new(1, 1, "a\n\u{1b}[31m").expect("a generation");
        assert!(!lines.to_string().contains(['\n', '\u{1b}']), "{lines}");
    }

    #[test]
    fn one_generation_above_all_of_a_quorum_is_settled_on() {
        let mut storage = Storage::default();
        storage.in_force[0] = Some(reservation(3, 9));
        storage.in_force[1] = Some(reservation(5, 9));
        let holder = holder(1, 3, 2);
        connect(&holder, &[0]);
        assert_eq!(holder.next(0), Step::Wait, "one target is no quorum");
        assert_eq!(storage.generations(), [3, 5, 0]);
        connect(&holder, &[1]);
        storage.settle(&holder, &[0, 1]).expect("settled");
        assert_eq!(storage.generations(), [6, 6, 0]);
        assert_eq!((holder.generation(), holder.fenced()), (6, None));
        // The third one, later.
        connect(&holder, &[2]);
        storage.settle(&holder, &[0, 1, 2]).expect("settled");
        assert_eq!(storage.generations(), [6, 6, 6]);
    }

    #[test]
    fn no_target_is_used_while_another_one_has_an_older_generation_of_the_holder() {
        let mut storage = Storage::default();
        storage.in_force[2] = Some(reservation(8, 9));
        let holder = holder(1, 3, 2);
        connect(&holder, &[0, 1, 2]);
        assert_eq!(storage.advance(&holder, 0), Ok(None));
        assert_eq!(holder.next(0), Step::Wait);
        // Refused: the others have to be reserved again.
        assert_eq!(storage.advance(&holder, 2), Ok(None));
        assert!(matches!(holder.next(0), Step::Reserve(_)));
        storage.settle(&holder, &[0, 1, 2]).expect("settled");
        assert_eq!(storage.generations(), [9, 9, 9]);
    }

    #[test]
    fn service_that_was_taken_over_from_is_fenced_until_it_takes_over() {
        let mut storage = Storage::default();
        let (first, second) = (holder(1, 3, 2), holder(2, 3, 2));
        connect(&first, &[0, 1, 2]);
        storage.settle(&first, &[0, 1, 2]).expect("settled");
        connect(&second, &[1, 2]);
        storage.settle(&second, &[1, 2]).expect("settled");
        assert_eq!(storage.generations(), [1, 2, 2]);

        // The first one is disconnected, and connects again: also the target that it still holds is not used.
        for target in 0..3 {
            first.disconnected(target);
        }
        connect(&first, &[0, 1]);
        assert_eq!(first.fenced(), None, "it does not know yet");
        let refused = storage.advance(&first, 1).expect_err("refused");
        assert_eq!(refused.code, ErrorCode::NOT_PERMITTED);
        assert!(
            refused.message.contains("dpu-2 (generation 2)"),
            "{refused}"
        );
        assert!(first.fenced().is_some());
        assert_eq!(first.next(0), Step::Wait);
        assert!(!second.take_over(), "it holds the targets");

        assert!(first.take_over());
        assert_eq!(first.fenced(), None);
        storage.settle(&first, &[0, 1]).expect("settled");
        assert_eq!(storage.generations(), [3, 3, 2]);
        second.disconnected(1);
        connect(&second, &[1]);
        assert!(storage.advance(&second, 1).is_err());
        assert!(second.fenced().is_some());
    }

    #[test]
    fn two_services_that_take_over_at_once_leave_one_in_charge() {
        // Requests of the two services in every order; then both are equally fast.
        for order in 0_u32..1 << 12 {
            let mut storage = Storage::default();
            let holders = [holder(1, 3, 2), holder(2, 3, 2)];
            holders
                .iter()
                .for_each(|holder| connect(holder, &[0, 1, 2]));
            let mut next = [0; 2];
            let mut paused_until = [[0_u128; 3]; 2];
            for millisecond in 0_u32..2000 {
                let who = match millisecond {
                    0..12 => order >> millisecond & 1,
                    _ => millisecond & 1,
                } as usize;
                let target = next[who];
                next[who] = (target + 1) % 3;
                if paused_until[who][target] > u128::from(millisecond) {
                    continue;
                }
                // A refusal fences the holder.
                if let Ok((_, pause)) = storage.paused_advance(&holders[who], target) {
                    paused_until[who][target] = u128::from(millisecond) + pause.as_millis();
                }
                // The target disconnects the other service, which connects again.
                let is_mine = |it: &Reservation| it.holder == holders[who].id;
                if storage.in_force[target].as_ref().is_some_and(is_mine) {
                    holders[1 - who].disconnected(target);
                    holders[1 - who].connected(target);
                }
            }
            let fenced = holders.each_ref().map(|holder| holder.fenced().is_some());
            assert_ne!(fenced[0], fenced[1], "{order:b}");
            let winner = &holders[usize::from(fenced[0])];
            assert_eq!(storage.generations(), [winner.generation(); 3], "{order:b}");
        }
    }

    #[test]
    fn target_without_reservations_is_refused() {
        let holder = holder(1, 1, 1);
        connect(&holder, &[0]);
        let Step::Reserve(request) = holder.next(0) else {
            panic!("{holder:?}");
        };
        let plain = request.response(Payload::QueryStorageResponse(STORAGE));
        let refused = holder.answered(0, plain).expect_err("of the reference");
        assert_eq!(refused.code, ErrorCode::NOT_SUPPORTED);
    }
}
