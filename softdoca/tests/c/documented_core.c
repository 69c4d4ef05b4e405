/* Errors that the API pages name for devices, memory, bufs, contexts and engines, and that have a condition of their own:
 * NULL arguments, started objects and full pools are tested for all functions by a generated program. */
#include "objects.h"

#include <sys/resource.h>

TEST(documented_errors_of_devices, doca_devinfo_rep_create_list, doca_devinfo_rep_cap_is_filter_net_supported,
     doca_devinfo_rep_cap_is_filter_all_supported, doca_devinfo_rep_cap_is_filter_emulated_supported)
{
	/* It has no representors. */
	struct doca_dev *host = world_open(HOST_DEVICE);
	const struct doca_devinfo *info = doca_dev_as_devinfo(host);
	struct doca_devinfo_rep **reps;
	uint32_t count;
	uint8_t supported;

	DOCUMENTED(NOT_SUPPORTED, doca_devinfo_rep_create_list(host, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	DOCUMENTED(NOT_SUPPORTED, doca_devinfo_rep_cap_is_filter_net_supported(info, &supported));
	DOCUMENTED(NOT_SUPPORTED, doca_devinfo_rep_cap_is_filter_all_supported(info, &supported));
	DOCUMENTED(NOT_SUPPORTED, doca_devinfo_rep_cap_is_filter_emulated_supported(info, &supported));
	OK(doca_dev_close(host));
}

TEST(documented_errors_of_maps, doca_mmap_add_dev, doca_mmap_rm_dev, doca_mmap_start, doca_mmap_stop, doca_mmap_destroy,
     doca_mmap_set_memrange, doca_mmap_get_memrange, doca_mmap_set_max_num_devices, doca_mmap_set_permissions,
     doca_mmap_set_user_data)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct doca_mmap *mmap;
	struct doca_buf *buf;
	void *start;
	size_t length;

	OK(doca_mmap_create(&mmap));
	DOCUMENTED(BAD_STATE, doca_mmap_get_memrange(mmap, &start, &length));
	DOCUMENTED(NOT_FOUND, doca_mmap_rm_dev(mmap, host));
	OK(doca_mmap_set_max_num_devices(mmap, 1));
	OK(doca_mmap_add_dev(mmap, world.dev));
	DOCUMENTED(ALREADY_EXIST, doca_mmap_add_dev(mmap, world.dev));
	DOCUMENTED(NO_MEMORY, doca_mmap_add_dev(mmap, host));
	/* An undefined flag, and a range that wraps around. */
	REFUSED(doca_mmap_set_permissions(mmap, 1u << 31));
	REFUSED(doca_mmap_set_memrange(mmap, memory, SIZE_MAX));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_start(mmap));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_add_dev(mmap, host));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_rm_dev(mmap, world.dev));
	OK(doca_buf_inventory_buf_get_by_addr(world.inventory, mmap, memory, 8, &buf));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_stop(mmap));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_destroy(mmap));
	world_release(buf);
	OK(doca_mmap_stop(mmap));
	/* After the first start. */
	DOCUMENTED(NOT_PERMITTED, doca_mmap_set_max_num_devices(mmap, 4));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(documented_errors_of_exports, doca_mmap_export_pci, doca_mmap_export_rdma, doca_mmap_start)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct doca_mmap *mmap, *import;
	const void *blob;
	size_t length;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, world.dev));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_export_pci(mmap, world.dev, &blob, &length));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_export_rdma(mmap, world.dev, &blob, &length));
	OK(doca_mmap_start(mmap));
	DOCUMENTED(NOT_FOUND, doca_mmap_export_pci(mmap, host, &blob, &length));
	DOCUMENTED(NOT_FOUND, doca_mmap_export_rdma(mmap, host, &blob, &length));
	OK(doca_mmap_export_pci(mmap, world.dev, &blob, &length));
	DOCUMENTED(NOT_PERMITTED, doca_mmap_start(mmap));
	OK(doca_mmap_create_from_export(NULL, blob, length, world.dev, &import));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_start(import));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_add_dev(import, host));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(import, world.dev, &blob, &length));
	OK(doca_mmap_destroy(import));
	/* Stopping withdraws the export: the map may be started again. */
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(documented_errors_of_bufs, doca_buf_dec_refcount, doca_buf_inc_refcount, doca_buf_chain_list, doca_buf_chain_list_tail,
     doca_buf_unchain_list, doca_buf_get_list_len)
{
	struct world world = world_create();
	struct doca_buf *head = world_data(&world, 0, 8), *next = world_data(&world, 8, 8), *shared = world_data(&world, 16, 8);
	struct doca_buf *other = world_data(&world, 24, 8);
	uint32_t length;

	OK(doca_buf_chain_list(head, next));
	DOCUMENTED(NOT_PERMITTED, doca_buf_dec_refcount(next, NULL));
	DOCUMENTED(NOT_PERMITTED, doca_buf_inc_refcount(next, NULL));
	DOCUMENTED(NOT_PERMITTED, doca_buf_get_list_len(next, &length));
	OK(doca_buf_inc_refcount(shared, NULL));
	DOCUMENTED(NOT_PERMITTED, doca_buf_chain_list(head, shared));
	DOCUMENTED(NOT_PERMITTED, doca_buf_chain_list_tail(head, next, shared));
	DOCUMENTED(INVALID_VALUE, doca_buf_unchain_list(head, other));
	for (int count = 2; count < UINT16_MAX; count++)
		OK(doca_buf_inc_refcount(shared, NULL));
	DOCUMENTED(TOO_BIG, doca_buf_inc_refcount(shared, NULL));
	for (int count = UINT16_MAX; count > 0; count--)
		world_release(shared);
	DOCUMENTED(BAD_STATE, doca_buf_dec_refcount(shared, NULL));
	world_release(other);
	world_release(head);
	world_destroy(&world);
}

