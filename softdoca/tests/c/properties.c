/* Properties of devices, representors and maps, and the less common ways to submit. */
#include "world.h"

#include <doca_dma.h>

CALLBACKS(doca_dma_task_memcpy)

TEST(maps_tell_their_state, doca_mmap_set_user_data, doca_mmap_get_user_data, doca_mmap_get_num_bufs,
     doca_mmap_get_exported, doca_mmap_get_from_export)
{
	struct world world = world_create();
	struct doca_mmap *imported = NULL;
	struct doca_buf *buf;
	union doca_data data = {.u64 = 5};
	const void *blob = NULL;
	size_t size = 0;
	uint32_t bufs = 9;
	uint8_t answer = 2;

	OK(doca_mmap_get_num_bufs(world.mmap, &bufs));
	CHECK(bufs == 0);
	buf = world_data(&world, 0, 10);
	OK(doca_mmap_get_num_bufs(world.mmap, &bufs));
	CHECK(bufs == 1);
	world_release(buf);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_mmap_set_user_data(world.mmap, data));
	OK(doca_mmap_stop(world.mmap));
	OK(doca_mmap_set_user_data(world.mmap, data));
	OK(doca_mmap_start(world.mmap));
	data.u64 = 0;
	OK(doca_mmap_get_user_data(world.mmap, &data));
	CHECK(data.u64 == 5);
	OK(doca_mmap_get_exported(world.mmap, &answer));
	CHECK(answer == 0);
	OK(doca_mmap_export_rdma(world.mmap, world.dev, &blob, &size));
	OK(doca_mmap_get_exported(world.mmap, &answer));
	CHECK(answer == 1);
	OK(doca_mmap_create_from_export(&data, blob, size, world.dev, &imported));
	OK(doca_mmap_get_from_export(world.mmap, &answer));
	CHECK(answer == 0);
	OK(doca_mmap_get_from_export(imported, &answer));
	CHECK(answer == 1);
	data.u64 = 0;
	OK(doca_mmap_get_user_data(imported, &data));
	CHECK(data.u64 == 5);
	REFUSED(doca_mmap_get_from_export(NULL, &answer));
	OK(doca_mmap_destroy(imported));
	world_destroy(&world);
}

TEST(devices_tell_their_addresses, doca_devinfo_get_ipv4_addr, doca_devinfo_get_mac_addr)
{
	struct world world = world_create();
	uint8_t ipv4[DOCA_DEVINFO_IPV4_ADDR_SIZE] = {0}, mac[DOCA_DEVINFO_MAC_ADDR_SIZE] = {0};

	OK(doca_devinfo_get_ipv4_addr(world.info, ipv4, sizeof(ipv4)));
	CHECK(ipv4[0] == 127 && ipv4[3] == 1);
	REFUSED(doca_devinfo_get_ipv4_addr(world.info, ipv4, sizeof(ipv4) - 1));
	OK(doca_devinfo_get_mac_addr(world.info, mac, sizeof(mac)));
	CHECK((mac[0] & 3) == 2); /* one device's, and locally administered */
	REFUSED(doca_devinfo_get_mac_addr(world.info, mac, sizeof(mac) - 1));
	world_destroy(&world);
}

TEST(devices_tell_their_ports_and_functions, doca_devinfo_get_ipv6_addr, doca_devinfo_get_lid,
     doca_devinfo_get_active_rate, doca_devinfo_get_vhca_id, doca_devinfo_rep_get_vhca_id,
     doca_devinfo_cap_is_accelerate_resource_reclaim_supported, doca_dev_accelerate_resource_reclaim)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	struct doca_devinfo_rep **list = NULL;
	uint8_t ipv6[DOCA_DEVINFO_IPV6_ADDR_SIZE] = {0}, reclaim = 2;
	uint16_t lid = 0, dpu_id = 0, host_id = 0, represented_id = 0;
	uint64_t rate = 0;
	uint32_t count = 0;

	OK(doca_devinfo_get_ipv6_addr(world.info, ipv6, sizeof(ipv6)));
	CHECK(ipv6[0] == 0xfe && ipv6[1] == 0x80 && ipv6[11] == 0xff && ipv6[12] == 0xfe);
	REFUSED(doca_devinfo_get_ipv6_addr(world.info, ipv6, sizeof(ipv6) - 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_get_lid(world.info, &lid));
	REFUSED(doca_devinfo_get_lid(NULL, &lid));
	OK(doca_devinfo_get_active_rate(world.info, &rate));
	CHECK(rate >= 1000000000);
	OK(doca_devinfo_get_vhca_id(world.info, &dpu_id));
	OK(doca_devinfo_get_vhca_id(doca_dev_as_devinfo(host), &host_id));
	CHECK(dpu_id != host_id);
	/* A representor has the number of the host's device. */
	OK(doca_devinfo_rep_create_list(world.dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &count));
	CHECK(count >= 1);
	OK(doca_devinfo_rep_get_vhca_id(list[0], &represented_id));
	CHECK(represented_id == host_id);
	REFUSED(doca_devinfo_rep_get_vhca_id(NULL, &represented_id));
	OK(doca_devinfo_rep_destroy_list(list));
	OK(doca_devinfo_cap_is_accelerate_resource_reclaim_supported(world.info, &reclaim));
	CHECK(reclaim == 0);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_dev_accelerate_resource_reclaim(world.dev));
	REFUSED(doca_dev_accelerate_resource_reclaim(NULL));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

