//! Properties of an instance: set before the start, asked for at any time.

use doca_abi::{doca_mtu_size, doca_rdma, doca_rdma_transport_type};

use super::super::{doca_error_t, guard, put};
use super::instance::with;
use crate::progress::Ctx;
use crate::rdma::{Fabric, Rdma};

/// Defines functions that set and get properties: `set, get => what it is: type; how it is set, how it is asked for`.
macro_rules! properties {
    ($($set:ident, $get:ident($rdma:ty) => $what:literal: $c:ty; $apply:expr, $ask:expr;)+) => { $(
        #[doc = concat!("Sets ", $what, "; before the start.")]
        ///
        /// # Safety
        /// `rdma` is NULL or a live instance, used by no other thread meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(rdma: *mut doca_rdma, value: $c) -> doca_error_t {
            // SAFETY: the caller's promise.
            guard(|| unsafe { with(rdma, |ctx, rdma| $apply(ctx, rdma, value)) })
        }

        #[doc = concat!("Tells ", $what, ".")]
        ///
        /// # Safety
        /// `rdma` is NULL or a live instance, used by no other thread meanwhile; `value` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(rdma: $rdma, value: *mut $c) -> doca_error_t {
            // SAFETY: the caller's promise.
            guard(|| unsafe { put(value, with(rdma, |_, rdma| Ok($ask(rdma)))?) })
        }
    )+ };
}

/// Lets an idle instance change what describes its network.
fn fabric<T>(
    set: impl Fn(&Fabric, T) -> crate::error::Result<()>,
) -> impl Fn(&Ctx, &Rdma, T) -> crate::error::Result<()> {
    move |ctx, rdma, value| {
        ctx.expect_idle("properties of an RDMA instance are set")?;
        set(rdma.fabric(), value)
    }
}

properties! {
    doca_rdma_set_permissions, doca_rdma_get_permissions(*mut doca_rdma)
        => "what peers may do": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_permissions(ctx, value), Rdma::permissions;
    doca_rdma_set_transport_type, doca_rdma_get_transport_type(*const doca_rdma)
        => "the transport, `DOCA_RDMA_TRANSPORT_TYPE_RC` or `DOCA_RDMA_TRANSPORT_TYPE_DC`": doca_rdma_transport_type;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_transport_type(ctx, value), Rdma::transport_type;
    doca_rdma_set_max_num_connections, doca_rdma_get_max_num_connections(*mut doca_rdma)
        => "how many connections the instance may have": u16;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_max_connections(ctx, value), Rdma::max_connections;
    doca_rdma_set_max_send_buf_list_len, doca_rdma_get_max_send_buf_list_len(*const doca_rdma)
        => "how many bufs the local list of a task may have": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_send_list_len(ctx, value), Rdma::send_list_len;
    doca_rdma_task_receive_set_dst_buf_list_len, doca_rdma_task_receive_get_dst_buf_list_len(*const doca_rdma)
        => "how many bufs the list of a receive may have": u32;
        |ctx: &Ctx, rdma: &Rdma, value| rdma.set_receive_list_len(ctx, value), Rdma::receive_list_len;
    doca_rdma_set_gid_index, doca_rdma_get_gid_index(*const doca_rdma)
        => "the index of the GID, which has no effect here": u32;
        fabric(Fabric::set_gid_index), |rdma: &Rdma| rdma.fabric().gid_index.get();
    doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size(*const doca_rdma)
        => "the size of the send queue, rounded up to a power of 2": u32;
        fabric(Fabric::set_send_queue_size), |rdma: &Rdma| rdma.fabric().send_queue_size.get();
    doca_rdma_set_recv_queue_size, doca_rdma_get_recv_queue_size(*const doca_rdma)
        => "the size of the receive queue, rounded up to a power of 2": u32;
        fabric(Fabric::set_recv_queue_size), |rdma: &Rdma| rdma.fabric().recv_queue_size.get();
    doca_rdma_set_mtu, doca_rdma_get_mtu(*const doca_rdma)
        => "the largest packet, which has no effect here": doca_mtu_size;
        fabric(Fabric::set_mtu), |rdma: &Rdma| rdma.fabric().mtu.get();
    doca_rdma_set_grh_enabled, doca_rdma_get_grh_enabled(*const doca_rdma)
        => "whether packets have a global routing header, as they must on Ethernet": u8;
        fabric(Fabric::set_grh_enabled), |rdma: &Rdma| rdma.fabric().grh_enabled.get();
    doca_rdma_set_sl, doca_rdma_get_sl(*const doca_rdma)
        => "the service level, which has no effect here": u32;
        fabric(Fabric::set_service_level), |rdma: &Rdma| rdma.fabric().service_level.get();
    doca_rdma_set_rnr_retry_count, doca_rdma_get_rnr_retry_count(*const doca_rdma)
        => "how often a message is sent again to a peer without receives; here that waits for ever": u8;
        fabric(Fabric::set_rnr_retry_count), |rdma: &Rdma| rdma.fabric().rnr_retry_count.get();
    doca_rdma_set_connection_request_timeout, doca_rdma_get_connection_request_timeout(*const doca_rdma)
        => "the time for finding the way to an address, in milliseconds; here that takes none": u16;
        fabric(Fabric::set_request_timeout), |rdma: &Rdma| rdma.fabric().request_timeout.get();
}
