/* Comch, control path and fast path. */
#include "comch.h"

TEST(control_messages_go_both_ways, doca_comch_server_create, doca_comch_server_destroy, doca_comch_server_as_ctx,
     doca_comch_server_task_send_set_conf, doca_comch_server_task_send_alloc_init, doca_comch_server_event_msg_recv_register,
     doca_comch_server_event_connection_status_changed_register, doca_comch_server_get_server_ctx, doca_comch_client_create,
     doca_comch_client_destroy, doca_comch_client_as_ctx, doca_comch_client_task_send_set_conf,
     doca_comch_client_task_send_alloc_init, doca_comch_client_event_msg_recv_register, doca_comch_client_get_client_ctx,
     doca_comch_client_get_connection, doca_comch_task_send_as_task)
{
	struct pair *pair = pair_create(0);
	struct doca_comch_task_send *task = NULL;

	CHECK(doca_comch_server_get_server_ctx(pair->server.connection) == pair->server.server);
	CHECK(doca_comch_client_get_client_ctx(pair->client.connection) == pair->client.client);

	OK(doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, "question", 8, &task));
	OK(doca_task_submit(doca_comch_task_send_as_task(task)));
	while (pair->server.messages == 0 || pair->client.world.completed == 0)
		progress(pair);
	CHECK(pair->server.length == 8 && memcmp(pair->server.message, "question", 8) == 0);
	doca_task_free(doca_comch_task_send_as_task(task));

	task = NULL;
	OK(doca_comch_server_task_send_alloc_init(pair->server.server, pair->server.connection, "answer", 6, &task));
	OK(doca_task_submit(doca_comch_task_send_as_task(task)));
	while (pair->client.messages == 0 || pair->server.world.completed == 0)
		progress(pair);
	CHECK(pair->client.length == 6 && memcmp(pair->client.message, "answer", 6) == 0);
	doca_task_free(doca_comch_task_send_as_task(task));
	pair_destroy(pair);
}

TEST(connections_carry_a_value, doca_comch_connection_set_user_data, doca_comch_connection_get_user_data)
{
	struct pair *pair = pair_create(0);
	union doca_data data = {.u64 = 42};

	CHECK(doca_comch_connection_get_user_data(pair->server.connection).u64 == 0);
	OK(doca_comch_connection_set_user_data(pair->server.connection, data));
	CHECK(doca_comch_connection_get_user_data(pair->server.connection).u64 == 42);
	pair_destroy(pair);
}

TEST(messages_have_a_largest_size, doca_comch_cap_get_max_msg_size, doca_comch_server_set_max_msg_size,
     doca_comch_client_set_max_msg_size, doca_comch_server_set_recv_queue_size, doca_comch_client_set_recv_queue_size)
{
	struct pair *pair = pair_create(100);
	struct doca_comch_task_send *task;
	uint32_t limit = 0;
	char message[101] = {0};

	OK(doca_comch_cap_get_max_msg_size(pair->server.world.info, &limit));
	CHECK(limit >= 4080);
	CHECK(doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, message, 101, &task) !=
	      DOCA_SUCCESS);
	CHECK(doca_comch_server_task_send_alloc_init(pair->server.server, pair->server.connection, message, 101, &task) !=
	      DOCA_SUCCESS);
	/* Fixed by the start. */
	CHECK(doca_comch_client_set_max_msg_size(pair->client.client, 200) != DOCA_SUCCESS);
	CHECK(doca_comch_server_set_max_msg_size(pair->server.server, 200) != DOCA_SUCCESS);
	CHECK(doca_comch_client_set_recv_queue_size(pair->client.client, 20) != DOCA_SUCCESS);
	CHECK(doca_comch_server_set_recv_queue_size(pair->server.server, 20) != DOCA_SUCCESS);
	pair_destroy(pair);
}