static struct {
	unsigned int calls;
	void *address;
	size_t length;
	void *cookie;
} freed;

static void free_range(void *address, size_t length, void *cookie)
{
	freed.calls++;
	freed.address = address;
	freed.length = length;
	freed.cookie = cookie;
}

TEST(maps_have_their_range_freed, doca_mmap_set_free_cb)
{
	struct world world = world_create();
	struct doca_mmap *mmap = NULL, *imported = NULL;
	const void *blob = NULL;
	size_t size = 0;
	uint32_t flags = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
	int cookie = 0;

	/* A map that was started. */
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_free_cb(mmap, free_range, &cookie));
	OK(doca_mmap_add_dev(mmap, world.dev));
	OK(doca_mmap_set_memrange(mmap, world.memory, 100));
	OK(doca_mmap_start(mmap));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_mmap_set_free_cb(mmap, free_range, &cookie));
	OK(doca_mmap_stop(mmap));
	CHECK(freed.calls == 0);
	OK(doca_mmap_destroy(mmap));
	CHECK(freed.calls == 1 && freed.address == world.memory && freed.length == 100 && freed.cookie == &cookie);
	/* One that was not started, one whose function was replaced after the start, and one without a function. */
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, world.memory, 100));
	OK(doca_mmap_set_free_cb(mmap, free_range, &cookie));
	OK(doca_mmap_destroy(mmap));
	mmap = world_map(world.dev, world.memory, 100, flags);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_set_free_cb(mmap, free_range, &cookie));
	OK(doca_mmap_destroy(mmap));
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, world.dev));
	OK(doca_mmap_set_memrange(mmap, world.memory, 100));
	OK(doca_mmap_set_free_cb(mmap, free_range, &cookie));
	OK(doca_mmap_set_free_cb(mmap, NULL, NULL));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_destroy(mmap));
	CHECK(freed.calls == 1);
	/* The range of an imported map is not the program's. */
	OK(doca_mmap_export_rdma(world.mmap, world.dev, &blob, &size));
	OK(doca_mmap_create_from_export(NULL, blob, size, world.dev, &imported));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_free_cb(imported, free_range, NULL));
	OK(doca_mmap_destroy(imported));
	REFUSED(doca_mmap_set_free_cb(NULL, free_range, NULL));
	world_destroy(&world);
}

TEST(maps_are_of_memory_of_the_cpu, doca_mmap_set_dmabuf_memrange, doca_mmap_dev_get_dpa_handle)
{
	struct world world = world_create();
	struct doca_mmap *mmap = NULL;
	doca_dpa_dev_mmap_t handle = 0;

	OK(doca_mmap_create(&mmap));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_set_dmabuf_memrange(mmap, 0, world.memory, 0, 4096));
	REFUSED(doca_mmap_set_dmabuf_memrange(NULL, 0, world.memory, 0, 4096));
	OK(doca_mmap_destroy(mmap));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_dev_get_dpa_handle(world.mmap, world.dev, &handle));
	REFUSED(doca_mmap_dev_get_dpa_handle(NULL, world.dev, &handle));
	world_destroy(&world);
}

