//! The scripted service: an honest one, whose every step a check may do in its own way instead.

mod honest;

use std::time::{Duration, Instant};

use doca::Device;
use wire::control::Message;
use wire::release::Release;

use super::data_path::{DataPath, Io};
use super::plan::Plan;
use crate::role::step::Step;
use crate::role::{Bench, ComchPeer, ControlPeer as _, During as _, Polled, Running, Wrong};

/// A service, and the initiator that it serves.
pub(super) struct Service {
    plan: Plan,
    device: Device,
    /// Consumers and producers go before their connection.
    pub(super) data: Option<DataPath>,
    control: Option<ComchPeer>,
    pub(super) initiator: Running,
    patience: Duration,
    /// The release of the protocol that the initiator speaks.
    release: Release,
    /// Requests that have come.
    pub(super) requests: Vec<Message>,
    /// Answers are sent in pieces of this many bytes.
    pub(super) piece: usize,
    /// Time that answers take.
    pub(super) delay: Duration,
}

impl Service {
    /// Waits for an initiator that is started with this plan.
    pub(super) fn begin(bench: &Bench<'_>, plan: Plan) -> Result<Self, Wrong> {
        let device = Device::open(&bench.subject().dpu_device)?;
        let representor = device.open_representor(&bench.subject().representor)?;
        let listening = ComchPeer::serve(&device, &representor, bench.scene().channel())?;
        let mut initiator = Self::start(bench, &plan)?;
        let patience = bench.patience();
        let control = listening
            .accept(patience, || initiator.is_running())
            .during("the initiator's start")?;
        Ok(Self {
            plan,
            device,
            data: None,
            control: Some(control),
            initiator,
            patience,
            release: bench.subject().release,
            requests: Vec::new(),
            piece: usize::MAX,
            delay: Duration::ZERO,
        })
    }

    /// Starts the initiator of a plan, whether there is a service or not.
    pub(super) fn start(bench: &Bench<'_>, plan: &Plan) -> Result<Running, Wrong> {
        let arguments = plan.arguments(&bench.subject().usage);
        let flags: Vec<&str> = arguments.iter().map(String::as_str).collect();
        bench.start_initiator(plan.strategy, &flags)
    }

    /// The control channel.
    pub(super) fn control(&mut self) -> Result<&mut ComchPeer, Wrong> {
        self.control
            .as_mut()
            .ok_or_else(|| Wrong::new("the check has closed the channel"))
    }

    /// The data path.
    pub(super) fn data(&mut self) -> Result<&mut DataPath, Wrong> {
        self.data
            .as_mut()
            .ok_or_else(|| Wrong::new("the check has not come to a data path"))
    }

    /// Plays an honest service until the request of `step` has come, and returns that.
    pub(super) fn until(&mut self, step: Step) -> Result<Message, Wrong> {
        self.until_with(step, |data, io| data.serve(&io))
    }

    /// As [`Service::until`], with another data path than an honest one.
    pub(super) fn until_with(
        &mut self,
        step: Step,
        each: impl FnMut(&mut DataPath, Io) -> Result<(), Wrong>,
    ) -> Result<Message, Wrong> {
        let mut each = each;
        loop {
            let Some(next) = Step::ALL.get(self.requests.len()).copied() else {
                return Err(Wrong::new("the check has come to the end of the session"));
            };
            let request = self.next_request(next, &mut each)?;
            self.requests.push(request.clone());
            if next == step {
                return Ok(request);
            }
            self.answer(&request)?;
        }
    }

