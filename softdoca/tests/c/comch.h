/* A Comch server and a client in one process, connected; with headers of 2.x, those of Comm Channel. */
#ifndef COMCH_H
#define COMCH_H

#include "channel.h"
#include "world.h"

#define RECEIVED_MAX 64

/* One end; the callbacks of events find it by its context. */
struct end {
	struct world world; /* first: the tasks' callbacks count there */
	struct doca_comch_server *server;
	struct doca_comch_client *client;
	struct doca_comch_connection *connection;
	unsigned int connections, disconnections, messages;
	_Atomic unsigned int consumers, expired; /* other threads wait for them */
	uint8_t message[RECEIVED_MAX];
	uint32_t length;
	uint32_t consumer;
};

static inline struct end *end_of(struct doca_comch_connection *connection)
{
	struct doca_comch_server *server = doca_comch_server_get_server_ctx(connection);
	struct doca_comch_client *client = doca_comch_client_get_client_ctx(connection);
	union doca_data data;

	CHECK((server == NULL) != (client == NULL));
	OK(doca_ctx_get_user_data(server != NULL ? doca_comch_server_as_ctx(server) : doca_comch_client_as_ctx(client),
				  &data));
	return data.ptr;
}

static inline void connected(struct doca_comch_event_connection_status_changed *event, struct doca_comch_connection *connection,
		      change_result success)
{
	struct end *end = end_of(connection);

	(void)event;
	CHECK(success == 1);
	end->connections++;
	end->connection = connection;
}

static inline void disconnected(struct doca_comch_event_connection_status_changed *event,
			 struct doca_comch_connection *connection, change_result success)
{
	(void)event;
	(void)success;
	end_of(connection)->disconnections++;
}

static inline void received(struct doca_comch_event_msg_recv *event, uint8_t *message, message_length length,
		     struct doca_comch_connection *connection)
{
	struct end *end = end_of(connection);

	(void)event;
	CHECK(length <= RECEIVED_MAX);
	memcpy(end->message, message, length);
	end->length = (uint32_t)length;
	end->messages++;
}

static inline void consumer_came(struct doca_comch_event_consumer *event, struct doca_comch_connection *connection, uint32_t id)
{
	struct end *end = end_of(connection);

	(void)event;
	end->consumers++;
	end->consumer = id;
}

static inline void consumer_went(struct doca_comch_event_consumer *event, struct doca_comch_connection *connection, uint32_t id)
{
	struct end *end = end_of(connection);

	(void)event;
	CHECK(end->consumer == id);
	end->expired++;
}

CALLBACKS(doca_comch_task_send)
CALLBACKS(doca_comch_consumer_task_post_recv)
CALLBACKS(doca_comch_producer_task_send)

/* A server and a client that are connected. */
struct pair {
	struct doca_dev_rep *rep;
	struct end server, client;
};

static inline void progress(struct pair *pair)
{
	(void)doca_pe_progress(pair->server.world.pe);
	(void)doca_pe_progress(pair->client.world.pe);
}

