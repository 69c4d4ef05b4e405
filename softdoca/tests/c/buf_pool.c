/* Pools and arrays of bufs, clocks, the bridge to rdma-core. */
#include "world.h"

#include <doca_buf_array.h>
#include <doca_buf_pool.h>
#include <doca_clock.h>
#include <doca_rdma_bridge.h>

TEST(pools_have_bufs, doca_buf_pool_create, doca_buf_pool_destroy, doca_buf_pool_start, doca_buf_pool_stop,
     doca_buf_pool_buf_alloc, doca_buf_pool_set_user_data, doca_buf_pool_get_user_data, doca_buf_pool_set_element_alignment,
     doca_buf_pool_get_element_alignment, doca_buf_pool_get_num_elements, doca_buf_pool_get_num_free_elements)
{
	struct world world = world_create();
	struct doca_buf_pool *pool = NULL;
	struct doca_buf *first = NULL, *second = NULL, *third = NULL;
	union doca_data data = {.u64 = 7};
	size_t alignment = 0, length = 0;
	uint32_t count = 0;
	void *head = NULL;

	REFUSED(doca_buf_pool_create(0, 100, world.mmap, &pool));
	REFUSED(doca_buf_pool_create(2, 0, world.mmap, &pool));
	REFUSED(doca_buf_pool_create(2, 100, NULL, &pool));
	OK(doca_buf_pool_create(2, 100, world.mmap, &pool));
	OK(doca_buf_pool_set_user_data(pool, data));
	data.u64 = 0;
	OK(doca_buf_pool_get_user_data(pool, &data));
	CHECK(data.u64 == 7);
	OK(doca_buf_pool_get_element_alignment(pool, &alignment));
	CHECK(alignment == 1);
	REFUSED(doca_buf_pool_set_element_alignment(pool, 3));
	OK(doca_buf_pool_set_element_alignment(pool, 64));
	OK(doca_buf_pool_get_element_alignment(pool, &alignment));
	CHECK(alignment == 64);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_buf_pool_buf_alloc(pool, &first));
	OK(doca_buf_pool_start(pool));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_buf_pool_set_user_data(pool, data));
	OK(doca_buf_pool_buf_alloc(pool, &first));
	OK(doca_buf_pool_buf_alloc(pool, &second));
	RETURNS(DOCA_ERROR_EMPTY, doca_buf_pool_buf_alloc(pool, &third));
	OK(doca_buf_get_head(second, &head));
	OK(doca_buf_get_len(second, &length));
	CHECK(head == world.memory + 128 && length == 100 && data_length(second) == 0);
	OK(doca_buf_pool_get_num_elements(pool, &count));
	CHECK(count == 2);
	world_release(first);
	OK(doca_buf_pool_get_num_free_elements(pool, &count));
	CHECK(count == 1);
	RETURNS(DOCA_ERROR_IN_USE, doca_buf_pool_stop(pool));
	RETURNS(DOCA_ERROR_IN_USE, doca_buf_pool_destroy(pool));
	world_release(second);
	OK(doca_buf_pool_stop(pool));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_buf_pool_buf_alloc(pool, &first));
	OK(doca_buf_pool_set_element_alignment(pool, 65536));
	RETURNS(DOCA_ERROR_INITIALIZATION, doca_buf_pool_start(pool));
	OK(doca_buf_pool_set_element_alignment(pool, 32768));
	OK(doca_buf_pool_start(pool));
	OK(doca_buf_pool_destroy(pool));
	world_destroy(&world);
}

