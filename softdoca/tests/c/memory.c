/* Memory maps, bufs and their inventory. */
#include "world.h"

TEST(maps_have_a_range, doca_mmap_create, doca_mmap_destroy, doca_mmap_add_dev, doca_mmap_set_memrange,
     doca_mmap_get_memrange, doca_mmap_set_permissions, doca_mmap_enable_thread_safety, doca_mmap_start, doca_mmap_stop)
{
	struct doca_dev *dev = world_open(DPU_DEVICE);
	struct doca_mmap *mmap = NULL;
	char memory[100];
	void *address = NULL;
	size_t length = 0;

	OK(doca_mmap_create(&mmap));
	CHECK(mmap != NULL);
	/* Not without a range. */
	CHECK(doca_mmap_start(mmap) != DOCA_SUCCESS);
	OK(doca_mmap_add_dev(mmap, dev));
	REFUSED(doca_mmap_add_dev(mmap, NULL));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	OK(doca_mmap_enable_thread_safety(mmap));
	REFUSED(doca_mmap_enable_thread_safety(NULL));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_get_memrange(mmap, &address, &length));
	CHECK(address == memory && length == sizeof(memory));
	/* Fixed by the start. */
	RETURNS(DOCA_ERROR_BAD_STATE, doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY));
	OK(doca_mmap_stop(mmap));
	/* It can be started again, but only when it was stopped. */
	OK(doca_mmap_start(mmap));
	CHECK(doca_mmap_start(mmap) != DOCA_SUCCESS);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	REFUSED(doca_mmap_destroy(NULL));
	OK(doca_dev_close(dev));
}

TEST(maps_are_exported_and_imported, doca_mmap_export_pci, doca_mmap_export_rdma, doca_mmap_create_from_export)
{
	struct doca_dev *host = world_open(HOST_DEVICE), *dpu = world_open(DPU_DEVICE);
	char memory[8192];
	struct doca_mmap *mmap = world_map(host, memory, sizeof(memory),
					   DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ);
	const void *blob = NULL;
	size_t blob_length = 0, length = 0;
	struct doca_mmap *imported = NULL;
	void *address = NULL;

	OK(doca_mmap_export_rdma(mmap, host, &blob, &blob_length));
	CHECK(blob != NULL && blob_length > 0 && blob_length <= 512);
	blob_length = 0;
	OK(doca_mmap_export_pci(mmap, host, &blob, &blob_length));
	CHECK(blob != NULL && blob_length > 0 && blob_length <= 512);
	OK(doca_mmap_create_from_export(NULL, blob, blob_length, dpu, &imported));
	CHECK(imported != NULL);
	OK(doca_mmap_get_memrange(imported, &address, &length));
	CHECK(address == memory && length == sizeof(memory));
	CHECK(doca_mmap_create_from_export(NULL, "nonsense", 8, dpu, &imported) != DOCA_SUCCESS);
	OK(doca_mmap_destroy(imported));
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dpu));
	OK(doca_dev_close(host));
}

TEST(inventories_give_as_many_bufs_as_they_have, doca_buf_inventory_create, doca_buf_inventory_start,
     doca_buf_inventory_stop, doca_buf_inventory_destroy, doca_buf_dec_refcount)
{
	struct world world = world_create();
	struct doca_buf_inventory *inventory = NULL;
	struct doca_buf *first, *second;
	uint16_t references = 0;

	OK(doca_buf_inventory_create(1, &inventory));
	CHECK(inventory != NULL);
	/* Not before the start. */
	CHECK(doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 10, &first) != DOCA_SUCCESS);
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 10, &first));
	RETURNS(DOCA_ERROR_NO_MEMORY,
		doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 10, &second));
	OK(doca_buf_dec_refcount(first, &references));
	CHECK(references == 1);
	OK(doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 10, &second));
	world_release(second);
	OK(doca_buf_inventory_stop(inventory));
	CHECK(doca_buf_inventory_buf_get_by_addr(inventory, world.mmap, world.memory, 10, &first) != DOCA_SUCCESS);
	OK(doca_buf_inventory_destroy(inventory));
	REFUSED(doca_buf_inventory_destroy(NULL));
	world_destroy(&world);
}