static inline struct pair *pair_create(uint32_t message_size)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct doca_devinfo_rep **reps;
	union doca_data data;
	uint32_t count;
	enum doca_ctx_states state;
	doca_error_t result;

	CHECK(pair != NULL);
	pair->server.world = world_create();
	pair->client.world = world_create();
	OK(doca_mmap_stop(pair->client.world.mmap));
	OK(doca_mmap_destroy(pair->client.world.mmap));
	OK(doca_dev_close(pair->client.world.dev));
	pair->client.world.dev = world_open(HOST_DEVICE);
	pair->client.world.mmap = world_map(pair->client.world.dev, pair->client.world.memory, MEMORY_SIZE,
					    DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	OK(doca_mmap_stop(pair->server.world.mmap));
	OK(doca_mmap_destroy(pair->server.world.mmap));
	pair->server.world.mmap = world_map(pair->server.world.dev, pair->server.world.memory, MEMORY_SIZE,
					    DOCA_ACCESS_FLAG_PCI_READ_WRITE);

	OK(doca_devinfo_rep_create_list(pair->server.world.dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	OK(doca_dev_rep_open(reps[0], &pair->rep));
	OK(doca_devinfo_rep_destroy_list(reps));

	OK(doca_comch_server_create(pair->server.world.dev, pair->rep, "test", &pair->server.server));
	if (message_size != 0)
		OK(doca_comch_server_set_max_msg_size(pair->server.server, message_size));
	OK(doca_comch_server_set_recv_queue_size(pair->server.server, 16));
	OK(doca_comch_server_task_send_set_conf(pair->server.server, doca_comch_task_send_completed,
						doca_comch_task_send_failed, TASKS(2)));
	OK(doca_comch_server_event_msg_recv_register(pair->server.server, received));
	OK(doca_comch_server_event_connection_status_changed_register(pair->server.server, connected, disconnected));
	OK(doca_comch_server_event_consumer_register(pair->server.server, consumer_came, consumer_went));
	data.ptr = &pair->server;
	OK(doca_pe_connect_ctx(pair->server.world.pe, doca_comch_server_as_ctx(pair->server.server)));
	OK(doca_ctx_set_user_data(doca_comch_server_as_ctx(pair->server.server), data));
	OK(doca_ctx_start(doca_comch_server_as_ctx(pair->server.server)));

	OK(doca_comch_client_create(pair->client.world.dev, "test", &pair->client.client));
	if (message_size != 0)
		OK(doca_comch_client_set_max_msg_size(pair->client.client, message_size));
	OK(doca_comch_client_set_recv_queue_size(pair->client.client, 16));
	OK(doca_comch_client_task_send_set_conf(pair->client.client, doca_comch_task_send_completed,
						doca_comch_task_send_failed, TASKS(2)));
	OK(doca_comch_client_event_msg_recv_register(pair->client.client, received));
	OK(doca_comch_client_event_consumer_register(pair->client.client, consumer_came, consumer_went));
	data.ptr = &pair->client;
	OK(doca_pe_connect_ctx(pair->client.world.pe, doca_comch_client_as_ctx(pair->client.client)));
	OK(doca_ctx_set_user_data(doca_comch_client_as_ctx(pair->client.client), data));
	result = doca_ctx_start(doca_comch_client_as_ctx(pair->client.client));
	CHECK(result == DOCA_ERROR_IN_PROGRESS);
	do {
		progress(pair);
		OK(doca_ctx_get_state(doca_comch_client_as_ctx(pair->client.client), &state));
	} while (state == DOCA_CTX_STATE_STARTING || pair->server.connections == 0);
	CHECK(state == DOCA_CTX_STATE_RUNNING);
	OK(doca_comch_client_get_connection(pair->client.client, &pair->client.connection));
	CHECK(pair->client.connection != NULL);
	return pair;
}

static inline void stop(struct pair *pair, struct doca_ctx *ctx)
{
	enum doca_ctx_states state;
	doca_error_t result = doca_ctx_stop(ctx);

	CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS);
	for (;;) {
		OK(doca_ctx_get_state(ctx, &state));
		if (state == DOCA_CTX_STATE_IDLE)
			return;
		progress(pair);
	}
}

static inline void pair_destroy(struct pair *pair)
{
	/* Not while they run. */
	CHECK(doca_comch_client_destroy(pair->client.client) != DOCA_SUCCESS);
	CHECK(doca_comch_server_destroy(pair->server.server) != DOCA_SUCCESS);
	stop(pair, doca_comch_client_as_ctx(pair->client.client));
	while (pair->server.disconnections == 0)
		progress(pair);
	stop(pair, doca_comch_server_as_ctx(pair->server.server));
	OK(doca_comch_client_destroy(pair->client.client));
	OK(doca_comch_server_destroy(pair->server.server));
	OK(doca_dev_rep_close(pair->rep));
	world_destroy(&pair->server.world);
	world_destroy(&pair->client.world);
	free(pair);
}

#endif
