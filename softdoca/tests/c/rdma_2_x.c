/* RDMA and sync events of 2.5 and 2.6: two contexts of one process, each with one connection, which is made while it starts. */
#include "rdma.h"

#include <doca_sync_event.h>
#include <doca_version.h>

#if DOCA_VERSION_MINOR < 6
#define doca_rdma_task_receive_get_result_len doca_rdma_task_receive_get_result_length
#define doca_rdma_task_read_get_result_len doca_rdma_task_read_get_result_length
#define doca_rdma_task_remote_net_sync_event_get_get_result_len                                                        \
	doca_rdma_task_remote_net_sync_event_get_get_result_length
#endif

CALLBACKS(doca_rdma_task_receive)
CALLBACKS(doca_rdma_task_send)
CALLBACKS(doca_rdma_task_send_imm)
CALLBACKS(doca_rdma_task_read)
CALLBACKS(doca_rdma_task_write)
CALLBACKS(doca_rdma_task_write_imm)
CALLBACKS(doca_rdma_task_atomic_cmp_swp)
CALLBACKS(doca_rdma_task_atomic_fetch_add)
CALLBACKS(doca_rdma_task_remote_net_sync_event_get)
CALLBACKS(doca_rdma_task_remote_net_sync_event_notify_set)
CALLBACKS(doca_rdma_task_remote_net_sync_event_notify_add)
CALLBACKS(doca_sync_event_task_wait_gt)

/* Two connected instances. The far one only receives. */
struct pair {
	struct world world;
	struct doca_rdma *near, *far;
	struct doca_mmap *remote; /* the world's memory, imported like a peer's */
};

static enum doca_ctx_states state_of(struct doca_rdma *rdma)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;

	OK(doca_ctx_get_state(doca_rdma_as_ctx(rdma), &state));
	return state;
}

static void start(struct doca_rdma *rdma)
{
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(doca_rdma_as_ctx(rdma)));
	CHECK(state_of(rdma) == DOCA_CTX_STATE_STARTING);
}

static struct doca_rdma *instance(struct world *world)
{
	struct doca_rdma *rdma = rdma_create(world);
	struct doca_ctx *ctx = doca_rdma_as_ctx(rdma);
	union doca_data data = {.ptr = world};
	const void *details;
	size_t length;

#define CONFIGURE(kind)                                                                                                \
	OK(doca_rdma_task_##kind##_set_conf(rdma, doca_rdma_task_##kind##_completed, doca_rdma_task_##kind##_failed, 2))
	CONFIGURE(receive);
	CONFIGURE(send);
	CONFIGURE(send_imm);
	CONFIGURE(read);
	CONFIGURE(write);
	CONFIGURE(write_imm);
	CONFIGURE(atomic_cmp_swp);
	CONFIGURE(atomic_fetch_add);
	CONFIGURE(remote_net_sync_event_get);
	CONFIGURE(remote_net_sync_event_notify_set);
	CONFIGURE(remote_net_sync_event_notify_add);
	OK(doca_pe_connect_ctx(world->pe, ctx));
	OK(doca_ctx_set_user_data(ctx, data));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_rdma_export(rdma, &details, &length));
	start(rdma);
	return rdma;
}

static void expect_running(struct pair *pair)
{
	for (int i = 0; i < 10; i++)
		(void)doca_pe_progress(pair->world.pe);
	CHECK(state_of(pair->near) == DOCA_CTX_STATE_RUNNING && state_of(pair->far) == DOCA_CTX_STATE_RUNNING);
}

static void connect(struct pair *pair)
{
	const void *near_details = NULL, *far_details = NULL;
	size_t near_length = 0, far_length = 0;

	OK(doca_rdma_export(pair->near, &near_details, &near_length));
	CHECK(near_details != NULL && near_length > 0 && near_length <= 512);
	OK(doca_rdma_export(pair->far, &far_details, &far_length));
	OK(doca_rdma_connect(pair->near, far_details, far_length));
	OK(doca_rdma_connect(pair->far, near_details, near_length));
	CHECK(state_of(pair->near) == DOCA_CTX_STATE_STARTING);
	expect_running(pair);
}

static void pair_create(struct pair *pair)
{
	const void *map = NULL;
	size_t length = 0;

	memset(pair, 0, sizeof(*pair));
	pair->world = world_create();
	pair->near = instance(&pair->world);
	pair->far = instance(&pair->world);
	connect(pair);
	OK(doca_mmap_export_rdma(pair->world.mmap, pair->world.dev, &map, &length));
	OK(doca_mmap_create_from_export(NULL, map, length, pair->world.dev, &pair->remote));
}