TEST(there_are_no_batches_of_tasks, doca_task_batch_submit, doca_task_batch_try_submit, doca_task_batch_free,
     doca_task_batch_get_status, doca_task_batch_set_user_data, doca_task_batch_get_user_data, doca_task_batch_get_ctx,
     doca_task_batch_get_ctx_user_data, doca_task_batch_get_tasks_num)
{
	/* Batches cannot be allocated: the pointers are not dereferenced. */
	struct doca_task_batch *none = (struct doca_task_batch *)&freed;

	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_task_batch_submit(none));
	REFUSED(doca_task_batch_submit(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_task_batch_try_submit(none));
	REFUSED(doca_task_batch_try_submit(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_task_batch_get_status(none));
	REFUSED(doca_task_batch_get_status(NULL));
	doca_task_batch_set_user_data(none, (union doca_data){.u64 = 7});
	CHECK(doca_task_batch_get_user_data(none).u64 == 0 && doca_task_batch_get_ctx_user_data(none).u64 == 0);
	CHECK(doca_task_batch_get_ctx(none) == NULL && doca_task_batch_get_tasks_num(none) == 0);
	doca_task_batch_free(none);
	CHECK(freed.calls == 0 && DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128 == 3);
}

TEST(devices_tell_what_they_can_do, doca_mmap_cap_is_export_pci_supported,
     doca_mmap_cap_is_create_from_export_pci_supported, doca_devinfo_cap_is_hotplug_manager_supported,
     doca_devinfo_cap_is_notification_moderation_supported, doca_devinfo_rep_cap_is_filter_all_supported,
     doca_devinfo_rep_cap_is_filter_emulated_supported)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	const struct doca_devinfo *host_info = doca_dev_as_devinfo(host);
	uint8_t answer = 2;

	OK(doca_mmap_cap_is_export_pci_supported(world.info, &answer));
	CHECK(answer == 1);
	answer = 2;
	OK(doca_mmap_cap_is_create_from_export_pci_supported(world.info, &answer));
	CHECK(answer == 1);
	OK(doca_devinfo_cap_is_hotplug_manager_supported(world.info, &answer));
	CHECK(answer == 0);
	answer = 2;
	OK(doca_devinfo_cap_is_notification_moderation_supported(world.info, &answer));
	CHECK(answer == 0);
	/* The DPU has representors, the host has not. */
	OK(doca_devinfo_rep_cap_is_filter_all_supported(world.info, &answer));
	CHECK(answer == 1);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_rep_cap_is_filter_all_supported(host_info, &answer));
	OK(doca_devinfo_rep_cap_is_filter_emulated_supported(world.info, &answer));
	CHECK(answer == 1);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_rep_cap_is_filter_emulated_supported(host_info, &answer));
	REFUSED(doca_devinfo_rep_cap_is_filter_all_supported(NULL, &answer));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(representors_tell_what_they_stand_for, doca_dev_rep_as_devinfo, doca_devinfo_rep_get_pci_func_type,
     doca_devinfo_rep_get_iface_name, doca_devinfo_rep_get_is_hotplug)
{
	struct world world = world_create();
	struct doca_devinfo_rep **list = NULL;
	struct doca_dev_rep *rep = NULL;
	const struct doca_devinfo_rep *info;
	enum doca_pci_func_type type = DOCA_PCI_FUNC_TYPE_SF;
	char name[DOCA_DEVINFO_IFACE_NAME_SIZE] = "x";
	uint32_t count = 0;
	uint8_t answer = 2, equal = 0;

	OK(doca_devinfo_rep_create_list(world.dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &count));
	CHECK(count >= 1);
	OK(doca_dev_rep_open(list[0], &rep));
	OK(doca_devinfo_rep_destroy_list(list));
	info = doca_dev_rep_as_devinfo(rep);
	CHECK(info != NULL);
	OK(doca_devinfo_rep_is_equal_pci_addr(info, HOST_DEVICE, &equal));
	CHECK(equal == 1);
	OK(doca_devinfo_rep_get_pci_func_type(info, &type));
	CHECK(type == DOCA_PCI_FUNC_TYPE_PF);
	OK(doca_devinfo_rep_get_iface_name(info, name, sizeof(name)));
	CHECK(strcmp(name, "x") != 0);
	OK(doca_devinfo_rep_get_is_hotplug(info, &answer));
	CHECK(answer == 0);
	REFUSED(doca_devinfo_rep_get_is_hotplug(NULL, &answer));
	OK(doca_dev_rep_close(rep));
	world_destroy(&world);
}

