/* RDMA: two contexts of one process, connected by descriptions. */
#include "rdma.h"

CALLBACKS(doca_rdma_task_receive)
CALLBACKS(doca_rdma_task_send)
CALLBACKS(doca_rdma_task_send_imm)
CALLBACKS(doca_rdma_task_read)
CALLBACKS(doca_rdma_task_write)
CALLBACKS(doca_rdma_task_write_imm)
CALLBACKS(doca_rdma_task_atomic_cmp_swp)
CALLBACKS(doca_rdma_task_atomic_fetch_add)

/* Two connected instances. The far one only receives. */
struct pair {
	struct world world;
	struct doca_rdma *near, *far;
	struct doca_rdma_connection *near_connection, *far_connection, *spare; /* of near, not connected */
	struct doca_mmap *remote; /* the world's memory, imported like a peer's */
};

static struct doca_rdma *instance(struct world *world)
{
	struct doca_rdma *rdma = rdma_create(world);

	OK(doca_rdma_task_receive_set_conf(rdma, doca_rdma_task_receive_completed, doca_rdma_task_receive_failed, 4));
	OK(doca_rdma_task_send_set_conf(rdma, doca_rdma_task_send_completed, doca_rdma_task_send_failed, 4));
	OK(doca_rdma_task_send_imm_set_conf(rdma, doca_rdma_task_send_imm_completed, doca_rdma_task_send_imm_failed, 4));
	OK(doca_rdma_task_read_set_conf(rdma, doca_rdma_task_read_completed, doca_rdma_task_read_failed, 4));
	OK(doca_rdma_task_write_set_conf(rdma, doca_rdma_task_write_completed, doca_rdma_task_write_failed, 4));
	OK(doca_rdma_task_write_imm_set_conf(rdma, doca_rdma_task_write_imm_completed, doca_rdma_task_write_imm_failed,
					     4));
	OK(doca_rdma_task_atomic_cmp_swp_set_conf(rdma, doca_rdma_task_atomic_cmp_swp_completed,
						  doca_rdma_task_atomic_cmp_swp_failed, 4));
	OK(doca_rdma_task_atomic_fetch_add_set_conf(rdma, doca_rdma_task_atomic_fetch_add_completed,
						    doca_rdma_task_atomic_fetch_add_failed, 4));
	OK(doca_rdma_set_max_num_connections(rdma, 2));
	world_start(world, doca_rdma_as_ctx(rdma));
	return rdma;
}

static void pair_create(struct pair *pair)
{
	const void *details = NULL, *map = NULL;
	size_t length = 0;

	memset(pair, 0, sizeof(*pair));
	pair->world = world_create();
	pair->near = instance(&pair->world);
	pair->far = instance(&pair->world);
	OK(doca_rdma_export(pair->near, &details, &length, &pair->near_connection));
	CHECK(details != NULL && length > 0 && pair->near_connection != NULL);
	{
		const void *far_details = NULL;
		size_t far_length = 0;

		OK(doca_rdma_export(pair->far, &far_details, &far_length, &pair->far_connection));
		OK(doca_rdma_connect(pair->near, far_details, far_length, pair->near_connection));
		OK(doca_rdma_connect(pair->far, details, length, pair->far_connection));
	}
	OK(doca_rdma_export(pair->near, &details, &length, &pair->spare));
	OK(doca_mmap_export_rdma(pair->world.mmap, pair->world.dev, &map, &length));
	OK(doca_mmap_create_from_export(NULL, map, length, pair->world.dev, &pair->remote));
}

static void pair_destroy(struct pair *pair)
{
	CHECK(doca_rdma_destroy(pair->near) != DOCA_SUCCESS);
	world_stop(&pair->world, doca_rdma_as_ctx(pair->near));
	world_stop(&pair->world, doca_rdma_as_ctx(pair->far));
	OK(doca_rdma_destroy(pair->near));
	OK(doca_rdma_destroy(pair->far));
	OK(doca_mmap_destroy(pair->remote));
	world_destroy(&pair->world);
}

