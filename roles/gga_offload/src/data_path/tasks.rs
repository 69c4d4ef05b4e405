//! Buffers and tasks of one worker, allocated before the first request.

use std::array;

use doca::{
    Buf, BufInventory, Compress, CompressTask, EcMatrix, ErasureCoding, ErrorCode, Lz4Checksums,
    Lz4Stream, Mmap, RdmaConnection, Task,
};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::stored_block::Geometry;
use wire::io_message;

use super::private_memory::PrivateMemory;
use super::token::{Kind, Token};
use crate::local_memory::Chunk;
use crate::target::{Target, Targets};

/// Message buffers of each transaction: the initiator's request and its answer, one request and one result per target.
const MESSAGES: usize = 2 + 3 + 3;
/// All bufs of each transaction, those of its fetches included.
const BUFS: usize = MESSAGES + 12;

/// Message buffers for this many transactions.
pub(super) fn messages(transactions: usize) -> usize {
    transactions * MESSAGES
}

/// Bufs for this many transactions.
pub(super) fn bufs(transactions: usize) -> usize {
    transactions * BUFS
}

/// A message buffer: its place in the worker's memory for messages, and the buf of that.
pub(super) struct Message {
    pub(super) place: usize,
    pub(super) buf: Buf,
}

/// The tasks of one transaction and what they work on.
pub(super) struct TransactionTasks {
    answer: Task,
    /// The answer to the initiator.
    pub(super) answer_message: Message,
    sends: [Task; 3],
    /// Requests to the targets.
    pub(super) requests: [Message; 3],
    create: Task,
    pub(super) parity: Buf,
    recovers: [Task; 2],
    /// Where recovered halves of data_1 and data_2 go: to the beginning of the private memory.
    pub(super) recovered: [Buf; 2],
    decompress: CompressTask<Lz4Checksums>,
    /// The LZ4 data blocks, in private memory.
    pub(super) compressed: Buf,
    /// The initiator's block.
    pub(super) decompressed: Buf,
    pub(super) chunk: Chunk,
}

/// A receive, of the initiator's request or of a target's result.
struct Lane {
    task: Task,
    message: Message,
}

/// The tasks of a worker, but for those that fetch content.
#[derive(Default)]
pub(super) struct Tasks {
    transactions: Vec<TransactionTasks>,
    /// Receives of the initiator's requests.
    requests: Vec<Lane>,
    /// Receives of the targets' results.
    results: [Vec<Lane>; 3],
}

/// What tasks are made with.
pub(super) struct Maker<'a> {
    pub(super) comch: &'a ComchEnds,
    /// The initiator's consumer that is answered to.
    pub(super) initiator_consumer: u32,
    pub(super) targets: &'a [Option<TargetEnds>; 3],
    pub(super) coding: &'a ErasureCoding,
    pub(super) encoding: EcMatrix,
    /// For a lost half of data_1, and of data_2.
    pub(super) recoveries: [EcMatrix; 2],
    pub(super) decompressor: &'a Compress,
    pub(super) inventory: &'a BufInventory,
    pub(super) messages: &'a Mmap,
    pub(super) local: &'a Mmap,
    pub(super) private: &'a PrivateMemory,
    /// Parity is made of the stored block in private memory, which a lost target that wakes up cannot write to.
    pub(super) private_parity: bool,
    pub(super) initiator: &'a Mmap,
    pub(super) geometry: Geometry,
    /// The chunk of the first transaction.
    pub(super) first_chunk: u64,
}

impl Tasks {
    pub(super) fn allocate(maker: &Maker<'_>, transactions: usize) -> Result<Self, Failure> {
        let mut places = 0..;
        let mut message = || -> doca::Result<Message> {
            let place = places.next().expect("the range has no end");
            let offset = Messages::offset(place) as u64;
            let buf = maker
                .inventory
                .buf(maker.messages, offset, io_message::SIZE)?;
            Ok(Message { place, buf })
        };
        let mut tasks = Self::default();
        for index in 0..transactions {
            tasks
                .transactions
                .push(maker.transaction(index, &mut message)?);
        }
        for index in 0..transactions {
            tasks.requests.push(maker.request(index, message()?)?);
        }
        for target in Target::ALL {
            for index in 0..transactions {
                tasks.results[target.number()].push(maker.result(index, target, message()?)?);
            }
        }
        Ok(tasks)
    }

    /// Makes the tasks for messages to and from a target anew, for new connections to it.
    pub(super) fn attach(&mut self, target: Target, ends: &TargetEnds) -> Result<(), Failure> {
        let number = target.number();
        let (rdma, connection) = (ends.control.rdma(), ends.control.connection()?);
        for (index, tasks) in self.transactions.iter_mut().enumerate() {
            let token = Token::new(index, Kind::Send(target)).0;
            tasks.sends[number] = rdma.send_task(connection, &tasks.requests[number].buf, token)?;
        }
        for (index, lane) in self.results[number].iter_mut().enumerate() {
            let token = Token::new(index, Kind::ReceiveResult(target)).0;
            lane.message.buf.reset_data()?;
            lane.task = rdma.receive_task(&lane.message.buf, token)?;
        }
        Ok(())
    }

    pub(super) fn of(&self, transaction: usize) -> &TransactionTasks {
        &self.transactions[transaction]
    }

    /// The buffer of a receive of a request.
    pub(super) fn request(&self, lane: usize) -> &Message {
        &self.requests[lane].message
    }