/* Sends a message over the fast path and checks the properties of both tasks. */
static void fast_path(struct pair *pair, struct end *from, struct end *to)
{
	struct doca_comch_consumer *consumer = NULL;
	struct doca_comch_producer *producer = NULL;
	struct doca_comch_consumer_task_post_recv *receive = NULL;
	struct doca_comch_producer_task_send *send = NULL;
	struct doca_ctx *consumer_ctx, *producer_ctx;
	struct doca_buf *room, *other_room, *data, *other_data;
	enum doca_ctx_states state;
	uint32_t consumer_id = 0, producer_id = 0;
	uint8_t immediate[] = {1, 2, 3};
	union doca_data user_data = {.ptr = &to->world};

	/* The consumer, which is announced to the other end. */
	OK(doca_comch_consumer_create(to->connection, to->world.mmap, &consumer));
	consumer_ctx = doca_comch_consumer_as_ctx(consumer);
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 2));
	OK(doca_pe_connect_ctx(to->world.pe, consumer_ctx));
	OK(doca_ctx_set_user_data(consumer_ctx, user_data));
	CHECK(doca_ctx_start(consumer_ctx) == DOCA_ERROR_IN_PROGRESS);
	do {
		progress(pair);
		OK(doca_ctx_get_state(consumer_ctx, &state));
	} while (state != DOCA_CTX_STATE_RUNNING || from->consumers == 0);
	OK(doca_comch_consumer_get_id(consumer, &consumer_id));
	CHECK(consumer_id == from->consumer && consumer_id != 0 && consumer_id != 0xffff);

	room = world_room(&to->world, 0, 100);
	other_room = world_room(&to->world, 4096, 100);
	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, room, &receive));
	CHECK(doca_comch_consumer_task_post_recv_get_buf(receive) == room);
	doca_comch_consumer_task_post_recv_set_buf(receive, other_room);
	CHECK(doca_comch_consumer_task_post_recv_get_buf(receive) == other_room);
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));

	/* The producer. */
	user_data.ptr = &from->world;
	OK(doca_comch_producer_create(from->connection, &producer));
	producer_ctx = doca_comch_producer_as_ctx(producer);
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, 2));
	OK(doca_pe_connect_ctx(from->world.pe, producer_ctx));
	OK(doca_ctx_set_user_data(producer_ctx, user_data));
	OK(doca_ctx_start(producer_ctx));
	OK(doca_comch_producer_get_id(producer, &producer_id));

	memcpy(from->world.memory, "one", 3);
	memcpy(from->world.memory + 100, "another", 7);
	data = world_data(&from->world, 0, 3);
	other_data = world_data(&from->world, 100, 7);
	OK(doca_comch_producer_task_send_alloc_init(producer, data, immediate, sizeof(immediate), consumer_id + 1, &send));
	CHECK(doca_comch_producer_task_send_get_buf(send) == data);
	doca_comch_producer_task_send_set_buf(send, other_data);
	CHECK(doca_comch_producer_task_send_get_buf(send) == other_data);
	CHECK(doca_comch_producer_task_send_get_consumer_id(send) == consumer_id + 1);
	doca_comch_producer_task_send_set_consumer_id(send, consumer_id);
	CHECK(doca_comch_producer_task_send_get_consumer_id(send) == consumer_id);
	to->world.completed = from->world.completed = 0;
	OK(doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	while (to->world.completed == 0 || from->world.completed == 0)
		progress(pair);
	CHECK(data_length(other_room) == 7 && memcmp(to->world.memory + 4096, "another", 7) == 0);
	CHECK(doca_comch_consumer_task_post_recv_get_producer_id(receive) == producer_id);
	CHECK(doca_comch_consumer_task_post_recv_get_imm_data_len(receive) == sizeof(immediate));
	CHECK(memcmp(doca_comch_consumer_task_post_recv_get_imm_data(receive), immediate, sizeof(immediate)) == 0);

	doca_task_free(doca_comch_producer_task_send_as_task(send));
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(receive));
	world_release(room);
	world_release(other_room);
	world_release(data);
	world_release(other_data);
	/* Not while they run. */
	CHECK(doca_comch_producer_destroy(producer) != DOCA_SUCCESS);
	CHECK(doca_comch_consumer_destroy(consumer) != DOCA_SUCCESS);
	stop(pair, producer_ctx);
	stop(pair, consumer_ctx);
	OK(doca_comch_producer_destroy(producer));
	OK(doca_comch_consumer_destroy(consumer));
	while (from->expired == 0)
		progress(pair);
}

TEST(the_fast_path_goes_to_the_server, doca_comch_consumer_create, doca_comch_consumer_destroy, doca_comch_consumer_as_ctx,
     doca_comch_consumer_get_id, doca_comch_consumer_task_post_recv_set_conf, doca_comch_consumer_task_post_recv_alloc_init,
     doca_comch_consumer_task_post_recv_get_buf, doca_comch_consumer_task_post_recv_set_buf,
     doca_comch_consumer_task_post_recv_get_producer_id, doca_comch_consumer_task_post_recv_get_imm_data,
     doca_comch_consumer_task_post_recv_get_imm_data_len, doca_comch_consumer_task_post_recv_as_task,
     doca_comch_producer_create, doca_comch_producer_destroy, doca_comch_producer_as_ctx, doca_comch_producer_get_id,
     doca_comch_producer_task_send_set_conf, doca_comch_producer_task_send_alloc_init, doca_comch_producer_task_send_get_buf,
     doca_comch_producer_task_send_set_buf, doca_comch_producer_task_send_get_consumer_id,
     doca_comch_producer_task_send_set_consumer_id, doca_comch_producer_task_send_as_task,
     doca_comch_client_event_consumer_register)
{
	struct pair *pair = pair_create(0);

	fast_path(pair, &pair->client, &pair->server);
	pair_destroy(pair);
}

TEST(the_fast_path_goes_to_the_client, doca_comch_server_event_consumer_register)
{
	struct pair *pair = pair_create(0);

	fast_path(pair, &pair->server, &pair->client);
	pair_destroy(pair);
}