static void pair_destroy(struct pair *pair)
{
	world_stop(&pair->world, doca_rdma_as_ctx(pair->near));
	world_stop(&pair->world, doca_rdma_as_ctx(pair->far));
	OK(doca_rdma_destroy(pair->near));
	OK(doca_rdma_destroy(pair->far));
	OK(doca_mmap_destroy(pair->remote));
	world_destroy(&pair->world);
}

/* A buf over memory of the peer, with data in all of it, or without. */
static struct doca_buf *remote(struct pair *pair, size_t offset, size_t length, bool data)
{
	uint8_t *address = pair->world.memory + offset;
	struct doca_buf *buf;

	if (data)
		OK(doca_buf_inventory_buf_get_by_data(pair->world.inventory, pair->remote, address, length, &buf));
	else
		OK(doca_buf_inventory_buf_get_by_addr(pair->world.inventory, pair->remote, address, length, &buf));
	return buf;
}

TEST(contexts_run_when_they_are_connected, doca_rdma_create_2_6, doca_rdma_export_2_6, doca_rdma_connect_2_6)
{
	struct pair pair;
	const void *details = NULL, *again = NULL;
	size_t length = 0;

	REFUSED(doca_rdma_create(NULL, &pair.near));
	pair_create(&pair);
	/* The connection is the same until the context stops. */
	OK(doca_rdma_export(pair.near, &details, &length));
	OK(doca_rdma_export(pair.near, &again, &length));
	CHECK(details == again);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_rdma_connect(pair.far, details, length));
	REFUSED(doca_rdma_export(NULL, &details, &length));
	REFUSED(doca_rdma_connect(pair.far, NULL, length));
	world_stop(&pair.world, doca_rdma_as_ctx(pair.near));
	world_stop(&pair.world, doca_rdma_as_ctx(pair.far));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_rdma_connect(pair.far, details, length));

	/* Also if one side connects before it exports. */
	start(pair.near);
	start(pair.far);
	OK(doca_rdma_export(pair.near, &details, &length));
	OK(doca_rdma_connect(pair.far, details, length));
	OK(doca_rdma_export(pair.far, &details, &length));
	OK(doca_rdma_connect(pair.near, details, length));
	expect_running(&pair);
	world_stop(&pair.world, doca_rdma_as_ctx(pair.near));

	/* A context that is not connected stays starting, until it is stopped. */
	start(pair.near);
	RETURNS(DOCA_ERROR_CONNECTION_ABORTED, doca_rdma_connect(pair.near, "rubbish", 7));
	for (int i = 0; i < 10; i++)
		(void)doca_pe_progress(pair.world.pe);
	CHECK(state_of(pair.near) == DOCA_CTX_STATE_STARTING);
	pair_destroy(&pair);
}

TEST(messages_are_sent_and_received, doca_rdma_task_send_allocate_init_2_6, doca_rdma_task_send_imm_allocate_init_2_6,
     doca_rdma_task_receive_get_result_length)
{
	struct pair pair;
	struct doca_buf *data, *room;
	struct doca_rdma_task_receive *receive = NULL;
	struct doca_rdma_task_send *send = NULL;
	struct doca_rdma_task_send_imm *immediate = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "message", 7);
	data = world_data(&pair.world, 0, 7);
	room = world_room(&pair.world, 4096, 100);
	OK(doca_rdma_task_receive_allocate_init(pair.far, room, NO_DATA, &receive));
	OK(doca_task_submit(doca_rdma_task_receive_as_task(receive)));
	OK(doca_rdma_task_send_allocate_init(pair.near, data, NO_DATA, &send));
	CHECK(doca_rdma_task_send_get_src_buf(send) == data);
	deliver(&pair.world, doca_rdma_task_send_as_task(send));
	CHECK(data_length(room) == 7 && memcmp(pair.world.memory + 4096, "message", 7) == 0);
	CHECK(doca_rdma_task_receive_get_result_len(receive) == 7);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_SEND);

	OK(doca_task_submit(doca_rdma_task_receive_as_task(receive)));
	OK(doca_rdma_task_send_imm_allocate_init(pair.near, data, 0x01020304, NO_DATA, &immediate));
	deliver(&pair.world, doca_rdma_task_send_imm_as_task(immediate));
	CHECK(data_length(room) == 14 && memcmp(pair.world.memory + 4103, "message", 7) == 0);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM);
	CHECK(doca_rdma_task_receive_get_result_immediate_data(receive) == 0x01020304);
	doca_task_free(doca_rdma_task_receive_as_task(receive));
	doca_task_free(doca_rdma_task_send_as_task(send));
	doca_task_free(doca_rdma_task_send_imm_as_task(immediate));
	world_release(data);
	world_release(room);
	pair_destroy(&pair);
}