/* A buf over memory of the peer, all of it data. */
static struct doca_buf *remote_data(struct pair *pair, size_t offset, size_t length)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_data(pair->world.inventory, pair->remote, pair->world.memory + offset, length,
					      &buf));
	return buf;
}

/* Posts a receive of the far side at offset. */
static struct doca_rdma_task_receive *post(struct pair *pair, struct doca_buf *room)
{
	struct doca_rdma_task_receive *task = NULL;

	OK(doca_rdma_task_receive_allocate_init(pair->far, room, NO_DATA, &task));
	OK(doca_task_submit(doca_rdma_task_receive_as_task(task)));
	return task;
}

/* Sets and checks the connection of a task. */
#define CONNECTION(kind, pair, task)                                                                                   \
	do {                                                                                                           \
		CHECK(doca_rdma_task_##kind##_get_rdma_connection(task) == (pair)->near_connection);                   \
		doca_rdma_task_##kind##_set_rdma_connection(task, (pair)->spare);                                      \
		CHECK(doca_rdma_task_##kind##_get_rdma_connection(task) == (pair)->spare);                             \
		doca_rdma_task_##kind##_set_rdma_connection(task, (pair)->near_connection);                            \
		CHECK(doca_rdma_task_##kind##_get_rdma_connection(task) == (pair)->near_connection);                   \
	} while (0)

/* Checks and replaces a buf of a task. */
#define BUF(kind, field, task, old, new)                                                                               \
	do {                                                                                                           \
		CHECK(doca_rdma_task_##kind##_get_##field(task) == (old));                                             \
		doca_rdma_task_##kind##_set_##field(task, new);                                                        \
		CHECK(doca_rdma_task_##kind##_get_##field(task) == (new));                                             \
	} while (0)

TEST(messages_are_sent_and_received, doca_rdma_create, doca_rdma_destroy, doca_rdma_as_ctx, doca_rdma_export,
     doca_rdma_connect, doca_rdma_task_receive_set_conf, doca_rdma_task_receive_allocate_init,
     doca_rdma_task_receive_as_task, doca_rdma_task_receive_set_dst_buf, doca_rdma_task_receive_get_dst_buf,
     doca_rdma_task_receive_get_result_opcode, doca_rdma_task_receive_get_result_len,
     doca_rdma_task_receive_get_result_rdma_connection, doca_rdma_task_send_set_conf, doca_rdma_task_send_allocate_init,
     doca_rdma_task_send_as_task, doca_rdma_task_send_set_src_buf, doca_rdma_task_send_get_src_buf,
     doca_rdma_task_send_set_rdma_connection, doca_rdma_task_send_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *data, *room, *other;
	struct doca_rdma_task_receive *receive = NULL;
	struct doca_rdma_task_send *send = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "message", 7);
	data = world_data(&pair.world, 0, 7);
	room = world_room(&pair.world, 4096, 100);
	other = world_data(&pair.world, 8192, 1);
	OK(doca_rdma_task_receive_allocate_init(pair.far, other, NO_DATA, &receive));
	BUF(receive, dst_buf, receive, other, room);
	OK(doca_task_submit(doca_rdma_task_receive_as_task(receive)));
	OK(doca_rdma_task_send_allocate_init(pair.near, pair.near_connection, other, NO_DATA, &send));
	BUF(send, src_buf, send, other, data);
	CONNECTION(send, &pair, send);
	deliver(&pair.world, doca_rdma_task_send_as_task(send));
	CHECK(data_length(room) == 7 && memcmp(pair.world.memory + 4096, "message", 7) == 0);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_SEND);
	CHECK(doca_rdma_task_receive_get_result_len(receive) == 7);
	CHECK(doca_rdma_task_receive_get_result_rdma_connection(receive) == pair.far_connection);
	doca_task_free(doca_rdma_task_receive_as_task(receive));
	doca_task_free(doca_rdma_task_send_as_task(send));
	world_release(data);
	world_release(room);
	world_release(other);
	pair_destroy(&pair);
}

TEST(sends_carry_immediate_values, doca_rdma_task_send_imm_set_conf, doca_rdma_task_send_imm_allocate_init,
     doca_rdma_task_send_imm_as_task, doca_rdma_task_send_imm_set_src_buf, doca_rdma_task_send_imm_get_src_buf,
     doca_rdma_task_send_imm_set_rdma_connection, doca_rdma_task_send_imm_get_rdma_connection,
     doca_rdma_task_send_imm_set_immediate_data, doca_rdma_task_send_imm_get_immediate_data,
     doca_rdma_task_receive_get_result_opcode, doca_rdma_task_receive_get_result_immediate_data)
{
	struct pair pair;
	struct doca_buf *data, *room, *other;
	struct doca_rdma_task_receive *receive;
	struct doca_rdma_task_send_imm *send = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "message", 7);
	data = world_data(&pair.world, 0, 7);
	room = world_room(&pair.world, 4096, 100);
	other = world_data(&pair.world, 8192, 1);
	receive = post(&pair, room);
	OK(doca_rdma_task_send_imm_allocate_init(pair.near, pair.near_connection, other, 1, NO_DATA, &send));
	BUF(send_imm, src_buf, send, other, data);
	BUF(send_imm, immediate_data, send, 1, 0x01020304);
	CONNECTION(send_imm, &pair, send);
	deliver(&pair.world, doca_rdma_task_send_imm_as_task(send));
	CHECK(data_length(room) == 7 && memcmp(pair.world.memory + 4096, "message", 7) == 0);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM);
	CHECK(doca_rdma_task_receive_get_result_immediate_data(receive) == 0x01020304);
	doca_task_free(doca_rdma_task_receive_as_task(receive));
	doca_task_free(doca_rdma_task_send_imm_as_task(send));
	world_release(data);
	world_release(room);
	world_release(other);
	pair_destroy(&pair);
}

TEST(remote_memory_is_read, doca_rdma_task_read_set_conf, doca_rdma_task_read_allocate_init, doca_rdma_task_read_as_task,
     doca_rdma_task_read_set_src_buf, doca_rdma_task_read_get_src_buf, doca_rdma_task_read_set_dst_buf,
     doca_rdma_task_read_get_dst_buf, doca_rdma_task_read_set_rdma_connection, doca_rdma_task_read_get_rdma_connection,
     doca_rdma_task_read_get_result_len)
{
	struct pair pair;
	struct doca_buf *src, *dst, *other;
	struct doca_rdma_task_read *task = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "remote", 6);
	src = remote_data(&pair, 0, 6);
	dst = world_room(&pair.world, 4096, 100);
	other = world_data(&pair.world, 8192, 1);
	OK(doca_rdma_task_read_allocate_init(pair.near, pair.near_connection, other, other, NO_DATA, &task));
	BUF(read, src_buf, task, other, src);
	BUF(read, dst_buf, task, other, dst);
	CONNECTION(read, &pair, task);
	world_run(&pair.world, doca_rdma_task_read_as_task(task), true);
	CHECK(data_length(dst) == 6 && memcmp(pair.world.memory + 4096, "remote", 6) == 0);
	CHECK(doca_rdma_task_read_get_result_len(task) == 6);
	doca_task_free(doca_rdma_task_read_as_task(task));
	world_release(src);
	world_release(dst);
	world_release(other);
	pair_destroy(&pair);
}

