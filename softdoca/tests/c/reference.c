/*
 * Undocumented behaviour that NVIDIA's reference programs rely on: one test for each, so that it is verified without these programs.
 */
#include "comch.h"

#include <doca_dma.h>
#include <doca_erasure_coding.h>

#include <pthread.h>

CALLBACKS(doca_dma_task_memcpy)
CALLBACKS(doca_ec_task_create)

static struct doca_dma *dma_create(struct world *world)
{
	struct doca_dma *dma;
	union doca_data data = {.ptr = world};

	OK(doca_dma_create(world->dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 8));
	OK(doca_pe_connect_ctx(world->pe, doca_dma_as_ctx(dma)));
	OK(doca_ctx_set_user_data(doca_dma_as_ctx(dma), data));
	return dma;
}

static enum doca_ctx_states state_of(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(ctx, &state));
	return state;
}

static unsigned int seen[4];

static void stop_when_running(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states from,
			      enum doca_ctx_states to)
{
	(void)data;
	(void)from;
	seen[to]++;
	if (to == DOCA_CTX_STATE_RUNNING)
		OK(doca_ctx_stop(ctx));
}

TEST(a_start_succeeds_whose_callback_stops, doca_ctx_start, doca_ctx_stop, doca_ctx_set_state_changed_cb)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);

	/* Idle already. */
	OK(doca_ctx_stop(ctx));
	OK(doca_ctx_set_state_changed_cb(ctx, stop_when_running));
	OK(doca_ctx_start(ctx));
	CHECK(state_of(ctx) == DOCA_CTX_STATE_IDLE);
	CHECK(seen[DOCA_CTX_STATE_RUNNING] == 1 && seen[DOCA_CTX_STATE_IDLE] == 1);
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(a_stop_waits_for_allocated_tasks, doca_ctx_stop, doca_task_free)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);
	struct doca_buf *src = world_data(&world, 0, 100), *dst = world_room(&world, 4096, 100);
	struct doca_dma_task_memcpy *idle, *flying;

	OK(doca_ctx_start(ctx));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &idle));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &flying));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(flying)));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
	CHECK(state_of(ctx) == DOCA_CTX_STATE_STOPPING);
	/* Tasks in flight complete through the error callback. */
	while (world.failed + world.completed == 0)
		(void)doca_pe_progress(world.pe);
	CHECK(world.failed == 1);
	doca_task_free(doca_dma_task_memcpy_as_task(flying));
	CHECK(state_of(ctx) == DOCA_CTX_STATE_STOPPING);
	doca_task_free(doca_dma_task_memcpy_as_task(idle));
	while (state_of(ctx) != DOCA_CTX_STATE_IDLE)
		(void)doca_pe_progress(world.pe);
	world_release(src);
	world_release(dst);
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(a_dma_task_that_fails_stops_its_context, doca_ctx_get_state)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct doca_buf *src = world_data(&world, 0, 100), *dst = world_room(&world, 4096, 10);
	struct doca_dma_task_memcpy *task;

	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &task));
	world_run(&world, doca_dma_task_memcpy_as_task(task), false);
	CHECK(state_of(doca_dma_as_ctx(dma)) == DOCA_CTX_STATE_STOPPING);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	while (state_of(doca_dma_as_ctx(dma)) != DOCA_CTX_STATE_IDLE)
		(void)doca_pe_progress(world.pe);
	world_release(src);
	world_release(dst);
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(messages_submitted_before_the_stop_arrive, doca_ctx_stop)
{
	struct pair *pair = pair_create(0);
	struct doca_ctx *ctx = doca_comch_client_as_ctx(pair->client.client);
	struct doca_comch_task_send *task;
	doca_error_t result;

	OK(doca_comch_client_task_send_alloc_init(pair->client.client, pair->client.connection, "last", 4, &task));
	OK(doca_task_submit(doca_comch_task_send_as_task(task)));
	result = doca_ctx_stop(ctx);
	CHECK(result == DOCA_ERROR_IN_PROGRESS);
	while (pair->client.world.completed + pair->client.world.failed == 0 || pair->server.messages == 0)
		progress(pair);
	CHECK(memcmp(pair->server.message, "last", 4) == 0);
	doca_task_free(doca_comch_task_send_as_task(task));
	while (state_of(ctx) != DOCA_CTX_STATE_IDLE || pair->server.disconnections == 0)
		progress(pair);
	stop(pair, doca_comch_server_as_ctx(pair->server.server));
	OK(doca_comch_client_destroy(pair->client.client));
	OK(doca_comch_server_destroy(pair->server.server));
	OK(doca_dev_rep_close(pair->rep));
	world_destroy(&pair->server.world);
	world_destroy(&pair->client.world);
	free(pair);
}

TEST(a_message_of_the_default_size_holds_a_blob, doca_comch_server_task_send_alloc_init)
{
	struct pair *pair = pair_create(0);
	struct doca_comch_task_send *task;
	/* A frame with the description of a memory map. */
	static const char message[16 + 8 + 512];

	OK(doca_comch_server_task_send_alloc_init(pair->server.server, pair->server.connection, message, sizeof(message),
						  &task));
	doca_task_free(doca_comch_task_send_as_task(task));
	pair_destroy(pair);
}