TEST(remote_memory_is_read_and_written, doca_rdma_task_read_allocate_init_2_6, doca_rdma_task_write_allocate_init_2_6,
     doca_rdma_task_write_imm_allocate_init_2_6, doca_rdma_task_read_get_result_length)
{
	struct pair pair;
	struct doca_buf *data, *room, *remote_data, *remote_room;
	struct doca_rdma_task_read *read = NULL;
	struct doca_rdma_task_write *write = NULL;
	struct doca_rdma_task_write_imm *immediate = NULL;
	struct doca_rdma_task_receive *receive = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "remote", 6);
	memcpy(pair.world.memory + 4096, "local", 5);
	remote_data = remote(&pair, 0, 6, true);
	remote_room = remote(&pair, 8192, 100, false);
	data = world_data(&pair.world, 4096, 5);
	room = world_room(&pair.world, 12288, 100);

	OK(doca_rdma_task_read_allocate_init(pair.near, remote_data, room, NO_DATA, &read));
	world_run(&pair.world, doca_rdma_task_read_as_task(read), true);
	CHECK(data_length(room) == 6 && memcmp(pair.world.memory + 12288, "remote", 6) == 0);
	CHECK(doca_rdma_task_read_get_result_len(read) == 6);

	OK(doca_rdma_task_write_allocate_init(pair.near, data, remote_room, NO_DATA, &write));
	world_run(&pair.world, doca_rdma_task_write_as_task(write), true);
	CHECK(memcmp(pair.world.memory + 8192, "local", 5) == 0);

	OK(doca_rdma_task_receive_allocate_init(pair.far, NULL, NO_DATA, &receive));
	OK(doca_task_submit(doca_rdma_task_receive_as_task(receive)));
	OK(doca_rdma_task_write_imm_allocate_init(pair.near, data, remote_room, 0x04030201, NO_DATA, &immediate));
	deliver(&pair.world, doca_rdma_task_write_imm_as_task(immediate));
	CHECK(memcmp(pair.world.memory + 8192, "locallocal", 10) == 0);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM);
	CHECK(doca_rdma_task_receive_get_result_immediate_data(receive) == 0x04030201);

	doca_task_free(doca_rdma_task_read_as_task(read));
	doca_task_free(doca_rdma_task_write_as_task(write));
	doca_task_free(doca_rdma_task_write_imm_as_task(immediate));
	doca_task_free(doca_rdma_task_receive_as_task(receive));
	world_release(data);
	world_release(room);
	world_release(remote_data);
	world_release(remote_room);
	pair_destroy(&pair);
}

TEST(remote_words_are_changed_atomically, doca_rdma_task_atomic_cmp_swp_allocate_init_2_6,
     doca_rdma_task_atomic_fetch_add_allocate_init_2_6)
{
	struct pair pair;
	struct doca_buf *dst, *result;
	struct doca_rdma_task_atomic_cmp_swp *swap = NULL;
	struct doca_rdma_task_atomic_fetch_add *add = NULL;

	pair_create(&pair);
	dst = remote(&pair, 0, 8, true);
	result = world_room(&pair.world, 4096, 8);
	OK(doca_rdma_task_atomic_cmp_swp_allocate_init(pair.near, dst, result, 0, 42, NO_DATA, &swap));
	world_run(&pair.world, doca_rdma_task_atomic_cmp_swp_as_task(swap), true);
	CHECK(word(&pair.world, 0) == 42 && word(&pair.world, 4096) == 0);
	OK(doca_buf_reset_data_len(result));
	OK(doca_rdma_task_atomic_fetch_add_allocate_init(pair.near, dst, result, 3, NO_DATA, &add));
	world_run(&pair.world, doca_rdma_task_atomic_fetch_add_as_task(add), true);
	CHECK(word(&pair.world, 0) == 45 && word(&pair.world, 4096) == 42);
	doca_task_free(doca_rdma_task_atomic_cmp_swp_as_task(swap));
	doca_task_free(doca_rdma_task_atomic_fetch_add_as_task(add));
	world_release(dst);
	world_release(result);
	pair_destroy(&pair);
}

