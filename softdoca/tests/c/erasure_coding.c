/* Erasure coding: two data blocks and two redundancy blocks. */
#include "world.h"

#include <doca_erasure_coding.h>

CALLBACKS(doca_ec_task_galois_mul)
CALLBACKS(doca_ec_task_create)
CALLBACKS(doca_ec_task_update)
CALLBACKS(doca_ec_task_recover)

#define BLOCK 256
#define DATA 0                /* two data blocks */
#define REDUNDANCY (2 * BLOCK) /* two redundancy blocks */
#define RESULT 8192

struct coding {
	struct world world;
	struct doca_ec *ec;
	struct doca_ec_matrix *matrix;
};

static void coding_create(struct coding *coding)
{
	memset(coding, 0, sizeof(*coding));
	coding->world = world_create();
	OK(doca_ec_create(coding->world.dev, &coding->ec));
	OK(doca_ec_task_galois_mul_set_conf(coding->ec, doca_ec_task_galois_mul_completed, doca_ec_task_galois_mul_failed,
					    1));
	OK(doca_ec_task_create_set_conf(coding->ec, doca_ec_task_create_completed, doca_ec_task_create_failed, 1));
	OK(doca_ec_task_update_set_conf(coding->ec, doca_ec_task_update_completed, doca_ec_task_update_failed, 1));
	OK(doca_ec_task_recover_set_conf(coding->ec, doca_ec_task_recover_completed, doca_ec_task_recover_failed, 1));
	world_start(&coding->world, doca_ec_as_ctx(coding->ec));
	OK(doca_ec_matrix_create(coding->ec, DOCA_EC_MATRIX_TYPE_VANDERMONDE, 2, 2, &coding->matrix));
	for (size_t i = 0; i < 2 * BLOCK; i++)
		coding->world.memory[DATA + i] = (uint8_t)(i * 7 + i / BLOCK);
}

static void coding_destroy(struct coding *coding)
{
	OK(doca_ec_matrix_destroy(coding->matrix));
	REFUSED(doca_ec_matrix_destroy(NULL));
	CHECK(doca_ec_destroy(coding->ec) != DOCA_SUCCESS);
	world_stop(&coding->world, doca_ec_as_ctx(coding->ec));
	OK(doca_ec_destroy(coding->ec));
	world_destroy(&coding->world);
}

/* Two redundancy blocks of the data blocks, at offset. */
static void encode(struct coding *coding, size_t offset)
{
	struct doca_buf *data = world_data(&coding->world, DATA, 2 * BLOCK);
	struct doca_buf *redundancy = world_room(&coding->world, offset, 2 * BLOCK);
	struct doca_ec_task_create *task = NULL;

	OK(doca_ec_task_create_allocate_init(coding->ec, coding->matrix, data, redundancy, NO_DATA, &task));
	world_run(&coding->world, doca_ec_task_create_as_task(task), true);
	CHECK(data_length(redundancy) == 2 * BLOCK);
	doca_task_free(doca_ec_task_create_as_task(task));
	world_release(data);
	world_release(redundancy);
}

/* The first redundancy block of a Vandermonde matrix is the sum of the data blocks. */
static void check_sum(const uint8_t *data, const uint8_t *sum)
{
	for (size_t i = 0; i < BLOCK; i++)
		CHECK(sum[i] == (data[i] ^ data[BLOCK + i]));
}

TEST(coding_has_limits, doca_ec_cap_get_max_block_size, doca_ec_cap_get_max_buf_list_len,
     doca_ec_cap_task_galois_mul_is_supported, doca_ec_cap_task_create_is_supported, doca_ec_cap_task_update_is_supported,
     doca_ec_cap_task_recover_is_supported)
{
	struct world world = world_create();
	uint64_t size = 0;
	uint32_t list = 0;

	OK(doca_ec_cap_get_max_block_size(world.info, &size));
	CHECK(size >= 65536);
	OK(doca_ec_cap_get_max_buf_list_len(world.info, &list));
	CHECK(list >= 1);
	OK(doca_ec_cap_task_galois_mul_is_supported(world.info));
	REFUSED(doca_ec_cap_task_galois_mul_is_supported(NULL));
	OK(doca_ec_cap_task_create_is_supported(world.info));
	REFUSED(doca_ec_cap_task_create_is_supported(NULL));
	OK(doca_ec_cap_task_update_is_supported(world.info));
	REFUSED(doca_ec_cap_task_update_is_supported(NULL));
	OK(doca_ec_cap_task_recover_is_supported(world.info));
	REFUSED(doca_ec_cap_task_recover_is_supported(NULL));
	world_destroy(&world);
}

