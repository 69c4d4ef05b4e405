/* Sync events without a progress engine: locations, values, waits, exports. */
#define _POSIX_C_SOURCE 200809L
#include "world.h"

#include <doca_sync_event.h>

#include <pthread.h>
#include <time.h>

#define ALL_BITS UINT64_MAX

static struct doca_sync_event *create(void)
{
	struct doca_sync_event *event = NULL;

	OK(doca_sync_event_create(&event));
	CHECK(event != NULL);
	return event;
}

/* An event for the CPU alone, started. */
static struct doca_sync_event *start_local(struct world *world)
{
	struct doca_sync_event *event = create();

	OK(doca_sync_event_add_publisher_location_cpu(event, world->dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world->dev));
	OK(doca_sync_event_start(event));
	return event;
}

static void finish(struct doca_sync_event *event)
{
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
}

static uint64_t value_of(struct doca_sync_event *event)
{
	uint64_t value = 0x5a5a;

	OK(doca_sync_event_get(event, &value));
	return value;
}

TEST(values_are_set_and_added_to, doca_sync_event_create, doca_sync_event_destroy, doca_sync_event_start, doca_sync_event_stop,
     doca_sync_event_get, doca_sync_event_update_set, doca_sync_event_update_add)
{
	struct world world = world_create();
	struct doca_sync_event *event = start_local(&world);
	uint64_t old = 0;

	CHECK(value_of(event) == 0);
	OK(doca_sync_event_update_set(event, 40));
	CHECK(value_of(event) == 40);
	OK(doca_sync_event_update_add(event, 2, &old));
	CHECK(old == 40 && value_of(event) == 42);
	REFUSED(doca_sync_event_update_add(event, 2, NULL));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));
	RETURNS(DOCA_ERROR_IN_USE, doca_sync_event_destroy(event));
	OK(doca_sync_event_stop(event));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_sync_event_update_set(event, 1));
	OK(doca_sync_event_destroy(event));
	REFUSED(doca_sync_event_create(NULL));
	world_destroy(&world);
}

