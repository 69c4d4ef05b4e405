/* Fixture of most tests: devices, an engine, memory and bufs. */
#ifndef WORLD_H
#define WORLD_H

#include "test.h"

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_types.h>

#define DPU_DEVICE "0000:03:00.0"
#define HOST_DEVICE "0000:3b:00.0"

#define MEMORY_SIZE 65536

static inline struct doca_dev *world_open(const char *address)
{
	struct doca_devinfo **list;
	uint32_t count;
	struct doca_dev *dev = NULL;

	OK(doca_devinfo_create_list(&list, &count));
	for (uint32_t i = 0; i < count && dev == NULL; i++) {
		uint8_t equal = 0;

		OK(doca_devinfo_is_equal_pci_addr(list[i], address, &equal));
		if (equal)
			OK(doca_dev_open(list[i], &dev));
	}
	OK(doca_devinfo_destroy_list(list));
	CHECK(dev != NULL);
	return dev;
}

struct world {
	struct doca_dev *dev;
	const struct doca_devinfo *info;
	struct doca_pe *pe;
	struct doca_buf_inventory *inventory;
	struct doca_mmap *mmap;
	uint8_t *memory; /* MEMORY_SIZE bytes, zeroed */
	unsigned int completed;
	unsigned int failed;
};

static inline struct doca_mmap *world_map(struct doca_dev *dev, void *memory, size_t size, uint32_t permissions)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_set_memrange(mmap, memory, size));
	OK(doca_mmap_set_permissions(mmap, permissions));
	OK(doca_mmap_start(mmap));
	return mmap;
}

static inline struct world world_create(void)
{
	struct world world = {0};

	world.dev = world_open(DPU_DEVICE);
	world.info = doca_dev_as_devinfo(world.dev);
	OK(doca_pe_create(&world.pe));
	OK(doca_buf_inventory_create(64, &world.inventory));
	OK(doca_buf_inventory_start(world.inventory));
	world.memory = aligned_alloc(4096, MEMORY_SIZE);
	CHECK(world.memory != NULL);
	memset(world.memory, 0, MEMORY_SIZE);
	world.mmap = world_map(world.dev, world.memory, MEMORY_SIZE,
			       DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ | DOCA_ACCESS_FLAG_RDMA_WRITE |
				       DOCA_ACCESS_FLAG_RDMA_ATOMIC);
	return world;
}

/* All other objects must have been destroyed. */
static inline void world_destroy(struct world *world)
{
	OK(doca_mmap_stop(world->mmap));
	OK(doca_mmap_destroy(world->mmap));
	OK(doca_buf_inventory_stop(world->inventory));
	OK(doca_buf_inventory_destroy(world->inventory));
	OK(doca_pe_destroy(world->pe));
	OK(doca_dev_close(world->dev));
	free(world->memory);
}

/* A buf over memory with data in all of it. */
static inline struct doca_buf *world_data(struct world *world, size_t offset, size_t length)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_data(world->inventory, world->mmap, world->memory + offset, length, &buf));
	return buf;
}

/* A buf over memory without data. */
static inline struct doca_buf *world_room(struct world *world, size_t offset, size_t length)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_addr(world->inventory, world->mmap, world->memory + offset, length, &buf));
	return buf;
}

static inline void world_release(struct doca_buf *buf)
{
	OK(doca_buf_dec_refcount(buf, NULL));
}

static inline size_t data_length(const struct doca_buf *buf)
{
	size_t length = SIZE_MAX;

	OK(doca_buf_get_data_len(buf, &length));
	return length;
}

/* Starts a context and waits until it runs. */
static inline void world_start(struct world *world, struct doca_ctx *ctx)
{
	union doca_data data = {.ptr = world};
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;

	OK(doca_pe_connect_ctx(world->pe, ctx));
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_start(ctx));
	OK(doca_ctx_get_state(ctx, &state));
	CHECK(state == DOCA_CTX_STATE_RUNNING);
}

/* Stops a context and waits until it is idle; its tasks must have been freed. */
static inline void world_stop(struct world *world, struct doca_ctx *ctx)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_STOPPING;
	doca_error_t result = doca_ctx_stop(ctx);

	CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS);
	for (;;) {
		OK(doca_ctx_get_state(ctx, &state));
		if (state == DOCA_CTX_STATE_IDLE)
			return;
		(void)doca_pe_progress(world->pe);
	}
}

/* Submits a task and waits for its completion, which must have the expected result. */
static inline void world_run(struct world *world, struct doca_task *task, bool success)
{
	unsigned int before = world->completed + world->failed;

	OK(doca_task_submit(task));
	while (world->completed + world->failed == before)
		(void)doca_pe_progress(world->pe);
	CHECK(world->completed + world->failed == before + 1);
	CHECK((doca_task_get_status(task) == DOCA_SUCCESS) == success);
}

/* Callbacks name##_completed and name##_failed for tasks of struct name. */
#define CALLBACKS(name)                                                                                                \
	static inline void name##_completed(struct name *task, union doca_data task_data, union doca_data ctx_data)    \
	{                                                                                                              \
		(void)task;                                                                                            \
		(void)task_data;                                                                                       \
		((struct world *)ctx_data.ptr)->completed++;                                                           \
	}                                                                                                              \
	static inline void name##_failed(struct name *task, union doca_data task_data, union doca_data ctx_data)       \
	{                                                                                                              \
		(void)task;                                                                                            \
		(void)task_data;                                                                                       \
		((struct world *)ctx_data.ptr)->failed++;                                                              \
	}

#define NO_DATA ((union doca_data){.u64 = 0})

#endif
