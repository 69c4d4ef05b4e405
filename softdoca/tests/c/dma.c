/* DMA. */
#include "world.h"

#include <doca_dma.h>

CALLBACKS(doca_dma_task_memcpy)

TEST(dma_has_limits, doca_dma_cap_task_memcpy_is_supported, doca_dma_cap_task_memcpy_get_max_buf_list_len,
     doca_dma_cap_task_memcpy_get_max_buf_size, doca_dma_cap_get_max_num_tasks, doca_dma_get_gpu_handle)
{
	struct world world = world_create();
	struct doca_dma *dma;
	uint32_t list = 0, tasks = 0;
	uint64_t size = 0;
	struct doca_gpu_dma *gpu = NULL;

	OK(doca_dma_cap_task_memcpy_is_supported(world.info));
	REFUSED(doca_dma_cap_task_memcpy_is_supported(NULL));
	OK(doca_dma_cap_task_memcpy_get_max_buf_list_len(world.info, &list));
	CHECK(list >= 1);
	OK(doca_dma_cap_task_memcpy_get_max_buf_size(world.info, &size));
	CHECK(size >= 1024 * 1024);
	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_cap_get_max_num_tasks(dma, &tasks));
	CHECK(tasks >= 1024);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_dma_get_gpu_handle(dma, &gpu));
	REFUSED(doca_dma_get_gpu_handle(NULL, &gpu));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(dma_copies, doca_dma_create, doca_dma_destroy, doca_dma_as_ctx, doca_dma_task_memcpy_set_conf,
     doca_dma_task_memcpy_alloc_init, doca_dma_task_memcpy_as_task, doca_dma_task_memcpy_get_src,
     doca_dma_task_memcpy_get_dst, doca_dma_task_memcpy_set_src, doca_dma_task_memcpy_set_dst)
{
	struct world world = world_create();
	struct doca_buf *src = world_data(&world, 0, 100), *dst = world_room(&world, 4096, 200);
	struct doca_buf *other_src = world_data(&world, 200, 10), *other_dst = world_room(&world, 8192, 10);
	struct doca_dma *dma = NULL;
	struct doca_dma_task_memcpy *task = NULL;

	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 1));
	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &task));
	CHECK(doca_dma_task_memcpy_get_src(task) == src && doca_dma_task_memcpy_get_dst(task) == dst);
	memset(world.memory, 'a', 100);
	memset(world.memory + 200, 'b', 10);
	world_run(&world, doca_dma_task_memcpy_as_task(task), true);
	CHECK(memcmp(world.memory, world.memory + 4096, 100) == 0 && data_length(dst) == 100);
	doca_dma_task_memcpy_set_src(task, other_src);
	doca_dma_task_memcpy_set_dst(task, other_dst);
	world_run(&world, doca_dma_task_memcpy_as_task(task), true);
	CHECK(memcmp(world.memory + 200, world.memory + 8192, 10) == 0 && data_length(other_dst) == 10);
	CHECK(data_length(dst) == 100);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_release(src);
	world_release(dst);
	world_release(other_src);
	world_release(other_dst);
	/* Not while it runs. */
	CHECK(doca_dma_destroy(dma) != DOCA_SUCCESS);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}
