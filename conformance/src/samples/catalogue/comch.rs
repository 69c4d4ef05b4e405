//! `doca_comch`: a text each way, over the control path and over the fast path. The same code for host and DPU:
//! only their flags differ.

use super::{DPU, HOST};
use crate::samples::scenario::{Event, Party, Scenario};

const LIBRARY: &str = "doca_comch";
/// Just below the 4080 bytes that the samples take.
const LONG: usize = 4000;

pub(super) fn scenarios() -> Vec<Scenario> {
    let samples = [
        ("comch_ctrl_path_server", "comch_ctrl_path_client"),
        (
            "comch_data_path_high_speed_server",
            "comch_data_path_high_speed_client",
        ),
    ];
    let texts = [
        (
            "short",
            "to the server".to_owned(),
            "to the client".to_owned(),
        ),
        ("long", "s".repeat(LONG), "c".repeat(LONG)),
    ];
    let mut scenarios = Vec::new();
    for (server, client) in samples {
        for (kind, to_server, to_client) in &texts {
            scenarios.push(
                Scenario::new(LIBRARY, format!("{client}:{kind}"))
                    .party(
                        Party::new("server", server)
                            .arguments(["-p", DPU, "-r", HOST, "-t", to_client])
                            .says(format!("Message received: '{to_server}'")),
                    )
                    .party(
                        Party::new("client", client)
                            .arguments(["-p", HOST, "-t", to_server])
                            .starts_when(Event::says("server", "Waiting for clients"))
                            .says(format!("Message received: '{to_client}'")),
                    ),
            );
        }
    }
    scenarios
}
