//! RDMA messages, without and with an immediate value.
//!
//! ```text
//! cargo run --example rdma_send_receive -- server 18515
//! cargo run --example rdma_send_receive -- client 127.0.0.1:18515
//! ```

mod rdma_common;

use doca::Received;
use rdma_common::{Peer, Result, Role, content};

fn main() -> Result<()> {
    let role = Role::from_arguments()?;
    let peer = Peer::connect(&role, |builder| builder.send_immediate_tasks(1))?;
    match role {
        Role::Server(_) => server(&peer),
        Role::Client(_) => client(&peer),
    }
}

fn client(peer: &Peer) -> Result<()> {
    peer.send(b"a message")?;
    // A value that is received in addition to the data.
    let buf = peer.message(b"another one")?;
    let send = peer
        .rdma
        .send_immediate_task(&peer.connection, Some(&buf), 0x0D0C_A000, 1)?;
    peer.run(&send)?;
    println!("sent two messages");
    let answer = peer.receive()?;
    println!("the server says {:?}", String::from_utf8_lossy(&answer));
    peer.rdma.disconnect(&peer.connection)?;
    Ok(())
}

fn server(peer: &Peer) -> Result<()> {
    for _ in 0..2 {
        let buf = peer.receive_buf()?;
        let receive = peer.rdma.receive_any_task(Some(&buf), 1)?;
        peer.run(&receive)?;
        let bytes = content(&buf)?;
        let text = String::from_utf8_lossy(&bytes);
        match receive.received() {
            Some(Received::Message {
                immediate: Some(value),
                ..
            }) => println!("received {text:?} with {value:#x}"),
            _ => println!("received {text:?}"),
        }
    }
    peer.send(b"thank you")?;
    peer.wait_for_disconnect()?;
    println!("the client has gone");
    Ok(())
}