static void check_buf(const struct doca_buf *buf, const void *head, size_t length, const void *data, size_t data_length)
{
	void *address = NULL;
	size_t size = SIZE_MAX;

	OK(doca_buf_get_head(buf, &address));
	CHECK(address == head);
	OK(doca_buf_get_len(buf, &size));
	CHECK(size == length);
	OK(doca_buf_get_data(buf, &address));
	CHECK(address == data);
	size = SIZE_MAX;
	OK(doca_buf_get_data_len(buf, &size));
	CHECK(size == data_length);
}

TEST(bufs_cover_areas_and_data, doca_buf_inventory_buf_get_by_args, doca_buf_inventory_buf_get_by_addr,
     doca_buf_inventory_buf_get_by_data, doca_buf_get_head, doca_buf_get_len, doca_buf_get_data, doca_buf_get_data_len,
     doca_buf_set_data, doca_buf_reset_data_len)
{
	struct world world = world_create();
	uint8_t *memory = world.memory;
	struct doca_buf *buf = NULL;

	OK(doca_buf_inventory_buf_get_by_args(world.inventory, world.mmap, memory + 10, 100, memory + 20, 30, &buf));
	check_buf(buf, memory + 10, 100, memory + 20, 30);
	OK(doca_buf_set_data(buf, memory + 40, 60));
	check_buf(buf, memory + 10, 100, memory + 40, 60);
	REFUSED(doca_buf_set_data(buf, memory + 60, MEMORY_SIZE));
	/* Not in the buf, but in the map. */
	OK(doca_buf_set_data(buf, memory + 200, 60));
	check_buf(buf, memory + 10, 100, memory + 200, 60);
	OK(doca_buf_set_data(buf, memory + 40, 60));
	OK(doca_buf_reset_data_len(buf));
	check_buf(buf, memory + 10, 100, memory + 40, 0);
	world_release(buf);
	buf = NULL;
	OK(doca_buf_inventory_buf_get_by_addr(world.inventory, world.mmap, memory + 1, 2, &buf));
	check_buf(buf, memory + 1, 2, memory + 1, 0);
	world_release(buf);
	buf = NULL;
	OK(doca_buf_inventory_buf_get_by_data(world.inventory, world.mmap, memory + 3, 4, &buf));
	check_buf(buf, memory + 3, 4, memory + 3, 4);
	world_release(buf);
	/* Outside of the map. */
	REFUSED(doca_buf_inventory_buf_get_by_data(world.inventory, world.mmap, memory + MEMORY_SIZE - 1, 2, &buf));
	world_destroy(&world);
}

TEST(bufs_are_aimed_again, doca_buf_inventory_buf_reuse_by_args, doca_buf_inventory_buf_reuse_by_addr,
     doca_buf_inventory_buf_reuse_by_data)
{
	struct world world = world_create();
	uint8_t *memory = world.memory;
	struct doca_buf *buf = world_data(&world, 0, 1);

	OK(doca_buf_inventory_buf_reuse_by_args(buf, memory + 10, 100, memory + 20, 30));
	check_buf(buf, memory + 10, 100, memory + 20, 30);
	OK(doca_buf_inventory_buf_reuse_by_addr(buf, memory + 1, 2));
	check_buf(buf, memory + 1, 2, memory + 1, 0);
	OK(doca_buf_inventory_buf_reuse_by_data(buf, memory + 3, 4));
	check_buf(buf, memory + 3, 4, memory + 3, 4);
	world_release(buf);
	world_destroy(&world);
}

TEST(bufs_make_lists, doca_buf_chain_list, doca_buf_get_next_in_list)
{
	struct world world = world_create();
	struct doca_buf *head = world_data(&world, 0, 10), *tail = world_data(&world, 20, 10), *next = head;

	OK(doca_buf_get_next_in_list(head, &next));
	CHECK(next == NULL);
	OK(doca_buf_chain_list(head, tail));
	OK(doca_buf_get_next_in_list(head, &next));
	CHECK(next == tail);
	/* The head releases the whole list. */
	world_release(head);
	world_destroy(&world);
}
