/* Errors that the API pages name for Comch and RDMA, and that have a condition of their own (see documented_core.c). */
#include "objects.h"

CALLBACKS(doca_rdma_task_receive)

static const struct doca_devinfo *info_of(struct doca_dev *dev)
{
	return doca_dev_as_devinfo(dev);
}

TEST(documented_errors_of_comch_devices, doca_comch_cap_client_is_supported, doca_comch_cap_server_is_supported)
{
	struct doca_dev *dpu = world_open(DPU_DEVICE), *host = world_open(HOST_DEVICE);

	DOCUMENTED(NOT_SUPPORTED, doca_comch_cap_client_is_supported(info_of(dpu)));
	DOCUMENTED(NOT_SUPPORTED, doca_comch_cap_server_is_supported(info_of(host)));
	OK(doca_dev_close(dpu));
	OK(doca_dev_close(host));
}

TEST(documented_errors_of_connections, doca_comch_connection_update_info, doca_comch_client_get_connection,
     doca_comch_consumer_create, doca_comch_producer_create, doca_comch_server_disconnect)
{
	struct pair *pair = pair_create(0);
	struct doca_mmap *map = pair->server.world.mmap;
	struct doca_comch_client *idle;
	struct doca_comch_connection *connection;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	uint64_t value;

	OK(doca_comch_client_create(pair->client.world.dev, "idle", &idle));
	DOCUMENTED(BAD_STATE, doca_comch_client_get_connection(idle, &connection));
	OK(doca_comch_client_destroy(idle));
	DOCUMENTED(INVALID_VALUE, doca_comch_connection_get_counter(pair->server.connection, (enum doca_comch_counter)99,
		   &value));
	OK(doca_comch_server_disconnect(pair->server.server, pair->server.connection));
	while (pair->server.disconnections == 0)
		progress(pair);
	DOCUMENTED(CONNECTION_ABORTED, doca_comch_connection_update_info(pair->server.connection));
	DOCUMENTED(BAD_STATE, doca_comch_consumer_create(pair->server.connection, map, &consumer));
	DOCUMENTED(BAD_STATE, doca_comch_producer_create(pair->server.connection, &producer));
	exit(EXIT_SUCCESS);
}

TEST(documented_errors_of_many_ends, doca_comch_consumer_create, doca_comch_producer_create)
{
	struct pair *pair = pair_create(0);
	struct doca_comch_consumer *consumer;
	/* Reachable at exit. */
	static struct doca_comch_producer *producers[1 << 16];
	unsigned int count = 0;

	/* As many as a connection has ids. */
	while (doca_comch_producer_create(pair->server.connection, &producers[count]) == DOCA_SUCCESS)
		count++;
	DOCUMENTED(NO_MEMORY, doca_comch_producer_create(pair->server.connection, &producers[count]));
	DOCUMENTED(NO_MEMORY, doca_comch_consumer_create(pair->server.connection, pair->server.world.mmap, &consumer));
	exit(EXIT_SUCCESS);
}

TEST(documented_errors_of_control_messages, doca_comch_server_disconnect, doca_comch_server_task_send_alloc_init,
     doca_comch_client_task_send_alloc_init)
{
	struct pair *pair = pair_create(0);
	/* Reachable at exit. */
	static struct doca_comch_task_send *tasks[8];
	struct doca_comch_task_send *task;
	static char message[4080];
	unsigned int completed = 0, silent = 0;

	for (int i = 0; i < 4; i++)
		OK(doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, message, 1,
							  &tasks[i]));
	DOCUMENTED(NO_MEMORY, doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, message,
		   1, &task));
	for (int i = 0; i < 4; i++)
		OK(doca_comch_server_task_send_alloc_init(pair->server.server, pair->server.connection, message,
							  sizeof(message), &tasks[4 + i]));
	DOCUMENTED(NO_MEMORY, doca_comch_server_task_send_alloc_init(pair->server.server, pair->server.connection, message,
		   1, &task));
	/* Messages until the client, which does not read, has no space for them. */
	for (int next = 0; silent < 100; next = (next + 1) % 4) {
		if (doca_task_submit(doca_comch_task_send_as_task(tasks[4 + next])) != DOCA_SUCCESS)
			silent++;
		completed = pair->server.world.completed;
		(void)doca_pe_progress(pair->server.world.pe);
		silent = completed == pair->server.world.completed ? silent + 1 : 0;
	}
	DOCUMENTED(AGAIN, doca_comch_server_disconnect(pair->server.server, pair->server.connection));
	exit(EXIT_SUCCESS);
}

TEST(documented_errors_of_events_in_bufs, doca_sync_event_set_doca_buf)
{
	struct world world = world_create();
	struct doca_sync_event *event;
	struct doca_buf *buf = world_data(&world, 0, 16);

	/* Of another length than 8, in memory without permissions for PCIe. */
	OK(doca_sync_event_create(&event));
	DOCUMENTED(NOT_PERMITTED, doca_sync_event_set_doca_buf(event, buf));
	OK(doca_sync_event_destroy(event));
	world_release(buf);
	world_destroy(&world);
}