TEST(arrays_are_described, doca_buf_arr_create, doca_buf_arr_destroy, doca_buf_arr_set_params, doca_buf_arr_start,
     doca_buf_arr_stop, doca_buf_arr_set_target_gpu, doca_buf_arr_set_target_dpa, doca_buf_arr_get_gpu_handle,
     doca_buf_arr_get_dpa_handle)
{
	struct world world = world_create();
	struct doca_buf_arr *array = NULL;
	struct doca_gpu_buf_arr *gpu = NULL;
	doca_dpa_dev_buf_arr_t dpa = 0;

	REFUSED(doca_buf_arr_create(0, &array));
	OK(doca_buf_arr_create(8, &array));
	CHECK(array != NULL);
	REFUSED(doca_buf_arr_set_params(array, world.mmap, 0, 0));
	REFUSED(doca_buf_arr_set_params(array, world.mmap, MEMORY_SIZE / 8, 1));
	OK(doca_buf_arr_set_params(array, world.mmap, MEMORY_SIZE / 8, 0));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_buf_arr_set_target_gpu(array, NULL));
	REFUSED(doca_buf_arr_set_target_gpu(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_buf_arr_set_target_dpa(array, NULL));
	REFUSED(doca_buf_arr_set_target_dpa(NULL, NULL));
	/* Without a target. */
	RETURNS(DOCA_ERROR_BAD_STATE, doca_buf_arr_start(array));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_buf_arr_get_gpu_handle(array, &gpu));
	REFUSED(doca_buf_arr_get_gpu_handle(NULL, &gpu));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_buf_arr_get_dpa_handle(array, &dpa));
	REFUSED(doca_buf_arr_get_dpa_handle(NULL, &dpa));
	OK(doca_buf_arr_stop(array));
	REFUSED(doca_buf_arr_stop(NULL));
	OK(doca_buf_arr_destroy(array));
	REFUSED(doca_buf_arr_destroy(NULL));
	world_destroy(&world);
}

TEST(clocks_are_read, doca_clock_cap_nic_free_running_is_supported, doca_clock_cap_nic_real_time_is_supported,
     doca_clock_cap_nic_dpa_timer_is_supported, doca_clock_create, doca_clock_destroy, doca_clock_get_timestamp,
     doca_clock_get_crosstimestamp)
{
	struct world world = world_create();
	struct doca_clock *clock = NULL;
	union doca_clock_timespec_t host = {.counter = 0}, nic = {.counter = 0};
	uint64_t margin = UINT64_MAX;
	time_t now = time(NULL);

	OK(doca_clock_cap_nic_free_running_is_supported(world.info));
	REFUSED(doca_clock_cap_nic_free_running_is_supported(NULL));
	OK(doca_clock_cap_nic_real_time_is_supported(world.info));
	REFUSED(doca_clock_cap_nic_real_time_is_supported(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_cap_nic_dpa_timer_is_supported(world.info));
	REFUSED(doca_clock_cap_nic_dpa_timer_is_supported(NULL));
	OK(doca_clock_create(world.dev, &clock));
	CHECK(clock != NULL);
	OK(doca_clock_get_timestamp(clock, DOCA_CLOCK_NIC_REAL_TIME, &nic));
	CHECK(nic.ts.tv_sec >= now && nic.ts.tv_sec <= now + 60);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_get_timestamp(clock, DOCA_CLOCK_NIC_DPA_TIMER, &nic));
	REFUSED(doca_clock_get_timestamp(NULL, DOCA_CLOCK_NIC_REAL_TIME, &nic));
	OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_REAL_TIME, &host, &nic, &margin));
	CHECK(host.ts.tv_sec >= now && margin < 60000000000);
	OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, DOCA_CLOCK_NIC_FREE_RUNNING, &host, &nic,
					 &margin));
	CHECK(host.counter != 0 && nic.ts.tv_nsec < 1000000000);
	REFUSED(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_NIC_REAL_TIME, DOCA_CLOCK_HOST_REAL_TIME, &host, &nic,
					      &margin));
	REFUSED(doca_clock_create(NULL, &clock));
	OK(doca_clock_destroy(clock));
	REFUSED(doca_clock_destroy(NULL));
	world_destroy(&world);
}

TEST(there_is_no_bridge_to_rdma_core, doca_rdma_bridge_get_dev_pd, doca_rdma_bridge_open_dev_from_pd,
     doca_rdma_bridge_get_buf_mkey, doca_rdma_bridge_get_mmap_mkey_from_pd)
{
	struct world world = world_create();
	struct doca_buf *buf = world_data(&world, 0, 1);
	struct ibv_pd *pd = NULL, *other = (struct ibv_pd *)&world;
	struct doca_dev *dev = NULL;
	uint32_t key = 0;

	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_get_dev_pd(world.dev, &pd));
	REFUSED(doca_rdma_bridge_get_dev_pd(NULL, &pd));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_open_dev_from_pd(other, &dev));
	REFUSED(doca_rdma_bridge_open_dev_from_pd(NULL, &dev));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_get_buf_mkey(buf, world.dev, &key));
	REFUSED(doca_rdma_bridge_get_buf_mkey(NULL, world.dev, &key));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_rdma_bridge_get_mmap_mkey_from_pd(world.mmap, other, &key));
	REFUSED(doca_rdma_bridge_get_mmap_mkey_from_pd(NULL, other, &key));
	world_release(buf);
	world_destroy(&world);
}
