/* Sync events as contexts: tasks. */
#include "world.h"

#include <doca_sync_event.h>

CALLBACKS(doca_sync_event_task_get)
CALLBACKS(doca_sync_event_task_notify_set)
CALLBACKS(doca_sync_event_task_notify_add)
CALLBACKS(doca_sync_event_task_wait_eq)
CALLBACKS(doca_sync_event_task_wait_neq)

static struct doca_sync_event *start(struct world *world)
{
	struct doca_sync_event *event = NULL;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, world->dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world->dev));
#define CONFIGURE(kind)                                                                                                \
	OK(doca_sync_event_task_##kind##_set_conf(event, doca_sync_event_task_##kind##_completed,                      \
						  doca_sync_event_task_##kind##_failed, 2))
	CONFIGURE(get);
	CONFIGURE(notify_set);
	CONFIGURE(notify_add);
	CONFIGURE(wait_eq);
	CONFIGURE(wait_neq);
	CHECK(doca_sync_event_as_ctx(event) != NULL);
	world_start(world, doca_sync_event_as_ctx(event));
	return event;
}

static void finish(struct world *world, struct doca_sync_event *event)
{
	world_stop(world, doca_sync_event_as_ctx(event));
	OK(doca_sync_event_destroy(event));
	world_destroy(world);
}

static uint64_t value_of(struct doca_sync_event *event)
{
	uint64_t value = 0x5a5a;

	OK(doca_sync_event_get(event, &value));
	return value;
}

