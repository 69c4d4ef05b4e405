/* Invalidation of caches. */
#include "world.h"

#include <doca_mmap_advise.h>

CALLBACKS(doca_mmap_advise_task_invalidate_cache)

TEST(caches_can_be_invalidated, doca_mmap_advise_cap_task_cache_invalidate_is_supported,
     doca_mmap_advise_task_cache_invalidate_get_max_buf_size)
{
	struct world world = world_create();
	uint64_t size = 0;

	OK(doca_mmap_advise_cap_task_cache_invalidate_is_supported(world.info));
	REFUSED(doca_mmap_advise_cap_task_cache_invalidate_is_supported(NULL));
	OK(doca_mmap_advise_task_cache_invalidate_get_max_buf_size(world.info, &size));
	CHECK(size >= 1024 * 1024);
	world_destroy(&world);
}

TEST(caches_are_invalidated, doca_mmap_advise_create, doca_mmap_advise_destroy, doca_mmap_advise_as_ctx,
     doca_mmap_advise_task_invalidate_cache_set_conf, doca_mmap_advise_task_invalidate_cache_alloc_init,
     doca_mmap_advise_task_invalidate_cache_as_doca_task, doca_mmap_advise_task_invalidate_cache_set_buf,
     doca_mmap_advise_task_invalidate_cache_get_buf)
{
	struct world world = world_create();
	struct doca_buf *one = world_data(&world, 0, 100), *two = world_room(&world, 4096, 200);
	struct doca_mmap_advise *advise = NULL;
	struct doca_mmap_advise_task_invalidate_cache *task = NULL, *more = NULL;

	OK(doca_mmap_advise_create(world.dev, &advise));
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, doca_mmap_advise_task_invalidate_cache_completed,
							   doca_mmap_advise_task_invalidate_cache_failed, 1));
	world_start(&world, doca_mmap_advise_as_ctx(advise));
	OK(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, one, NO_DATA, &task));
	RETURNS(DOCA_ERROR_NO_MEMORY, doca_mmap_advise_task_invalidate_cache_alloc_init(advise, one, NO_DATA, &more));
	CHECK(doca_mmap_advise_task_invalidate_cache_get_buf(task) == one);
	world_run(&world, doca_mmap_advise_task_invalidate_cache_as_doca_task(task), true);
	doca_mmap_advise_task_invalidate_cache_set_buf(task, two);
	CHECK(doca_mmap_advise_task_invalidate_cache_get_buf(task) == two);
	world_run(&world, doca_mmap_advise_task_invalidate_cache_as_doca_task(task), true);
	CHECK(world.completed == 2 && data_length(one) == 100 && data_length(two) == 0);
	/* There is nothing to invalidate. */
	doca_mmap_advise_task_invalidate_cache_set_buf(task, NULL);
	world_run(&world, doca_mmap_advise_task_invalidate_cache_as_doca_task(task), false);
	CHECK(world.failed == 1);
	doca_task_free(doca_mmap_advise_task_invalidate_cache_as_doca_task(task));
	CHECK(doca_mmap_advise_destroy(advise) != DOCA_SUCCESS);
	world_stop(&world, doca_mmap_advise_as_ctx(advise));
	OK(doca_mmap_advise_destroy(advise));
	world_release(one);
	world_release(two);
	world_destroy(&world);
}