/* A consumer and a producer in a thread that does not progress the connection. */
struct worker {
	struct pair *pair;
	_Atomic bool stopped;
	struct world world;
};

#define LARGE (1024 * 1024)

static void wait_for(struct world *world, struct doca_ctx *ctx, enum doca_ctx_states wanted)
{
	while (state_of(ctx) != wanted)
		(void)doca_pe_progress(world->pe);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct pair *pair = worker->pair;
	struct world *world = &worker->world;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	struct doca_comch_consumer_task_post_recv *receive;
	struct doca_comch_producer_task_send *send;
	struct doca_buf *data, *room;
	struct doca_mmap *map, *source;
	union doca_data user_data = {.ptr = world};
	uint8_t *memory = aligned_alloc(4096, 2 * LARGE);
	uint32_t id = 0;

	CHECK(memory != NULL);
	memset(memory, 0, 2 * LARGE);
	memset(memory, 0x5a, LARGE);
	source = world_map(pair->client.world.dev, memory, LARGE, DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	map = world_map(pair->server.world.dev, memory + LARGE, LARGE, DOCA_ACCESS_FLAG_PCI_READ_WRITE);

	/* To the server. */
	OK(doca_comch_consumer_create(pair->server.connection, map, &consumer));
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_consumer_as_ctx(consumer)));
	OK(doca_ctx_set_user_data(doca_comch_consumer_as_ctx(consumer), user_data));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(doca_comch_consumer_as_ctx(consumer)));
	wait_for(world, doca_comch_consumer_as_ctx(consumer), DOCA_CTX_STATE_RUNNING);
	OK(doca_comch_consumer_get_id(consumer, &id));
	CHECK(id != 0 && id != 0xffff);

	OK(doca_comch_producer_create(pair->client.connection, &producer));
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_producer_as_ctx(producer)));
	OK(doca_ctx_set_user_data(doca_comch_producer_as_ctx(producer), user_data));
	OK(doca_ctx_start(doca_comch_producer_as_ctx(producer)));
	while (pair->client.consumers == 0)
		(void)doca_pe_progress(world->pe);

	OK(doca_buf_inventory_buf_get_by_data(world->inventory, source, memory, LARGE, &data));
	OK(doca_buf_inventory_buf_get_by_addr(world->inventory, map, memory + LARGE, LARGE, &room));
	OK(doca_comch_producer_task_send_alloc_init(producer, data, NULL, 0, id, &send));
	/* Nothing is posted. */
	RETURNS(DOCA_ERROR_AGAIN, doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, room, &receive));
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));
	/* A buffer is posted: completes at once. */
	OK(doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	while (world->completed < 2)
		(void)doca_pe_progress(world->pe);
	CHECK(data_length(room) == LARGE && memcmp(memory, memory + LARGE, LARGE) == 0);

	doca_task_free(doca_comch_producer_task_send_as_task(send));
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(receive));
	world_release(data);
	world_release(room);
	(void)doca_ctx_stop(doca_comch_producer_as_ctx(producer));
	wait_for(world, doca_comch_producer_as_ctx(producer), DOCA_CTX_STATE_IDLE);
	(void)doca_ctx_stop(doca_comch_consumer_as_ctx(consumer));
	wait_for(world, doca_comch_consumer_as_ctx(consumer), DOCA_CTX_STATE_IDLE);
	OK(doca_comch_producer_destroy(producer));
	OK(doca_comch_consumer_destroy(consumer));
	OK(doca_mmap_stop(map));
	OK(doca_mmap_destroy(map));
	OK(doca_mmap_stop(source));
	OK(doca_mmap_destroy(source));
	free(memory);
	worker->stopped = true;
	return NULL;
}

TEST(the_fast_path_has_threads_of_its_own, doca_comch_consumer_create, doca_comch_producer_create,
     doca_comch_producer_task_send_alloc_init)
{
	struct pair *pair = pair_create(0);
	struct worker worker = {.pair = pair};
	pthread_t thread;

	worker.world = world_create();
	CHECK(pthread_create(&thread, NULL, work, &worker) == 0);
	while (!worker.stopped)
		progress(pair);
	CHECK(pthread_join(thread, NULL) == 0);
	while (pair->client.expired == 0)
		progress(pair);
	world_destroy(&worker.world);
	pair_destroy(pair);
}

