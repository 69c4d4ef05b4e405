/*
 * Comm Channel, doca_cc_*, with the names of 2.6. It is compiled for 2.5 as well, with that release's names (channel.h);
 * therefore, the tests list both.
 */
#include "comch.h"

#include <doca_argp.h>

TEST(messages_of_comm_channel_go_both_ways, doca_cc_server_create, doca_cc_server_destroy, doca_cc_server_as_ctx,
     doca_cc_server_get_server_ctx, doca_cc_server_task_send_set_conf, doca_cc_server_send_task_set_conf,
     doca_cc_server_task_send_alloc_init, doca_cc_server_send_task_alloc_init, doca_cc_server_event_msg_recv_register,
     doca_cc_server_event_connection_register, doca_cc_client_create, doca_cc_client_destroy, doca_cc_client_as_ctx,
     doca_cc_client_get_client_ctx, doca_cc_client_get_connection, doca_cc_client_task_send_set_conf,
     doca_cc_client_send_task_set_conf, doca_cc_client_task_send_alloc_init, doca_cc_client_send_task_alloc_init,
     doca_cc_client_event_msg_recv_register, doca_cc_task_send_as_task, doca_cc_send_task_as_task)
{
	struct pair *pair = pair_create(0);
	struct doca_cc_task_send *task = NULL;

	CHECK(doca_cc_server_get_server_ctx(pair->server.connection) == pair->server.server);
	CHECK(doca_cc_client_get_client_ctx(pair->client.connection) == pair->client.client);
	CHECK(doca_cc_server_get_server_ctx(pair->client.connection) == NULL);

	OK(doca_cc_client_task_send_alloc_init(pair->client.client, pair->client.connection, "question", 8, &task));
	OK(doca_task_submit(doca_cc_task_send_as_task(task)));
	while (pair->server.messages == 0 || pair->client.world.completed == 0)
		progress(pair);
	CHECK(pair->server.length == 8 && memcmp(pair->server.message, "question", 8) == 0);
	doca_task_free(doca_cc_task_send_as_task(task));

	task = NULL;
	OK(doca_cc_server_task_send_alloc_init(pair->server.server, pair->server.connection, "answer", 6, &task));
	OK(doca_task_submit(doca_cc_task_send_as_task(task)));
	while (pair->client.messages == 0 || pair->server.world.completed == 0)
		progress(pair);
	CHECK(pair->client.length == 6 && memcmp(pair->client.message, "answer", 6) == 0);
	doca_task_free(doca_cc_task_send_as_task(task));
	pair_destroy(pair);
}

TEST(connections_of_comm_channel_carry_a_value, doca_cc_connection_set_user_data, doca_cc_connection_get_user_data)
{
	struct pair *pair = pair_create(0);
	union doca_data data = {.u64 = 42};

	CHECK(doca_cc_connection_get_user_data(pair->server.connection).u64 == 0);
	OK(doca_cc_connection_set_user_data(pair->server.connection, data));
	CHECK(doca_cc_connection_get_user_data(pair->server.connection).u64 == 42);
	pair_destroy(pair);
}

#define IS(expected, call)                                                                                             \
	do {                                                                                                           \
		number value = (number)-1;                                                                             \
		OK(call);                                                                                              \
		CHECK(value == (expected));                                                                            \
	} while (0)

