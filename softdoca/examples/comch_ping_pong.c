/*
 * Sends a message back and forth over a Comch connection.
 *
 *   comch_ping_pong server 03:00.0 3b:00.0     on the DPU: its device, and the representor of the host's
 *   comch_ping_pong client 3b:00.0 1000        on the host: its device, and the number of round trips
 *
 * The client increments a counter in the message; the server echoes each message.
 */
#include "check.h"
#include "devices.h"

#include <doca_comch.h>
#include <doca_ctx.h>
#include <doca_pe.h>

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sysexits.h>

#define SERVICE "ping-pong"
#define SEND_TASKS 16

/* One end of the connection. The callbacks find it in their context's user data. */
struct end {
	struct doca_ctx *ctx;
	struct doca_comch_server *server; /* on the DPU */
	struct doca_comch_client *client; /* on the host */
	uint64_t rounds;                  /* requested by the client */
	uint64_t done;                    /* completed */
	bool finished;
};

static struct end *end_of(struct doca_comch_connection *connection)
{
	struct doca_comch_server *server = doca_comch_server_get_server_ctx(connection);
	struct doca_ctx *ctx = server != NULL ? doca_comch_server_as_ctx(server) :
						doca_comch_client_as_ctx(doca_comch_client_get_client_ctx(connection));
	union doca_data data;

	CHECK(doca_ctx_get_user_data(ctx, &data));
	return data.ptr;
}

static void send_count(struct end *end, struct doca_comch_connection *connection, uint64_t count)
{
	struct doca_comch_task_send *task;

	/* The message is copied when the task is submitted. */
	if (end->server != NULL)
		CHECK(doca_comch_server_task_send_alloc_init(end->server, connection, &count, sizeof(count), &task));
	else
		CHECK(doca_comch_client_task_send_alloc_init(end->client, connection, &count, sizeof(count), &task));
	CHECK(doca_task_submit(doca_comch_task_send_as_task(task)));
}

static void sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void not_sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	struct end *end = ctx_data.ptr;
	doca_error_t status = doca_task_get_status(doca_comch_task_send_as_task(task));

	(void)task_data;
	doca_task_free(doca_comch_task_send_as_task(task));
	/* A stopping context returns its tasks by this callback. */
	if (!end->finished)
		CHECK(status);
}

static void received(struct doca_comch_event_msg_recv *event, uint8_t *message, uint32_t length,
		     struct doca_comch_connection *connection)
{
	struct end *end = end_of(connection);
	uint64_t count;

	(void)event;
	if (length != sizeof(count)) {
		fprintf(stderr, "expected a message of %zu bytes, received %" PRIu32 "\n", sizeof(count), length);
		exit(EXIT_FAILURE);
	}
	memcpy(&count, message, sizeof(count));
	end->done++;
	if (end->server != NULL) {
		send_count(end, connection, count);
		return;
	}
	if (count != end->done) {
		fprintf(stderr, "expected %" PRIu64 " back, received %" PRIu64 "\n", end->done, count);
		exit(EXIT_FAILURE);
	}
	if (end->done == end->rounds)
		end->finished = true;
	else
		send_count(end, connection, count + 1);
}

static void connected(struct doca_comch_event_connection_status_changed *event,
		      struct doca_comch_connection *connection, uint8_t successful)
{
	(void)event;
	(void)connection;
	if (!successful)
		fprintf(stderr, "a client could not connect\n");
}

static void disconnected(struct doca_comch_event_connection_status_changed *event,
			 struct doca_comch_connection *connection, uint8_t successful)
{
	(void)event;
	(void)successful;
	/* This server accepts one client. */
	end_of(connection)->finished = true;
}

static enum doca_ctx_states state_of(struct end *end)
{
	enum doca_ctx_states state;

	CHECK(doca_ctx_get_state(end->ctx, &state));
	return state;
}

