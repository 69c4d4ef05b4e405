//! A reliable connection: a queue pair, its completion queue, and the descriptor that signals completions.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::abi::{
    AddressHandle, CompletionChannel, CompletionQueue, ETHERNET, GlobalRoute, Opcode, Qp, QpAttr,
    QpCap, QpInitAttr, RELIABLE_CONNECTION, ReceiveRequest, Remote, RemoteAddress, RemoteAtomic,
    SEND_INLINE, SEND_SIGNALED, SendRequest, Sge, WC_LOC_PROT_ERR, WC_RECV_RDMA_WITH_IMM,
    WC_REM_ACCESS_ERR, WC_REM_INV_REQ_ERR, WC_REM_OP_ERR, WC_SUCCESS, WC_WITH_IMM, WorkCompletion,
    access, mask, state,
};
use super::{Buffers, Nic};
use crate::error::{Error, Result};

/// Maximum number of local segments of a request.
pub(crate) const MOST_PIECES: usize = 16;
/// Number of completions polled at a time.
const BATCH: usize = 16;
/// Size in bytes of the largest message sent inline, without a registered buffer: 64 bytes and a header.
pub(crate) const MOST_INLINE: usize = 80;

/// Local acknowledgement timeout, 4.096 us * 2^18 = 1.07 s, and the number of retries, as in UCX. They apply to lost
/// packets, most of which are reported by receivers; an exited peer is detected by heartbeats.
const TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// Unlimited retries: messages are sent only with credits, but the peer may be slow to repost the buffers.
const NOT_READY_RETRIES: u8 = 7;
/// Code of the receiver-not-ready timer: senders retry after 0.64 ms.
const NOT_READY_TIMER: u8 = 12;

/// Address and parameters of a queue pair for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) gid: [u8; 16],
    pub(crate) qpn: u32,
    /// Number of the first packet that this side sends.
    pub(crate) psn: u32,
    pub(crate) lid: u16,
    pub(crate) link_layer: u8,
    /// `enum ibv_mtu`.
    pub(crate) mtu: u8,
    /// Maximum number of reads and atomics served at a time.
    pub(crate) reads: u8,
}

impl Endpoint {
    pub(crate) const SIZE: usize = 32;

    /// Integers are little endian.
    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..20].copy_from_slice(&self.qpn.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.psn.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.lid.to_le_bytes());
        bytes[26..29].copy_from_slice(&[self.link_layer, self.mtu, self.reads]);
        bytes
    }

    /// Reads the endpoint of a peer.
    ///
    /// # Errors
    /// [`Error::InvalidValue`].
    pub(crate) fn decode(bytes: &[u8; Self::SIZE]) -> Result<Endpoint> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        let endpoint = Endpoint {
            gid,
            qpn: word(16),
            psn: word(20),
            lid: u16::from_le_bytes([bytes[24], bytes[25]]),
            link_layer: bytes[26],
            mtu: bytes[27],
            reads: bytes[28],
        };
        if endpoint.qpn > 0xff_ffff
            || endpoint.psn > 0xff_ffff
            || !(1..=5).contains(&endpoint.mtu)
            || endpoint.reads == 0
            || bytes[29..] != [0; 3]
        {
            return Err(Error::InvalidValue);
        }
        Ok(endpoint)
    }
}

/// A request to a queue pair.
pub(crate) struct WorkRequest<'a> {
    /// Returned with its completion.
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) pieces: &'a [Sge],
    /// `true` if the call copies the pieces, which then need not be registered.
    pub(crate) inline: bool,
    /// In network byte order.
    pub(crate) immediate: u32,
    /// Address and key of remote memory.
    pub(crate) remote: (u64, u32),
    /// Operands of an atomic: the value to add or to compare with, and the value to swap in.
    pub(crate) operands: [u64; 2],
}

impl<'a> WorkRequest<'a> {
    pub(crate) fn new(id: u64, opcode: Opcode, pieces: &'a [Sge]) -> Self {
        Self {
            id,
            opcode,
            pieces,
            inline: false,
            immediate: 0,
            remote: (0, 0),
            operands: [0; 2],
        }
    }
}

/// A message received in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes in the buffer; for a write with immediate, the bytes written elsewhere.
    pub(crate) len: u32,
    /// The bytes are those that were sent.
    pub(crate) immediate: Option<u32>,
    pub(crate) by_write: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    /// Valid for receives.
    pub(crate) result: Result<Received>,
}