TEST(documented_errors_of_inventories, doca_buf_inventory_destroy, doca_buf_inventory_buf_get_by_args,
     doca_buf_inventory_buf_get_by_addr, doca_buf_inventory_buf_get_by_data, doca_buf_inventory_buf_dup,
     doca_buf_inventory_expand, doca_buf_inventory_set_user_data)
{
	struct world world = world_create();
	struct doca_buf_inventory *inventory;
	struct doca_buf *buf, *other, *next;

	DOCUMENTED(NO_MEMORY, doca_buf_inventory_create(SIZE_MAX, &inventory));
	OK(doca_buf_inventory_create(1, &inventory));
	DOCUMENTED(BAD_STATE, doca_buf_inventory_expand(inventory, 1));
	DOCUMENTED(BAD_STATE, doca_buf_inventory_set_user_data(inventory, NO_DATA));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_set_user_data(inventory, NO_DATA));
	DOCUMENTED(INVALID_VALUE, doca_buf_inventory_buf_get_by_args(inventory, world.mmap, world.memory, MEMORY_SIZE + 1,
		   world.memory, 0, &buf));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 8, &buf));
	DOCUMENTED(NO_MEMORY, doca_buf_inventory_buf_get_by_args(inventory, world.mmap, world.memory, 8, world.memory, 8,
		   &other));
	DOCUMENTED(NO_MEMORY, doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 8, &other));
	DOCUMENTED(NO_MEMORY, doca_buf_inventory_buf_get_by_data(inventory, world.mmap, world.memory, 8, &other));
	DOCUMENTED(NO_MEMORY, doca_buf_inventory_buf_dup(inventory, buf, &other));
	DOCUMENTED(IN_USE, doca_buf_inventory_destroy(inventory));
	next = world_data(&world, 8, 8);
	OK(doca_buf_chain_list(buf, next));
	DOCUMENTED(NOT_PERMITTED, doca_buf_inventory_buf_dup(world.inventory, next, &other));
	world_release(buf);
	OK(doca_buf_inventory_stop(inventory));
	buf = world_data(&world, 0, 8);
	DOCUMENTED(BAD_STATE, doca_buf_inventory_buf_dup(inventory, buf, &other));
	world_release(buf);
	OK(doca_buf_inventory_destroy(inventory));
	world_destroy(&world);
}

