/*
 * One end of a channel between two processes. Each is compiled with the headers of a release: Comch, or Comm Channel.
 *
 *   channel_peer server     on the DPU
 *   channel_peer client     on the host; exits with EX_UNAVAILABLE if there is no server yet
 *
 * Each end sends a control message and, over the fast path, one message to the consumer of the other; with the argument
 * `control`, which follows, only the former.
 */
#include "comch.h"

#include <sysexits.h>

#define MAX_MESSAGE_SIZE 1000

void test_register(const char *name, const char *functions, test_function run)
{
	(void)name;
	(void)functions;
	(void)run;
}

static enum doca_ctx_states state_of(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(ctx, &state));
	return state;
}

static void stop_alone(struct end *end, struct doca_ctx *ctx)
{
	doca_error_t result = doca_ctx_stop(ctx);

	CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS);
	while (state_of(ctx) != DOCA_CTX_STATE_IDLE)
		(void)doca_pe_progress(end->world.pe);
}

static void send_control(struct end *end, const char *text)
{
	struct doca_comch_task_send *task;
	unsigned int before = end->world.completed;
	uint32_t length = (uint32_t)strlen(text);

	if (end->server != NULL)
		OK(doca_comch_server_task_send_alloc_init(end->server, end->connection, text, length, &task));
	else
		OK(doca_comch_client_task_send_alloc_init(end->client, end->connection, text, length, &task));
	OK(doca_task_submit(doca_comch_task_send_as_task(task)));
	while (end->world.completed == before)
		(void)doca_pe_progress(end->world.pe);
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void expect_control(struct end *end, const char *text)
{
	while (end->messages == 0)
		(void)doca_pe_progress(end->world.pe);
	CHECK(end->length == strlen(text) && memcmp(end->message, text, end->length) == 0);
	end->messages--;
}

/* Sends a text to the consumer of the other end, and receives one with the own consumer. */
static void exchange(struct end *end, const char *text, const char *expected)
{
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	struct doca_comch_consumer_task_post_recv *receive;
	struct doca_comch_producer_task_send *send;
	struct doca_ctx *consumer_ctx, *producer_ctx;
	struct doca_buf *room = world_room(&end->world, 0, 100), *data;
	union doca_data user_data = {.ptr = &end->world};
	unsigned int before = end->world.completed;
	size_t length = strlen(text);

	OK(doca_comch_consumer_create(end->connection, end->world.mmap, &consumer));
	consumer_ctx = doca_comch_consumer_as_ctx(consumer);
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, TASKS(0)));
	OK(doca_pe_connect_ctx(end->world.pe, consumer_ctx));
	OK(doca_ctx_set_user_data(consumer_ctx, user_data));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(consumer_ctx));
	while (state_of(consumer_ctx) != DOCA_CTX_STATE_RUNNING)
		(void)doca_pe_progress(end->world.pe);
	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, room, &receive));
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));

	while (end->consumers == 0)
		(void)doca_pe_progress(end->world.pe);
	OK(doca_comch_producer_create(end->connection, &producer));
	producer_ctx = doca_comch_producer_as_ctx(producer);
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, TASKS(0)));
	OK(doca_pe_connect_ctx(end->world.pe, producer_ctx));
	OK(doca_ctx_set_user_data(producer_ctx, user_data));
	OK(doca_ctx_start(producer_ctx));
	memcpy(end->world.memory + 4096, text, length);
	data = world_data(&end->world, 4096, length);
	OK(send_of_producer(producer, data, end->consumer, &send));
	/* The other consumer may not have posted its buf yet. */
	while (doca_task_submit(doca_comch_producer_task_send_as_task(send)) == DOCA_ERROR_AGAIN)
		(void)doca_pe_progress(end->world.pe);
	while (end->world.completed < before + 2)
		(void)doca_pe_progress(end->world.pe);
	CHECK(data_length(room) == strlen(expected) && memcmp(end->world.memory, expected, strlen(expected)) == 0);

	doca_task_free(doca_comch_producer_task_send_as_task(send));
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(receive));
	world_release(room);
	world_release(data);
	stop_alone(end, producer_ctx);
	stop_alone(end, consumer_ctx);
	OK(doca_comch_producer_destroy(producer));
	OK(doca_comch_consumer_destroy(consumer));
	while (end->expired == 0)
		(void)doca_pe_progress(end->world.pe);
}