TEST(tasks_are_submitted_with_flags, doca_task_submit_ex, doca_ctx_flush_tasks)
{
	struct world world = world_create();
	struct doca_buf *src = world_data(&world, 0, 100), *dst = world_room(&world, 4096, 200);
	struct doca_dma *dma = NULL;
	struct doca_dma_task_memcpy *task = NULL;
	static const uint32_t flags[] = {DOCA_TASK_SUBMIT_FLAG_FLUSH, DOCA_TASK_SUBMIT_FLAG_NONE};

	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 1));
	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, NO_DATA, &task));
	REFUSED(doca_task_submit_ex(doca_dma_task_memcpy_as_task(task), 1U << 31));
	REFUSED(doca_task_submit_ex(NULL, DOCA_TASK_SUBMIT_FLAG_FLUSH));
	for (unsigned int i = 0; i < 2; i++) {
		OK(doca_task_submit_ex(doca_dma_task_memcpy_as_task(task), flags[i]));
		RETURNS(DOCA_ERROR_BAD_STATE, doca_task_submit_ex(doca_dma_task_memcpy_as_task(task), flags[i]));
		doca_ctx_flush_tasks(doca_dma_as_ctx(dma));
		while (world.completed == i)
			(void)doca_pe_progress(world.pe);
	}
	CHECK(data_length(dst) == 200);
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	world_stop(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	world_release(src);
	world_release(dst);
	world_destroy(&world);
}

TEST(engines_have_event_modes, doca_pe_set_event_mode)
{
	struct world world = world_create();

	OK(doca_pe_set_event_mode(world.pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	OK(doca_pe_set_event_mode(world.pe, DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE));
	REFUSED(doca_pe_set_event_mode(world.pe, (enum doca_pe_event_mode)7));
	REFUSED(doca_pe_set_event_mode(NULL, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	world_destroy(&world);
}

TEST(maps_have_as_many_devices_as_they_may, doca_mmap_rm_dev, doca_mmap_set_max_num_devices,
     doca_mmap_get_max_num_devices, doca_mmap_set_dpa_memrange)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	struct doca_mmap *mmap = NULL;
	uint32_t limit = 0;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_get_max_num_devices(mmap, &limit));
	CHECK(limit >= 2);
	REFUSED(doca_mmap_set_max_num_devices(mmap, 0));
	OK(doca_mmap_set_max_num_devices(mmap, 1));
	OK(doca_mmap_get_max_num_devices(mmap, &limit));
	CHECK(limit == 1);
	OK(doca_mmap_add_dev(mmap, world.dev));
	RETURNS(DOCA_ERROR_NO_MEMORY, doca_mmap_add_dev(mmap, host));
	RETURNS(DOCA_ERROR_NOT_FOUND, doca_mmap_rm_dev(mmap, host));
	OK(doca_mmap_rm_dev(mmap, world.dev));
	OK(doca_mmap_add_dev(mmap, host));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_set_dpa_memrange(mmap, NULL, 0, 1));
	REFUSED(doca_mmap_set_dpa_memrange(NULL, NULL, 0, 1));
	OK(doca_mmap_destroy(mmap));
	/* Not of one that is started. */
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_rm_dev(world.mmap, world.dev));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_max_num_devices(world.mmap, 3));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(contexts_stay_in_their_process, doca_ctx_set_datapath_on_gpu, doca_ctx_set_datapath_on_dpa,
     doca_ctx_cap_get_num_completion_vectors, doca_ctx_set_completion_vector)
{
	struct world world = world_create();
	struct doca_dma *dma = NULL;
	struct doca_ctx *ctx;
	uint32_t vectors = 0;

	OK(doca_dma_create(world.dev, &dma));
	ctx = doca_dma_as_ctx(dma);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_set_datapath_on_gpu(ctx, (struct doca_gpu *)ctx));
	REFUSED(doca_ctx_set_datapath_on_gpu(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_set_datapath_on_dpa(ctx, (struct doca_dpa *)ctx));
	REFUSED(doca_ctx_set_datapath_on_dpa(NULL, NULL));
	OK(doca_ctx_cap_get_num_completion_vectors(world.info, &vectors));
	CHECK(vectors >= 1);
	OK(doca_ctx_set_completion_vector(ctx, vectors - 1));
	REFUSED(doca_ctx_set_completion_vector(ctx, vectors));
	OK(doca_dma_destroy(dma));
	world_destroy(&world);
}