TEST(events_of_peers_are_got_and_changed, doca_rdma_task_remote_net_sync_event_get_allocate_init_2_6,
     doca_rdma_task_remote_net_sync_event_notify_set_allocate_init_2_6,
     doca_rdma_task_remote_net_sync_event_notify_add_allocate_init_2_6,
     doca_rdma_task_remote_net_sync_event_get_get_result_length)
{
	struct pair pair;
	struct doca_sync_event *event = NULL;
	struct doca_sync_event_remote_net *handle = NULL;
	struct doca_rdma_task_remote_net_sync_event_get *get = NULL;
	struct doca_rdma_task_remote_net_sync_event_notify_set *set = NULL;
	struct doca_rdma_task_remote_net_sync_event_notify_add *add = NULL;
	struct doca_buf *data, *room, *result;
	const uint8_t *blob = NULL;
	uint64_t value = 42;
	size_t length = 0;

	pair_create(&pair);
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, pair.world.dev));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_net(event, &blob, &length));
	OK(doca_sync_event_remote_net_create_from_export(pair.world.dev, blob, length, &handle));

	memcpy(pair.world.memory, &value, sizeof(value));
	data = world_data(&pair.world, 0, 8);
	room = world_room(&pair.world, 4096, 8);
	result = world_room(&pair.world, 8192, 8);
	OK(doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(pair.near, handle, data, NO_DATA, &set));
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_notify_set_as_task(set), true);
	OK(doca_sync_event_get(event, &value));
	CHECK(value == 42);
	OK(doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(pair.near, handle, result, 3, NO_DATA, &add));
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_notify_add_as_task(add), true);
	OK(doca_sync_event_get(event, &value));
	CHECK(value == 45 && word(&pair.world, 8192) == 42);
	OK(doca_rdma_task_remote_net_sync_event_get_allocate_init(pair.near, handle, room, NO_DATA, &get));
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_get_as_task(get), true);
	CHECK(word(&pair.world, 4096) == 45);
	CHECK(doca_rdma_task_remote_net_sync_event_get_get_result_len(get) == 8);
	/* The same buf again: programs poll with it. */
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_notify_set_as_task(set), true);
	world_run(&pair.world, doca_rdma_task_remote_net_sync_event_get_as_task(get), true);
	CHECK(word(&pair.world, 4096) == 42);

	doca_task_free(doca_rdma_task_remote_net_sync_event_get_as_task(get));
	doca_task_free(doca_rdma_task_remote_net_sync_event_notify_set_as_task(set));
	doca_task_free(doca_rdma_task_remote_net_sync_event_notify_add_as_task(add));
	world_release(data);
	world_release(room);
	world_release(result);
	OK(doca_sync_event_remote_net_destroy(handle));
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
	pair_destroy(&pair);
}

TEST(instances_have_properties, doca_rdma_get_dpa_handle_2_6, doca_rdma_get_grh_enabled_2_5)
{
	struct world world = world_create();
	struct doca_rdma *rdma = rdma_create(&world);
	struct doca_dpa_dev_rdma *handle;

	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_get_dpa_handle(rdma, &handle));
	REFUSED(doca_rdma_get_dpa_handle(NULL, &handle));
#if DOCA_VERSION_MINOR < 6
	bool enabled = false;

	OK(doca_rdma_get_grh_enabled(rdma, &enabled));
	CHECK(enabled);
#endif
	OK(doca_rdma_destroy(rdma));
	world_destroy(&world);
}

TEST(events_go_across_pcie, doca_sync_event_add_publisher_location_dpu, doca_sync_event_add_subscriber_location_dpu,
     doca_sync_event_cap_is_export_to_dpu_supported, doca_sync_event_export_to_dpu)
{
	struct world world = world_create();
	struct doca_sync_event *ours = NULL, *theirs = NULL, *other = NULL;
	const uint8_t *blob = NULL;
	size_t length = 0;
	uint64_t value = 0;

	OK(doca_sync_event_cap_is_export_to_dpu_supported(world.info));
	REFUSED(doca_sync_event_cap_is_export_to_dpu_supported(NULL));
	OK(doca_sync_event_create(&ours));
	OK(doca_sync_event_add_publisher_location_dpu(ours));
	OK(doca_sync_event_add_subscriber_location_cpu(ours, world.dev));
	OK(doca_sync_event_start(ours));
	OK(doca_sync_event_export_to_dpu(ours, world.dev, &blob, &length));
	OK(doca_sync_event_create_from_export(world.dev, blob, length, &theirs));
	OK(doca_sync_event_start(theirs));
	OK(doca_sync_event_update_set(theirs, 7));
	OK(doca_sync_event_get(ours, &value));
	CHECK(value == 7);

	OK(doca_sync_event_create(&other));
	OK(doca_sync_event_add_publisher_location_cpu(other, world.dev));
	OK(doca_sync_event_add_subscriber_location_dpu(other));
	OK(doca_sync_event_start(other));
	OK(doca_sync_event_stop(other));
	OK(doca_sync_event_destroy(other));
	OK(doca_sync_event_stop(theirs));
	OK(doca_sync_event_destroy(theirs));
	OK(doca_sync_event_stop(ours));
	OK(doca_sync_event_destroy(ours));
	world_destroy(&world);
}

