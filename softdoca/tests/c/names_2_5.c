/* Functions that only 2.5 has by their names, except those of Comm Channel and RDMA. */
#include "world.h"

#include <doca_version.h>

#if DOCA_VERSION_MINOR < 6

#include <doca_aes_gcm.h>
#include <doca_compress.h>
#include <doca_log.h>
#include <doca_sha.h>

DOCA_LOG_REGISTER(TEST::NAMES)

CALLBACKS(doca_sha_task_partial_hash)

TEST(accelerators_have_limits, doca_aes_gcm_cap_task_encrypt_get_max_iv_length,
     doca_aes_gcm_cap_task_decrypt_get_max_iv_length, doca_compress_get_max_num_tasks, doca_sha_cap_get_max_src_buffer_size,
     doca_sha_cap_get_min_dst_buffer_size)
{
	struct world world = world_create();
	struct doca_compress *compress = NULL;
	uint32_t length = 0, tasks = 0;
	uint64_t size = 0;

	OK(doca_aes_gcm_cap_task_encrypt_get_max_iv_length(world.info, &length));
	CHECK(length == 12);
	length = 0;
	OK(doca_aes_gcm_cap_task_decrypt_get_max_iv_length(world.info, &length));
	CHECK(length == 12);
	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_get_max_num_tasks(compress, &tasks));
	CHECK(tasks >= 64);
	OK(doca_compress_destroy(compress));
	OK(doca_sha_cap_get_max_src_buffer_size(world.info, &size));
	CHECK(size >= 1024 * 1024);
	OK(doca_sha_cap_get_min_dst_buffer_size(world.info, DOCA_SHA_ALGORITHM_SHA512, &length));
	CHECK(length == 64);
	world_destroy(&world);
}

TEST(sha_knows_the_last_part, doca_sha_task_partial_hash_set_is_final_buffer)
{
	struct world world = world_create();
	struct doca_buf *part = world_data(&world, 0, 2), *digest = world_room(&world, 4096, 64);
	struct doca_sha *sha = NULL;
	struct doca_sha_task_partial_hash *task = NULL;

	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_partial_hash_set_conf(sha, doca_sha_task_partial_hash_completed,
					       doca_sha_task_partial_hash_failed, 0));
	world_start(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, part, digest, NO_DATA, &task));
	OK(doca_sha_task_partial_hash_set_is_final_buffer(task));
	world_run(&world, doca_sha_task_partial_hash_as_task(task), true);
	CHECK(doca_sha_task_partial_hash_get_has_result(task) == 1 && data_length(digest) == 32);
	REFUSED(doca_sha_task_partial_hash_set_is_final_buffer(NULL));
	doca_task_free(doca_sha_task_partial_hash_as_task(task));
	world_release(part);
	world_release(digest);
	world_stop(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_destroy(sha));
	world_destroy(&world);
}

static unsigned int of_program, of_sdk;

static void flush(char *buffer)
{
	if (strstr(buffer, "by the program") != NULL)
		of_program++;
}

static void flush_sdk(char *buffer)
{
	if (strstr(buffer, "mmap") != NULL)
		of_sdk++;
}

TEST(logs_go_to_buffers, doca_log_backend_create_with_buffer, doca_log_backend_create_with_buffer_sdk)
{
	static char buffer[1000], buffer_sdk[1000];
	struct doca_log_backend *backend = NULL;
	struct doca_mmap *mmap;

	OK(doca_log_backend_create_with_buffer(buffer, sizeof(buffer), flush, &backend));
	DOCA_LOG_ERR("by the program");
	CHECK(of_program == 1 && of_sdk == 0);
	OK(doca_log_backend_create_with_buffer_sdk(buffer_sdk, sizeof(buffer_sdk), flush_sdk, &backend));
	OK(doca_mmap_create(&mmap));
	CHECK(doca_mmap_start(mmap) != DOCA_SUCCESS);
	OK(doca_mmap_destroy(mmap));
	CHECK(of_program == 1 && of_sdk == 1);
}

#endif