/* Getters and setters of a task's matrix and bufs. */
#define FIELDS(kind, task, matrix_name, src_name, dst_name, dst_get, matrix, other_matrix, src, other_src, dst, other_dst)   \
	do {                                                                                                           \
		CHECK(doca_ec_task_##kind##_get_##matrix_name(task) == (matrix));                                      \
		CHECK(doca_ec_task_##kind##_get_##src_name(task) == (src));                                            \
		CHECK(doca_ec_task_##kind##_get_##dst_get(task) == (dst));                                             \
		doca_ec_task_##kind##_set_##matrix_name(task, other_matrix);                                           \
		doca_ec_task_##kind##_set_##src_name(task, other_src);                                                 \
		doca_ec_task_##kind##_set_##dst_name(task, other_dst);                                                 \
		CHECK(doca_ec_task_##kind##_get_##matrix_name(task) == (other_matrix));                                \
		CHECK(doca_ec_task_##kind##_get_##src_name(task) == (other_src));                                      \
		CHECK(doca_ec_task_##kind##_get_##dst_get(task) == (other_dst));                                       \
	} while (0)

TEST(redundancy_is_created, doca_ec_create, doca_ec_destroy, doca_ec_as_ctx, doca_ec_matrix_create, doca_ec_matrix_destroy,
     doca_ec_task_create_set_conf, doca_ec_task_create_allocate_init, doca_ec_task_create_as_task,
     doca_ec_task_create_set_coding_matrix, doca_ec_task_create_get_coding_matrix,
     doca_ec_task_create_set_original_data_blocks, doca_ec_task_create_get_original_data_blocks,
     doca_ec_task_create_set_rdnc_blocks, doca_ec_task_create_get_rdnc_blocks)
{
	struct coding coding;
	struct doca_buf *data, *room, *other;
	struct doca_ec_task_create *task;
	struct doca_ec_matrix *cauchy = NULL;

	coding_create(&coding);
	OK(doca_ec_matrix_create(coding.ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 2, &cauchy));
	data = world_data(&coding.world, DATA, 2 * BLOCK);
	room = world_room(&coding.world, RESULT, 2 * BLOCK);
	other = world_data(&coding.world, 4096, 2 * BLOCK);
	OK(doca_ec_task_create_allocate_init(coding.ec, cauchy, other, other, NO_DATA, &task));
	FIELDS(create, task, coding_matrix, original_data_blocks, rdnc_blocks, rdnc_blocks, cauchy, coding.matrix, other,
	       data, other, room);
	world_run(&coding.world, doca_ec_task_create_as_task(task), true);
	check_sum(coding.world.memory + DATA, coding.world.memory + RESULT);
	doca_task_free(doca_ec_task_create_as_task(task));
	world_release(data);
	world_release(room);
	world_release(other);
	OK(doca_ec_matrix_destroy(cauchy));
	coding_destroy(&coding);
}

TEST(raw_matrices_multiply, doca_ec_matrix_create_from_raw, doca_ec_task_galois_mul_set_conf,
     doca_ec_task_galois_mul_allocate_init, doca_ec_task_galois_mul_as_task, doca_ec_task_galois_mul_set_coding_matrix,
     doca_ec_task_galois_mul_get_coding_matrix, doca_ec_task_galois_mul_set_src_buf,
     doca_ec_task_galois_mul_get_src_buf, doca_ec_task_galois_mul_set_dst_buf, doca_ec_task_galois_mul_get_dst_buf)
{
	struct coding coding;
	uint8_t ones[] = {1, 1};
	struct doca_ec_matrix *raw = NULL;
	struct doca_buf *data, *room, *other;
	struct doca_ec_task_galois_mul *task;

	coding_create(&coding);
	OK(doca_ec_matrix_create_from_raw(coding.ec, ones, 2, 1, &raw));
	data = world_data(&coding.world, DATA, 2 * BLOCK);
	room = world_room(&coding.world, RESULT, BLOCK);
	other = world_data(&coding.world, 4096, BLOCK);
	OK(doca_ec_task_galois_mul_allocate_init(coding.ec, coding.matrix, other, other, NO_DATA, &task));
	FIELDS(galois_mul, task, coding_matrix, src_buf, dst_buf, dst_buf, coding.matrix, raw, other, data, other, room);
	world_run(&coding.world, doca_ec_task_galois_mul_as_task(task), true);
	CHECK(data_length(room) == BLOCK);
	check_sum(coding.world.memory + DATA, coding.world.memory + RESULT);
	doca_task_free(doca_ec_task_galois_mul_as_task(task));
	world_release(data);
	world_release(room);
	world_release(other);
	OK(doca_ec_matrix_destroy(raw));
	coding_destroy(&coding);
}

TEST(redundancy_is_updated, doca_ec_matrix_create_update, doca_ec_task_update_set_conf, doca_ec_task_update_allocate_init,
     doca_ec_task_update_as_task, doca_ec_task_update_set_update_matrix, doca_ec_task_update_get_update_matrix,
     doca_ec_task_update_set_original_updated_and_rdnc_blocks, doca_ec_task_update_get_original_updated_and_rdnc_blocks,
     doca_ec_task_update_set_updated_rdnc_blocks, doca_ec_task_update_get_updated_rdnc_blocks)
{
	struct coding coding;
	uint32_t updated = 1;
	struct doca_ec_matrix *update = NULL;
	struct doca_buf *src, *room, *other;
	struct doca_ec_task_update *task;
	uint8_t *memory;

	coding_create(&coding);
	memory = coding.world.memory;
	encode(&coding, REDUNDANCY);
	OK(doca_ec_matrix_create_update(coding.ec, coding.matrix, &updated, 1, &update));
	/* Old block, new block, old redundancy. */
	memcpy(memory + 4096, memory + DATA + BLOCK, BLOCK);
	memset(memory + DATA + BLOCK, 0x5a, BLOCK);
	memcpy(memory + 4096 + BLOCK, memory + DATA + BLOCK, BLOCK);
	memcpy(memory + 4096 + 2 * BLOCK, memory + REDUNDANCY, 2 * BLOCK);
	src = world_data(&coding.world, 4096, 4 * BLOCK);
	room = world_room(&coding.world, RESULT, 2 * BLOCK);
	other = world_data(&coding.world, 16384, BLOCK);
	OK(doca_ec_task_update_allocate_init(coding.ec, coding.matrix, other, other, NO_DATA, &task));
	FIELDS(update, task, update_matrix, original_updated_and_rdnc_blocks, updated_rdnc_blocks, updated_rdnc_blocks,
	       coding.matrix, update, other, src, other, room);
	world_run(&coding.world, doca_ec_task_update_as_task(task), true);
	/* The same as newly created redundancy. */
	encode(&coding, REDUNDANCY);
	CHECK(memcmp(memory + RESULT, memory + REDUNDANCY, 2 * BLOCK) == 0);
	doca_task_free(doca_ec_task_update_as_task(task));
	world_release(src);
	world_release(room);
	world_release(other);
	OK(doca_ec_matrix_destroy(update));
	coding_destroy(&coding);
}

TEST(lost_blocks_are_recovered, doca_ec_matrix_create_recover, doca_ec_task_recover_set_conf,
     doca_ec_task_recover_allocate_init, doca_ec_task_recover_as_task, doca_ec_task_recover_set_recover_matrix,
     doca_ec_task_recover_get_recover_matrix, doca_ec_task_recover_set_available_blocks,
     doca_ec_task_recover_get_available_blocks, doca_ec_task_recover_set_recovered_data_blocks,
     doca_ec_task_recover_get_recovered_data)
{
	struct coding coding;
	uint32_t missing = 0;
	struct doca_ec_matrix *recover = NULL;
	struct doca_buf *src, *room, *other;
	struct doca_ec_task_recover *task;
	uint8_t *memory;

	coding_create(&coding);
	memory = coding.world.memory;
	encode(&coding, REDUNDANCY);
	OK(doca_ec_matrix_create_recover(coding.ec, coding.matrix, &missing, 1, &recover));
	/* The second data block, and the first redundancy block. */
	src = world_data(&coding.world, DATA + BLOCK, 2 * BLOCK);
	room = world_room(&coding.world, RESULT, BLOCK);
	other = world_data(&coding.world, 16384, BLOCK);
	OK(doca_ec_task_recover_allocate_init(coding.ec, coding.matrix, other, other, NO_DATA, &task));
	FIELDS(recover, task, recover_matrix, available_blocks, recovered_data_blocks, recovered_data, coding.matrix,
	       recover, other, src, other, room);
	world_run(&coding.world, doca_ec_task_recover_as_task(task), true);
	CHECK(data_length(room) == BLOCK && memcmp(memory + RESULT, memory + DATA, BLOCK) == 0);
	doca_task_free(doca_ec_task_recover_as_task(task));
	world_release(src);
	world_release(room);
	world_release(other);
	OK(doca_ec_matrix_destroy(recover));
	coding_destroy(&coding);
}