TEST(remote_memory_is_written, doca_rdma_task_write_set_conf, doca_rdma_task_write_allocate_init,
     doca_rdma_task_write_as_task, doca_rdma_task_write_set_src_buf, doca_rdma_task_write_get_src_buf,
     doca_rdma_task_write_set_dst_buf, doca_rdma_task_write_get_dst_buf, doca_rdma_task_write_set_rdma_connection,
     doca_rdma_task_write_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *src, *dst, *other;
	struct doca_rdma_task_write *task = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "local", 5);
	src = world_data(&pair.world, 0, 5);
	OK(doca_buf_inventory_buf_get_by_addr(pair.world.inventory, pair.remote, pair.world.memory + 4096, 100, &dst));
	other = world_data(&pair.world, 8192, 1);
	OK(doca_rdma_task_write_allocate_init(pair.near, pair.near_connection, other, other, NO_DATA, &task));
	BUF(write, src_buf, task, other, src);
	BUF(write, dst_buf, task, other, dst);
	CONNECTION(write, &pair, task);
	world_run(&pair.world, doca_rdma_task_write_as_task(task), true);
	CHECK(memcmp(pair.world.memory + 4096, "local", 5) == 0);
	doca_task_free(doca_rdma_task_write_as_task(task));
	world_release(src);
	world_release(dst);
	world_release(other);
	pair_destroy(&pair);
}

