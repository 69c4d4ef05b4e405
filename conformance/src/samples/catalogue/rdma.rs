//! `doca_rdma`: pairs of a passive and an active side, connected in each of the supported ways.

use super::{DPU_RDMA, HOST_RDMA};
use crate::samples::scenario::{Event, Party, Reply, Scenario};

const LIBRARY: &str = "doca_rdma";

/// Behaviour of a pair of samples once they are connected.
struct Pair {
    /// Waiting side, and its sample.
    passive: (&'static str, &'static str),
    /// Acting side, and its sample.
    active: (&'static str, &'static str),
    /// The transferred text, and the side that has a flag for it.
    text: Option<(Flag, &'static str)>,
    /// Log text of the passive side that the active side must wait for.
    ready: &'static str,
    /// `true` if memory or an event of the passive side is exported, too.
    resource: bool,
    /// `true` if the passive side exits when Enter confirms that the other has finished.
    waits_for_enter: bool,
    /// Expected text in the output of each side.
    passive_says: &'static str,
    active_says: &'static str,
}

#[derive(PartialEq, Eq)]
enum Flag {
    Passive,
    Active,
}

const TEXT: &str = "what goes over the wire";
/// Text of the active side when its task has completed.
const DONE: &str = "task was done";
/// Text of the passive side once it is connected.
const CONNECTED: &str = "finished initialization";
/// Text of the passive side once it is ready to receive.
const RECEIVING: &str = "Submitting RDMA receive task";

const PAIRS: [Pair; 6] = [
    Pair {
        passive: ("receiver", "rdma_receive"),
        active: ("sender", "rdma_send"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        waits_for_enter: false,
        passive_says: "from sender: \"what goes over the wire\"",
        active_says: "send task was done",
    },
    Pair {
        passive: ("receiver", "rdma_receive_immediate"),
        active: ("sender", "rdma_send_immediate"),
        text: Some((Flag::Active, "-s")),
        ready: RECEIVING,
        resource: false,
        waits_for_enter: false,
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
        waits_for_enter: true,
        passive_says: "has been stopped",
        active_says: "from responder: \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_responder"),
        active: ("requester", "rdma_write_requester"),
        text: Some((Flag::Active, "-w")),
        ready: CONNECTED,
        resource: true,
        waits_for_enter: true,
        passive_says: "has written: \"what goes over the wire\"",
        active_says: "to responder \"what goes over the wire\"",
    },
    Pair {
        passive: ("responder", "rdma_write_immediate_responder"),
        active: ("requester", "rdma_write_immediate_requester"),
        text: Some((Flag::Active, "-w")),
        ready: RECEIVING,
        resource: true,
        waits_for_enter: false,
        passive_says: "has written: \"what goes over the wire\" with immediate data: 43981",
        active_says: "to responder \"what goes over the wire\" with immediate value 43981",
    },
    Pair {
        passive: ("responder", "rdma_sync_event_responder"),
        active: ("requester", "rdma_sync_event_requester"),
        text: None,
        ready: CONNECTED,
        resource: true,
        waits_for_enter: false,
        passive_says: "to be notified for completion",
        // The requester's value 0xD0CA plus one.
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

    /// Descriptors in files, which the user copies between the sides. With dynamic connections the passive side does
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
            .party(self.confirming(passive))
            .party(active.reply(connect))
    }

    /// The passive side listens on a port, and the active one connects to it.
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

    /// Without files, the passive side sends its descriptor when Enter confirms that the other waits for it.
    fn negotiating(&self, mut passive: Party) -> Party {
        if self.resource {
            let expects = Event::says(self.active.0, "Negotiation receive task submission");
            passive = passive.reply(Reply::to("press enter").when(expects));
        }
        self.confirming(passive)
    }

    /// Without files, senders ask whether the other side is ready.
    fn sending(&self, active: Party) -> Party {
        if self.resource {
            return active;
        }
        active.reply(Reply::to("press enter").when(Event::says(self.passive.0, self.ready)))
    }

    fn confirming(&self, passive: Party) -> Party {
        if !self.waits_for_enter {
            return passive;
        }
        passive.reply(Reply::to("press enter").when(Event::says(self.active.0, DONE)))
    }
}

// `doca_rdma` with several connections: from one context to another, and from one context to a process each.

const SEND: &str = "rdma_multi_conn_send";
const RECEIVE: &str = "rdma_multi_conn_receive";
/// Numbers of connections, up to the samples' maximum.
const COUNTS: [usize; 4] = [1, 2, 5, 8];
const MULTI_CONNECTION_RECEIVING: &str = "All RDMA receive tasks";

pub(super) fn multi_connection_scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for count in COUNTS {
        scenarios.push(by_descriptors(count));
        scenarios.push(to_one_receiver(count));
        scenarios.push(from_one_sender(count));
    }
    scenarios
}

