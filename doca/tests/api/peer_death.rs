//! A peer process that is killed during communication.

use std::env;
use std::process::{Child, Command, Stdio};

use crate::support::{TIMEOUT, devices, isolated, memory, names, wait_on};
use doca::{
    Access, ComchClient, ComchEvent, ComchServer, Connection, Consumer, CtxState, Device,
    ErrorCode, Event, Pe, Producer, Rdma, RdmaConnection,
};

const PEER: &str = "DOCA_TEST_PEER";
const NAME: &str = "mortal";

/// Kills the peer when dropped.
struct Peer(Child);

impl Peer {
    fn spawn(test: &str) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(names(test))
            .args(["--exact", "--nocapture"])
            .env(PEER, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rdma(pe: &Pe, device: &Device) -> (Rdma, Vec<u8>, RdmaConnection) {
    let rdma = Rdma::builder(device)
        .permissions(Access::RDMA_READ | Access::RDMA_WRITE)
        .receive_tasks(1)
        .send_tasks(1)
        .start(pe)
        .unwrap();
    let (description, connection) = rdma.export().unwrap();
    (rdma, description, connection)
}

/// The peer: connects, offers a consumer with one buffer, connects RDMA, and runs until it is killed.
fn live() -> ! {
    let device = devices().host;
    let pe = Pe::new().unwrap();
    let client = ComchClient::start(&pe, &device, NAME).unwrap();
    let connection = wait_on("the connection", &[&pe], |_, event| match event {
        Event::Comch(ComchEvent::Connected(connection)) => Some(connection.clone()),
        _ => None,
    });
    let (mmap, inventory) = memory(&device, 4096, Access::PCI_READ_WRITE);
    let consumer = Consumer::start(&pe, &connection, &mmap, 1).unwrap();
    assert!(pe.progress_until(TIMEOUT, || consumer.state() == CtxState::Running));
    let buf = inventory.buf(&mmap, 0, 64).unwrap();
    let receive = consumer.post_recv_task(&buf, 1).unwrap();
    receive.submit().unwrap();

    let (rdma, description, end) = rdma(&pe, &device);
    client.send(&description).unwrap();
    let theirs = wait_on("the peer's description", &[&pe], |_, event| match event {
        Event::Comch(ComchEvent::Message { bytes, .. }) => Some(bytes.clone()),
        _ => None,
    });
    rdma.connect(&end, &theirs).unwrap();
    client.send(b"connected").unwrap();
    loop {
        pe.poll();
    }
}

fn next_message(pe: &Pe, id: &mut Option<u32>) -> (Connection, Vec<u8>) {
    wait_on("a message", &[pe], |_, event| match event {
        Event::Comch(ComchEvent::Message { connection, bytes }) => {
            Some((connection.clone(), bytes.clone()))
        }
        Event::Comch(ComchEvent::ConsumerAdded { id: added, .. }) => {
            *id = Some(*added);
            None
        }
        _ => None,
    })
}

#[test]
fn a_peer_that_is_killed_is_noticed_everywhere() {
    const TEST: &str = "a_peer_that_is_killed_is_noticed_everywhere";
    if env::var_os(PEER).is_some() {
        live();
    }
    isolated(TEST, || {
        let devices = devices();
        let pe = Pe::new().unwrap();
        let server = ComchServer::start(&pe, &devices.dpu, &devices.representor, NAME).unwrap();
        let mut peer = Peer::spawn(TEST);

        let mut consumer_id = None;
        let (connection, theirs) = next_message(&pe, &mut consumer_id);
        let (rdma, description, end) = rdma(&pe, &devices.dpu);
        rdma.connect(&end, &theirs).unwrap();
        server.send(&connection, &description).unwrap();
        assert_eq!(next_message(&pe, &mut consumer_id).1, b"connected");

        let (mmap, inventory) = memory(&devices.dpu, 4096, Access::PCI_READ_WRITE);
        let consumer = Consumer::start(&pe, &connection, &mmap, 1).unwrap();
        assert!(pe.progress_until(TIMEOUT, || consumer.state() == CtxState::Running));
        let producer = Producer::start(&pe, &connection, 1).unwrap();
        let bufs: Vec<_> = (0..3)
            .map(|i| inventory.buf(&mmap, i * 64, 64).unwrap())
            .collect();
        let receive = consumer.post_recv_task(&bufs[0], 10).unwrap();
        receive.submit().unwrap();
        bufs[1].write_data(b"for nobody").unwrap();
        // The peer has posted no RDMA receive, so this one waits.
        let send = rdma.send_task(&end, &bufs[1], 11).unwrap();
        send.submit().unwrap();
        assert!(
            !pe.progress_until(std::time::Duration::from_millis(50), || !receive
                .is_in_flight())
        );

        peer.kill();
        let (mut disconnected, mut expired, mut failed) = (false, false, Vec::new());
        wait_on("the end of everything", &[&pe], |_, event| {
            match event {
                Event::Comch(ComchEvent::Disconnected(gone)) => {
                    assert_eq!(gone, &connection);
                    disconnected = true;
                }
                Event::Comch(ComchEvent::ConsumerExpired { id, .. }) => {
                    assert_eq!(Some(*id), consumer_id);
                    expired = true;
                }
                Event::Task(completion) => {
                    assert!(completion.result.is_err(), "{completion:?}");
                    failed.push(completion.token);
                }
                _ => {}
            }
            (disconnected && failed.len() == 2).then_some(())
        });
        failed.sort_unstable();
        assert_eq!(failed, [10, 11]);
        assert!(
            expired,
            "the peer's consumer expires before its connection ends"
        );
        assert!(!connection.is_connected());
        let error = Consumer::start(&pe, &connection, &mmap, 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::NOT_CONNECTED);
        let again = receive.submit().unwrap_err();
        assert_ne!(again, ErrorCode::IN_USE, "its completion was taken");

        // Everything can be dropped, and the server continues.
        drop((receive, send));
        consumer.stop().unwrap();
        producer.stop().unwrap();
        rdma.stop().unwrap();
        assert_eq!(server.state(), CtxState::Running);
        let client_pe = Pe::new().unwrap();
        let client = ComchClient::start(&client_pe, &devices.host, NAME).unwrap();
        wait_on("a new client", &[&pe, &client_pe], |index, event| {
            matches!(event, Event::Comch(ComchEvent::Connected(_)) if index == 0).then_some(())
        });
        client.stop().unwrap();
        server.stop().unwrap();
    });
}