TEST(documented_errors_of_pools, doca_buf_pool_destroy, doca_buf_pool_start, doca_buf_pool_stop, doca_buf_pool_buf_alloc)
{
	struct world world = world_create();
	struct doca_buf_pool *pool, *large;
	struct doca_buf *buf, *other;

	OK(doca_buf_pool_create(2, MEMORY_SIZE, world.mmap, &large));
	DOCUMENTED(INITIALIZATION, doca_buf_pool_start(large));
	OK(doca_buf_pool_destroy(large));
	OK(doca_buf_pool_create(1, 64, world.mmap, &pool));
	OK(doca_mmap_stop(world.mmap));
	DOCUMENTED(BAD_STATE, doca_buf_pool_start(pool));
	OK(doca_mmap_start(world.mmap));
	DOCUMENTED(BAD_STATE, doca_buf_pool_buf_alloc(pool, &buf));
	OK(doca_buf_pool_start(pool));
	DOCUMENTED(INVALID_VALUE, doca_buf_pool_buf_alloc(pool, NULL));
	OK(doca_buf_pool_buf_alloc(pool, &buf));
	DOCUMENTED(EMPTY, doca_buf_pool_buf_alloc(pool, &other));
	DOCUMENTED(IN_USE, doca_buf_pool_stop(pool));
	DOCUMENTED(IN_USE, doca_buf_pool_destroy(pool));
	world_release(buf);
	OK(doca_buf_pool_stop(pool));
	OK(doca_buf_pool_destroy(pool));
	world_destroy(&world);
}

CALLBACKS(doca_dma_task_memcpy)

TEST(documented_errors_of_contexts, doca_ctx_stop, doca_ctx_start)
{
	struct world world = world_create();
	struct doca_dma *dma;
	struct doca_dma_task_memcpy *task;
	struct doca_buf *from = world_data(&world, 0, 8), *to = world_room(&world, 64, 8);
	struct rlimit limit;
	struct doca_sync_event *event;

	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 1));
	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_task_memcpy_alloc_init(dma, from, to, NO_DATA, &task));
	DOCUMENTED(IN_PROGRESS, doca_ctx_stop(doca_dma_as_ctx(dma)));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_release(from);
	world_release(to);

	/* The context needs a descriptor. */
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, world.dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	OK(doca_pe_connect_ctx(world.pe, doca_sync_event_as_ctx(event)));
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	DOCUMENTED(INITIALIZATION, doca_ctx_start(doca_sync_event_as_ctx(event)));
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}

TEST(documented_errors_of_engines, doca_pe_set_event_mode, doca_task_try_submit)
{
	struct world world = world_create();
	struct doca_dma *dma;
	struct doca_dma_task_memcpy *task;
	struct doca_buf *to = world_room(&world, 64, 8);

	DOCUMENTED(INVALID_VALUE, doca_pe_set_event_mode(world.pe, (enum doca_pe_event_mode)7));
	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 1));
	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_task_memcpy_alloc_init(dma, NULL, to, NO_DATA, &task));
	DOCUMENTED(INVALID_VALUE, doca_task_try_submit(doca_dma_task_memcpy_as_task(task)));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_release(to);
	world_destroy(&world);
}

/* No descriptor is left: each object needs some. */
TEST(documented_errors_without_descriptors, doca_pe_create, doca_mmap_create_from_export)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct doca_mmap *mmap = world_map(world.dev, memory, sizeof(memory), DOCA_ACCESS_FLAG_PCI_READ_WRITE), *import;
	struct doca_pe *pe;
	struct rlimit limit;
	const void *blob;
	size_t length;

	OK(doca_mmap_export_pci(mmap, world.dev, &blob, &length));
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	DOCUMENTED(NO_MEMORY, doca_pe_create(&pe));
	DOCUMENTED(NO_MEMORY, doca_mmap_create_from_export(NULL, blob, length, host, &import));
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	OK(doca_pe_create(&pe));
	OK(doca_pe_destroy(pe));
	OK(doca_mmap_create_from_export(NULL, blob, length, host, &import));
	OK(doca_mmap_destroy(import));
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(host));
	world_destroy(&world);
}
