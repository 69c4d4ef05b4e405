//! Comch control messages between a host and its DPU.
//!
//! ```text
//! cargo run --example comch_control_path -- server ping
//! cargo run --example comch_control_path -- client ping
//! ```

mod comch_common;

use comch_common::{ClientSide, Result, Role, ServerSide, message, wait_for_disconnect};

fn main() -> Result<()> {
    match Role::from_arguments()? {
        Role::Server(name) => server(&ServerSide::start(&name)?),
        Role::Client(name) => client(ClientSide::connect(&name)?),
    }
}

fn server(side: &ServerSide) -> Result<()> {
    for _ in 0..3 {
        let text = message(&side.pe)?;
        println!("the client says {text:?}");
        side.server
            .send(&side.client, format!("{text} to you too").as_bytes())?;
    }
    wait_for_disconnect(&side.pe)?;
    println!("the client has gone");
    Ok(())
}

fn client(side: ClientSide) -> Result<()> {
    for greeting in ["hello", "good morning", "bye"] {
        side.client.send(greeting.as_bytes())?;
        println!("the server says {:?}", message(&side.pe)?);
    }
    side.client.stop()?;
    Ok(())
}
