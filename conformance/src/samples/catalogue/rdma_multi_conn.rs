//! `doca_rdma`, several connections: of one context to one other, and of one to a process each.

use super::{DPU_RDMA, HOST_RDMA};
use crate::samples::scenario::{Event, Party, Reply, Scenario};

const LIBRARY: &str = "doca_rdma";
const SEND: &str = "rdma_multi_conn_send";
const RECEIVE: &str = "rdma_multi_conn_receive";
/// Up to the most that the samples take.
const COUNTS: [usize; 4] = [1, 2, 5, 8];
const RECEIVING: &str = "All RDMA receive tasks";

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for count in COUNTS {
        scenarios.push(by_descriptors(count));
        scenarios.push(to_one_receiver(count));
        scenarios.push(from_one_sender(count));
    }
    scenarios
}

/// All connections between two processes, one after the other; each has its own pair of files.
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
    let sender = sender.reply(Reply::to("press enter").when(Event::says("receiver", RECEIVING)));
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
                .reply(Reply::to("press enter").when(Event::says("receiver", RECEIVING)))
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
        ready = ready.when(Event::says(&name, RECEIVING));
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
