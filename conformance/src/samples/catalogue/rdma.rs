//! `doca_rdma`: pairs of which one side waits and the other acts, connected in each of the ways that they offer.

use super::{DPU_RDMA, HOST_RDMA};
use crate::samples::scenario::{Event, Party, Reply, Scenario};

const LIBRARY: &str = "doca_rdma";

/// What a pair of samples does once it is connected.
struct Pair {
    /// The side that waits, and its sample.
    passive: (&'static str, &'static str),
    /// The side that acts, and its sample.
    active: (&'static str, &'static str),
    /// The text that is transferred: whose flag it is.
    text: Option<(Flag, &'static str)>,
    /// What the passive side has to get done before the other may go on, in the way of its log.
    ready: &'static str,
    /// Whether memory or an event of the passive side is handed over, too.
    resource: bool,
    /// The passive side ends when told that the other has finished.
    told: bool,
    /// What both must have written.
    passive_says: &'static str,
    active_says: &'static str,
}

#[derive(PartialEq, Eq)]
enum Flag {
    Passive,
    Active,
}

const TEXT: &str = "what goes over the wire";
/// What the active side writes when its work is done.
const DONE: &str = "task was done";
/// The passive side is connected.
const CONNECTED: &str = "finished initialization";
/// ... and ready to receive.
const RECEIVING: &str = "Submitting RDMA receive task";

const PAIRS: [Pair; 6] = [
    Pair {
        passive: ("receiver", "rdma_receive"),
        active: ("sender", "rdma_send"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        told: false,
        passive_says: "from sender: \"what goes over the wire\"",
        active_says: "send task was done",
    },
    Pair {
        passive: ("receiver", "rdma_receive_immediate"),
        active: ("sender", "rdma_send_immediate"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        told: false,
        // 0xABCD
        passive_says: "\"what goes over the wire\" with immediate: 43981",
        active_says: "send with immediate task was done",
    },
    Pair {
        passive: ("responder", "rdma_read_responder"),
        active: ("requester", "rdma_read_requester"),
        text: Some((Flag::Passive, "-r")),
        ready: CONNECTED,
        resource: true,
        told: true,
        passive_says: "has been stopped",
        active_says: "from responder: \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_responder"),
        active: ("requester", "rdma_write_requester"),
        text: Some((Flag::Active, "-w")),
        ready: CONNECTED,
        resource: true,
        told: true,
        passive_says: "has written: \"what goes over the wire\"",
        active_says: "to responder \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_immediate_responder"),
        active: ("requester", "rdma_write_immediate_requester"),
        text: Some((Flag::Active, "-w")),
        ready: RECEIVING,
        resource: true,
        told: false,
        passive_says: "has written: \"what goes over the wire\" with immediate data: 43981",
        active_says: "to responder \"what goes over the wire\" with immediate value 43981",
    },
    Pair {
        passive: ("responder", "rdma_sync_event_responder"),
        active: ("requester", "rdma_sync_event_requester"),
        text: None,
        ready: CONNECTED,
        resource: true,
        told: false,
        passive_says: "to be notified for completion",
        // One more than the 0xD0CA that the requester had set.
        active_says: "sync event value 0xD0CB",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for pair in &PAIRS {
        scenarios.push(pair.by_descriptors(false));
        scenarios.push(pair.by_descriptors(true));
        scenarios.push(pair.by_address("address", "127.0.0.1", "IPv4"));
        scenarios.push(pair.by_address("address_ipv6", "::1", "IPv6"));
        scenarios.push(pair.by_address("address_gid", "::ffff:127.0.0.1", "GID"));
        scenarios.push(pair.by_address_of_active());
    }
    scenarios
}

impl Pair {
    fn scenario(&self, way: &str) -> Scenario {
        Scenario::new(LIBRARY, format!("{}:{way}", self.active.1))
    }

    fn passive(&self) -> Party {
        let party = Party::new(self.passive.0, self.passive.1)
            .arguments(["-d", DPU_RDMA])
            .says(self.passive_says);
        self.with_text(party, Flag::Passive)
    }

    fn active(&self) -> Party {
        let party = Party::new(self.active.0, self.active.1)
            .arguments(["-d", HOST_RDMA])
            .says(self.active_says);
        self.with_text(party, Flag::Active)
    }

    fn with_text(&self, party: Party, side: Flag) -> Party {
        match &self.text {
            Some((flag, name)) if *flag == side => party.arguments([*name, TEXT]),
            _ => party,
        }
    }

    /// Descriptors in files, which the user copies from one to the other. With dynamic connections the passive side does
    /// not need the other's.
    fn by_descriptors(&self, dynamic: bool) -> Scenario {
        let transport = if dynamic { "DC" } else { "RC" };
        let flags = [
            "-ld",
            "{dir}/local",
            "-re",
            "{dir}/remote",
            "-tt",
            transport,
        ];
        let (passive_name, active_name) = (self.passive.0, self.active.0);
        let mut passive = self.passive().arguments(flags);
        if !dynamic {
            let fetch = Reply::to("press enter")
                .when(Event::says(active_name, "You can now copy"))
                .copy(format!("{{shared}}/{active_name}/local"), "{dir}/remote");
            passive = passive.reply(fetch);
        }
        let mut active = self
            .active()
            .arguments(flags)
            .starts_when(Event::says(passive_name, "You can now copy"));
        let mut connect = Reply::to("press enter")
            .when(Event::says(passive_name, self.ready))
            .copy(format!("{{shared}}/{passive_name}/local"), "{dir}/remote");
        if self.resource {
            passive = passive.arguments(["-m", "{dir}/resource"]);
            active = active.arguments(["-m", "{dir}/resource"]);
            connect = connect.copy(
                format!("{{shared}}/{passive_name}/resource"),
                "{dir}/resource",
            );
        }
        let way = if dynamic {
            "descriptors_dc"
        } else {
            "descriptors"
        };
        self.scenario(way)
            .party(self.told(passive))
            .party(active.reply(connect))
    }

    /// The passive side listens on a port, the active one connects to it.
    fn by_address(&self, way: &str, address: &str, kind: &str) -> Scenario {
        let listens = Event::says(self.passive.0, "started connection");
        self.scenario(way)
            .party(self.negotiating(self.passive().arguments(["-cm", "-lp", "{port}"])))
            .party(
                self.sending(self.active())
                    .arguments(["-cm", "-lp", "{port}", "-sa", address, "-sat", kind])
                    .starts_when(listens),
            )
    }

    /// The active side listens.
    fn by_address_of_active(&self) -> Scenario {
        let listens = Event::says(self.active.0, "started connection");
        self.scenario("address_reversed")
            .party(
                self.sending(self.active())
                    .arguments(["-cm", "-lp", "{port}"]),
            )
            .party(
                self.negotiating(self.passive())
                    .arguments(["-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                    .starts_when(listens),
            )
    }

    /// Without files, the passive side sends its descriptor when told that the other expects it.
    fn negotiating(&self, mut passive: Party) -> Party {
        if self.resource {
            let expects = Event::says(self.active.0, "Negotiation receive task submission");
            passive = passive.reply(Reply::to("press enter").when(expects));
        }
        self.told(passive)
    }

    /// Without files, senders ask whether the other is ready.
    fn sending(&self, active: Party) -> Party {
        if self.resource {
            return active;
        }
        active.reply(Reply::to("press enter").when(Event::says(self.passive.0, self.ready)))
    }

    fn told(&self, passive: Party) -> Party {
        if !self.told {
            return passive;
        }
        passive.reply(Reply::to("press enter").when(Event::says(self.active.0, DONE)))
    }
}
