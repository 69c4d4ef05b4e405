/* SHA. */
#include "world.h"

#include <doca_sha.h>

CALLBACKS(doca_sha_task_hash)
CALLBACKS(doca_sha_task_partial_hash)

/* SHA-1 and SHA-256 of "abc", from FIPS 180-4's examples. */
static const uint8_t sha1_of_abc[] = {0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e,
				      0x25, 0x71, 0x78, 0x50, 0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d};
static const uint8_t sha256_of_abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
					0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
					0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};

TEST(sha_has_limits, doca_sha_cap_task_hash_get_supported, doca_sha_cap_task_partial_hash_get_supported,
     doca_sha_cap_get_max_list_buf_num_elem, doca_sha_cap_get_max_src_buf_size, doca_sha_cap_get_min_dst_buf_size,
     doca_sha_cap_get_partial_hash_block_size, doca_sha_cap_get_max_num_tasks)
{
	struct world world = world_create();
	struct doca_sha *sha = NULL;
	uint32_t list = 0, digest = 0, block = 0, tasks = 0;
	uint64_t size = 0;

	OK(doca_sha_cap_task_hash_get_supported(world.info, DOCA_SHA_ALGORITHM_SHA1));
	REFUSED(doca_sha_cap_task_hash_get_supported(NULL, DOCA_SHA_ALGORITHM_SHA1));
	OK(doca_sha_cap_task_partial_hash_get_supported(world.info, DOCA_SHA_ALGORITHM_SHA512));
	REFUSED(doca_sha_cap_task_partial_hash_get_supported(world.info, (enum doca_sha_algorithm)3));
	OK(doca_sha_cap_get_max_list_buf_num_elem(world.info, &list));
	CHECK(list >= 1);
	OK(doca_sha_cap_get_max_src_buf_size(world.info, &size));
	CHECK(size >= 1024 * 1024);
	OK(doca_sha_cap_get_min_dst_buf_size(world.info, DOCA_SHA_ALGORITHM_SHA512, &digest));
	CHECK(digest == 64);
	OK(doca_sha_cap_get_partial_hash_block_size(world.info, DOCA_SHA_ALGORITHM_SHA256, &block));
	CHECK(block == 64);
	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_cap_get_max_num_tasks(sha, &tasks));
	CHECK(tasks >= 64);
	OK(doca_sha_destroy(sha));
	world_destroy(&world);
}

TEST(sha_hashes, doca_sha_create, doca_sha_destroy, doca_sha_as_ctx, doca_sha_task_hash_set_conf,
     doca_sha_task_hash_alloc_init, doca_sha_task_hash_as_task, doca_sha_task_hash_set_src, doca_sha_task_hash_get_src,
     doca_sha_task_hash_set_dst, doca_sha_task_hash_get_dst, doca_sha_task_hash_set_algorithm,
     doca_sha_task_hash_get_algorithm)
{
	struct world world = world_create();
	struct doca_buf *src = world_data(&world, 0, 3), *dst = world_room(&world, 4096, 20);
	struct doca_buf *other_src = world_data(&world, 100, 3), *other_dst = world_room(&world, 8192, 32);
	struct doca_sha *sha = NULL;
	struct doca_sha_task_hash *task = NULL;

	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_hash_set_conf(sha, doca_sha_task_hash_completed, doca_sha_task_hash_failed, 1));
	world_start(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA1, src, dst, NO_DATA, &task));
	CHECK(doca_sha_task_hash_get_src(task) == src && doca_sha_task_hash_get_dst(task) == dst);
	memcpy(world.memory, "abc", 3);
	memcpy(world.memory + 100, "abc", 3);
	world_run(&world, doca_sha_task_hash_as_task(task), true);
	CHECK(data_length(dst) == 20 && memcmp(world.memory + 4096, sha1_of_abc, 20) == 0);
	OK(doca_sha_task_hash_set_src(task, other_src));
	OK(doca_sha_task_hash_set_dst(task, other_dst));
	OK(doca_sha_task_hash_set_algorithm(task, DOCA_SHA_ALGORITHM_SHA256));
	CHECK(doca_sha_task_hash_get_src(task) == other_src && doca_sha_task_hash_get_dst(task) == other_dst);
	CHECK(doca_sha_task_hash_get_algorithm(task) == DOCA_SHA_ALGORITHM_SHA256);
	memset(world.memory, 0, 3);
	world_run(&world, doca_sha_task_hash_as_task(task), true);
	CHECK(data_length(other_dst) == 32 && memcmp(world.memory + 8192, sha256_of_abc, 32) == 0);
	CHECK(data_length(dst) == 20);
	REFUSED(doca_sha_task_hash_set_src(NULL, src));
	REFUSED(doca_sha_task_hash_set_dst(task, NULL));
	REFUSED(doca_sha_task_hash_set_algorithm(task, (enum doca_sha_algorithm)3));
	doca_task_free(doca_sha_task_hash_as_task(task));
	world_release(src);
	world_release(dst);
	world_release(other_src);
	world_release(other_dst);
	/* Not while it runs. */
	CHECK(doca_sha_destroy(sha) != DOCA_SUCCESS);
	world_stop(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_destroy(sha));
	world_destroy(&world);
}