TEST(events_need_both_roles, doca_sync_event_add_publisher_location_cpu, doca_sync_event_add_subscriber_location_cpu,
     doca_sync_event_add_publisher_location_remote_net, doca_sync_event_add_publisher_location_remote_pci,
     doca_sync_event_add_subscriber_location_remote_pci)
{
	struct world world = world_create();
	struct doca_sync_event *event;

#define SUFFICE(publish, subscribe)                                                                                    \
	do {                                                                                                           \
		event = create();                                                                                      \
		OK(publish);                                                                                           \
		RETURNS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));                                           \
		OK(subscribe);                                                                                         \
		OK(doca_sync_event_start(event));                                                                      \
		RETURNS(DOCA_ERROR_BAD_STATE, publish);                                                                \
		finish(event);                                                                                         \
	} while (0)

	SUFFICE(doca_sync_event_add_publisher_location_cpu(event, world.dev),
		doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	SUFFICE(doca_sync_event_add_publisher_location_remote_net(event),
		doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	SUFFICE(doca_sync_event_add_publisher_location_remote_pci(event),
		doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	SUFFICE(doca_sync_event_add_publisher_location_cpu(event, world.dev),
		doca_sync_event_add_subscriber_location_remote_pci(event));
	world_destroy(&world);
}

/* Sets an event from another thread after a short delay. */
struct setter {
	struct doca_sync_event *event;
	uint64_t value;
	pthread_t thread;
};

static void *set_later(void *argument)
{
	const struct setter *setter = argument;
	struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};

	nanosleep(&moment, NULL);
	OK(doca_sync_event_update_set(setter->event, setter->value));
	return NULL;
}

/* A wait whose condition is fulfilled by another thread. */
#define WAITS(wait, waited, before, operand, mask, after)                                                              \
	do {                                                                                                           \
		struct setter setter = {.event = (waited), .value = (after)};                                          \
		OK(doca_sync_event_update_set(waited, before));                                                        \
		CHECK(pthread_create(&setter.thread, NULL, set_later, &setter) == 0);                                  \
		OK(wait(waited, operand, mask));                                                                       \
		CHECK(value_of(waited) == (after));                                                                    \
		CHECK(pthread_join(setter.thread, NULL) == 0);                                                         \
		OK(wait(waited, operand, mask));                                                                       \
	} while (0)

TEST(waits_end_in_time, doca_sync_event_wait_eq, doca_sync_event_wait_eq_yield, doca_sync_event_wait_neq,
     doca_sync_event_wait_neq_yield, doca_sync_event_wait_gt, doca_sync_event_wait_gt_yield)
{
	struct world world = world_create();
	struct doca_sync_event *event = start_local(&world);

	WAITS(doca_sync_event_wait_eq, event, 0x106, 5, 0xff, 0x205);
	WAITS(doca_sync_event_wait_eq_yield, event, 0x106, 5, ALL_BITS, 5);
	WAITS(doca_sync_event_wait_neq, event, 0x105, 5, 0xff, 0x106);
	WAITS(doca_sync_event_wait_neq_yield, event, 5, 5, ALL_BITS, 4);
	WAITS(doca_sync_event_wait_gt, event, 0x105, 5, 0xff, 0x106);
	WAITS(doca_sync_event_wait_gt_yield, event, 5, 5, ALL_BITS, 7);
	finish(event);
	world_destroy(&world);
}

TEST(values_lie_where_they_are_put, doca_sync_event_set_addr, doca_sync_event_set_doca_buf)
{
	struct world world = world_create();
	struct doca_sync_event *event = create();
	struct doca_buf *buf = world_data(&world, 64, 8), *large = world_data(&world, 128, 9);
	uint64_t place = 7, value;

	OK(doca_sync_event_add_publisher_location_cpu(event, world.dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	OK(doca_sync_event_set_addr(event, &place));
	OK(doca_sync_event_start(event));
	CHECK(value_of(event) == 7);
	OK(doca_sync_event_update_set(event, 8));
	CHECK(*(volatile uint64_t *)&place == 8);
	OK(doca_sync_event_stop(event));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_sync_event_set_doca_buf(event, large));
	OK(doca_sync_event_set_doca_buf(event, buf));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 9));
	memcpy(&value, world.memory + 64, sizeof(value));
	CHECK(value == 9);
	finish(event);
	world_release(buf);
	world_release(large);
	world_destroy(&world);
}