TEST(ends_of_comm_channel_have_properties, doca_cc_server_get_max_msg_size_2_5, doca_cc_server_get_max_msg_size,
     doca_cc_server_set_max_msg_size, doca_cc_server_get_recv_queue_size_2_5, doca_cc_server_get_recv_queue_size,
     doca_cc_server_set_recv_queue_size, doca_cc_server_get_device, doca_cc_server_get_device_repr,
     doca_cc_client_get_max_msg_size_2_5, doca_cc_client_get_max_msg_size, doca_cc_client_set_max_msg_size,
     doca_cc_client_get_recv_queue_size_2_5, doca_cc_client_get_recv_queue_size, doca_cc_client_set_recv_queue_size,
     doca_cc_client_get_device)
{
	struct pair *pair = pair_create(100);
	struct doca_dev *dev = NULL;
	struct doca_dev_rep *rep = NULL;

	IS(100, doca_cc_server_get_max_msg_size(pair->server.server, &value));
	IS(16, doca_cc_server_get_recv_queue_size(pair->server.server, &value));
	IS(100, doca_cc_client_get_max_msg_size(pair->client.client, &value));
	IS(16, doca_cc_client_get_recv_queue_size(pair->client.client, &value));
	/* Fixed by the start. */
	RETURNS(DOCA_ERROR_BAD_STATE, doca_cc_server_set_max_msg_size(pair->server.server, 200));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_cc_server_set_recv_queue_size(pair->server.server, 20));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_cc_client_set_max_msg_size(pair->client.client, 200));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_cc_client_set_recv_queue_size(pair->client.client, 20));
	OK(doca_cc_server_get_device(pair->server.server, &dev));
	CHECK(dev == pair->server.world.dev);
	OK(doca_cc_server_get_device_repr(pair->server.server, &rep));
	CHECK(rep == pair->rep);
	OK(doca_cc_client_get_device(pair->client.client, &dev));
	CHECK(dev == pair->client.world.dev);
	pair_destroy(pair);
}

#define AT_LEAST(least, call)                                                                                          \
	do {                                                                                                           \
		number value = 0;                                                                                      \
		OK(call);                                                                                              \
		CHECK(value >= (least));                                                                               \
	} while (0)

TEST(comm_channel_has_limits, doca_cc_cap_server_is_supported, doca_cc_cap_client_is_supported,
     doca_cc_cap_get_max_clients_2_5, doca_cc_cap_get_max_clients, doca_cc_cap_get_max_name_len,
     doca_cc_cap_get_max_msg_size_2_5, doca_cc_cap_get_max_msg_size, doca_cc_cap_get_max_recv_queue_size_2_5,
     doca_cc_cap_get_max_recv_queue_size, doca_cc_cap_get_max_send_tasks_2_5, doca_cc_cap_get_max_send_tasks,
     doca_cc_consumer_cap_is_supported, doca_cc_cap_is_consumer_supported, doca_cc_consumer_cap_get_max_consumers,
     doca_cc_consumer_cap_get_max_num_tasks, doca_cc_consumer_cap_get_max_log_num_tasks,
     doca_cc_consumer_cap_get_max_buf_size_2_5, doca_cc_consumer_cap_get_max_buf_size,
     doca_cc_producer_cap_is_supported, doca_cc_cap_is_producer_supported, doca_cc_producer_cap_get_max_producers,
     doca_cc_producer_cap_get_max_num_tasks, doca_cc_producer_cap_get_max_log_num_tasks,
     doca_cc_producer_cap_get_max_buf_size_2_5, doca_cc_producer_cap_get_max_buf_size)
{
	struct doca_dev *dpu = world_open(DPU_DEVICE), *host = world_open(HOST_DEVICE);
	const struct doca_devinfo *info = doca_dev_as_devinfo(dpu);
	uint32_t name_length = 0;

	OK(doca_cc_cap_server_is_supported(info));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_cc_cap_server_is_supported(doca_dev_as_devinfo(host)));
	REFUSED(doca_cc_cap_server_is_supported(NULL));
	OK(doca_cc_cap_client_is_supported(doca_dev_as_devinfo(host)));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_cc_cap_client_is_supported(info));
	OK(doca_cc_cap_get_max_name_len(info, &name_length));
	CHECK(name_length >= 64);
	AT_LEAST(16, doca_cc_cap_get_max_clients(info, &value));
	AT_LEAST(4080, doca_cc_cap_get_max_msg_size(info, &value));
	AT_LEAST(256, doca_cc_cap_get_max_recv_queue_size(info, &value));
	AT_LEAST(256, doca_cc_cap_get_max_send_tasks(info, &value));
	OK(doca_cc_consumer_cap_is_supported(info));
	REFUSED(doca_cc_consumer_cap_is_supported(NULL));
	AT_LEAST(1024 * 1024, doca_cc_consumer_cap_get_max_buf_size(info, &value));
	OK(doca_cc_producer_cap_is_supported(info));
	REFUSED(doca_cc_producer_cap_is_supported(NULL));
	AT_LEAST(1024 * 1024, doca_cc_producer_cap_get_max_buf_size(info, &value));
