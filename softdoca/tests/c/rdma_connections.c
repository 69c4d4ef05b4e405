/* RDMA connections by address: a listener and two clients. */
#include "rdma.h"

#include <unistd.h>

struct end {
	struct world *world;
	struct doca_rdma *rdma;
	struct doca_rdma_connection *connection;
	unsigned int requests, established, failures, disconnections;
	uint64_t user_data;
	bool rejects;
};

static void requested(struct doca_rdma_connection *connection, union doca_data ctx_data)
{
	struct end *end = ctx_data.ptr;
	union doca_data data = {.u64 = 77};

	end->requests++;
	if (end->rejects) {
		OK(doca_rdma_connection_reject(connection));
		return;
	}
	OK(doca_rdma_connection_accept(connection, NULL, 0));
	OK(doca_rdma_connection_set_user_data(connection, data));
}

static void established(struct doca_rdma_connection *connection, union doca_data data, union doca_data ctx_data)
{
	struct end *end = ctx_data.ptr;

	end->established++;
	end->connection = connection;
	end->user_data = data.u64;
}

static void failed(struct doca_rdma_connection *connection, union doca_data data, union doca_data ctx_data)
{
	(void)connection;
	(void)data;
	((struct end *)ctx_data.ptr)->failures++;
}

static void disconnected(struct doca_rdma_connection *connection, union doca_data data, union doca_data ctx_data)
{
	struct end *end = ctx_data.ptr;

	(void)data;
	end->disconnections++;
	/* The other end confirms the disconnection. */
	(void)doca_rdma_connection_disconnect(connection);
}

static void end_create(struct end *end, struct world *world)
{
	union doca_data data = {.ptr = end};

	memset(end, 0, sizeof(*end));
	end->world = world;
	end->rdma = rdma_create(world);
	OK(doca_rdma_set_max_num_connections(end->rdma, 2));
	OK(doca_rdma_set_connection_state_callbacks(end->rdma, requested, established, failed, disconnected));
	OK(doca_pe_connect_ctx(world->pe, doca_rdma_as_ctx(end->rdma)));
	OK(doca_ctx_set_user_data(doca_rdma_as_ctx(end->rdma), data));
	OK(doca_ctx_start(doca_rdma_as_ctx(end->rdma)));
}

static void end_destroy(struct end *end)
{
	world_stop(end->world, doca_rdma_as_ctx(end->rdma));
	OK(doca_rdma_destroy(end->rdma));
}

static uint16_t port(void)
{
	return (uint16_t)(20000 + getpid() % 20000);
}

TEST(addresses_are_kept, doca_rdma_addr_create, doca_rdma_addr_destroy, doca_rdma_addr_get_params)
{
	struct doca_rdma_addr *address = NULL;
	enum doca_rdma_addr_type type = DOCA_RDMA_ADDR_TYPE_GID;
	const char *text = NULL;
	uint16_t number = 0;

	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", 4711, &address));
	CHECK(address != NULL);
	OK(doca_rdma_addr_get_params(address, &type, &text, &number));
	CHECK(type == DOCA_RDMA_ADDR_TYPE_IPv4 && strcmp(text, "127.0.0.1") == 0 && number == 4711);
	OK(doca_rdma_addr_destroy(address));
	REFUSED(doca_rdma_addr_destroy(NULL));
}

TEST(connections_are_made_by_address, doca_rdma_start_listen_to_port, doca_rdma_connect_to_addr,
     doca_rdma_connection_accept, doca_rdma_set_connection_state_callbacks, doca_rdma_connection_set_user_data,
     doca_rdma_connection_get_user_data, doca_rdma_connection_get_id, doca_rdma_connection_get_addr,
     doca_rdma_connection_disconnect)
{
	struct world world = world_create();
	struct doca_rdma_addr *address, *of_connection = NULL;
	struct end listener, client;
	union doca_data data = {.u64 = 42}, found = {.u64 = 0};
	uint32_t id = UINT32_MAX;
	enum doca_rdma_addr_type type;
	const char *text;
	uint16_t number = 0;

	end_create(&listener, &world);
	end_create(&client, &world);
	OK(doca_rdma_start_listen_to_port(listener.rdma, port()));
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port(), &address));
	OK(doca_rdma_connect_to_addr(client.rdma, address, data));
	while (listener.established == 0 || client.established == 0)
		(void)doca_pe_progress(world.pe);
	CHECK(listener.requests == 1 && client.user_data == 42 && listener.user_data == 77);
	OK(doca_rdma_connection_get_user_data(client.connection, &found));
	CHECK(found.u64 == 42);
	OK(doca_rdma_connection_get_id(client.connection, &id));
	CHECK(id != UINT32_MAX);
	OK(doca_rdma_connection_get_addr(client.connection, &of_connection));
	OK(doca_rdma_addr_get_params(of_connection, &type, &text, &number));
	CHECK(number == port());
	OK(doca_rdma_connection_get_addr(listener.connection, &of_connection));
	OK(doca_rdma_addr_get_params(of_connection, &type, &text, &number));
	CHECK(type == DOCA_RDMA_ADDR_TYPE_IPv4 && strcmp(text, "127.0.0.1") == 0 && number == port());
	OK(doca_rdma_connection_disconnect(client.connection));
	while (listener.disconnections == 0)
		(void)doca_pe_progress(world.pe);
	OK(doca_rdma_addr_destroy(address));
	end_destroy(&client);
	end_destroy(&listener);
	world_destroy(&world);
}

TEST(requests_are_rejected, doca_rdma_connection_reject, doca_rdma_stop_listen_to_port)
{
	struct world world = world_create();
	struct doca_rdma_addr *address;
	struct end listener, client;

	end_create(&listener, &world);
	end_create(&client, &world);
	listener.rejects = true;
	OK(doca_rdma_start_listen_to_port(listener.rdma, port()));
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port(), &address));
	OK(doca_rdma_connect_to_addr(client.rdma, address, NO_DATA));
	while (client.failures == 0)
		(void)doca_pe_progress(world.pe);
	CHECK(listener.requests == 1 && client.established == 0);
	OK(doca_rdma_stop_listen_to_port(listener.rdma, port()));
	/* There is no listener now. */
	CHECK(doca_rdma_stop_listen_to_port(listener.rdma, port()) != DOCA_SUCCESS);
	OK(doca_rdma_addr_destroy(address));
	end_destroy(&client);
	end_destroy(&listener);
	world_destroy(&world);
}