#define UNSUPPORTED(function, object)                                                                                  \
	do {                                                                                                           \
		RETURNS(DOCA_ERROR_NOT_SUPPORTED, function(object, NULL, &handle));                                    \
		REFUSED(function(NULL, NULL, &handle));                                                                \
	} while (0)

TEST(events_have_no_handles_on_the_dpa_or_gpus, doca_sync_event_export_to_dpa, doca_sync_event_export_to_gpu,
     doca_sync_event_remote_net_export_to_dpa, doca_sync_event_remote_net_export_to_gpu)
{
	struct world world = world_create();
	struct doca_sync_event *event = NULL;
	struct doca_sync_event_remote_net *remote = NULL;
	const uint8_t *blob = NULL;
	size_t length = 0;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_net(event, &blob, &length));
	OK(doca_sync_event_remote_net_create_from_export(world.dev, blob, length, &remote));
	{
		uint64_t handle;

		UNSUPPORTED(doca_sync_event_export_to_dpa, event);
		UNSUPPORTED(doca_sync_event_remote_net_export_to_dpa, remote);
		UNSUPPORTED(doca_sync_event_remote_net_export_to_gpu, remote);
	}
	{
		uint64_t *handle;

		UNSUPPORTED(doca_sync_event_export_to_gpu, event);
	}
	OK(doca_sync_event_remote_net_destroy(remote));
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}

TEST(tasks_wait_for_greater_values, doca_sync_event_cap_task_wait_gt_is_supported, doca_sync_event_task_wait_gt_set_conf,
     doca_sync_event_task_wait_gt_alloc_init, doca_sync_event_task_wait_gt_as_doca_task,
     doca_sync_event_task_wait_gt_set_wait_val, doca_sync_event_task_wait_gt_get_wait_val,
     doca_sync_event_task_wait_gt_set_mask, doca_sync_event_task_wait_gt_get_mask)
{
	struct world world = world_create();
	struct doca_sync_event *event = NULL;
	struct doca_sync_event_task_wait_gt *task = NULL, *second = NULL;
	struct doca_ctx *ctx;

	OK(doca_sync_event_cap_task_wait_gt_is_supported(world.info));
	REFUSED(doca_sync_event_cap_task_wait_gt_is_supported(NULL));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, world.dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	OK(doca_sync_event_task_wait_gt_set_conf(event, doca_sync_event_task_wait_gt_completed,
						 doca_sync_event_task_wait_gt_failed, 1));
	ctx = doca_sync_event_as_ctx(event);
	world_start(&world, ctx);
	OK(doca_sync_event_task_wait_gt_alloc_init(event, 1, 2, NO_DATA, &task));
	RETURNS(DOCA_ERROR_NO_MEMORY, doca_sync_event_task_wait_gt_alloc_init(event, 1, 2, NO_DATA, &second));
	CHECK(doca_sync_event_task_wait_gt_get_wait_val(task) == 1 && doca_sync_event_task_wait_gt_get_mask(task) == 2);
	doca_sync_event_task_wait_gt_set_wait_val(task, 5);
	doca_sync_event_task_wait_gt_set_mask(task, 0xff);
	CHECK(doca_sync_event_task_wait_gt_get_wait_val(task) == 5);
	CHECK(doca_sync_event_task_wait_gt_get_mask(task) == 0xff);
	OK(doca_sync_event_update_set(event, 0x105));
	OK(doca_task_submit(doca_sync_event_task_wait_gt_as_doca_task(task)));
	for (int i = 0; i < 10; i++)
		(void)doca_pe_progress(world.pe);
	/* Not greater, in the bits of the mask. */
	CHECK(world.completed == 0);
	OK(doca_sync_event_update_set(event, 6));
	while (world.completed == 0)
		(void)doca_pe_progress(world.pe);
	CHECK(world.failed == 0);
	doca_task_free(doca_sync_event_task_wait_gt_as_doca_task(task));
	world_stop(&world, ctx);
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}
