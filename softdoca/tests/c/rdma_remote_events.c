/* RDMA tasks on a sync event of the peer: two contexts of one process. */
#include "rdma.h"

#include <doca_sync_event.h>

CALLBACKS(doca_rdma_task_remote_net_sync_event_get)
CALLBACKS(doca_rdma_task_remote_net_sync_event_notify_set)
CALLBACKS(doca_rdma_task_remote_net_sync_event_notify_add)

struct pair {
	struct world world;
	struct doca_rdma *near, *far;
	struct doca_rdma_connection *connection, *spare; /* of near; the spare one is not connected */
	struct doca_sync_event *event;                   /* of the peer */
	struct doca_sync_event_remote_net *remote, *other;
};

static struct doca_rdma *instance(struct world *world)
{
	struct doca_rdma *rdma = rdma_create(world);

#define CONFIGURE(kind)                                                                                                \
	OK(doca_rdma_task_remote_net_sync_event_##kind##_set_conf(                                                     \
		rdma, doca_rdma_task_remote_net_sync_event_##kind##_completed,                                         \
		doca_rdma_task_remote_net_sync_event_##kind##_failed, 1))
	CONFIGURE(get);
	CONFIGURE(notify_set);
	CONFIGURE(notify_add);
	OK(doca_rdma_set_max_num_connections(rdma, 2));
	world_start(world, doca_rdma_as_ctx(rdma));
	return rdma;
}

static void pair_create(struct pair *pair)
{
	struct doca_rdma_connection *far_connection;
	const void *near_details, *far_details;
	size_t near_length, far_length, length = 0;
	const uint8_t *blob = NULL;

	memset(pair, 0, sizeof(*pair));
	pair->world = world_create();
	pair->near = instance(&pair->world);
	pair->far = instance(&pair->world);
	OK(doca_rdma_export(pair->near, &near_details, &near_length, &pair->connection));
	OK(doca_rdma_export(pair->far, &far_details, &far_length, &far_connection));
	OK(doca_rdma_connect(pair->near, far_details, far_length, pair->connection));
	OK(doca_rdma_connect(pair->far, near_details, near_length, far_connection));
	OK(doca_rdma_export(pair->near, &near_details, &near_length, &pair->spare));
	OK(doca_sync_event_create(&pair->event));
	OK(doca_sync_event_add_publisher_location_remote_net(pair->event));
	OK(doca_sync_event_add_subscriber_location_cpu(pair->event, pair->world.dev));
	OK(doca_sync_event_start(pair->event));
	OK(doca_sync_event_export_to_remote_net(pair->event, &blob, &length));
	CHECK(blob != NULL && length > 0 && length <= 512);
	OK(doca_sync_event_remote_net_create_from_export(pair->world.dev, blob, length, &pair->remote));
	OK(doca_sync_event_remote_net_create_from_export(pair->world.dev, blob, length, &pair->other));
	CHECK(pair->remote != NULL && pair->other != NULL);
}

static void pair_destroy(struct pair *pair)
{
	OK(doca_sync_event_remote_net_destroy(pair->remote));
	OK(doca_sync_event_remote_net_destroy(pair->other));
	REFUSED(doca_sync_event_remote_net_destroy(NULL));
	world_stop(&pair->world, doca_rdma_as_ctx(pair->near));
	world_stop(&pair->world, doca_rdma_as_ctx(pair->far));
	OK(doca_rdma_destroy(pair->near));
	OK(doca_rdma_destroy(pair->far));
	OK(doca_sync_event_stop(pair->event));
	OK(doca_sync_event_destroy(pair->event));
	world_destroy(&pair->world);
}

/* Checks and replaces a field of a task. */
#define FIELD(kind, field, task, old, new)                                                                             \
	do {                                                                                                           \
		CHECK(doca_rdma_task_remote_net_sync_event_##kind##_get_##field(task) == (old));                       \
		doca_rdma_task_remote_net_sync_event_##kind##_set_##field(task, new);                                  \
		CHECK(doca_rdma_task_remote_net_sync_event_##kind##_get_##field(task) == (new));                       \
	} while (0)

TEST(events_of_peers_are_got, doca_rdma_task_remote_net_sync_event_get_set_conf,
     doca_rdma_task_remote_net_sync_event_get_allocate_init, doca_rdma_task_remote_net_sync_event_get_as_task,
     doca_rdma_task_remote_net_sync_event_get_set_dst_buf, doca_rdma_task_remote_net_sync_event_get_get_dst_buf,
     doca_rdma_task_remote_net_sync_event_get_set_sync_event, doca_rdma_task_remote_net_sync_event_get_get_sync_event,
     doca_rdma_task_remote_net_sync_event_get_set_rdma_connection,
     doca_rdma_task_remote_net_sync_event_get_get_rdma_connection, doca_rdma_task_remote_net_sync_event_get_get_result_len,
     doca_sync_event_export_to_remote_net, doca_sync_event_remote_net_create_from_export,
     doca_sync_event_remote_net_destroy)
{
	struct pair pair;
	struct doca_buf *dst, *other;
	struct doca_rdma_task_remote_net_sync_event_get *task = NULL;

	pair_create(&pair);
	dst = world_room(&pair.world, 0, 8);
	other = world_room(&pair.world, 4096, 8);
	OK(doca_sync_event_update_set(pair.event, 42));
	OK(doca_rdma_task_remote_net_sync_event_get_allocate_init(pair.near, pair.spare, pair.other, other, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(get, dst_buf, task, other, dst);
	FIELD(get, sync_event, task, pair.other, pair.remote);
	FIELD(get, rdma_connection, task, pair.spare, pair.connection);
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_get_as_task(task), true);
	CHECK(word(&pair.world, 0) == 42 && word(&pair.world, 4096) == 0);
	CHECK(data_length(dst) == 8);
	CHECK(doca_rdma_task_remote_net_sync_event_get_get_result_len(task) == 8);
	doca_task_free(doca_rdma_task_remote_net_sync_event_get_as_task(task));
	world_release(dst);
	world_release(other);
	pair_destroy(&pair);
}

TEST(events_of_peers_are_set, doca_rdma_task_remote_net_sync_event_notify_set_set_conf,
     doca_rdma_task_remote_net_sync_event_notify_set_allocate_init,
     doca_rdma_task_remote_net_sync_event_notify_set_as_task,
     doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf,
     doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf,
     doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event,
     doca_rdma_task_remote_net_sync_event_notify_set_get_sync_event,
     doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection,
     doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *src, *other;
	struct doca_rdma_task_remote_net_sync_event_notify_set *task = NULL;
	uint64_t value = 0xd0ca;

	pair_create(&pair);
	memcpy(pair.world.memory, &value, sizeof(value));
	src = world_data(&pair.world, 0, 8);
	other = world_data(&pair.world, 4096, 8);
	OK(doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(pair.near, pair.spare, pair.other, other, NO_DATA,
									 &task));
	CHECK(task != NULL);
	FIELD(notify_set, src_buf, task, other, src);
	FIELD(notify_set, sync_event, task, pair.other, pair.remote);
	FIELD(notify_set, rdma_connection, task, pair.spare, pair.connection);
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_notify_set_as_task(task), true);
	OK(doca_sync_event_get(pair.event, &value));
	CHECK(value == 0xd0ca);
	doca_task_free(doca_rdma_task_remote_net_sync_event_notify_set_as_task(task));
	world_release(src);
	world_release(other);
	pair_destroy(&pair);
}

TEST(events_of_peers_are_added_to, doca_rdma_task_remote_net_sync_event_notify_add_set_conf,
     doca_rdma_task_remote_net_sync_event_notify_add_allocate_init,
     doca_rdma_task_remote_net_sync_event_notify_add_as_task,
     doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf,
     doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf,
     doca_rdma_task_remote_net_sync_event_notify_add_set_add_data,
     doca_rdma_task_remote_net_sync_event_notify_add_get_add_data,
     doca_rdma_task_remote_net_sync_event_notify_add_set_sync_event,
     doca_rdma_task_remote_net_sync_event_notify_add_get_sync_event,
     doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection,
     doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *result, *other;
	struct doca_rdma_task_remote_net_sync_event_notify_add *task = NULL;
	uint64_t value = 0;

	pair_create(&pair);
	OK(doca_sync_event_update_set(pair.event, 40));
	result = world_room(&pair.world, 0, 8);
	other = world_room(&pair.world, 4096, 8);
	OK(doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(pair.near, pair.spare, pair.other, other, 1, NO_DATA,
									 &task));
	CHECK(task != NULL);
	FIELD(notify_add, result_buf, task, other, result);
	FIELD(notify_add, add_data, task, 1, 2);
	FIELD(notify_add, sync_event, task, pair.other, pair.remote);
	FIELD(notify_add, rdma_connection, task, pair.spare, pair.connection);
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_notify_add_as_task(task), true);
	OK(doca_sync_event_get(pair.event, &value));
	CHECK(value == 42 && word(&pair.world, 0) == 40 && word(&pair.world, 4096) == 0);
	doca_task_free(doca_rdma_task_remote_net_sync_event_notify_add_as_task(task));
	world_release(result);
	world_release(other);
	pair_destroy(&pair);
}

TEST(devices_reach_events_of_peers, doca_rdma_cap_task_remote_net_sync_event_get_is_supported,
     doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported,
     doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported)
{
	struct world world = world_create();

	OK(doca_rdma_cap_task_remote_net_sync_event_get_is_supported(world.info));
	OK(doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported(world.info));
	OK(doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported(world.info));
	REFUSED(doca_rdma_cap_task_remote_net_sync_event_get_is_supported(NULL));
	REFUSED(doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported(NULL));
	REFUSED(doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported(NULL));
	world_destroy(&world);
}

/* Functions for a DPA, a GPU and rdma-core: not supported, and NULL is refused. */
TEST(other_data_paths_are_not_supported, doca_rdma_get_dpa_handle, doca_rdma_get_gpu_handle, doca_rdma_dpa_completion_attach,
     doca_rdma_bridge_prepare_connection, doca_rdma_bridge_accept, doca_rdma_bridge_established)
{
	struct world world = world_create();
	struct doca_rdma *rdma = rdma_create(&world);

	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_get_dpa_handle(rdma, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_get_gpu_handle(rdma, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_dpa_completion_attach(rdma, NULL));
	REFUSED(doca_rdma_get_dpa_handle(NULL, NULL));
	REFUSED(doca_rdma_get_gpu_handle(NULL, NULL));
	REFUSED(doca_rdma_dpa_completion_attach(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_prepare_connection(rdma, NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_accept(rdma, NULL, 0, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_established(rdma, NULL));
	REFUSED(doca_rdma_bridge_prepare_connection(NULL, NULL, NULL));
	REFUSED(doca_rdma_bridge_accept(NULL, NULL, 0, NULL));
	REFUSED(doca_rdma_bridge_established(NULL, NULL));
	OK(doca_rdma_destroy(rdma));
	world_destroy(&world);
}