TEST(sha_hashes_part_by_part, doca_sha_task_partial_hash_set_conf, doca_sha_task_partial_hash_alloc_init,
     doca_sha_task_partial_hash_as_task, doca_sha_task_partial_hash_reset, doca_sha_task_partial_hash_set_src,
     doca_sha_task_partial_hash_get_src, doca_sha_task_partial_hash_set_dst, doca_sha_task_partial_hash_get_dst,
     doca_sha_task_partial_hash_set_algorithm, doca_sha_task_partial_hash_get_algorithm,
     doca_sha_task_partial_hash_set_is_final_buf, doca_sha_task_partial_hash_get_is_final,
     doca_sha_task_partial_hash_get_has_result)
{
	/* SHA-256 of 64 times 'a' and then "bc". */
	static const uint8_t expected[] = {0x2e, 0xac, 0x2a, 0xb1, 0x3a, 0x13, 0xbd, 0x7e, 0xb0, 0x77, 0x1c,
					   0xe0, 0x64, 0x7c, 0x9c, 0xdd, 0xdb, 0x62, 0xd4, 0xa1, 0xbe, 0xbd,
					   0xd1, 0x82, 0x97, 0x80, 0x81, 0x09, 0x62, 0x28, 0x0a, 0x84};
	struct world world = world_create();
	struct doca_buf *part = world_data(&world, 0, 64), *last = world_data(&world, 64, 2);
	struct doca_buf *dst = world_room(&world, 4096, 64), *other = world_room(&world, 8192, 64);
	struct doca_sha *sha = NULL;
	struct doca_sha_task_partial_hash *task = NULL;

	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_partial_hash_set_conf(sha, doca_sha_task_partial_hash_completed,
					       doca_sha_task_partial_hash_failed, 0));
	world_start(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA1, part, other, NO_DATA, &task));
	CHECK(doca_sha_task_partial_hash_get_src(task) == part && doca_sha_task_partial_hash_get_dst(task) == other);
	CHECK(doca_sha_task_partial_hash_get_is_final(task) == 0);
	OK(doca_sha_task_partial_hash_set_algorithm(task, DOCA_SHA_ALGORITHM_SHA256));
	CHECK(doca_sha_task_partial_hash_get_algorithm(task) == DOCA_SHA_ALGORITHM_SHA256);
	OK(doca_sha_task_partial_hash_set_dst(task, dst));
	CHECK(doca_sha_task_partial_hash_get_dst(task) == dst);
	/* Another part first, which the reset discards. */
	world_run(&world, doca_sha_task_partial_hash_as_task(task), true);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_sha_task_partial_hash_set_dst(task, other));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_sha_task_partial_hash_set_algorithm(task, DOCA_SHA_ALGORITHM_SHA1));
	OK(doca_sha_task_partial_hash_reset(task));
	memset(world.memory, 'a', 64);
	memcpy(world.memory + 64, "bc", 2);
	world_run(&world, doca_sha_task_partial_hash_as_task(task), true);
	CHECK(data_length(dst) == 0 && doca_sha_task_partial_hash_get_has_result(task) == 0);
	OK(doca_sha_task_partial_hash_set_src(task, last));
	CHECK(doca_sha_task_partial_hash_get_src(task) == last);
	OK(doca_sha_task_partial_hash_set_is_final_buf(task));
	CHECK(doca_sha_task_partial_hash_get_is_final(task) == 1);
	world_run(&world, doca_sha_task_partial_hash_as_task(task), true);
	CHECK(doca_sha_task_partial_hash_get_has_result(task) == 1);
	CHECK(data_length(dst) == 32 && memcmp(world.memory + 4096, expected, 32) == 0);
	REFUSED(doca_sha_task_partial_hash_reset(NULL));
	REFUSED(doca_sha_task_partial_hash_set_src(task, NULL));
	REFUSED(doca_sha_task_partial_hash_set_is_final_buf(NULL));
	doca_task_free(doca_sha_task_partial_hash_as_task(task));
	world_release(part);
	world_release(last);
	world_release(dst);
	world_release(other);
	world_stop(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_destroy(sha));
	world_destroy(&world);
}