TEST(imported_maps_need_no_start, doca_mmap_create_from_export, doca_mmap_enable_thread_safety, doca_mmap_stop)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	static uint8_t memory[8192];
	struct doca_mmap *map = world_map(host, memory, sizeof(memory),
					  DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE);
	struct doca_mmap *imported;
	struct doca_buf *local, *remote;
	struct doca_dma *dma = dma_create(&world);
	struct doca_dma_task_memcpy *task;
	const void *blob, *again;
	size_t size;

	OK(doca_mmap_export_pci(map, host, &blob, &size));
	OK(doca_mmap_create_from_export(NULL, blob, size, world.dev, &imported));
	OK(doca_mmap_enable_thread_safety(imported));
	/* It can be exported again, as zero copy does. */
	OK(doca_mmap_export_rdma(imported, world.dev, &again, &size));

	memcpy(world.memory, "over there", 10);
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	local = world_data(&world, 0, 10);
	OK(doca_buf_inventory_buf_get_by_addr(world.inventory, imported, memory + 100, 10, &remote));
	OK(doca_dma_task_memcpy_alloc_init(dma, local, remote, NO_DATA, &task));
	world_run(&world, doca_dma_task_memcpy_as_task(task), true);
	CHECK(memcmp(memory + 100, "over there", 10) == 0);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_release(local);
	world_release(remote);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	OK(doca_mmap_stop(imported));
	OK(doca_mmap_destroy(imported));
	OK(doca_mmap_stop(map));
	OK(doca_mmap_destroy(map));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(access_for_a_peer_is_access_for_the_owner, doca_mmap_set_permissions)
{
	struct world world = world_create();
	uint8_t memory[] = "mine";
	/* Neither of the local permissions. */
	struct doca_mmap *map = world_map(world.dev, memory, sizeof(memory), DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	struct doca_dma *dma = dma_create(&world);
	struct doca_buf *src = world_data(&world, 0, 4), *dst;
	struct doca_dma_task_memcpy *task;

	memcpy(world.memory, "ours", 4);
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	OK(doca_buf_inventory_buf_get_by_addr(world.inventory, map, memory, 4, &dst));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &task));
	world_run(&world, doca_dma_task_memcpy_as_task(task), true);
	CHECK(memcmp(memory, "ours", 4) == 0);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_release(src);
	world_release(dst);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	OK(doca_mmap_stop(map));
	OK(doca_mmap_destroy(map));
	world_destroy(&world);
}

TEST(results_are_appended_and_bufs_keep_their_lists, doca_buf_inventory_buf_reuse_by_addr, doca_buf_inventory_buf_reuse_by_data)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct doca_buf *src = world_data(&world, 0, 3), *dst, *head, *tail, *next = NULL;
	struct doca_dma_task_memcpy *task;
	size_t length = 0;

	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	memcpy(world.memory, "tail", 4);
	memcpy(world.memory + 4096, "head-", 5);
	OK(doca_buf_inventory_buf_get_by_args(world.inventory, world.mmap, world.memory + 4096, 100, world.memory + 4096, 5,
					      &dst));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &task));
	world_run(&world, doca_dma_task_memcpy_as_task(task), true);
	CHECK(data_length(dst) == 8 && memcmp(world.memory + 4096, "head-tai", 8) == 0);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_release(src);
	world_release(dst);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));

	/* Longer than initially; its link is unchanged. */
	head = world_data(&world, 0, 1);
	tail = world_data(&world, 10, 1);
	OK(doca_buf_chain_list(head, tail));
	OK(doca_buf_inventory_buf_reuse_by_data(head, world.memory + 100, 5000));
	OK(doca_buf_get_next_in_list(head, &next));
	CHECK(next == tail && data_length(head) == 5000);
	OK(doca_buf_inventory_buf_reuse_by_addr(head, world.memory, MEMORY_SIZE));
	OK(doca_buf_get_len(head, &length));
	CHECK(length == MEMORY_SIZE);
	REFUSED(doca_buf_inventory_buf_reuse_by_addr(head, world.memory + 1, MEMORY_SIZE));
	world_release(head);
	world_destroy(&world);
}

TEST(matrices_may_go_before_their_tasks, doca_ec_matrix_destroy, doca_ec_task_create_allocate_init)
{
	struct world world = world_create();
	struct doca_ec *ec;
	struct doca_ec_matrix *matrix;
	/* Block size is the whole divided by the number of blocks. */
	struct doca_buf *data = world_data(&world, 0, 2 * 128), *parity = world_room(&world, 4096, 128);
	struct doca_ec_task_create *task;

	OK(doca_ec_create(world.dev, &ec));
	OK(doca_ec_task_create_set_conf(ec, doca_ec_task_create_completed, doca_ec_task_create_failed, 1));
	world_start(&world, doca_ec_as_ctx(ec));
	OK(doca_ec_matrix_create(ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 2, 1, &matrix));
	memset(world.memory, 0x0f, 128);
	memset(world.memory + 128, 0xf1, 128);
	OK(doca_ec_task_create_allocate_init(ec, matrix, data, parity, NO_DATA, &task));
	OK(doca_ec_matrix_destroy(matrix));
	world_run(&world, doca_ec_task_create_as_task(task), true);
	CHECK(data_length(parity) == 128 && world.memory[4096] == 0xfe);
	doca_task_free(doca_ec_task_create_as_task(task));
	world_release(data);
	world_release(parity);
	world_stop(&world, doca_ec_as_ctx(ec));
	OK(doca_ec_destroy(ec));
	world_destroy(&world);
}
