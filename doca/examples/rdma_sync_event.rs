//! The client signals an event of the server, and waits until the server has signalled it.
//!
//! ```text
//! cargo run --example rdma_sync_event -- server 18515
//! cargo run --example rdma_sync_event -- client 127.0.0.1:18515
//! ```

mod rdma_common;

use doca::{Access, RemoteSyncEvent, SyncEvent};
use rdma_common::{Peer, Result, Role, number};

/// The client's gets, sets and adds are reads, writes and atomics on the server's instance.
const PERMISSIONS: Access = Access::RDMA_READ
    .union(Access::RDMA_WRITE)
    .union(Access::RDMA_ATOMIC);

fn main() -> Result<()> {
    let role = Role::from_arguments()?;
    let peer = Peer::connect(&role, |builder| {
        builder
            .permissions(PERMISSIONS)
            .event_get_tasks(1)
            .event_set_tasks(1)
            .event_add_tasks(1)
    })?;
    match role {
        Role::Server(_) => server(&peer),
        Role::Client(_) => client(&peer),
    }
}

fn server(peer: &Peer) -> Result<()> {
    let event = SyncEvent::builder(&peer.device)
        .network_publisher()
        .start()?;
    peer.send(&event.export_to_network()?)?;
    // The client needs no progress here.
    event.wait_greater_than(0, u64::MAX)?;
    println!("the client has set the event to {}", event.get()?);
    event.set(200)?;
    event.wait_equal(205, u64::MAX)?;
    println!("the client has added to it");
    peer.rdma.disconnect(&peer.connection)?;
    Ok(())
}

fn client(peer: &Peer) -> Result<()> {
    let event = RemoteSyncEvent::import(&peer.device, &peer.receive()?)?;
    let (local, bufs) = peer.memory(4096, Access::LOCAL_READ_WRITE)?;

    let value = bufs.buf(&local, 0, 8)?;
    value.write_data(&100_u64.to_ne_bytes())?;
    let set = peer
        .rdma
        .event_set_task(&peer.connection, &event, &value, 1)?;
    peer.run(&set)?;

    let seen = bufs.buf(&local, 8, 8)?;
    let get = peer
        .rdma
        .event_get_task(&peer.connection, &event, &seen, 2)?;
    loop {
        seen.reset_data()?;
        peer.run(&get)?;
        if number(&local, 8)? == 200 {
            break;
        }
    }
    println!("the server has set the event to 200");

    let old = bufs.buf(&local, 16, 8)?;
    let add = peer
        .rdma
        .event_add_task(&peer.connection, &event, &old, 5, 3)?;
    peer.run(&add)?;
    println!("it was {}", number(&local, 16)?);
    peer.wait_for_disconnect()
}