TEST(events_go_across_pcie, doca_sync_event_export_to_remote_pci, doca_sync_event_create_from_export)
{
	struct world world = world_create();
	struct doca_sync_event *ours = create(), *theirs = NULL;
	struct doca_dev *host = world_open(HOST_DEVICE);
	const uint8_t *blob = NULL;
	size_t length = 0;

	OK(doca_sync_event_add_publisher_location_remote_pci(ours));
	OK(doca_sync_event_add_subscriber_location_cpu(ours, world.dev));
	OK(doca_sync_event_start(ours));
	OK(doca_sync_event_export_to_remote_pci(ours, world.dev, &blob, &length));
	CHECK(blob != NULL && length > 0 && length <= 512);
	OK(doca_sync_event_create_from_export(host, blob, length, &theirs));
	CHECK(theirs != NULL);
	OK(doca_sync_event_start(theirs));
	OK(doca_sync_event_update_set(theirs, 5));
	CHECK(value_of(ours) == 5);
	WAITS(doca_sync_event_wait_eq, theirs, 5, 6, ALL_BITS, 6);
	CHECK(value_of(ours) == 6);
	finish(theirs);
	finish(ours);
	REFUSED(doca_sync_event_create_from_export(host, (const uint8_t *)"nonsense", 8, &theirs));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(devices_can_share_events, doca_sync_event_cap_is_create_from_export_supported,
     doca_sync_event_cap_is_export_to_remote_net_supported, doca_sync_event_cap_is_export_to_remote_pci_supported,
     doca_sync_event_cap_remote_net_is_create_from_export_supported, doca_sync_event_cap_task_get_is_supported,
     doca_sync_event_cap_task_notify_set_is_supported, doca_sync_event_cap_task_notify_add_is_supported,
     doca_sync_event_cap_task_wait_eq_is_supported, doca_sync_event_cap_task_wait_neq_is_supported)
{
	struct world world = world_create();

#define SUPPORTED(what)                                                                                                \
	do {                                                                                                           \
		OK(doca_sync_event_cap_##what##_supported(world.info));                                                \
		REFUSED(doca_sync_event_cap_##what##_supported(NULL));                                                 \
	} while (0)

	SUPPORTED(is_create_from_export);
	SUPPORTED(is_export_to_remote_net);
	SUPPORTED(is_export_to_remote_pci);
	SUPPORTED(remote_net_is_create_from_export);
	SUPPORTED(task_get_is);
	SUPPORTED(task_notify_set_is);
	SUPPORTED(task_notify_add_is);
	SUPPORTED(task_wait_eq_is);
	SUPPORTED(task_wait_neq_is);
	world_destroy(&world);
}

/* Functions for a DPA and a GPU: not supported, and NULL is refused. */
TEST(accelerators_are_not_supported, doca_sync_event_add_publisher_location_dpa, doca_sync_event_add_publisher_location_gpu,
     doca_sync_event_add_subscriber_location_dpa, doca_sync_event_add_subscriber_location_gpu,
     doca_sync_event_get_dpa_handle, doca_sync_event_get_gpu_handle, doca_sync_event_remote_net_get_dpa_handle,
     doca_sync_event_remote_net_get_gpu_handle, doca_sync_event_cap_is_export_to_dpa_supported,
     doca_sync_event_cap_is_export_to_gpu_supported, doca_sync_event_cap_remote_net_is_export_to_dpa_supported,
     doca_sync_event_cap_remote_net_is_export_to_gpu_supported)
{
	struct world world = world_create();
	struct doca_sync_event *event = create();
	/* No function of these follows the pointer. */
	struct doca_sync_event_remote_net *remote = (struct doca_sync_event_remote_net *)event;

#define UNSUPPORTED(object, function, ...)                                                                             \
	do {                                                                                                           \
		RETURNS(DOCA_ERROR_NOT_SUPPORTED, function(object __VA_ARGS__));                                       \
		REFUSED(function(NULL __VA_ARGS__));                                                                   \
	} while (0)
#define AND ,

	UNSUPPORTED(event, doca_sync_event_add_publisher_location_dpa, AND NULL);
	UNSUPPORTED(event, doca_sync_event_add_publisher_location_gpu, AND NULL);
	UNSUPPORTED(event, doca_sync_event_add_subscriber_location_dpa, AND NULL);
	UNSUPPORTED(event, doca_sync_event_add_subscriber_location_gpu, AND NULL);
	UNSUPPORTED(event, doca_sync_event_get_dpa_handle, AND NULL AND NULL);
	UNSUPPORTED(event, doca_sync_event_get_gpu_handle, AND NULL AND NULL);
	UNSUPPORTED(remote, doca_sync_event_remote_net_get_dpa_handle, AND NULL AND NULL);
	UNSUPPORTED(remote, doca_sync_event_remote_net_get_gpu_handle, AND NULL AND NULL);
	UNSUPPORTED(world.info, doca_sync_event_cap_is_export_to_dpa_supported, );
	UNSUPPORTED(world.info, doca_sync_event_cap_is_export_to_gpu_supported, );
	UNSUPPORTED(world.info, doca_sync_event_cap_remote_net_is_export_to_dpa_supported, );
	UNSUPPORTED(world.info, doca_sync_event_cap_remote_net_is_export_to_gpu_supported, );
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}