/* Devices, memory and an engine of one end. */
static void end_create(struct end *end, const char *device)
{
	end->world = world_create();
	OK(doca_mmap_stop(end->world.mmap));
	OK(doca_mmap_destroy(end->world.mmap));
	OK(doca_dev_close(end->world.dev));
	end->world.dev = world_open(device);
	end->world.mmap =
		world_map(end->world.dev, end->world.memory, MEMORY_SIZE, DOCA_ACCESS_FLAG_PCI_READ_WRITE);
}

static void run_server(struct end *end, bool has_fast_path)
{
	struct doca_devinfo_rep **reps;
	struct doca_dev_rep *rep;
	struct doca_ctx *ctx;
	union doca_data data = {.ptr = end};
	uint32_t count;

	end_create(end, DPU_DEVICE);
	OK(doca_devinfo_rep_create_list(end->world.dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	OK(doca_dev_rep_open(reps[0], &rep));
	OK(doca_devinfo_rep_destroy_list(reps));
	OK(doca_comch_server_create(end->world.dev, rep, "channel", &end->server));
	ctx = doca_comch_server_as_ctx(end->server);
	OK(doca_comch_server_set_max_msg_size(end->server, MAX_MESSAGE_SIZE));
	OK(doca_comch_server_task_send_set_conf(end->server, doca_comch_task_send_completed, doca_comch_task_send_failed, TASKS(2)));
	OK(doca_comch_server_event_msg_recv_register(end->server, received));
	OK(doca_comch_server_event_connection_status_changed_register(end->server, connected, disconnected));
	OK(doca_comch_server_event_consumer_register(end->server, consumer_came, consumer_went));
	OK(doca_pe_connect_ctx(end->world.pe, ctx));
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_start(ctx));

	expect_control(end, "question");
	send_control(end, "answer");
	if (has_fast_path)
		exchange(end, "from the server", "from the client");
	while (end->disconnections == 0)
		(void)doca_pe_progress(end->world.pe);
	stop_alone(end, ctx);
	OK(doca_comch_server_destroy(end->server));
	OK(doca_dev_rep_close(rep));
}

static void run_client(struct end *end, bool has_fast_path)
{
	struct doca_ctx *ctx;
	union doca_data data = {.ptr = end};

	end_create(end, HOST_DEVICE);
	OK(doca_comch_client_create(end->world.dev, "channel", &end->client));
	ctx = doca_comch_client_as_ctx(end->client);
	OK(doca_comch_client_set_max_msg_size(end->client, MAX_MESSAGE_SIZE));
	OK(doca_comch_client_task_send_set_conf(end->client, doca_comch_task_send_completed, doca_comch_task_send_failed, TASKS(2)));
	OK(doca_comch_client_event_msg_recv_register(end->client, received));
	OK(doca_comch_client_event_consumer_register(end->client, consumer_came, consumer_went));
	OK(doca_pe_connect_ctx(end->world.pe, ctx));
	OK(doca_ctx_set_user_data(ctx, data));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(ctx));
	while (state_of(ctx) == DOCA_CTX_STATE_STARTING)
		(void)doca_pe_progress(end->world.pe);
	if (state_of(ctx) != DOCA_CTX_STATE_RUNNING)
		exit(EX_UNAVAILABLE);
	OK(doca_comch_client_get_connection(end->client, &end->connection));

	send_control(end, "question");
	expect_control(end, "answer");
	if (has_fast_path)
		exchange(end, "from the client", "from the server");
	stop_alone(end, ctx);
	OK(doca_comch_client_destroy(end->client));
}

int main(int argc, char **argv)
{
	struct end end = {0};

	bool has_fast_path = argc == 2;

	if (argc > 3 || (argc == 3 && strcmp(argv[2], "control") != 0))
		return EX_USAGE;
	if (argc >= 2 && strcmp(argv[1], "server") == 0)
		run_server(&end, has_fast_path);
	else if (argc >= 2 && strcmp(argv[1], "client") == 0)
		run_client(&end, has_fast_path);
	else
		return EX_USAGE;
	world_destroy(&end.world);
	printf("%s of DOCA %s\n", argv[1], DOCA_VERSION_STRING);
	return EXIT_SUCCESS;
}