#if DOCA_VERSION_MINOR >= 6
	AT_LEAST(1024, doca_cc_consumer_cap_get_max_num_tasks(info, &value));
	AT_LEAST(1024, doca_cc_producer_cap_get_max_num_tasks(info, &value));
	AT_LEAST(16, doca_cc_consumer_cap_get_max_consumers(info, &value));
	AT_LEAST(16, doca_cc_producer_cap_get_max_producers(info, &value));
#else
	size_t log = 0;

	OK(doca_cc_consumer_cap_get_max_log_num_tasks(info, &log));
	CHECK(log >= 10 && log < 32);
	REFUSED(doca_cc_consumer_cap_get_max_log_num_tasks(NULL, &log));
	REFUSED(doca_cc_consumer_cap_get_max_log_num_tasks(info, NULL));
	log = 0;
	OK(doca_cc_producer_cap_get_max_log_num_tasks(info, &log));
	CHECK(log >= 10 && log < 32);
	REFUSED(doca_cc_producer_cap_get_max_log_num_tasks(NULL, &log));
#endif
	OK(doca_dev_close(dpu));
	OK(doca_dev_close(host));
}

static uint64_t counter(struct doca_cc_connection *connection, enum doca_cc_counter type)
{
	uint64_t value = UINT64_MAX;

	OK(doca_cc_connection_get_counter(connection, type, &value));
	return value;
}

TEST(connections_of_comm_channel_count, doca_cc_connection_update_info, doca_cc_connection_get_counter)
{
	struct pair *pair = pair_create(0);
	struct doca_cc_task_send *task;

	OK(doca_cc_client_task_send_alloc_init(pair->client.client, pair->client.connection, "12345", 5, &task));
	OK(doca_task_submit(doca_cc_task_send_as_task(task)));
	while (pair->server.messages == 0 || pair->client.world.completed == 0)
		progress(pair);
	doca_task_free(doca_cc_task_send_as_task(task));
	OK(doca_cc_connection_update_info(pair->client.connection));
	OK(doca_cc_connection_update_info(pair->server.connection));
	CHECK(counter(pair->client.connection, DOCA_CC_COUNTER_SENT_MESSAGES) == 1);
	CHECK(counter(pair->client.connection, DOCA_CC_COUNTER_SENT_BYTES) == 5);
	CHECK(counter(pair->server.connection, DOCA_CC_COUNTER_RECV_MESSAGES) == 1);
	CHECK(counter(pair->server.connection, DOCA_CC_COUNTER_RECV_BYTES) == 5);
	pair_destroy(pair);
}

