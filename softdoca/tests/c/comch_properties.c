/* Properties and capabilities of Comch. */
#include "comch.h"

#define AT_LEAST(least, call)                                                                                          \
	do {                                                                                                           \
		uint32_t value = 0;                                                                                    \
		OK(call);                                                                                              \
		CHECK(value >= (least));                                                                               \
	} while (0)

TEST(devices_have_sides, doca_comch_cap_server_is_supported, doca_comch_cap_client_is_supported)
{
	struct doca_dev *dpu = world_open(DPU_DEVICE), *host = world_open(HOST_DEVICE);

	OK(doca_comch_cap_server_is_supported(doca_dev_as_devinfo(dpu)));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_cap_server_is_supported(doca_dev_as_devinfo(host)));
	OK(doca_comch_cap_client_is_supported(doca_dev_as_devinfo(host)));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_cap_client_is_supported(doca_dev_as_devinfo(dpu)));
	REFUSED(doca_comch_cap_server_is_supported(NULL));
	OK(doca_dev_close(dpu));
	OK(doca_dev_close(host));
}

TEST(comch_has_limits, doca_comch_cap_get_max_clients, doca_comch_cap_get_max_name_len,
     doca_comch_cap_get_max_recv_queue_size, doca_comch_cap_get_max_send_tasks, doca_comch_consumer_cap_is_supported,
     doca_comch_consumer_cap_get_max_consumers, doca_comch_consumer_cap_get_max_num_tasks,
     doca_comch_consumer_cap_get_max_buf_size, doca_comch_consumer_cap_get_max_buf_list_len,
     doca_comch_consumer_cap_get_max_imm_data_len, doca_comch_producer_cap_is_supported,
     doca_comch_producer_cap_get_max_producers, doca_comch_producer_cap_get_max_num_tasks,
     doca_comch_producer_cap_get_max_buf_size, doca_comch_producer_cap_get_max_buf_list_len)
{
	struct doca_dev *dev = world_open(DPU_DEVICE);
	const struct doca_devinfo *info = doca_dev_as_devinfo(dev);

	AT_LEAST(16, doca_comch_cap_get_max_clients(info, &value));
	AT_LEAST(64, doca_comch_cap_get_max_name_len(info, &value));
	AT_LEAST(256, doca_comch_cap_get_max_recv_queue_size(info, &value));
	AT_LEAST(256, doca_comch_cap_get_max_send_tasks(info, &value));
	OK(doca_comch_consumer_cap_is_supported(info));
	REFUSED(doca_comch_consumer_cap_is_supported(NULL));
	AT_LEAST(16, doca_comch_consumer_cap_get_max_consumers(info, &value));
	AT_LEAST(256, doca_comch_consumer_cap_get_max_num_tasks(info, &value));
	AT_LEAST(1024 * 1024, doca_comch_consumer_cap_get_max_buf_size(info, &value));
	AT_LEAST(1, doca_comch_consumer_cap_get_max_buf_list_len(info, &value));
	AT_LEAST(16, doca_comch_consumer_cap_get_max_imm_data_len(info, &value));
	OK(doca_comch_producer_cap_is_supported(info));
	REFUSED(doca_comch_producer_cap_is_supported(NULL));
	AT_LEAST(16, doca_comch_producer_cap_get_max_producers(info, &value));
	AT_LEAST(256, doca_comch_producer_cap_get_max_num_tasks(info, &value));
	AT_LEAST(1024 * 1024, doca_comch_producer_cap_get_max_buf_size(info, &value));
	AT_LEAST(1, doca_comch_producer_cap_get_max_buf_list_len(info, &value));
	OK(doca_dev_close(dev));
}

#define IS(expected, call)                                                                                             \
	do {                                                                                                           \
		uint32_t value = UINT32_MAX;                                                                           \
		OK(call);                                                                                              \
		CHECK(value == (expected));                                                                            \
	} while (0)