    /// Waits for the request of `step`, and serves I/O until then.
    fn next_request(
        &mut self,
        step: Step,
        each: &mut impl FnMut(&mut DataPath, Io) -> Result<(), Wrong>,
    ) -> Result<Message, Wrong> {
        let what = step.request().to_string();
        let mut deadline = Instant::now() + self.patience;
        loop {
            if step == Step::Stop
                && let Some(data) = &mut self.data
                && let Some(io) = data.next()?
            {
                each(data, io)?;
                deadline = Instant::now() + self.patience;
                continue;
            }
            match self.control()?.poll()? {
                Polled::Message(message) if message.payload.message_type() == step.request() => {
                    return Ok(message);
                }
                Polled::Message(message) => {
                    return Err(Wrong::expected(what, format!("{message:?}")));
                }
                Polled::Closed => {
                    return Err(Wrong::expected(what, "the end of the channel"));
                }
                Polled::Nothing if Instant::now() < deadline => {}
                Polled::Nothing => {
                    return Err(Wrong::expected(
                        what,
                        format!("nothing in {:?}", self.patience),
                    ));
                }
            }
        }
    }

    /// Serves `count` requests of the data path and lets those after them wait, until it is `enough`.
    pub(super) fn serve_until(
        &mut self,
        enough: impl Fn(&DataPath) -> bool,
        count: usize,
    ) -> Result<(), Wrong> {
        let deadline = Instant::now() + self.patience;
        let data = self.data()?;
        while !enough(data) {
            if let Some(io) = data.next()? {
                if data.seen.len() <= count {
                    data.serve(&io)?;
                }
            } else if Instant::now() > deadline {
                return Err(Wrong::expected(
                    "further requests",
                    format!("{} in all", data.seen.len()),
                ));
            }
        }
        Ok(())
    }

    /// Does what a request asks for, and answers it.
    pub(super) fn answer(&mut self, request: &Message) -> Result<(), Wrong> {
        let payload = self.perform(&request.payload)?;
        self.reply(&request.response(payload))
    }

    /// Sends an answer, as slowly and in as many pieces as the check wants it.
    pub(super) fn reply(&mut self, message: &Message) -> Result<(), Wrong> {
        std::thread::sleep(self.delay);
        let bytes = message.encode_to_vec();
        let piece = self.piece.min(bytes.len());
        let control = self.control()?;
        bytes
            .chunks(piece)
            .try_for_each(|piece| control.send_bytes(piece))
    }

    /// Sends any bytes.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        self.control()?.send_bytes(bytes)
    }

    /// Is gone, as far as the initiator can see.
    pub(super) fn hang_up(&mut self) {
        self.data = None;
        self.control = None;
    }

    /// Plays an honest service to the end of the session.
    pub(super) fn finish(&mut self) -> Result<(), Wrong> {
        let request = self.until(Step::Shutdown)?;
        self.answer(&request)
    }

    /// As [`Service::finish`], with another data path than an honest one.
    pub(super) fn finish_with(
        &mut self,
        each: impl FnMut(&mut DataPath, Io) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let request = self.until_with(Step::Shutdown, each)?;
        self.answer(&request)
    }

    /// As [`Service::finish_with`], as far as it goes: the initiator may end at any time.
    pub(super) fn play_on(&mut self, each: impl FnMut(&mut DataPath, Io) -> Result<(), Wrong>) {
        // What is wrong with the initiator then is seen by how it ends.
        let _ = self.finish_with(each);
    }

    /// As [`Service::finish`], and the initiator ends well.
    pub(super) fn succeed(&mut self) -> Result<(), Wrong> {
        self.finish()?;
        self.expect_success()
    }

    /// The initiator ends by itself, and well.
    pub(super) fn expect_success(&mut self) -> Result<(), Wrong> {
        self.initiator.expect_success(self.patience)
    }

    /// The initiator ends by itself, and says that it has failed.
    pub(super) fn expect_failure(&mut self) -> Result<(), Wrong> {
        self.initiator.expect_failure(self.patience)
    }

    /// The initiator ends by itself.
    pub(super) fn expect_end(&mut self) -> Result<(), Wrong> {
        self.initiator.expect_end(self.patience)
    }

    /// Requests that came on the data path so far.
    pub(super) fn seen(&self) -> &[Io] {
        self.data.as_ref().map_or(&[], |data| &data.seen)
    }
}