/* Sends a message over the fast path and checks the properties of both tasks. */
static void fast_path(struct pair *pair, struct end *from, struct end *to)
{
	struct doca_cc_consumer *consumer = NULL;
	struct doca_cc_producer *producer = NULL;
	struct doca_cc_consumer_task_post_recv *receives[5] = {NULL};
	struct doca_cc_producer_task_send *send = NULL;
	struct doca_ctx *consumer_ctx, *producer_ctx;
	struct doca_buf *room, *other_room, *data, *other_data;
	enum doca_ctx_states state;
	uint32_t consumer_id = 0, producer_id = 0;
	union doca_data user_data = {.ptr = &to->world};

	/* The consumer, which is announced to the other end. */
	OK(doca_cc_consumer_create(to->connection, to->world.mmap, &consumer));
	consumer_ctx = doca_cc_consumer_as_ctx(consumer);
	OK(doca_cc_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						    doca_comch_consumer_task_post_recv_failed, TASKS(2)));
	OK(doca_pe_connect_ctx(to->world.pe, consumer_ctx));
	OK(doca_ctx_set_user_data(consumer_ctx, user_data));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(consumer_ctx));
	do {
		progress(pair);
		OK(doca_ctx_get_state(consumer_ctx, &state));
	} while (state != DOCA_CTX_STATE_RUNNING || from->consumers == 0);
	OK(doca_cc_consumer_get_id(consumer, &consumer_id));
	CHECK(consumer_id == from->consumer && consumer_id != 0);

	room = world_room(&to->world, 0, 100);
	other_room = world_room(&to->world, 4096, 100);
	for (int i = 0; i < 4; i++)
		OK(doca_cc_consumer_task_post_recv_alloc_init(consumer, room, &receives[i]));
	/* There are four tasks, in 2.5 as 2 to the power of 2. */
	RETURNS(DOCA_ERROR_NO_MEMORY, doca_cc_consumer_task_post_recv_alloc_init(consumer, room, &receives[4]));
	CHECK(doca_cc_consumer_task_post_recv_get_buf(receives[0]) == room);
	doca_cc_consumer_task_post_recv_set_buf(receives[0], other_room);
	CHECK(doca_cc_consumer_task_post_recv_get_buf(receives[0]) == other_room);
	OK(doca_task_submit(doca_cc_consumer_task_post_recv_as_task(receives[0])));

	/* The producer. */
	user_data.ptr = &from->world;
	OK(doca_cc_producer_create(from->connection, &producer));
	producer_ctx = doca_cc_producer_as_ctx(producer);
	OK(doca_cc_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
					       doca_comch_producer_task_send_failed, TASKS(0)));
	OK(doca_pe_connect_ctx(from->world.pe, producer_ctx));
	OK(doca_ctx_set_user_data(producer_ctx, user_data));
	OK(doca_ctx_start(producer_ctx));
#if DOCA_VERSION_MINOR >= 6
	OK(doca_cc_producer_get_id(producer, &producer_id));
#endif

	memcpy(from->world.memory, "one", 3);
	memcpy(from->world.memory + 100, "another", 7);
	data = world_data(&from->world, 0, 3);
	other_data = world_data(&from->world, 100, 7);
	OK(doca_cc_producer_task_send_alloc_init(producer, data, consumer_id + 1, &send));
	CHECK(doca_cc_producer_task_send_get_buf(send) == data);
	doca_cc_producer_task_send_set_buf(send, other_data);
	CHECK(doca_cc_producer_task_send_get_buf(send) == other_data);
	CHECK(doca_cc_producer_task_send_get_consumer_id(send) == consumer_id + 1);
	doca_cc_producer_task_send_set_consumer_id(send, consumer_id);
	CHECK(doca_cc_producer_task_send_get_consumer_id(send) == consumer_id);
	to->world.completed = from->world.completed = 0;
	OK(doca_task_submit(doca_cc_producer_task_send_as_task(send)));
	while (to->world.completed == 0 || from->world.completed == 0)
		progress(pair);
	CHECK(data_length(other_room) == 7 && memcmp(to->world.memory + 4096, "another", 7) == 0);
#if DOCA_VERSION_MINOR >= 6
	CHECK(doca_cc_consumer_task_post_recv_get_producer_id(receives[0]) == producer_id);
#else
	(void)producer_id;
#endif

	doca_task_free(doca_cc_producer_task_send_as_task(send));
	for (int i = 0; i < 4; i++)
		doca_task_free(doca_cc_consumer_task_post_recv_as_task(receives[i]));
	world_release(room);
	world_release(other_room);
	world_release(data);
	world_release(other_data);
	/* Not while they run. */
	RETURNS(DOCA_ERROR_IN_USE, doca_cc_producer_destroy(producer));
	RETURNS(DOCA_ERROR_IN_USE, doca_cc_consumer_destroy(consumer));
	stop(pair, producer_ctx);
	stop(pair, consumer_ctx);
	OK(doca_cc_producer_destroy(producer));
	OK(doca_cc_consumer_destroy(consumer));
	while (from->expired == 0)
		progress(pair);
}