TEST(writes_carry_immediate_values, doca_rdma_task_write_imm_set_conf, doca_rdma_task_write_imm_allocate_init,
     doca_rdma_task_write_imm_as_task, doca_rdma_task_write_imm_set_src_buf, doca_rdma_task_write_imm_get_src_buf,
     doca_rdma_task_write_imm_set_dst_buf, doca_rdma_task_write_imm_get_dst_buf,
     doca_rdma_task_write_imm_set_rdma_connection, doca_rdma_task_write_imm_get_rdma_connection,
     doca_rdma_task_write_imm_set_immediate_data, doca_rdma_task_write_imm_get_immediate_data)
{
	struct pair pair;
	struct doca_buf *src, *dst, *other;
	struct doca_rdma_task_receive *receive;
	struct doca_rdma_task_write_imm *task = NULL;

	pair_create(&pair);
	memcpy(pair.world.memory, "local", 5);
	src = world_data(&pair.world, 0, 5);
	OK(doca_buf_inventory_buf_get_by_addr(pair.world.inventory, pair.remote, pair.world.memory + 4096, 100, &dst));
	other = world_data(&pair.world, 8192, 1);
	receive = post(&pair, NULL);
	OK(doca_rdma_task_write_imm_allocate_init(pair.near, pair.near_connection, other, other, 1, NO_DATA, &task));
	BUF(write_imm, src_buf, task, other, src);
	BUF(write_imm, dst_buf, task, other, dst);
	BUF(write_imm, immediate_data, task, 1, 0x04030201);
	CONNECTION(write_imm, &pair, task);
	deliver(&pair.world, doca_rdma_task_write_imm_as_task(task));
	CHECK(memcmp(pair.world.memory + 4096, "local", 5) == 0);
	CHECK(doca_rdma_task_receive_get_result_opcode(receive) == DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM);
	CHECK(doca_rdma_task_receive_get_result_immediate_data(receive) == 0x04030201);
	doca_task_free(doca_rdma_task_receive_as_task(receive));
	doca_task_free(doca_rdma_task_write_imm_as_task(task));
	world_release(src);
	world_release(dst);
	world_release(other);
	pair_destroy(&pair);
}