TEST(documented_errors_of_rdma, doca_rdma_export, doca_rdma_connect, doca_rdma_set_max_num_connections, doca_rdma_set_grh_enabled, doca_rdma_set_transport_type,
     doca_rdma_set_recv_queue_size, doca_rdma_set_send_queue_size, doca_rdma_set_permissions,
     doca_rdma_start_listen_to_port, doca_rdma_connect_to_addr)
{
	struct world world = world_create();
	struct doca_rdma *rdma[2] = {rdma_create(&world), rdma_create(&world)};
	struct doca_rdma_connection *connection, *other, *spare;
	struct doca_rdma_addr *address;
	const void *details, *theirs;
	uint8_t broken[1024];
	size_t length, their_length;

	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", 4711, &address));
	for (int i = 0; i < 2; i++)
		OK(doca_rdma_task_receive_set_conf(rdma[i], doca_rdma_task_receive_completed, doca_rdma_task_receive_failed,
						   1));
	DOCUMENTED(INVALID_VALUE, doca_rdma_set_permissions(rdma[0], DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_set_max_num_connections(rdma[0], 0));
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_set_transport_type(rdma[0], (enum doca_rdma_transport_type)7));
	/* The ports are Ethernet. */
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_set_grh_enabled(rdma[0], 0));
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_set_recv_queue_size(rdma[0], UINT32_MAX));
	DOCUMENTED(NOT_SUPPORTED, doca_rdma_set_send_queue_size(rdma[0], UINT32_MAX));
	DOCUMENTED(BAD_STATE, doca_rdma_export(rdma[0], &details, &length, &connection));
	DOCUMENTED(BAD_STATE, doca_rdma_start_listen_to_port(rdma[0], 4711));
	DOCUMENTED(BAD_STATE, doca_rdma_connect_to_addr(rdma[0], address, NO_DATA));
	for (int i = 0; i < 2; i++)
		world_start(&world, doca_rdma_as_ctx(rdma[i]));
	OK(doca_rdma_export(rdma[0], &details, &length, &connection));
	DOCUMENTED(FULL, doca_rdma_export(rdma[0], &theirs, &their_length, &spare));
	OK(doca_rdma_export(rdma[1], &theirs, &their_length, &other));
	CHECK(their_length <= sizeof(broken));
	memset(broken, 0x5a, sizeof(broken));
	DOCUMENTED(CONNECTION_ABORTED, doca_rdma_connect(rdma[0], broken, their_length, connection));
	memcpy(broken, theirs, their_length);
	RETURNS(DOCA_ERROR_CONNECTION_ABORTED, doca_rdma_connect(rdma[0], broken, their_length - 1, connection));
	OK(doca_rdma_connect(rdma[0], theirs, their_length, connection));
	DOCUMENTED(BAD_STATE, doca_rdma_connect(rdma[0], theirs, their_length, connection));
	OK(doca_rdma_connect(rdma[1], details, length, other));
	for (int i = 0; i < 2; i++)
		world_stop(&world, doca_rdma_as_ctx(rdma[i]));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_rdma_connect(rdma[0], theirs, their_length, connection));
	for (int i = 0; i < 2; i++)
		OK(doca_rdma_destroy(rdma[i]));
	OK(doca_rdma_addr_destroy(address));
	world_destroy(&world);
}

/* Instances that are connected by address. */
static struct {
	struct world world;
	struct doca_rdma_connection *request;
} by_address;

static void requested(struct doca_rdma_connection *connection, union doca_data data)
{
	(void)data;
	by_address.request = connection;
}

static void unestablished(struct doca_rdma_connection *connection, union doca_data connection_data, union doca_data data)
{
	(void)connection;
	(void)connection_data;
	(void)data;
}

TEST(documented_errors_of_rdma_addresses, doca_rdma_connection_accept, doca_rdma_connection_reject, doca_rdma_addr_destroy)
{
	struct doca_rdma_addr *address;
	struct doca_rdma *instances[2];

	by_address.world = world_create();
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", 4712, &address));
	for (int i = 0; i < 2; i++) {
		instances[i] = rdma_create(&by_address.world);
		OK(doca_rdma_task_receive_set_conf(instances[i], doca_rdma_task_receive_completed,
						   doca_rdma_task_receive_failed, 1));
		OK(doca_rdma_set_connection_state_callbacks(instances[i], requested, unestablished, unestablished,
							    unestablished));
		world_start(&by_address.world, doca_rdma_as_ctx(instances[i]));
	}
	OK(doca_rdma_start_listen_to_port(instances[0], 4712));
	OK(doca_rdma_connect_to_addr(instances[1], address, NO_DATA));
	while (by_address.request == NULL)
		(void)doca_pe_progress(by_address.world.pe);
	DOCUMENTED(BAD_STATE, doca_rdma_addr_destroy(address));
	/* The client leaves before it is accepted. */
	world_stop(&by_address.world, doca_rdma_as_ctx(instances[1]));
	for (int i = 0; i < 1000; i++)
		(void)doca_pe_progress(by_address.world.pe);
	DOCUMENTED(CONNECTION_ABORTED, doca_rdma_connection_accept(by_address.request, NULL, 0));
	DOCUMENTED(CONNECTION_ABORTED, doca_rdma_connection_reject(by_address.request));
	exit(EXIT_SUCCESS);
}
