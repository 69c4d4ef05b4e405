//! The target's side: recorded answers with live connections, and a storage behind them.

use std::collections::HashMap;

use wire::control::{Message, Payload, RdmaConnectionDetails};
use wire::release::Release;

use super::Settings;
use super::player::Part;
use crate::target::{Fault, Script, Session};

/// Largest storage that is played, in bytes.
const MOST_CAPACITY: u64 = 1 << 30;

/// A target, as far as a service can tell.
pub(super) struct Target {
    device: String,
    content: Vec<u8>,
    session: Option<Session>,
    /// What is live of a recorded request, by its recorded id: the request that came, and an answer.
    pending: HashMap<u32, (Message, Option<Payload>)>,
    /// The service has told that it is there.
    has_begun: bool,
}

impl Target {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            device: settings.device.clone(),
            content: settings.content.clone(),
            session: None,
            pending: HashMap::new(),
            has_begun: false,
        }
    }

    /// The storage that the recorded target told of.
    fn open(&mut self, total_size: u64, block_size: u32) -> Result<(), String> {
        if total_size > MOST_CAPACITY {
            return Err(format!(
                "expected a storage of at most {MOST_CAPACITY} bytes to replay, the recording has {total_size}"
            ));
        }
        let mut content = std::mem::take(&mut self.content);
        content.resize(total_size as usize, 0);
        let script = Script {
            device: self.device.clone(),
            block_size,
            content,
            fault: Fault::None,
            features: 0,
            records: None,
            release: Release::default(),
        };
        self.session = Some(Session::new(&script).map_err(|error| error.to_string())?);
        Ok(())
    }
}

impl Part for Target {
    fn send(&mut self, recorded: &Message, _: bool) -> Result<Message, String> {
        if let Payload::QueryStorageResponse(details) = &recorded.payload {
            self.open(details.total_size, details.block_size)?;
        }
        let Some((request, live)) = self.pending.remove(&recorded.message_id) else {
            return Ok(recorded.clone());
        };
        let payload = match (&recorded.payload, live) {
            (
                Payload::CreateRdmaConnectionResponse(recorded),
                Some(Payload::CreateRdmaConnectionResponse(live)),
            ) => Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
                connection_details: live.connection_details,
                ..recorded.clone()
            }),
            (payload, _) => payload.clone(),
        };
        Ok(request.response(payload))
    }

    fn receive(
        &mut self,
        recorded: &Message,
        came: &Message,
        is_refused: bool,
    ) -> Result<(), String> {
        self.has_begun = true;
        let mut live = Ok(None);
        if let (Some(session), false) = (&mut self.session, is_refused) {
            live = session.answer(&came.payload).map(Some);
        }
        let (live, wrong) = match live {
            Ok(live) => (live, Ok(())),
            Err(error) => (None, Err(error.to_string())),
        };
        self.pending
            .insert(recorded.message_id, (came.clone(), live));
        wrong
    }

    fn progress(&mut self) -> Result<bool, String> {
        match &mut self.session {
            Some(session) if session.is_running() => {
                session.progress().map_err(|error| error.to_string())?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn is_patient(&self) -> bool {
        // The service comes when an initiator makes it, and stops when it has had enough.
        !self.has_begun || self.session.as_ref().is_some_and(Session::is_running)
    }

    fn ids_are_ours(&self) -> bool {
        false
    }
}
