//! Measures a target's writes of whole blocks, as they are or as versions. The target must have been started on this machine.
//!
//! ```text
//! writes PORT plain|versions SECONDS IN_FLIGHT
//! ```

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaConnection, Task,
};
use wire::control::{
    AnnouncedStorage, FEATURE_FLUSH, FEATURE_VERSIONS, FeatureQuery, FrameDecoder, InitStorage,
    Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr, Version};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ACCESS: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);

struct Control {
    stream: TcpStream,
    decoder: FrameDecoder,
    next_id: u32,
}

impl Control {
    fn request(&mut self, payload: Payload) -> Result<Payload> {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 0,
            payload,
        };
        self.stream.write_all(&request.encode_to_vec())?;
        loop {
            if let Some(message) = self.decoder.next()? {
                return match message.payload {
                    Payload::ErrorResponse(error) => Err(error.message.into()),
                    payload => Ok(payload),
                };
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes)?;
            if count == 0 {
                return Err("the target has closed the connection".into());
            }
            self.decoder.push(&bytes[..count]);
        }
    }
}

struct Transaction {
    send: Task,
    receive: Task,
    request: Buf,
    result: Buf,
    /// Number of the write in flight; 0 for a flush.
    number: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, kind, seconds, in_flight] = &arguments[..] else {
        return Err("usage: writes PORT plain|versions SECONDS IN_FLIGHT".into());
    };
    let (has_versions, count) = (kind == "versions", in_flight.parse::<usize>()?);
    let mut control = Control {
        stream: TcpStream::connect(("127.0.0.1", port.parse()?))?,
        decoder: FrameDecoder::new(),
        next_id: 0,
    };
    let features = FEATURE_FLUSH | if has_versions { FEATURE_VERSIONS } else { 0 };
    let query = Payload::AnnounceStorageRequest(FeatureQuery { features });
    let Payload::AnnouncedStorageResponse(announced) = control.request(query)? else {
        return Err("expected an announcement".into());
    };
    let AnnouncedStorage {
        total_size,
        block_size,
        version_slots,
        last_epoch,
        ..
    } = announced;
    if has_versions && (version_slots as usize) < 2 * count {
        return Err(format!("too few slots for {count} writes in flight: {version_slots}").into());
    }

    let device = Device::open("03:00.0")?;
    let blocks = MemoryRegion::new(count * block_size as usize)?;
    let map = Mmap::register(&device, blocks, ACCESS)?;
    let init = Payload::InitStorageRequest(InitStorage {
        transaction_count: count as u32,
        core_count: 1,
        mmap_export_blob: Bytes::from(map.export_rdma(&device)?),
    });
    control.request(init)?;
    let pe = Pe::new()?;
    let mut endpoint = |role, tasks| -> Result<(Rdma, RdmaConnection)> {
        let rdma = Rdma::builder(&device)
            .permissions(ACCESS)
            .receive_tasks(tasks)
            .send_tasks(tasks)
            .start(&pe)?;
        let (export, connection) = rdma.export()?;
        let details = Payload::CreateRdmaConnectionRequest(RdmaConnectionDetails {
            context_index: 0,
            role,
            connection_details: export.into(),
        });
        let Payload::CreateRdmaConnectionResponse(far) = control.request(details)? else {
            return Err("expected a connection".into());
        };
        rdma.connect(&connection, &far.connection_details)?;
        Ok((rdma, connection))
    };
    let _data = endpoint(RdmaConnectionRole::IoData, 0)?;
    let (rdma, connection) = endpoint(RdmaConnectionRole::IoControl, count as u32)?;
    control.request(Payload::StartStorageRequest)?;

    let messages = MemoryRegion::new(io_message::SIZE * 2 * count)?;
    let messages = Mmap::register(&device, messages, Access::LOCAL_READ_WRITE)?;
    let inventory = BufInventory::new(2 * count)?;
    let mut transactions = Vec::new();
    for at in 0..count {
        let place = |at| inventory.buf(&messages, (at * io_message::SIZE) as u64, io_message::SIZE);
        let (request, result) = (place(2 * at)?, place(2 * at + 1)?);
        transactions.push(Transaction {
            send: rdma.send_task(&connection, &request, 2 * at as u64)?,
            receive: rdma.receive_task(&result, 2 * at as u64 + 1)?,
            request,
            result,
            number: u64::MAX,
        });
    }

    let epoch = last_epoch + 1;
    let block_count = total_size / u64::from(block_size);
    let (mut number, mut seed) = (0_u64, 1_u64);
    let start_write = |transactions: &mut [Transaction], at: usize, number: u64, block: u64| {
        let retired = transactions.iter().map(|it| it.number).min();
        let it = &mut transactions[at];
        it.number = number;
        let message_type = match has_versions {
            true => IoMessageType::WriteVersion,
            false => IoMessageType::Write,
        };
        let mut bytes = Repr {
            message_type,
            user_data: at as u64,
            result: 0,
            size: block_size,
            requester_offset: at as u64 * u64::from(block_size),
            storage_offset: block * u64::from(block_size),
        }
        .to_bytes();
        if has_versions {
            let retired = retired.unwrap_or(number).min(number);
            let version = Version {
                epoch,
                number,
                retired,
            };
            version.write(&mut bytes);
        }
        it.result.reset_data()?;
        it.receive.submit()?;
        it.request.write_data(&bytes)?;
        it.send.submit()?;
        Ok::<(), Box<dyn Error>>(())
    };
    // Blocks of different transactions are different ones.
    let mut next_block = |at: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let share = (block_count / count as u64).max(1);
        (seed % share) * count as u64 + at as u64
    };
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds.parse()?);
    for at in 0..count {
        number += 1;
        let block = next_block(at) % block_count;
        start_write(&mut transactions, at, number, block)?;
    }
    let (mut completed, mut in_flight, mut pending) = (0_u64, count, vec![2; count]);
    while in_flight != 0 {
        let Some(Event::Task(Completion { token, result })) = pe.poll() else {
            continue;
        };
        result.map_err(|code| format!("{code:?}"))?;
        let at = token as usize / 2;
        pending[at] -= 1;
        if pending[at] != 0 {
            continue;
        }
        let mut bytes = [0; io_message::SIZE];
        transactions[at].result.read_data(&mut bytes)?;
        let result = IoMessage::new_unchecked_len(&bytes).result();
        if result != 0 {
            return Err(format!("write {}: error {result}", transactions[at].number).into());
        }
        completed += 1;
        if Instant::now() >= until {
            transactions[at].number = u64::MAX;
            in_flight -= 1;
            continue;
        }
        pending[at] = 2;
        number += 1;
        let block = next_block(at) % block_count;
        start_write(&mut transactions, at, number, block)?;
    }
    let rate = completed as f64 / began.elapsed().as_secs_f64();
    println!("{kind}: {rate:.0} writes of {block_size} bytes per second, {count} in flight");
    control.request(Payload::StopStorageRequest)?;
    drop(transactions);
    control.request(Payload::ShutdownRequest)?;
    Ok(())
}
