/* Properties of an RDMA instance. */
#include "rdma.h"

TEST(devices_have_limits, doca_rdma_cap_get_gid, doca_rdma_cap_get_gid_table_size, doca_rdma_cap_get_max_message_size,
     doca_rdma_cap_get_max_recv_queue_size, doca_rdma_cap_get_max_send_buf_list_len, doca_rdma_cap_get_max_send_queue_size,
     doca_rdma_cap_transport_type_is_supported, doca_rdma_cap_task_receive_get_max_dst_buf_list_len)
{
	struct world world = world_create();
	static const struct doca_rdma_gid zero;
	struct doca_rdma_gid gid = zero;
	uint32_t value = 0;

#define AT_LEAST(least, call)                                                                                          \
	do {                                                                                                           \
		value = 0;                                                                                             \
		OK(call);                                                                                              \
		CHECK(value >= (least));                                                                               \
	} while (0)

	AT_LEAST(1, doca_rdma_cap_get_gid_table_size(world.info, &value));
	OK(doca_rdma_cap_get_gid(world.info, 0, 1, &gid));
	CHECK(memcmp(&gid, &zero, sizeof(gid)) != 0);
	AT_LEAST(1024 * 1024, doca_rdma_cap_get_max_message_size(world.info, &value));
	AT_LEAST(128, doca_rdma_cap_get_max_recv_queue_size(world.info, &value));
	AT_LEAST(128, doca_rdma_cap_get_max_send_queue_size(world.info, &value));
	AT_LEAST(1, doca_rdma_cap_get_max_send_buf_list_len(world.info, &value));
	AT_LEAST(1, doca_rdma_cap_task_receive_get_max_dst_buf_list_len(world.info, DOCA_RDMA_TRANSPORT_TYPE_RC, &value));
	OK(doca_rdma_cap_transport_type_is_supported(world.info, DOCA_RDMA_TRANSPORT_TYPE_RC));
	OK(doca_rdma_cap_transport_type_is_supported(world.info, DOCA_RDMA_TRANSPORT_TYPE_DC));
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_cap_transport_type_is_supported(world.info, (enum doca_rdma_transport_type)2));
	REFUSED(doca_rdma_cap_transport_type_is_supported(NULL, DOCA_RDMA_TRANSPORT_TYPE_RC));
	world_destroy(&world);
}

TEST(tasks_are_supported, doca_rdma_cap_task_receive_is_supported, doca_rdma_cap_task_send_is_supported,
     doca_rdma_cap_task_send_imm_is_supported, doca_rdma_cap_task_read_is_supported, doca_rdma_cap_task_write_is_supported,
     doca_rdma_cap_task_write_imm_is_supported, doca_rdma_cap_task_atomic_cmp_swp_is_supported,
     doca_rdma_cap_task_atomic_fetch_add_is_supported)
{
	struct world world = world_create();

#define SUPPORTED(task)                                                                                                \
	do {                                                                                                           \
		OK(doca_rdma_cap_task_##task##_is_supported(world.info));                                              \
		REFUSED(doca_rdma_cap_task_##task##_is_supported(NULL));                                               \
	} while (0)

	SUPPORTED(receive);
	SUPPORTED(send);
	SUPPORTED(send_imm);
	SUPPORTED(read);
	SUPPORTED(write);
	SUPPORTED(write_imm);
	SUPPORTED(atomic_cmp_swp);
	SUPPORTED(atomic_fetch_add);
	world_destroy(&world);
}

TEST(properties_are_kept, doca_rdma_set_gid_index, doca_rdma_get_gid_index, doca_rdma_set_grh_enabled,
     doca_rdma_get_grh_enabled, doca_rdma_set_max_send_buf_list_len, doca_rdma_get_max_send_buf_list_len, doca_rdma_set_mtu,
     doca_rdma_get_mtu, doca_rdma_set_recv_queue_size, doca_rdma_get_recv_queue_size, doca_rdma_set_rnr_retry_count,
     doca_rdma_get_rnr_retry_count, doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size, doca_rdma_set_sl,
     doca_rdma_get_sl, doca_rdma_set_transport_type, doca_rdma_get_transport_type, doca_rdma_set_max_num_connections,
     doca_rdma_get_max_num_connections, doca_rdma_set_connection_request_timeout,
     doca_rdma_get_connection_request_timeout, doca_rdma_task_receive_set_dst_buf_list_len,
     doca_rdma_task_receive_get_dst_buf_list_len)
{
	struct world world = world_create();
	struct doca_rdma *rdma = rdma_create(&world);
	uint8_t grh = 2;

	/* Each is set to two values, one of which is not the default. */
#define KEPT(type, set, get, first, second)                                                                            \
	do {                                                                                                           \
		type kept;                                                                                             \
		OK(set(rdma, first));                                                                                  \
		memset(&kept, 0xff, sizeof(kept));                                                                     \
		OK(get(rdma, &kept));                                                                                  \
		CHECK(kept == (first));                                                                                \
		OK(set(rdma, second));                                                                                 \
		memset(&kept, 0xff, sizeof(kept));                                                                     \
		OK(get(rdma, &kept));                                                                                  \
		CHECK(kept == (second));                                                                               \
	} while (0)

	KEPT(uint32_t, doca_rdma_set_gid_index, doca_rdma_get_gid_index, 0, 1);
	KEPT(uint32_t, doca_rdma_set_max_send_buf_list_len, doca_rdma_get_max_send_buf_list_len, 1, 2);
	KEPT(enum doca_mtu_size, doca_rdma_set_mtu, doca_rdma_get_mtu, DOCA_MTU_SIZE_1K_BYTES, DOCA_MTU_SIZE_4K_BYTES);
	KEPT(uint32_t, doca_rdma_set_recv_queue_size, doca_rdma_get_recv_queue_size, 64, 32);
	KEPT(uint8_t, doca_rdma_set_rnr_retry_count, doca_rdma_get_rnr_retry_count, 3, 4);
	KEPT(uint32_t, doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size, 64, 32);
	KEPT(uint32_t, doca_rdma_set_sl, doca_rdma_get_sl, 1, 2);
	KEPT(uint16_t, doca_rdma_set_max_num_connections, doca_rdma_get_max_num_connections, 2, 3);
	KEPT(uint16_t, doca_rdma_set_connection_request_timeout, doca_rdma_get_connection_request_timeout, 100, 200);
	KEPT(uint32_t, doca_rdma_task_receive_set_dst_buf_list_len, doca_rdma_task_receive_get_dst_buf_list_len, 1, 2);
	/* RoCE always has this header. */
	OK(doca_rdma_set_grh_enabled(rdma, 1));
	REFUSED(doca_rdma_set_grh_enabled(rdma, 2));
	OK(doca_rdma_get_grh_enabled(rdma, &grh));
	CHECK(grh == 1);
	KEPT(enum doca_rdma_transport_type, doca_rdma_set_transport_type, doca_rdma_get_transport_type,
	     DOCA_RDMA_TRANSPORT_TYPE_DC, DOCA_RDMA_TRANSPORT_TYPE_RC);
	REFUSED(doca_rdma_set_transport_type(NULL, DOCA_RDMA_TRANSPORT_TYPE_RC));
	OK(doca_rdma_destroy(rdma));
	world_destroy(&world);
}