TEST(ends_know_what_they_are_set_to, doca_comch_server_get_max_msg_size, doca_comch_server_get_recv_queue_size,
     doca_comch_server_get_device, doca_comch_server_get_device_rep, doca_comch_client_get_max_msg_size,
     doca_comch_client_get_recv_queue_size, doca_comch_client_get_device)
{
	struct pair *pair = pair_create(100);
	struct doca_dev *dev = NULL;
	struct doca_dev_rep *rep = NULL;

	IS(100, doca_comch_server_get_max_msg_size(pair->server.server, &value));
	IS(16, doca_comch_server_get_recv_queue_size(pair->server.server, &value));
	IS(100, doca_comch_client_get_max_msg_size(pair->client.client, &value));
	IS(16, doca_comch_client_get_recv_queue_size(pair->client.client, &value));
	OK(doca_comch_server_get_device(pair->server.server, &dev));
	CHECK(dev == pair->server.world.dev);
	OK(doca_comch_server_get_device_rep(pair->server.server, &rep));
	CHECK(rep == pair->rep);
	OK(doca_comch_client_get_device(pair->client.client, &dev));
	CHECK(dev == pair->client.world.dev);
	pair_destroy(pair);
}

static uint64_t counter(struct doca_comch_connection *connection, enum doca_comch_counter type)
{
	uint64_t value = UINT64_MAX;

	OK(doca_comch_connection_get_counter(connection, type, &value));
	return value;
}

TEST(connections_count, doca_comch_connection_update_info, doca_comch_connection_get_counter)
{
	struct pair *pair = pair_create(0);
	struct doca_comch_task_send *task;
	uint64_t value;

	for (unsigned int i = 1; i <= 2; i++) {
		OK(doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, "12345", 5, &task));
		OK(doca_task_submit(doca_comch_task_send_as_task(task)));
		while (pair->server.messages < i || pair->client.world.completed < i)
			progress(pair);
		doca_task_free(doca_comch_task_send_as_task(task));
	}
	/* As of the last update. */
	CHECK(counter(pair->client.connection, DOCA_COMCH_COUNTER_SENT_MESSAGES) == 0);
	OK(doca_comch_connection_update_info(pair->client.connection));
	OK(doca_comch_connection_update_info(pair->server.connection));
	CHECK(counter(pair->client.connection, DOCA_COMCH_COUNTER_SENT_MESSAGES) == 2);
	CHECK(counter(pair->client.connection, DOCA_COMCH_COUNTER_SENT_BYTES) == 10);
	CHECK(counter(pair->client.connection, DOCA_COMCH_COUNTER_RECV_MESSAGES) == 0);
	CHECK(counter(pair->server.connection, DOCA_COMCH_COUNTER_RECV_MESSAGES) == 2);
	CHECK(counter(pair->server.connection, DOCA_COMCH_COUNTER_RECV_BYTES) == 10);
	CHECK(counter(pair->server.connection, DOCA_COMCH_COUNTER_SENT_BYTES) == 0);
	REFUSED(doca_comch_connection_get_counter(pair->server.connection, (enum doca_comch_counter)5, &value));
	pair_destroy(pair);
}

TEST(servers_disconnect_clients, doca_comch_server_disconnect)
{
	struct pair *pair = pair_create(0);
	struct doca_ctx *ctx = doca_comch_client_as_ctx(pair->client.client);
	struct doca_comch_consumer *consumer;
	enum doca_ctx_states state;

	OK(doca_comch_consumer_create(pair->server.connection, pair->server.world.mmap, &consumer));
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 1));
	OK(doca_pe_connect_ctx(pair->server.world.pe, doca_comch_consumer_as_ctx(consumer)));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(doca_comch_consumer_as_ctx(consumer)));
	DOCUMENTED(IN_USE, doca_comch_server_disconnect(pair->server.server, pair->server.connection));
	/* Once it is idle, it is not active: the connection may be closed before it is destroyed. */
	stop(pair, doca_comch_consumer_as_ctx(consumer));
	REFUSED(doca_comch_server_disconnect(pair->server.server, pair->client.connection));
	OK(doca_comch_server_disconnect(pair->server.server, pair->server.connection));
	do {
		progress(pair);
		OK(doca_ctx_get_state(ctx, &state));
	} while (pair->server.disconnections == 0 || state == DOCA_CTX_STATE_RUNNING);
	stop(pair, ctx);
	OK(doca_comch_consumer_destroy(consumer));
	stop(pair, doca_comch_server_as_ctx(pair->server.server));
	OK(doca_comch_client_destroy(pair->client.client));
	OK(doca_comch_server_destroy(pair->server.server));
	OK(doca_dev_rep_close(pair->rep));
	world_destroy(&pair->server.world);
	world_destroy(&pair->client.world);
	free(pair);
}

