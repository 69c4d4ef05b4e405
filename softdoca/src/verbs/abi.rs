//! Declarations of the used part of `infiniband/verbs.h` (rdma-core). Functions of the data path are not symbols of the
//! library: each device's provider exports them in a table in the context.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// Used fields of `struct ibv_context`.
#[repr(C)]
pub(super) struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

#[repr(C)]
pub(super) struct Device {
    _private: [u8; 0],
}

type Unused = Option<unsafe extern "C" fn()>;

/// Functions of a device's provider.
#[repr(C)]
pub(super) struct ContextOps {
    before_poll: [Unused; 11],
    pub poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    before_send: [Unused; 12],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub post_recv:
        unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    after: [Unused; 5],
}

#[repr(C)]
pub(super) struct ProtectionDomain {
    context: *mut Context,
    handle: u32,
}

#[repr(C)]
pub(super) struct MemoryRegion {
    context: *mut Context,
    pd: *mut ProtectionDomain,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub(super) struct CompletionChannel {
    context: *mut Context,
    pub fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_cq`; only its first field is used.
#[repr(C)]
pub(super) struct CompletionQueue {
    pub context: *mut Context,
}

/// `struct ibv_qp`; only fields up to its number are used.
#[repr(C)]
pub(super) struct Qp {
    pub context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut ProtectionDomain,
    send_cq: *mut CompletionQueue,
    recv_cq: *mut CompletionQueue,
    srq: *mut c_void,
    handle: u32,
    pub qp_num: u32,
}

/// A contiguous piece of registered memory.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `enum ibv_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Opcode {
    Write = 0,
    WriteImmediate = 1,
    Send = 2,
    SendImmediate = 3,
    Read = 4,
    CompareSwap = 5,
    FetchAdd = 6,
}

/// The union `wr` of a send request.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Remote {
    pub rdma: RemoteAddress,
    pub atomic: RemoteAtomic,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RemoteAddress {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RemoteAtomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
pub(super) struct SendRequest {
    pub wr_id: u64,
    pub next: *mut SendRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: Opcode,
    pub send_flags: c_uint,
    /// In network byte order.
    pub imm_data: u32,
    pub remote: Remote,
    /// For shared receive queues, memory windows and TSO.
    pub rest: [u64; 7],
}

pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_INLINE: c_uint = 1 << 3;

#[repr(C)]
pub(super) struct ReceiveRequest {
    pub wr_id: u64,
    pub next: *mut ReceiveRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct WorkCompletion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub(super) const WC_SUCCESS: u32 = 0;
pub(super) const WC_LOC_PROT_ERR: u32 = 4;
pub(super) const WC_REM_INV_REQ_ERR: u32 = 9;
pub(super) const WC_REM_ACCESS_ERR: u32 = 10;
pub(super) const WC_REM_OP_ERR: u32 = 11;
/// Opcode of the completion of a receive by a write with immediate.
pub(super) const WC_RECV_RDMA_WITH_IMM: u32 = (1 << 7) + 1;
pub(super) const WC_WITH_IMM: c_uint = 1 << 1;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}

/// `IBV_QPT_RC`.
pub(super) const RELIABLE_CONNECTION: u32 = 2;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct GlobalRoute {
    /// Aligned as `union ibv_gid`.
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AddressHandle {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AddressHandle,
    pub alt_ah_attr: AddressHandle,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `enum ibv_qp_state`.
pub(super) mod state {
    pub(crate) const INIT: u32 = 1;
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
}

/// `enum ibv_qp_attr_mask`.
pub(super) mod mask {
    use std::ffi::c_int;

    pub(crate) const STATE: c_int = 1 << 0;
    pub(crate) const ACCESS_FLAGS: c_int = 1 << 3;
    pub(crate) const PKEY_INDEX: c_int = 1 << 4;
    pub(crate) const PORT: c_int = 1 << 5;
    pub(crate) const AV: c_int = 1 << 7;
    pub(crate) const PATH_MTU: c_int = 1 << 8;
    pub(crate) const TIMEOUT: c_int = 1 << 9;
    pub(crate) const RETRY_CNT: c_int = 1 << 10;
    pub(crate) const RNR_RETRY: c_int = 1 << 11;
    pub(crate) const RQ_PSN: c_int = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(crate) const SQ_PSN: c_int = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(crate) const DEST_QPN: c_int = 1 << 20;
}

/// `enum ibv_access_flags`.
pub(super) mod access {
    use std::ffi::c_int;

    pub(crate) const LOCAL_WRITE: c_int = 1 << 0;
    pub(crate) const REMOTE_WRITE: c_int = 1 << 1;
    pub(crate) const REMOTE_READ: c_int = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: c_int = 1 << 3;
}

/// `struct ibv_device_attr`: the used fields, and space for the remaining ones.
#[repr(C)]
pub(super) struct DeviceAttr {
    before: [u64; 12],
    vendor: [u32; 3],
    max_qp: c_int,
    pub max_qp_wr: c_int,
    device_cap_flags: c_uint,
    pub max_sge: c_int,
    objects: [c_int; 5],
    pub max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    /// `enum ibv_atomic_cap`: 0 none.
    pub atomic_cap: u32,
    rest: [u64; 16],
}

#[repr(C)]
pub(super) struct PortAttr {
    /// `enum ibv_port_state`: 4 active.
    pub state: u32,
    max_mtu: u32,
    /// `enum ibv_mtu`.
    pub active_mtu: u32,
    pub gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub max_msg_sz: u32,
    counters: [u32; 2],
    pkey_tbl_len: u16,
    pub lid: u16,
    sm_lid: u16,
    lmc: u8,
    more: [u8; 7],
    /// 1 InfiniBand, 2 Ethernet.
    pub link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
    rest: [u64; 4],
}

pub(super) const PORT_ACTIVE: u32 = 4;
pub(super) const ETHERNET: u8 = 2;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of the library, which is never unloaded.
        pub(super) struct Verbs {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Verbs {
            fn load() -> Result<Verbs, libloading::Error> {
                // SAFETY: the initialisers of rdma-core's library only read its configuration.
                let library = unsafe { Library::new("libibverbs.so.1") }?;
                // SAFETY: these are the types of the functions of this soname, whose interface is stable.
                let verbs = unsafe {
                    Verbs { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* }
                };
                std::mem::forget(library);
                Ok(verbs)
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list: fn(*mut *mut Device) -> ();
    ibv_get_device_name: fn(*mut Device) -> *const c_char;
    ibv_open_device: fn(*mut Device) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    ibv_query_gid: fn(*mut Context, u8, c_int, *mut [u64; 2]) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> *mut ProtectionDomain;
    ibv_reg_mr: fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    ibv_reg_mr_iova: fn(*mut ProtectionDomain, *mut c_void, usize, u64, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
    ibv_create_comp_channel: fn(*mut Context) -> *mut CompletionChannel;
    ibv_destroy_comp_channel: fn(*mut CompletionChannel) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
    ibv_destroy_cq: fn(*mut CompletionQueue) -> c_int;
    ibv_get_cq_event: fn(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut CompletionQueue, c_uint) -> ();
    ibv_create_qp: fn(*mut ProtectionDomain, *mut QpInitAttr) -> *mut Qp;
    ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut Qp) -> c_int;
}

impl Verbs {
    /// Loads the library, once.
    ///
    /// # Errors
    /// The dynamic linker's error message.
    pub(super) fn get() -> Result<&'static Verbs, String> {
        static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
        VERBS
            .get_or_init(|| Verbs::load().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::mem::offset_of;
    use std::process::Command;

    use super::*;

    /// Names of C expressions (sizes and offsets), and their values here.
    fn layout() -> Vec<(String, usize)> {
        let mut lines = Vec::new();
        macro_rules! size {
            ($($c:literal $rust:ty),*) => { $(lines.push((format!("sizeof({})", $c), size_of::<$rust>()));)* };
        }
        macro_rules! at {
            ($c:literal $rust:ty: $($field:literal $($name:ident).+),*) => {
                $(lines.push((format!("offsetof({}, {})", $c, $field), offset_of!($rust, $($name).+)));)*
            };
        }
        size!["struct ibv_sge" Sge, "struct ibv_send_wr" SendRequest, "struct ibv_recv_wr" ReceiveRequest,
            "struct ibv_wc" WorkCompletion, "struct ibv_qp_cap" QpCap, "struct ibv_qp_init_attr" QpInitAttr,
            "struct ibv_global_route" GlobalRoute, "struct ibv_ah_attr" AddressHandle, "struct ibv_qp_attr" QpAttr,
            "struct ibv_context_ops" ContextOps, "struct ibv_mr" MemoryRegion, "struct ibv_pd" ProtectionDomain,
            "struct ibv_comp_channel" CompletionChannel];
        at!["struct ibv_context" Context: "device" device, "ops" ops, "cmd_fd" cmd_fd, "async_fd" async_fd];
        at!["struct ibv_context_ops" ContextOps: "poll_cq" poll_cq, "req_notify_cq" req_notify_cq,
            "post_send" post_send, "post_recv" post_recv];
        at!["struct ibv_mr" MemoryRegion: "lkey" lkey, "rkey" rkey];
        at!["struct ibv_comp_channel" CompletionChannel: "fd" fd];
        at!["struct ibv_qp" Qp: "context" context, "qp_num" qp_num];
        at!["struct ibv_cq" CompletionQueue: "context" context];
        at!["struct ibv_sge" Sge: "addr" addr, "length" length, "lkey" lkey];
        at!["struct ibv_send_wr" SendRequest: "wr_id" wr_id, "next" next, "sg_list" sg_list, "num_sge" num_sge,
            "opcode" opcode, "send_flags" send_flags, "imm_data" imm_data, "wr" remote, "qp_type" rest];
        at!["struct ibv_recv_wr" ReceiveRequest: "wr_id" wr_id, "next" next, "sg_list" sg_list, "num_sge" num_sge];
        at!["struct ibv_wc" WorkCompletion: "wr_id" wr_id, "status" status, "opcode" opcode, "byte_len" byte_len,
            "imm_data" imm_data, "wc_flags" wc_flags, "slid" slid];
        at!["struct ibv_qp_init_attr" QpInitAttr: "send_cq" send_cq, "recv_cq" recv_cq, "srq" srq, "cap" cap,
            "qp_type" qp_type, "sq_sig_all" sq_sig_all];
        at!["struct ibv_qp_attr" QpAttr: "qp_state" qp_state, "path_mtu" path_mtu, "rq_psn" rq_psn, "sq_psn" sq_psn,
            "dest_qp_num" dest_qp_num, "qp_access_flags" qp_access_flags, "cap" cap, "ah_attr" ah_attr,
            "ah_attr.grh.sgid_index" ah_attr.grh.sgid_index, "ah_attr.dlid" ah_attr.dlid,
            "ah_attr.is_global" ah_attr.is_global, "ah_attr.port_num" ah_attr.port_num, "pkey_index" pkey_index,
            "max_rd_atomic" max_rd_atomic, "min_rnr_timer" min_rnr_timer, "port_num" port_num, "timeout" timeout,
            "retry_cnt" retry_cnt, "rnr_retry" rnr_retry, "rate_limit" rate_limit];
        at!["struct ibv_device_attr" DeviceAttr: "max_qp_wr" max_qp_wr, "max_sge" max_sge,
            "max_qp_rd_atom" max_qp_rd_atom, "max_qp_init_rd_atom" max_qp_init_rd_atom, "atomic_cap" atomic_cap];
        at!["struct ibv_port_attr" PortAttr: "state" state, "active_mtu" active_mtu, "gid_tbl_len" gid_tbl_len,
            "max_msg_sz" max_msg_sz, "lid" lid, "link_layer" link_layer];
        lines.push((
            "offsetof(struct ibv_send_wr, wr.atomic.rkey)".to_owned(),
            offset_of!(SendRequest, remote) + offset_of!(RemoteAtomic, rkey),
        ));
        lines
    }

    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        let mut program = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
        for (expression, value) in layout() {
            let _ = writeln!(
                program,
                "_Static_assert({expression} == {value}, \"{expression} is not {value}\");"
            );
        }
        // Space for structures that the library fills.
        for (name, room) in [
            ("ibv_device_attr", size_of::<DeviceAttr>()),
            ("ibv_port_attr", size_of::<PortAttr>()),
        ] {
            let _ = writeln!(
                program,
                "_Static_assert(sizeof(struct {name}) <= {room}, \"{name}\");"
            );
        }
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("probe.c");
        std::fs::write(&source, "#include <infiniband/verbs.h>\n").expect("a file");
        let compile = || {
            Command::new("cc")
                .args(std::env::var_os("VERBS_INCLUDE").map(|path| {
                    let mut flag = std::ffi::OsString::from("-I");
                    flag.push(path);
                    flag
                }))
                .args(["-std=gnu11", "-fsyntax-only"])
                .arg(&source)
                .output()
        };
        if !compile().is_ok_and(|output| output.status.success()) {
            eprintln!("NOT RUN: layout of verbs: no cc with infiniband/verbs.h (libibverbs-dev)");
            return;
        }
        std::fs::write(&source, program).expect("a file");
        let output = compile().expect("cc again");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}