/* Checks and replaces a field of a task. */
#define FIELD(kind, field, task, old, new)                                                                             \
	do {                                                                                                           \
		CHECK(doca_sync_event_task_##kind##_get_##field(task) == (old));                                       \
		doca_sync_event_task_##kind##_set_##field(task, new);                                                  \
		CHECK(doca_sync_event_task_##kind##_get_##field(task) == (new));                                       \
	} while (0)

TEST(tasks_get_values, doca_sync_event_as_ctx, doca_sync_event_task_get_set_conf, doca_sync_event_task_get_alloc_init,
     doca_sync_event_task_get_as_doca_task, doca_sync_event_task_get_set_ret_val_ptr,
     doca_sync_event_task_get_get_ret_val_ptr)
{
	struct world world = world_create();
	struct doca_sync_event *event = start(&world);
	struct doca_sync_event_task_get *task = NULL;
	uint64_t first = 1, second = 2;

	OK(doca_sync_event_update_set(event, 77));
	OK(doca_sync_event_task_get_alloc_init(event, &first, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(get, ret_val_ptr, task, &first, &second);
	world_run(&world, doca_sync_event_task_get_as_doca_task(task), true);
	CHECK(first == 1 && second == 77);
	doca_task_free(doca_sync_event_task_get_as_doca_task(task));
	CHECK(doca_sync_event_task_get_get_ret_val_ptr(NULL) == NULL);
	finish(&world, event);
}

TEST(tasks_set_values, doca_sync_event_task_notify_set_set_conf, doca_sync_event_task_notify_set_alloc_init,
     doca_sync_event_task_notify_set_as_doca_task, doca_sync_event_task_notify_set_set_set_val,
     doca_sync_event_task_notify_set_get_set_val)
{
	struct world world = world_create();
	struct doca_sync_event *event = start(&world);
	struct doca_sync_event_task_notify_set *task = NULL;

	OK(doca_sync_event_task_notify_set_alloc_init(event, 5, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(notify_set, set_val, task, 5, 6);
	world_run(&world, doca_sync_event_task_notify_set_as_doca_task(task), true);
	CHECK(value_of(event) == 6);
	doca_task_free(doca_sync_event_task_notify_set_as_doca_task(task));
	finish(&world, event);
}

TEST(tasks_add_to_values, doca_sync_event_task_notify_add_set_conf, doca_sync_event_task_notify_add_alloc_init,
     doca_sync_event_task_notify_add_as_doca_task, doca_sync_event_task_notify_add_set_inc_val,
     doca_sync_event_task_notify_add_get_inc_val, doca_sync_event_task_notify_add_set_fetched_val_ptr,
     doca_sync_event_task_notify_add_get_fetched_val_ptr)
{
	struct world world = world_create();
	struct doca_sync_event *event = start(&world);
	struct doca_sync_event_task_notify_add *task = NULL;
	uint64_t first = 1, second = 2;

	OK(doca_sync_event_update_set(event, 40));
	OK(doca_sync_event_task_notify_add_alloc_init(event, 1, &first, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(notify_add, inc_val, task, 1, 2);
	FIELD(notify_add, fetched_val_ptr, task, &first, &second);
	world_run(&world, doca_sync_event_task_notify_add_as_doca_task(task), true);
	CHECK(first == 1 && second == 40 && value_of(event) == 42);
	doca_task_free(doca_sync_event_task_notify_add_as_doca_task(task));
	finish(&world, event);
}

/* A waiting task completes only when its condition holds. */
#define WAITS(world, event, task, after)                                                                               \
	do {                                                                                                           \
		unsigned int before = (world)->completed;                                                              \
		OK(doca_task_submit(task));                                                                            \
		for (int i = 0; i < 1000; i++)                                                                         \
			CHECK(doca_pe_progress((world)->pe) == 0);                                                     \
		OK(doca_sync_event_update_set(event, after));                                                          \
		while ((world)->completed == before)                                                                   \
			(void)doca_pe_progress((world)->pe);                                                           \
		CHECK(doca_task_get_status(task) == DOCA_SUCCESS);                                                     \
	} while (0)

TEST(tasks_wait_for_a_value, doca_sync_event_task_wait_eq_set_conf, doca_sync_event_task_wait_eq_alloc_init,
     doca_sync_event_task_wait_eq_as_doca_task, doca_sync_event_task_wait_eq_set_wait_val,
     doca_sync_event_task_wait_eq_get_wait_val, doca_sync_event_task_wait_eq_set_mask,
     doca_sync_event_task_wait_eq_get_mask)
{
	struct world world = world_create();
	struct doca_sync_event *event = start(&world);
	struct doca_sync_event_task_wait_eq *task = NULL;

	/* As allocated, it would complete at once. */
	OK(doca_sync_event_task_wait_eq_alloc_init(event, 0, 0, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(wait_eq, wait_val, task, 0, 5);
	FIELD(wait_eq, mask, task, 0, 0xff);
	WAITS(&world, event, doca_sync_event_task_wait_eq_as_doca_task(task), 0x305);
	doca_task_free(doca_sync_event_task_wait_eq_as_doca_task(task));
	finish(&world, event);
}

TEST(tasks_wait_for_a_change, doca_sync_event_task_wait_neq_set_conf, doca_sync_event_task_wait_neq_alloc_init,
     doca_sync_event_task_wait_neq_as_doca_task, doca_sync_event_task_wait_neq_set_wait_val,
     doca_sync_event_task_wait_neq_get_wait_val, doca_sync_event_task_wait_neq_set_mask,
     doca_sync_event_task_wait_neq_get_mask)
{
	struct world world = world_create();
	struct doca_sync_event *event = start(&world);
	struct doca_sync_event_task_wait_neq *task = NULL;

	OK(doca_sync_event_update_set(event, 0x305));
	/* As allocated, it would complete at once. */
	OK(doca_sync_event_task_wait_neq_alloc_init(event, 6, 0xfff, NO_DATA, &task));
	CHECK(task != NULL);
	FIELD(wait_neq, wait_val, task, 6, 5);
	FIELD(wait_neq, mask, task, 0xfff, 0xff);
	WAITS(&world, event, doca_sync_event_task_wait_neq_as_doca_task(task), 0x304);
	doca_task_free(doca_sync_event_task_wait_neq_as_doca_task(task));
	finish(&world, event);
}