/// All connections between two processes, made sequentially; each has its own pair of files.
fn by_descriptors(count: usize) -> Scenario {
    let flags = ["-ld", "{dir}/local", "-re", "{dir}/remote", "-nc"];
    let connections = count.to_string();
    let mut receiver = Party::new("receiver", RECEIVE)
        .arguments(["-d", DPU_RDMA])
        .arguments(flags)
        .arguments([&connections])
        .says_times("from sender: \"many times\"", count);
    let mut sender = Party::new("sender", SEND)
        .arguments(["-d", HOST_RDMA, "-s", "many times"])
        .arguments(flags)
        .arguments([&connections])
        .starts_when(Event::says("receiver", "You can now copy"))
        .says_times("send task was done", count);
    for index in 0..count {
        let file = format!("{index:04}");
        receiver = receiver.reply(
            Reply::to("press enter")
                .when(Event::says_times("sender", "You can now copy", index + 1))
                .copy(
                    format!("{{shared}}/sender/local-{file}"),
                    format!("{{dir}}/remote-{file}"),
                ),
        );
        sender = sender.reply(
            Reply::to("press enter")
                .when(Event::says("receiver", format!("connection [{index}] is")))
                .copy(
                    format!("{{shared}}/receiver/local-{file}"),
                    format!("{{dir}}/remote-{file}"),
                ),
        );
    }
    let sender = sender
        .reply(Reply::to("press enter").when(Event::says("receiver", MULTI_CONNECTION_RECEIVING)));
    Scenario::new(LIBRARY, format!("{SEND}:descriptors_{count}"))
        .party(receiver)
        .party(sender)
}

/// One process listens and receives, several connect and send.
fn to_one_receiver(count: usize) -> Scenario {
    let mut receiver = Party::new("receiver", RECEIVE)
        .arguments(["-d", DPU_RDMA, "-cm", "-lp", "{port}", "-nc"])
        .arguments([count.to_string()]);
    let mut senders = Vec::new();
    for index in 0..count {
        let text = format!("from number {index}");
        receiver = receiver.says(format!("from sender: \"{text}\""));
        senders.push(
            Party::new(format!("sender{index}"), SEND)
                .arguments(["-d", HOST_RDMA, "-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                .arguments(["-s", &text])
                .starts_when(Event::says("receiver", "started connection"))
                .reply(
                    Reply::to("press enter")
                        .when(Event::says("receiver", MULTI_CONNECTION_RECEIVING)),
                )
                .says("send task was done"),
        );
    }
    let scenario = Scenario::new(LIBRARY, format!("{SEND}:senders_{count}")).party(receiver);
    senders.into_iter().fold(scenario, Scenario::party)
}

/// One process listens and sends, several connect and receive.
fn from_one_sender(count: usize) -> Scenario {
    let mut ready = Reply::to("press enter");
    let mut receivers = Vec::new();
    for index in 0..count {
        let name = format!("receiver{index}");
        ready = ready.when(Event::says(&name, MULTI_CONNECTION_RECEIVING));
        receivers.push(
            Party::new(name, RECEIVE)
                .arguments(["-d", HOST_RDMA, "-cm", "-lp", "{port}", "-sa", "127.0.0.1"])
                .starts_when(Event::says("sender", "started connection"))
                .says("from sender: \"to everybody\""),
        );
    }
    let sender = Party::new("sender", SEND)
        .arguments(["-d", DPU_RDMA, "-cm", "-lp", "{port}", "-s", "to everybody"])
        .arguments(["-nc", &count.to_string()])
        .reply(ready)
        .says_times("send task was done", count);
    let scenario = Scenario::new(LIBRARY, format!("{SEND}:receivers_{count}")).party(sender);
    receivers.into_iter().fold(scenario, Scenario::party)
}