    /// The buffer of a receive of a result.
    pub(super) fn result(&self, target: Target, index: usize) -> &Message {
        &self.results[target.number()][index].message
    }

    /// The task of this name, unless it is one that fetches.
    pub(super) fn task(&self, index: usize, kind: Kind) -> Option<&Task> {
        let tasks = || &self.transactions[index];
        Some(match kind {
            Kind::ReceiveRequest => &self.requests[index].task,
            Kind::Answer => &tasks().answer,
            Kind::Send(target) => &tasks().sends[target.number()],
            Kind::ReceiveResult(target) => &self.results[target.number()][index].task,
            Kind::CreateParity => &tasks().create,
            Kind::Recover(target) => &tasks().recovers[target.number()],
            Kind::Decompress => &tasks().decompress,
            Kind::Fetch => return None,
        })
    }
}

impl Maker<'_> {
    fn transaction(
        &self,
        index: usize,
        message: &mut impl FnMut() -> doca::Result<Message>,
    ) -> Result<TransactionTasks, Failure> {
        let chunk = Chunk::of(self.geometry, self.first_chunk + index as u64);
        let half = self.geometry.half_block_size() as usize;
        let stored = self.geometry.stored_block_size as usize;
        let logical = self.geometry.logical_block_size as usize;
        let token = |kind| Token::new(index, kind).0;
        let local = |offset, length| self.inventory.buf_with_data(self.local, offset, length);
        let destination = |offset, length| self.inventory.buf(self.local, offset, length);

        let answer_message = message()?;
        let requests = [message()?, message()?, message()?];
        for sent in requests.iter().chain([&answer_message]) {
            // All that is ever sent from it.
            let offset = Messages::offset(sent.place) as u64;
            sent.buf.set_data(offset, io_message::SIZE)?;
        }
        let mut sends = Vec::with_capacity(requests.len());
        for (target, request) in Target::ALL.into_iter().zip(&requests) {
            let (ends, connection) = self.control(target)?;
            sends.push(ends.control.rdma().send_task(
                connection,
                &request.buf,
                token(Kind::Send(target)),
            )?);
        }
        let parity = destination(chunk.half(Target::DataP), half)?;
        let create = self.coding.create_task(
            &self.encoding,
            &if self.private_parity {
                self.private.source(self.inventory, index, stored)?
            } else {
                local(chunk.stored(), stored)?
            },
            &parity,
            token(Kind::CreateParity),
        )?;
        let recover = |lost: Target| -> doca::Result<(Task, Buf)> {
            // In the order of their numbers, as erasure coding wants them.
            let mut survivors = Targets::without(lost).iter();
            let mut survivor = || {
                let target = survivors.next().expect("two are left");
                local(chunk.half(target), half)
            };
            let available = survivor()?;
            available.append(&survivor()?)?;
            let recovered = self.private.destination(self.inventory, index, half)?;
            let matrix = &self.recoveries[lost.number()];
            let token = token(Kind::Recover(lost));
            let task = self
                .coding
                .recover_task(matrix, &available, &recovered, token)?;
            Ok((task, recovered))
        };
        let (recover_1, recovered_1) = recover(Target::Data1)?;
        let (recover_2, recovered_2) = recover(Target::Data2)?;
        let compressed = self.private.destination(self.inventory, index, stored)?;
        let decompressed = self.inventory.buf(self.initiator, 0, logical.min(1))?;
        let decompress = self.decompressor.decompress_lz4_stream_task(
            &compressed,
            &decompressed,
            Lz4Stream {
                block_checksums: false,
                independent_blocks: true,
            },
            token(Kind::Decompress),
        )?;
        let answer = self.comch.producer.send_task(
            &answer_message.buf,
            self.initiator_consumer,
            token(Kind::Answer),
        )?;
        let mut sends = sends.into_iter();
        Ok(TransactionTasks {
            answer,
            answer_message,
            sends: array::from_fn(|_| sends.next().expect("one per target")),
            requests,
            create,
            parity,
            recovers: [recover_1, recover_2],
            recovered: [recovered_1, recovered_2],
            decompress,
            compressed,
            decompressed,
            chunk,
        })
    }

    fn request(&self, index: usize, message: Message) -> Result<Lane, Failure> {
        let token = Token::new(index, Kind::ReceiveRequest).0;
        let task = self.comch.consumer.post_recv_task(&message.buf, token)?;
        Ok(Lane { task, message })
    }

    fn result(&self, index: usize, target: Target, message: Message) -> Result<Lane, Failure> {
        let (ends, _) = self.control(target)?;
        let token = Token::new(index, Kind::ReceiveResult(target)).0;
        let task = ends.control.rdma().receive_task(&message.buf, token)?;
        Ok(Lane { task, message })
    }

    fn control(&self, target: Target) -> Result<(&TargetEnds, &RdmaConnection), Failure> {
        let ends = self.targets[target.number()].as_ref();
        let ends = ends.ok_or_else(|| {
            Failure::unexpected(format!("storage target {} is lost", target.name()))
        })?;
        let connection = ends
            .control
            .connection()
            .map_err(|failure| failure.context(format_args!("storage target {}", target.name())))?;
        Ok((ends, connection))
    }
}

/// What a step of a transaction says when it cannot be begun: a reason to fail the transaction.
pub(super) fn refused(error: doca::Error) -> ErrorCode {
    error.code
}