TEST(immediate_data_has_a_length, doca_comch_consumer_set_imm_data_len, doca_comch_consumer_get_imm_data_len,
     doca_comch_producer_task_send_set_imm_data, doca_comch_producer_task_send_get_imm_data,
     doca_comch_producer_task_send_get_imm_data_len)
{
	struct pair *pair = pair_create(0);
	struct world *to = &pair->server.world, *from = &pair->client.world;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	struct doca_comch_consumer_task_post_recv *receive;
	struct doca_comch_producer_task_send *send;
	struct doca_ctx *consumer_ctx, *producer_ctx;
	union doca_data data = {.ptr = to};
	uint8_t bytes[] = {1, 2, 3, 4, 5};
	enum doca_ctx_states state;
	uint32_t id;

	OK(doca_comch_consumer_create(pair->server.connection, to->mmap, &consumer));
	consumer_ctx = doca_comch_consumer_as_ctx(consumer);
	OK(doca_comch_consumer_set_imm_data_len(consumer, 3));
	IS(3, doca_comch_consumer_get_imm_data_len(consumer, &value));
	REFUSED(doca_comch_consumer_set_imm_data_len(consumer, 10000));
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 1));
	OK(doca_pe_connect_ctx(to->pe, consumer_ctx));
	OK(doca_ctx_set_user_data(consumer_ctx, data));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(consumer_ctx));
	do {
		progress(pair);
		OK(doca_ctx_get_state(consumer_ctx, &state));
	} while (state != DOCA_CTX_STATE_RUNNING || pair->client.consumers == 0);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_comch_consumer_set_imm_data_len(consumer, 4));
	OK(doca_comch_consumer_get_id(consumer, &id));

	data.ptr = from;
	OK(doca_comch_producer_create(pair->client.connection, &producer));
	producer_ctx = doca_comch_producer_as_ctx(producer);
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, 1));
	OK(doca_pe_connect_ctx(from->pe, producer_ctx));
	OK(doca_ctx_set_user_data(producer_ctx, data));
	OK(doca_ctx_start(producer_ctx));

	OK(doca_comch_producer_task_send_alloc_init(producer, NULL, bytes, 1, id, &send));
	doca_comch_producer_task_send_set_imm_data(send, bytes, 3);
	CHECK(doca_comch_producer_task_send_get_imm_data_len(send) == 3);
	CHECK(memcmp(doca_comch_producer_task_send_get_imm_data(send), bytes, 3) == 0);
	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, NULL, &receive));
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));
	to->completed = from->completed = 0;
	OK(doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	while (to->completed == 0 || from->completed == 0)
		progress(pair);
	CHECK(doca_comch_consumer_task_post_recv_get_imm_data_len(receive) == 3);
	CHECK(memcmp(doca_comch_consumer_task_post_recv_get_imm_data(receive), bytes, 3) == 0);

	/* One byte more than the consumer's limit. */
	doca_comch_producer_task_send_set_imm_data(send, bytes, 4);
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));
	OK(doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	while (to->failed == 0)
		progress(pair);
	while (from->completed == 1)
		progress(pair);

	doca_task_free(doca_comch_producer_task_send_as_task(send));
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(receive));
	stop(pair, producer_ctx);
	stop(pair, consumer_ctx);
	OK(doca_comch_producer_destroy(producer));
	OK(doca_comch_consumer_destroy(consumer));
	while (pair->client.expired == 0)
		progress(pair);
	pair_destroy(pair);
}