TEST(remote_words_are_swapped, doca_rdma_task_atomic_cmp_swp_set_conf, doca_rdma_task_atomic_cmp_swp_allocate_init,
     doca_rdma_task_atomic_cmp_swp_as_task, doca_rdma_task_atomic_cmp_swp_set_dst_buf,
     doca_rdma_task_atomic_cmp_swp_get_dst_buf, doca_rdma_task_atomic_cmp_swp_set_result_buf,
     doca_rdma_task_atomic_cmp_swp_get_result_buf, doca_rdma_task_atomic_cmp_swp_set_cmp_data,
     doca_rdma_task_atomic_cmp_swp_get_cmp_data, doca_rdma_task_atomic_cmp_swp_set_swap_data,
     doca_rdma_task_atomic_cmp_swp_get_swap_data, doca_rdma_task_atomic_cmp_swp_set_rdma_connection,
     doca_rdma_task_atomic_cmp_swp_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *dst, *result, *other;
	struct doca_rdma_task_atomic_cmp_swp *task = NULL;
	uint64_t value = 5;

	pair_create(&pair);
	memcpy(pair.world.memory, &value, sizeof(value));
	dst = remote_data(&pair, 0, 8);
	result = world_room(&pair.world, 4096, 8);
	other = world_data(&pair.world, 8192, 8);
	OK(doca_rdma_task_atomic_cmp_swp_allocate_init(pair.near, pair.near_connection, other, other, 1, 2, NO_DATA, &task));
	BUF(atomic_cmp_swp, dst_buf, task, other, dst);
	BUF(atomic_cmp_swp, result_buf, task, other, result);
	BUF(atomic_cmp_swp, cmp_data, task, 1, 5);
	BUF(atomic_cmp_swp, swap_data, task, 2, 9);
	CONNECTION(atomic_cmp_swp, &pair, task);
	world_run(&pair.world, doca_rdma_task_atomic_cmp_swp_as_task(task), true);
	CHECK(word(&pair.world, 0) == 9 && word(&pair.world, 4096) == 5);
	doca_task_free(doca_rdma_task_atomic_cmp_swp_as_task(task));
	world_release(dst);
	world_release(result);
	world_release(other);
	pair_destroy(&pair);
}

TEST(remote_words_are_added_to, doca_rdma_task_atomic_fetch_add_set_conf, doca_rdma_task_atomic_fetch_add_allocate_init,
     doca_rdma_task_atomic_fetch_add_as_task, doca_rdma_task_atomic_fetch_add_set_dst_buf,
     doca_rdma_task_atomic_fetch_add_get_dst_buf, doca_rdma_task_atomic_fetch_add_set_result_buf,
     doca_rdma_task_atomic_fetch_add_get_result_buf, doca_rdma_task_atomic_fetch_add_set_add_data,
     doca_rdma_task_atomic_fetch_add_get_add_data, doca_rdma_task_atomic_fetch_add_set_rdma_connection,
     doca_rdma_task_atomic_fetch_add_get_rdma_connection)
{
	struct pair pair;
	struct doca_buf *dst, *result, *other;
	struct doca_rdma_task_atomic_fetch_add *task = NULL;
	uint64_t value = 5;

	pair_create(&pair);
	memcpy(pair.world.memory, &value, sizeof(value));
	dst = remote_data(&pair, 0, 8);
	result = world_room(&pair.world, 4096, 8);
	other = world_data(&pair.world, 8192, 8);
	OK(doca_rdma_task_atomic_fetch_add_allocate_init(pair.near, pair.near_connection, other, other, 1, NO_DATA, &task));
	BUF(atomic_fetch_add, dst_buf, task, other, dst);
	BUF(atomic_fetch_add, result_buf, task, other, result);
	BUF(atomic_fetch_add, add_data, task, 1, 7);
	CONNECTION(atomic_fetch_add, &pair, task);
	world_run(&pair.world, doca_rdma_task_atomic_fetch_add_as_task(task), true);
	CHECK(word(&pair.world, 0) == 12 && word(&pair.world, 4096) == 5);
	doca_task_free(doca_rdma_task_atomic_fetch_add_as_task(task));
	world_release(dst);
	world_release(result);
	world_release(other);
	pair_destroy(&pair);
}

TEST(instances_need_the_permission, doca_rdma_set_permissions, doca_rdma_get_permissions)
{
	struct world world = world_create();
	struct doca_rdma *rdma = rdma_create(&world);
	uint32_t permissions = 0;

	OK(doca_rdma_set_permissions(rdma, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ));
	OK(doca_rdma_get_permissions(rdma, &permissions));
	CHECK(permissions == (DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ));
	OK(doca_rdma_destroy(rdma));
	world_destroy(&world);
}