/// One end of a reliable connection.
pub(crate) struct QueuePair {
    nic: &'static Nic,
    qp: NonNull<Qp>,
    cq: NonNull<CompletionQueue>,
    channel: NonNull<CompletionChannel>,
    psn: u32,
}

// SAFETY: libibverbs is thread-safe, and this owns its objects.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Creates a queue pair for at most `sends` and `receives` outstanding requests.
    ///
    /// # Errors
    /// [`Error::Driver`] if the device's resources are exhausted.
    pub(crate) fn new(nic: &'static Nic, sends: u32, receives: u32) -> Result<QueuePair> {
        let (verbs, context) = (nic.verbs, nic.context.as_ptr());
        let failed = || {
            let error = std::io::Error::last_os_error();
            Error::Driver.because(format_args!(
                "the RDMA device {} has no queue pair for {sends} sends and {receives} receives: {error}",
                nic.name()
            ))
        };
        let psn = random_psn()?;
        // SAFETY: the context is open.
        let channel =
            NonNull::new(unsafe { (verbs.ibv_create_comp_channel)(context) }).ok_or_else(failed)?;
        let entries = (sends + receives) as i32;
        // SAFETY: as above, and the channel is of this context.
        let cq = NonNull::new(unsafe {
            (verbs.ibv_create_cq)(context, entries, std::ptr::null_mut(), channel.as_ptr(), 0)
        });
        let Some(cq) = cq else {
            let error = failed();
            // SAFETY: no queue uses the channel.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let mut attributes = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: std::ptr::null_mut(),
            cap: QpCap {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: nic.most_pieces() as u32,
                max_recv_sge: 1,
                max_inline_data: MOST_INLINE as u32,
            },
            qp_type: RELIABLE_CONNECTION,
            sq_sig_all: 0,
        };
        // SAFETY: the protection domain and the queues are of this context.
        let qp = NonNull::new(unsafe { (verbs.ibv_create_qp)(nic.pd.as_ptr(), &mut attributes) });
        let Some(qp) = qp else {
            let error = failed();
            // SAFETY: no queue pair uses them.
            unsafe {
                (verbs.ibv_destroy_cq)(cq.as_ptr());
                (verbs.ibv_destroy_comp_channel)(channel.as_ptr());
            }
            return Err(error);
        };
        let end = QueuePair {
            nic,
            qp,
            cq,
            channel,
            psn,
        };
        let flags = rustix::fs::fcntl_getfl(end.events())?;
        rustix::fs::fcntl_setfl(end.events(), flags | rustix::fs::OFlags::NONBLOCK)?;
        end.modify(
            QpAttr {
                qp_state: state::INIT,
                port_num: nic.port,
                qp_access_flags: (access::LOCAL_WRITE
                    | access::REMOTE_READ
                    | access::REMOTE_WRITE
                    | if nic.has_atomics() {
                        access::REMOTE_ATOMIC
                    } else {
                        0
                    }) as u32,
                ..QpAttr::default()
            },
            mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS,
        )?;
        Ok(end)
    }

    pub(crate) fn nic(&self) -> &'static Nic {
        self.nic
    }

    /// The endpoint to which the peer connects.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            gid: self.nic.gid,
            // SAFETY: valid until it is dropped.
            qpn: unsafe { self.qp.as_ref() }.qp_num,
            psn: self.psn,
            lid: self.nic.lid,
            link_layer: self.nic.link_layer,
            mtu: self.nic.mtu,
            reads: self.nic.most_reads,
        }
    }

    /// Connects to a peer's endpoint. Receives must have been posted.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a peer on another kind of network, [`Error::Driver`] if it is unreachable.
    pub(crate) fn connect(&self, peer: &Endpoint) -> Result<()> {
        if peer.link_layer != self.nic.link_layer {
            return Err(Error::NotSupported);
        }
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&peer.gid[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        // Only RoCE needs a global route; a subnet of InfiniBand is addressed by LID.
        let is_global = self.nic.link_layer == ETHERNET;
        let ready_to_receive = QpAttr {
            qp_state: state::RTR,
            path_mtu: u32::from(self.nic.mtu.min(peer.mtu)),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: self.nic.most_reads,
            min_rnr_timer: NOT_READY_TIMER,
            ah_attr: AddressHandle {
                grh: GlobalRoute {
                    dgid: [half(0), half(8)],
                    sgid_index: self.nic.gid_index,
                    hop_limit: 64,
                    ..GlobalRoute::default()
                },
                dlid: peer.lid,
                is_global: u8::from(is_global),
                port_num: self.nic.port,
                ..AddressHandle::default()
            },
            ..QpAttr::default()
        };
        self.modify(
            ready_to_receive,
            mask::STATE
                | mask::AV
                | mask::PATH_MTU
                | mask::DEST_QPN
                | mask::RQ_PSN
                | mask::MAX_DEST_RD_ATOMIC
                | mask::MIN_RNR_TIMER,
        )?;
        let ready_to_send = QpAttr {
            qp_state: state::RTS,
            sq_psn: self.psn,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: NOT_READY_RETRIES,
            max_rd_atomic: self.nic.most_reads.min(peer.reads),
            ..QpAttr::default()
        };
        self.modify(
            ready_to_send,
            mask::STATE
                | mask::SQ_PSN
                | mask::TIMEOUT
                | mask::RETRY_CNT
                | mask::RNR_RETRY
                | mask::MAX_QP_RD_ATOMIC,
        )
    }

    fn modify(&self, mut attributes: QpAttr, mask: i32) -> Result<()> {
        // SAFETY: a queue pair of this object; the structure is only read.
        match unsafe { (self.nic.verbs.ibv_modify_qp)(self.qp.as_ptr(), &mut attributes, mask) } {
            0 => Ok(()),
            code => {
                let error = std::io::Error::from_raw_os_error(code.abs());
                crate::log::warn!(
                    "a queue pair of the RDMA device {} cannot be moved to state {}: {error}",
                    self.nic.name(),
                    attributes.qp_state
                );
                Err(Error::Driver)
            }
        }
    }

    /// Posts a request. Every request has a completion.
    ///
    /// # Errors
    /// [`Error::Driver`] if the queue is full, which the caller counts, or broken.
    ///
    /// # Safety
    /// The pieces are registered memory that stays valid and unchanged (and is not accessed otherwise, for a read or
    /// atomic) until the request completes or this is dropped; or `inline` is set and the pieces are readable during
    /// the call.
    pub(crate) unsafe fn post(&self, request: &WorkRequest<'_>) -> Result<()> {
        let (remote_addr, rkey) = request.remote;
        let remote = match request.opcode {
            Opcode::CompareSwap | Opcode::FetchAdd => Remote {
                atomic: RemoteAtomic {
                    remote_addr,
                    compare_add: request.operands[0],
                    swap: request.operands[1],
                    rkey,
                },
            },
            _ => Remote {
                rdma: RemoteAddress { remote_addr, rkey },
            },
        };
        let mut request = SendRequest {
            wr_id: request.id,
            next: std::ptr::null_mut(),
            sg_list: request.pieces.as_ptr().cast_mut(),
            num_sge: request.pieces.len() as i32,
            opcode: request.opcode,
            send_flags: SEND_SIGNALED | if request.inline { SEND_INLINE } else { 0 },
            imm_data: request.immediate,
            remote,
            rest: [0; 7],
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: valid until it is dropped; the list of pieces is only read. The caller guarantees the memory.
        let failed = unsafe {
            let post_send = self
                .qp
                .as_ref()
                .context
                .as_ref()
                .map(|context| context.ops.post_send);
            post_send.map_or(-1, |post_send| {
                post_send(self.qp.as_ptr(), &mut request, &mut bad)
            })
        };
        if failed == 0 {
            Ok(())
        } else {
            Err(Error::Driver)
        }
    }

    /// Posts a buffer for a message. Its completion has `id`.
    ///
    /// # Errors
    /// As [`QueuePair::post`].
    ///
    /// # Safety
    /// The buffers outlive this object, and this one is not used otherwise until its completion.
    pub(crate) unsafe fn post_receive(
        &self,
        buffers: &Buffers,
        index: usize,
        id: u64,
    ) -> Result<()> {
        let mut piece = Sge {
            addr: buffers.at(index).addr() as u64,
            length: buffers.size() as u32,
            lkey: buffers.lkey(),
        };
        let mut request = ReceiveRequest {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: valid until it is dropped; the caller guarantees the buffer.
        let failed = unsafe {
            let post_recv = self
                .qp
                .as_ref()
                .context
                .as_ref()
                .map(|context| context.ops.post_recv);
            post_recv.map_or(-1, |post_recv| {
                post_recv(self.qp.as_ptr(), &mut request, &mut bad)
            })
        };
        if failed == 0 {
            Ok(())
        } else {
            Err(Error::Driver)
        }
    }

    /// Polls completions in order, until there are no more or `each` returns `false`.
    ///
    /// # Errors
    /// [`Error::Driver`] if the completion queue has failed.
    pub(crate) fn poll(&self, mut each: impl FnMut(Completion)) -> Result<usize> {
        let mut batch = [WorkCompletion::default(); BATCH];
        // SAFETY: valid until it is dropped, and the array has space for that many completions.
        let count = unsafe {
            let poll_cq = self
                .cq
                .as_ref()
                .context
                .as_ref()
                .map(|context| context.ops.poll_cq);
            poll_cq.map_or(-1, |poll_cq| {
                poll_cq(self.cq.as_ptr(), BATCH as i32, batch.as_mut_ptr())
            })
        };
        let count = usize::try_from(count).map_err(|_| Error::Driver)?;
        for completion in &batch[..count] {
            each(Completion {
                id: completion.wr_id,
                result: result(completion),
            });
        }
        Ok(count)
    }

    /// Becomes readable with the next completion after [`QueuePair::arm`].
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: open until this is dropped.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// Requests an event for the next completion. Completions before it must be polled afterwards.
    pub(crate) fn arm(&self) {
        // SAFETY: valid until it is dropped.
        unsafe {
            if let Some(context) = self.cq.as_ref().context.as_ref() {
                (context.ops.req_notify_cq)(self.cq.as_ptr(), 0);
            }
        }
    }

    /// Reads and acknowledges pending events, so that the descriptor is no longer readable.
    pub(crate) fn take_events(&self) {
        let verbs = self.nic.verbs;
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel and its only queue are valid until this is dropped; reading does not block.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) == 0 {
                (verbs.ibv_ack_cq_events)(self.cq.as_ptr(), 1);
            }
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // Events are acknowledged when they are read, so destroying the queue does not wait. SAFETY: created by `new`,
        // and each object is destroyed before those that it uses.
        unsafe {
            (self.nic.verbs.ibv_destroy_qp)(self.qp.as_ptr());
            (self.nic.verbs.ibv_destroy_cq)(self.cq.as_ptr());
            (self.nic.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

fn result(completion: &WorkCompletion) -> Result<Received> {
    match completion.status {
        WC_SUCCESS => Ok(Received {
            len: completion.byte_len,
            immediate: (completion.wc_flags & WC_WITH_IMM != 0).then_some(completion.imm_data),
            by_write: completion.opcode == WC_RECV_RDMA_WITH_IMM,
        }),
        // Ranges and permissions were checked before: the memory was withdrawn.
        WC_REM_ACCESS_ERR | WC_REM_INV_REQ_ERR | WC_REM_OP_ERR => Err(Error::NotFound),
        WC_LOC_PROT_ERR => Err(Error::InvalidValue),
        // The request was not acknowledged, or was flushed after a failed request.
        _ => Err(Error::ConnectionReset),
    }
}

/// Random initial packet sequence number, so that packets of earlier connections are not accepted.
fn random_psn() -> Result<u32> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::OperatingSystem.because(format_args!("no random numbers from the kernel: {error}"))
    })?;
    Ok(u32::from_le_bytes(bytes) & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn endpoints_round_trip_and_others_are_refused(bytes: [u8; Endpoint::SIZE]) {
            if let Ok(endpoint) = Endpoint::decode(&bytes) {
                prop_assert_eq!(endpoint.encode(), bytes);
                prop_assert!(endpoint.qpn <= 0xff_ffff && endpoint.reads > 0);
            }
            let mut valid = bytes;
            (valid[19], valid[23], valid[27], valid[28]) = (0, 0, 3, 1);
            valid[29..].fill(0);
            prop_assert!(Endpoint::decode(&valid).is_ok());
            for (at, value) in [(19, 1), (23, 1), (27, 0), (27, 6), (28, 0), (31, 1)] {
                let mut wrong = valid;
                wrong[at] = value;
                prop_assert_eq!(Endpoint::decode(&wrong), Err(Error::InvalidValue));
            }
        }
    }

    #[test]
    fn failed_requests_have_the_errors_of_tcp() {
        let of = |status| {
            let completion = WorkCompletion {
                status,
                ..WorkCompletion::default()
            };
            result(&completion).map(|_| ())
        };
        assert_eq!(of(0), Ok(()));
        assert_eq!(of(WC_REM_ACCESS_ERR), Err(Error::NotFound));
        for status in [5, 12, 13] {
            assert_eq!(of(status), Err(Error::ConnectionReset), "status {status}");
        }
    }
}
