/* Engines, contexts and tasks; DMA is the context that needs no peer. */
#include "world.h"

#include <doca_dma.h>

#include <poll.h>

CALLBACKS(doca_dma_task_memcpy)

static struct doca_dma *create(struct world *world)
{
	struct doca_dma *dma;

	OK(doca_dma_create(world->dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 4));
	return dma;
}

static struct doca_dma_task_memcpy *copy(struct world *world, struct doca_dma *dma, union doca_data data)
{
	struct doca_dma_task_memcpy *task;

	OK(doca_dma_task_memcpy_alloc_init(dma, world_data(world, 0, 100), world_room(world, 4096, 100), data, &task));
	return task;
}

static void release(struct doca_dma_task_memcpy *task)
{
	struct doca_buf *src = (struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task);
	struct doca_buf *dst = doca_dma_task_memcpy_get_dst(task);

	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_release(src);
	world_release(dst);
}

struct changes {
	unsigned int count;
	enum doca_ctx_states last;
};

static void changed(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states from, enum doca_ctx_states to)
{
	struct changes *changes = data.ptr;

	(void)ctx;
	CHECK(changes->last == from);
	changes->last = to;
	changes->count++;
}

TEST(contexts_change_their_state, doca_ctx_start, doca_ctx_stop, doca_ctx_get_state, doca_ctx_set_state_changed_cb,
     doca_ctx_set_user_data, doca_ctx_get_user_data, doca_pe_connect_ctx)
{
	struct world world = world_create();
	struct doca_dma *dma = create(&world);
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);
	struct changes changes = {0, DOCA_CTX_STATE_IDLE};
	union doca_data data = {.ptr = &changes}, found = {.ptr = NULL};
	enum doca_ctx_states state = DOCA_CTX_STATE_STOPPING;

	/* Not without an engine. */
	CHECK(doca_ctx_start(ctx) != DOCA_SUCCESS);
	OK(doca_pe_connect_ctx(world.pe, ctx));
	CHECK(doca_pe_connect_ctx(world.pe, ctx) != DOCA_SUCCESS);
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_get_user_data(ctx, &found));
	CHECK(found.ptr == &changes);
	OK(doca_ctx_set_state_changed_cb(ctx, changed));
	OK(doca_ctx_get_state(ctx, &state));
	CHECK(state == DOCA_CTX_STATE_IDLE);
	OK(doca_ctx_start(ctx));
	OK(doca_ctx_get_state(ctx, &state));
	CHECK(state == DOCA_CTX_STATE_RUNNING && changes.last == DOCA_CTX_STATE_RUNNING);
	OK(doca_ctx_stop(ctx));
	OK(doca_ctx_get_state(ctx, &state));
	CHECK(state == DOCA_CTX_STATE_IDLE && changes.last == DOCA_CTX_STATE_IDLE && changes.count >= 2);
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(tasks_are_submitted_and_complete, doca_pe_create, doca_pe_destroy, doca_pe_progress, doca_pe_get_num_inflight_tasks,
     doca_ctx_get_num_inflight_tasks, doca_task_submit, doca_task_get_status, doca_task_set_user_data,
     doca_task_get_user_data, doca_task_get_ctx)
{
	struct world world = world_create();
	struct doca_dma *dma = create(&world);
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);
	union doca_data data = {.u64 = 7};
	struct doca_task *task;
	struct doca_dma_task_memcpy *memcpy_task;
	size_t of_engine = 99, of_context = 99;

	world_start(&world, ctx);
	memcpy_task = copy(&world, dma, data);
	task = doca_dma_task_memcpy_as_task(memcpy_task);
	CHECK(doca_task_get_user_data(task).u64 == 7);
	data.u64 = 8;
	doca_task_set_user_data(task, data);
	CHECK(doca_task_get_user_data(task).u64 == 8);
	CHECK(doca_task_get_ctx(task) == ctx);
	CHECK(doca_pe_progress(world.pe) == 0);
	OK(doca_task_submit(task));
	OK(doca_pe_get_num_inflight_tasks(world.pe, &of_engine));
	OK(doca_ctx_get_num_inflight_tasks(ctx, &of_context));
	CHECK(of_engine == 1 && of_context == 1);
	while (world.completed == 0)
		(void)doca_pe_progress(world.pe);
	OK(doca_pe_get_num_inflight_tasks(world.pe, &of_engine));
	OK(doca_ctx_get_num_inflight_tasks(ctx, &of_context));
	CHECK(of_engine == 0 && of_context == 0);
	OK(doca_task_get_status(task));
	release(memcpy_task);

	/* A failed task has an error status. */
	memcpy_task = copy(&world, dma, data);
	OK(doca_buf_reset_data_len((struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(memcpy_task)));
	OK(doca_buf_set_data(doca_dma_task_memcpy_get_dst(memcpy_task), world.memory + 4096, 100));
	OK(doca_buf_set_data((struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(memcpy_task), world.memory, 100));
	world_run(&world, doca_dma_task_memcpy_as_task(memcpy_task), false);
	release(memcpy_task);
	world_stop(&world, ctx);

	/* An engine with a context cannot be destroyed. */
	CHECK(doca_pe_destroy(world.pe) != DOCA_SUCCESS);
	REFUSED(doca_pe_destroy(NULL));
	REFUSED(doca_pe_create(NULL));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(freed_tasks_can_be_had_again, doca_task_free)
{
	struct world world = world_create();
	struct doca_dma *dma = create(&world);
	struct doca_dma_task_memcpy *task;

	world_start(&world, doca_dma_as_ctx(dma));
	for (int i = 0; i < 100; i++) {
		task = copy(&world, dma, NO_DATA);
		release(task);
	}
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(tasks_are_checked_before_they_are_submitted, doca_task_try_submit)
{
	struct world world = world_create();
	struct doca_dma *dma = create(&world);
	struct doca_dma_task_memcpy *task;

	world_start(&world, doca_dma_as_ctx(dma));
	task = copy(&world, dma, NO_DATA);
	OK(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)));
	while (world.completed == 0)
		(void)doca_pe_progress(world.pe);
	REFUSED(doca_task_try_submit(NULL));
	release(task);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}

TEST(engines_wake_who_polls, doca_pe_get_notification_handle, doca_pe_request_notification, doca_pe_clear_notification)
{
	struct world world = world_create();
	struct doca_dma *dma = create(&world);
	struct doca_dma_task_memcpy *task;
	doca_notification_handle_t handle = doca_event_invalid_handle;
	struct pollfd poll_fd;

	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_pe_get_notification_handle(world.pe, &handle));
	CHECK(handle >= 0);
	poll_fd = (struct pollfd){.fd = handle, .events = POLLIN};
	CHECK(poll(&poll_fd, 1, 0) == 0);
	task = copy(&world, dma, NO_DATA);
	OK(doca_pe_request_notification(world.pe));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	CHECK(poll(&poll_fd, 1, 1000) == 1);
	OK(doca_pe_clear_notification(world.pe, handle));
	CHECK(poll(&poll_fd, 1, 0) == 0);
	while (world.completed == 0)
		(void)doca_pe_progress(world.pe);
	release(task);
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}