/* Stops the context and waits until its tasks have completed. */
static void stop(struct end *end, struct doca_pe *pe)
{
	doca_error_t result = doca_ctx_stop(end->ctx);

	if (result != DOCA_ERROR_IN_PROGRESS)
		CHECK(result);
	while (state_of(end) != DOCA_CTX_STATE_IDLE)
		(void)doca_pe_progress(pe);
}

static void run_server(struct doca_pe *pe, const char *device_address, const char *representor_address)
{
	struct doca_dev *device = open_device(device_address);
	struct doca_dev_rep *representor = open_representor(device, representor_address);
	struct end end = {0};
	union doca_data data = {.ptr = &end};

	CHECK(doca_comch_server_create(device, representor, SERVICE, &end.server));
	end.ctx = doca_comch_server_as_ctx(end.server);
	CHECK(doca_pe_connect_ctx(pe, end.ctx));
	CHECK(doca_ctx_set_user_data(end.ctx, data));
	CHECK(doca_comch_server_task_send_set_conf(end.server, sent, not_sent, SEND_TASKS));
	CHECK(doca_comch_server_event_msg_recv_register(end.server, received));
	CHECK(doca_comch_server_event_connection_status_changed_register(end.server, connected, disconnected));
	CHECK(doca_ctx_start(end.ctx));

	while (!end.finished)
		(void)doca_pe_progress(pe);
	stop(&end, pe);
	CHECK(doca_comch_server_destroy(end.server));
	CHECK(doca_dev_rep_close(representor));
	CHECK(doca_dev_close(device));
	printf("answered %" PRIu64 " messages\n", end.done);
}

static void run_client(struct doca_pe *pe, const char *device_address, uint64_t rounds)
{
	struct doca_dev *device = open_device(device_address);
	struct end end = {.rounds = rounds};
	union doca_data data = {.ptr = &end};
	struct doca_comch_connection *connection;
	doca_error_t result;

	CHECK(doca_comch_client_create(device, SERVICE, &end.client));
	end.ctx = doca_comch_client_as_ctx(end.client);
	CHECK(doca_pe_connect_ctx(pe, end.ctx));
	CHECK(doca_ctx_set_user_data(end.ctx, data));
	CHECK(doca_comch_client_task_send_set_conf(end.client, sent, not_sent, SEND_TASKS));
	CHECK(doca_comch_client_event_msg_recv_register(end.client, received));
	result = doca_ctx_start(end.ctx);
	if (result != DOCA_ERROR_IN_PROGRESS)
		CHECK(result);
	while (state_of(&end) == DOCA_CTX_STATE_STARTING)
		(void)doca_pe_progress(pe);
	if (state_of(&end) != DOCA_CTX_STATE_RUNNING) {
		fprintf(stderr, "there is no server; start it first\n");
		exit(EX_UNAVAILABLE);
	}

	CHECK(doca_comch_client_get_connection(end.client, &connection));
	send_count(&end, connection, 1);
	while (!end.finished)
		(void)doca_pe_progress(pe);
	stop(&end, pe);
	CHECK(doca_comch_client_destroy(end.client));
	CHECK(doca_dev_close(device));
	printf("%" PRIu64 " round trips\n", end.done);
}

int main(int argc, char **argv)
{
	struct doca_pe *pe;
	uint64_t rounds = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
	bool server = argc == 4 && strcmp(argv[1], "server") == 0;
	bool client = argc == 4 && strcmp(argv[1], "client") == 0 && rounds > 0;

	if (!server && !client) {
		fprintf(stderr, "usage: %s server DEVICE REPRESENTOR | client DEVICE ROUNDS\n", argv[0]);
		return EXIT_FAILURE;
	}
	CHECK(doca_pe_create(&pe));
	if (server)
		run_server(pe, argv[2], argv[3]);
	else
		run_client(pe, argv[2], rounds);
	CHECK(doca_pe_destroy(pe));
	return EXIT_SUCCESS;
}