TEST(the_fast_path_of_comm_channel_goes_to_the_server, doca_cc_consumer_create, doca_cc_consumer_destroy,
     doca_cc_consumer_as_ctx, doca_cc_consumer_get_id, doca_cc_consumer_task_post_recv_set_conf,
     doca_cc_consumer_post_recv_task_set_conf, doca_cc_consumer_task_post_recv_alloc_init,
     doca_cc_consumer_post_recv_task_alloc_init, doca_cc_consumer_task_post_recv_get_buf,
     doca_cc_consumer_post_recv_task_get_buf, doca_cc_consumer_task_post_recv_set_buf,
     doca_cc_consumer_post_recv_task_set_buf, doca_cc_consumer_task_post_recv_get_producer_id,
     doca_cc_consumer_task_post_recv_as_task,
     doca_cc_consumer_post_recv_task_as_task, doca_cc_producer_create, doca_cc_producer_destroy, doca_cc_producer_as_ctx,
     doca_cc_producer_get_id, doca_cc_producer_task_send_set_conf, doca_cc_producer_send_task_set_conf,
     doca_cc_producer_task_send_alloc_init, doca_cc_producer_send_task_alloc_init, doca_cc_producer_task_send_get_buf,
     doca_cc_producer_send_task_get_buf, doca_cc_producer_task_send_set_buf, doca_cc_producer_send_task_set_buf,
     doca_cc_producer_task_send_get_consumer_id, doca_cc_producer_send_task_get_consumer_id,
     doca_cc_producer_task_send_set_consumer_id, doca_cc_producer_send_task_set_consumer_id,
     doca_cc_producer_task_send_as_task, doca_cc_producer_send_task_as_task, doca_cc_client_event_consumer_register)
{
	struct pair *pair = pair_create(0);

	fast_path(pair, &pair->client, &pair->server);
	pair_destroy(pair);
}

TEST(the_fast_path_of_comm_channel_goes_to_the_client, doca_cc_server_event_consumer_register)
{
	struct pair *pair = pair_create(0);

	fast_path(pair, &pair->server, &pair->client);
	pair_destroy(pair);
}

static doca_error_t ignored(void *value, void *config)
{
	(void)value;
	(void)config;
	return DOCA_SUCCESS;
}

/* The library knows the release of its installation, without the environment. */
TEST(values_are_those_of_the_release, doca_devinfo_get_active_rate_2_6)
{
	struct doca_dev *dev = world_open(DPU_DEVICE);
	struct doca_argp_param *param = NULL;

	CHECK(strcmp(doca_version_runtime(), DOCA_VERSION_STRING) == 0);
	CHECK(DOCA_VERSION_MAJOR == 2);
#if DOCA_VERSION_MINOR >= 6
	double rate = 0;

	/* In Gb/s. */
	OK(doca_devinfo_get_active_rate(doca_dev_as_devinfo(dev), &rate));
	CHECK(rate >= 1 && rate <= 1000);
	REFUSED(doca_devinfo_get_active_rate(NULL, &rate));
	REFUSED(doca_devinfo_get_active_rate(doca_dev_as_devinfo(dev), NULL));
#endif
	OK(doca_dev_close(dev));

	CHECK(DOCA_ARGP_TYPE_JSON_OBJ == 4);
	OK(doca_argp_init("program", NULL));
	OK(doca_argp_param_create(&param));
	doca_argp_param_set_long_name(param, "rules");
	doca_argp_param_set_description(param, "An object of a file");
	doca_argp_param_set_callback(param, ignored);
	doca_argp_param_set_type(param, DOCA_ARGP_TYPE_JSON_OBJ);
	/* Not the device that this number means in later releases. */
	OK(doca_argp_register_param(param));
	OK(doca_argp_destroy());
}
