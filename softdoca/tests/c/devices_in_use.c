/* Devices, representors and contexts that are in use, and memory of other devices. */
#include "comch.h"
#include "rdma.h"

#include <doca_aes_gcm.h>
#include <doca_compress.h>
#include <doca_dma.h>
#include <doca_erasure_coding.h>
#include <doca_mmap_advise.h>
#include <doca_sha.h>
#include <doca_sync_event.h>

CALLBACKS(doca_dma_task_memcpy)
CALLBACKS(doca_compress_task_compress_deflate)
CALLBACKS(doca_ec_task_create)
CALLBACKS(doca_sha_task_hash)
CALLBACKS(doca_sha_task_partial_hash)
CALLBACKS(doca_aes_gcm_task_encrypt)
CALLBACKS(doca_mmap_advise_task_invalidate_cache)
CALLBACKS(doca_rdma_task_receive)
CALLBACKS(doca_rdma_task_send)
CALLBACKS(doca_rdma_task_read)

static struct doca_dma *running_dma(struct world *world)
{
	struct doca_dma *dma;

	OK(doca_dma_create(world->dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 4));
	world_start(world, doca_dma_as_ctx(dma));
	return dma;
}

/* Stops the map of a world and starts it again. */
static void restart_map(struct world *world, bool running)
{
	OK(running ? doca_mmap_start(world->mmap) : doca_mmap_stop(world->mmap));
}

TEST(a_device_is_not_closed_while_a_map_is_started, doca_dev_close)
{
	struct world world = world_create();

	DOCUMENTED(IN_USE, doca_dev_close(world.dev));
	/* Still open, and the last close again. */
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(world.dev));
	/* Not the last close. */
	CHECK(world_open(DPU_DEVICE) == world.dev);
	OK(doca_dev_close(world.dev));
	restart_map(&world, false);
	restart_map(&world, true);
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(world.dev));
	/* A stopped map that has the device does not use it. */
	restart_map(&world, false);
	OK(doca_dev_close(world.dev));
	world.dev = NULL;
	world_destroy(&world);
}

CALLBACKS(doca_sync_event_task_get)

/* A context of each kind with a device of its own, configured. */
static struct doca_ctx *configured(struct world *world, int kind)
{
	struct doca_dma *dma;
	struct doca_compress *compress;
	struct doca_ec *ec;
	struct doca_sha *sha;
	struct doca_aes_gcm *gcm;
	struct doca_mmap_advise *advise;
	struct doca_sync_event *event;

	switch (kind) {
	case 0:
		OK(doca_dma_create(world->dev, &dma));
		OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 1));
		return doca_dma_as_ctx(dma);
	case 1:
		OK(doca_compress_create(world->dev, &compress));
		OK(doca_compress_task_compress_deflate_set_conf(compress, doca_compress_task_compress_deflate_completed,
								doca_compress_task_compress_deflate_failed, 1));
		return doca_compress_as_ctx(compress);
	case 2:
		OK(doca_ec_create(world->dev, &ec));
		OK(doca_ec_task_create_set_conf(ec, doca_ec_task_create_completed, doca_ec_task_create_failed, 1));
		return doca_ec_as_ctx(ec);
	case 3:
		OK(doca_sha_create(world->dev, &sha));
		OK(doca_sha_task_hash_set_conf(sha, doca_sha_task_hash_completed, doca_sha_task_hash_failed, 1));
		return doca_sha_as_ctx(sha);
	case 4:
		OK(doca_aes_gcm_create(world->dev, &gcm));
		OK(doca_aes_gcm_task_encrypt_set_conf(gcm, doca_aes_gcm_task_encrypt_completed,
						      doca_aes_gcm_task_encrypt_failed, 1));
		return doca_aes_gcm_as_ctx(gcm);
	case 5:
		OK(doca_mmap_advise_create(world->dev, &advise));
		OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, doca_mmap_advise_task_invalidate_cache_completed,
								   doca_mmap_advise_task_invalidate_cache_failed, 1));
		return doca_mmap_advise_as_ctx(advise);
	case 6:
		OK(doca_sync_event_create(&event));
		OK(doca_sync_event_add_publisher_location_cpu(event, world->dev));
		OK(doca_sync_event_add_subscriber_location_cpu(event, world->dev));
		OK(doca_sync_event_task_get_set_conf(event, doca_sync_event_task_get_completed,
						     doca_sync_event_task_get_failed, 1));
		return doca_sync_event_as_ctx(event);
	case 7:
		return doca_rdma_as_ctx(rdma_create(world));
	default:
		return NULL;
	}
}

TEST(a_device_is_not_closed_while_a_context_of_any_kind_runs, doca_dev_close)
{
	struct world world = world_create();
	struct doca_ctx *ctx;

	restart_map(&world, false);
	for (int kind = 0; (ctx = configured(&world, kind)) != NULL; kind++) {
		world_start(&world, ctx);
		RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(world.dev));
		world_stop(&world, ctx);
		/* Idle contexts do not use it: they may be destroyed later. */
		OK(doca_dev_close(world.dev));
		world.dev = world_open(DPU_DEVICE);
	}
	exit(EXIT_SUCCESS);
}

TEST(a_device_is_not_closed_while_an_event_is_started, doca_dev_close)
{
	struct world world = world_create();
	struct doca_sync_event *event;

	restart_map(&world, false);
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, world.dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	OK(doca_sync_event_start(event));
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(world.dev));
	OK(doca_sync_event_stop(event));
	OK(doca_dev_close(world.dev));
	world.dev = NULL;
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}

TEST(an_imported_map_uses_its_device, doca_dev_close)
{
	struct world world = world_create();
	struct doca_dev *host = world_open(HOST_DEVICE);
	static uint8_t memory[4096];
	struct doca_mmap *theirs = world_map(host, memory, sizeof(memory), DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	struct doca_mmap *import;
	const void *blob;
	size_t length;

	OK(doca_mmap_export_pci(theirs, host, &blob, &length));
	OK(doca_mmap_create_from_export(NULL, blob, length, world.dev, &import));
	restart_map(&world, false);
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(world.dev));
	OK(doca_mmap_destroy(import));
	OK(doca_mmap_stop(theirs));
	OK(doca_mmap_destroy(theirs));
	OK(doca_dev_close(host));
	world_destroy(&world);
}

TEST(a_representor_is_not_closed_while_its_server_runs, doca_dev_rep_close, doca_dev_close)
{
	struct pair *pair = pair_create(0);

	DOCUMENTED(IN_USE, doca_dev_rep_close(pair->rep));
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(pair->server.world.dev));
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(pair->client.world.dev));
	pair_destroy(pair);
}

/* The engine of a context is set once. */
TEST(a_context_has_one_engine, doca_pe_connect_ctx, doca_ctx_start, doca_ctx_stop)
{
	struct world world = world_create();
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_pe *other;

	OK(doca_pe_create(&other));
	OK(doca_dma_create(world.dev, &dma));
	ctx = doca_dma_as_ctx(dma);
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 4));
	DOCUMENTED(NOT_CONNECTED, doca_ctx_start(ctx));
	DOCUMENTED(NOT_CONNECTED, doca_ctx_stop(ctx));
	OK(doca_pe_connect_ctx(world.pe, ctx));
	DOCUMENTED(NOT_PERMITTED, doca_pe_connect_ctx(world.pe, ctx));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_pe_connect_ctx(other, ctx));
	OK(doca_ctx_stop(ctx));
	OK(doca_ctx_start(ctx));
	DOCUMENTED(BAD_STATE, doca_pe_connect_ctx(other, ctx));
	DOCUMENTED(IN_USE, doca_pe_destroy(world.pe));
	world_stop(&world, ctx);
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(other));
	world_destroy(&world);
}

/* Each kind has the error that its page names. */
TEST(running_contexts_are_not_destroyed, doca_dma_destroy, doca_compress_destroy, doca_ec_destroy, doca_sha_destroy,
     doca_aes_gcm_destroy, doca_rdma_destroy, doca_mmap_advise_destroy, doca_sync_event_destroy)
{
	struct world world = world_create();
	struct doca_dma *dma = running_dma(&world);
	struct doca_compress *compress;
	struct doca_ec *ec;
	struct doca_sha *sha;
	struct doca_aes_gcm *gcm;
	struct doca_rdma *rdma = rdma_create(&world);
	struct doca_mmap_advise *advise;
	struct doca_sync_event *event;

	DOCUMENTED(IN_USE, doca_dma_destroy(dma));
	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_task_compress_deflate_set_conf(compress, doca_compress_task_compress_deflate_completed,
							doca_compress_task_compress_deflate_failed, 1));
	world_start(&world, doca_compress_as_ctx(compress));
	DOCUMENTED(IN_USE, doca_compress_destroy(compress));
	OK(doca_ec_create(world.dev, &ec));
	OK(doca_ec_task_create_set_conf(ec, doca_ec_task_create_completed, doca_ec_task_create_failed, 1));
	world_start(&world, doca_ec_as_ctx(ec));
	DOCUMENTED(BAD_STATE, doca_ec_destroy(ec));
	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_hash_set_conf(sha, doca_sha_task_hash_completed, doca_sha_task_hash_failed, 1));
	world_start(&world, doca_sha_as_ctx(sha));
	DOCUMENTED(IN_USE, doca_sha_destroy(sha));
	OK(doca_aes_gcm_create(world.dev, &gcm));
	OK(doca_aes_gcm_task_encrypt_set_conf(gcm, doca_aes_gcm_task_encrypt_completed, doca_aes_gcm_task_encrypt_failed,
					      1));
	world_start(&world, doca_aes_gcm_as_ctx(gcm));
	DOCUMENTED(BAD_STATE, doca_aes_gcm_destroy(gcm));
	OK(doca_rdma_task_receive_set_conf(rdma, doca_rdma_task_receive_completed, doca_rdma_task_receive_failed, 1));
	world_start(&world, doca_rdma_as_ctx(rdma));
	DOCUMENTED(BAD_STATE, doca_rdma_destroy(rdma));
	/* Their pages name no error for it. */
	OK(doca_mmap_advise_create(world.dev, &advise));
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, doca_mmap_advise_task_invalidate_cache_completed,
							   doca_mmap_advise_task_invalidate_cache_failed, 1));
	world_start(&world, doca_mmap_advise_as_ctx(advise));
	RETURNS(DOCA_ERROR_IN_USE, doca_mmap_advise_destroy(advise));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, world.dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, world.dev));
	world_start(&world, doca_sync_event_as_ctx(event));
	RETURNS(DOCA_ERROR_IN_USE, doca_sync_event_destroy(event));

	world_stop(&world, doca_dma_as_ctx(dma));
	world_stop(&world, doca_compress_as_ctx(compress));
	world_stop(&world, doca_ec_as_ctx(ec));
	world_stop(&world, doca_sha_as_ctx(sha));
	world_stop(&world, doca_aes_gcm_as_ctx(gcm));
	world_stop(&world, doca_rdma_as_ctx(rdma));
	world_stop(&world, doca_mmap_advise_as_ctx(advise));
	world_stop(&world, doca_sync_event_as_ctx(event));
	OK(doca_dma_destroy(dma));
	OK(doca_compress_destroy(compress));
	OK(doca_ec_destroy(ec));
	OK(doca_sha_destroy(sha));
	OK(doca_aes_gcm_destroy(gcm));
	OK(doca_rdma_destroy(rdma));
	OK(doca_mmap_advise_destroy(advise));
	OK(doca_sync_event_destroy(event));
	world_destroy(&world);
}

TEST(running_ends_of_comch_are_not_destroyed, doca_comch_server_destroy, doca_comch_client_destroy,
     doca_comch_consumer_destroy, doca_comch_producer_destroy)
{
	struct pair *pair = pair_create(0);
	struct world *world = &pair->server.world;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;

	DOCUMENTED(IN_USE, doca_comch_server_destroy(pair->server.server));
	DOCUMENTED(IN_USE, doca_comch_client_destroy(pair->client.client));
	OK(doca_comch_consumer_create(pair->server.connection, world->mmap, &consumer));
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_consumer_as_ctx(consumer)));
	RETURNS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(doca_comch_consumer_as_ctx(consumer)));
	RETURNS(DOCA_ERROR_IN_USE, doca_comch_consumer_destroy(consumer));
	OK(doca_comch_producer_create(pair->server.connection, &producer));
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_producer_as_ctx(producer)));
	OK(doca_ctx_start(doca_comch_producer_as_ctx(producer)));
	RETURNS(DOCA_ERROR_IN_USE, doca_comch_producer_destroy(producer));
	stop(pair, doca_comch_producer_as_ctx(producer));
	stop(pair, doca_comch_consumer_as_ctx(consumer));
	OK(doca_comch_producer_destroy(producer));
	OK(doca_comch_consumer_destroy(consumer));
	pair_destroy(pair);
}

/* Maps of memory to which the device of the contexts was not added: without a device, of another device, and imported. */
#define FOREIGN 3

struct foreign {
	struct doca_dev *host;
	struct doca_mmap *maps[FOREIGN];
	struct doca_mmap *theirs;
	uint8_t *memory;
};

static struct doca_mmap *map_without_device(void *memory, size_t size)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, size));
	OK(doca_mmap_start(mmap));
	return mmap;
}

static struct foreign foreign_create(void)
{
	struct foreign foreign = {.host = world_open(HOST_DEVICE), .memory = aligned_alloc(4096, 3 * 4096)};
	const void *blob;
	size_t length;

	CHECK(foreign.memory != NULL);
	memset(foreign.memory, 'x', 3 * 4096);
	foreign.maps[0] = map_without_device(foreign.memory, 4096);
	foreign.maps[1] = world_map(foreign.host, foreign.memory + 4096, 4096, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	foreign.theirs = world_map(foreign.host, foreign.memory + 8192, 4096, DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	OK(doca_mmap_export_pci(foreign.theirs, foreign.host, &blob, &length));
	OK(doca_mmap_create_from_export(NULL, blob, length, foreign.host, &foreign.maps[2]));
	return foreign;
}

static void foreign_destroy(struct foreign *foreign)
{
	for (int i = 0; i < FOREIGN; i++)
		OK(doca_mmap_destroy(foreign->maps[i]));
	OK(doca_mmap_stop(foreign->theirs));
	OK(doca_mmap_destroy(foreign->theirs));
	OK(doca_dev_close(foreign->host));
	free(foreign->memory);
}

/* A buf of a foreign map: its first quarter is data. */
static struct doca_buf *foreign_buf(struct world *world, struct foreign *foreign, int map)
{
	struct doca_buf *buf;
	uint8_t *start = foreign->memory + 4096 * map;

	OK(doca_buf_inventory_buf_get_by_addr(world->inventory, foreign->maps[map], start, 4096, &buf));
	OK(doca_buf_set_data(buf, start, 1024));
	return buf;
}

/* The task is refused, and the context goes on: another task with bufs of its device completes afterwards. */
static void refused(struct doca_task *task)
{
	REFUSED(doca_task_submit(task));
	REFUSED(doca_task_try_submit(task));
	doca_task_free(task);
}

TEST(accelerators_do_not_reach_memory_of_other_devices, doca_task_submit, doca_task_try_submit)
{
	struct world world = world_create();
	struct foreign foreign = foreign_create();
	struct doca_dma *dma = running_dma(&world);
	struct doca_compress *compress;
	struct doca_ec *ec;
	struct doca_sha *sha;
	struct doca_aes_gcm *gcm;
	struct doca_aes_gcm_key *key;
	struct doca_mmap_advise *advise;
	struct doca_ec_matrix *matrix;
	struct doca_buf *data = world_data(&world, 0, 2048), *room = world_room(&world, 32768, 32768), *list;
	struct doca_dma_task_memcpy *copy;
	static const uint8_t bits[32], iv[12];

	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_task_compress_deflate_set_conf(compress, doca_compress_task_compress_deflate_completed,
							doca_compress_task_compress_deflate_failed, 1));
	world_start(&world, doca_compress_as_ctx(compress));
	OK(doca_ec_create(world.dev, &ec));
	OK(doca_ec_task_create_set_conf(ec, doca_ec_task_create_completed, doca_ec_task_create_failed, 1));
	world_start(&world, doca_ec_as_ctx(ec));
	OK(doca_ec_matrix_create(ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 1, &matrix));
	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_hash_set_conf(sha, doca_sha_task_hash_completed, doca_sha_task_hash_failed, 1));
	OK(doca_sha_task_partial_hash_set_conf(sha, doca_sha_task_partial_hash_completed, doca_sha_task_partial_hash_failed,
					       1));
	world_start(&world, doca_sha_as_ctx(sha));
	OK(doca_aes_gcm_create(world.dev, &gcm));
	OK(doca_aes_gcm_task_encrypt_set_conf(gcm, doca_aes_gcm_task_encrypt_completed, doca_aes_gcm_task_encrypt_failed,
					      1));
	OK(doca_aes_gcm_key_create(gcm, bits, DOCA_AES_GCM_KEY_256, &key));
	world_start(&world, doca_aes_gcm_as_ctx(gcm));
	OK(doca_mmap_advise_create(world.dev, &advise));
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, doca_mmap_advise_task_invalidate_cache_completed,
							   doca_mmap_advise_task_invalidate_cache_failed, 1));
	world_start(&world, doca_mmap_advise_as_ctx(advise));

	for (int map = 0; map < FOREIGN; map++) {
		for (int is_source = 0; is_source < 2; is_source++) {
			struct doca_buf *buf = foreign_buf(&world, &foreign, map);
			struct doca_buf *from = is_source ? buf : data, *to = is_source ? room : buf;
			struct doca_compress_task_compress_deflate *deflate;
			struct doca_ec_task_create *parity;
			struct doca_sha_task_hash *hash;
			struct doca_sha_task_partial_hash *part;
			struct doca_aes_gcm_task_encrypt *encrypt;
			struct doca_mmap_advise_task_invalidate_cache *invalidate;

			OK(doca_dma_task_memcpy_alloc_init(dma, from, to, NO_DATA, &copy));
			refused(doca_dma_task_memcpy_as_task(copy));
			OK(doca_compress_task_compress_deflate_alloc_init(compress, from, to, NO_DATA, &deflate));
			refused(doca_compress_task_compress_deflate_as_task(deflate));
			OK(doca_ec_task_create_allocate_init(ec, matrix, from, to, NO_DATA, &parity));
			refused(doca_ec_task_create_as_task(parity));
			OK(doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &hash));
			refused(doca_sha_task_hash_as_task(hash));
			OK(doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &part));
			refused(doca_sha_task_partial_hash_as_task(part));
			OK(doca_aes_gcm_task_encrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA,
								&encrypt));
			refused(doca_aes_gcm_task_encrypt_as_task(encrypt));
			OK(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, buf, NO_DATA, &invalidate));
			refused(doca_mmap_advise_task_invalidate_cache_as_doca_task(invalidate));
			world_release(buf);
		}
		/* A later element of a list. */
		list = world_data(&world, 4096, 64);
		OK(doca_buf_chain_list(list, foreign_buf(&world, &foreign, map)));
		OK(doca_dma_task_memcpy_alloc_init(dma, list, room, NO_DATA, &copy));
		refused(doca_dma_task_memcpy_as_task(copy));
		world_release(list);
	}
	CHECK(world.completed == 0 && world.failed == 0 && data_length(room) == 0);
	OK(doca_dma_task_memcpy_alloc_init(dma, data, room, NO_DATA, &copy));
	world_run(&world, doca_dma_task_memcpy_as_task(copy), true);
	CHECK(data_length(room) == 2048);
	doca_task_free(doca_dma_task_memcpy_as_task(copy));

	world_release(data);
	world_release(room);
	world_stop(&world, doca_dma_as_ctx(dma));
	world_stop(&world, doca_compress_as_ctx(compress));
	world_stop(&world, doca_ec_as_ctx(ec));
	world_stop(&world, doca_sha_as_ctx(sha));
	world_stop(&world, doca_aes_gcm_as_ctx(gcm));
	world_stop(&world, doca_mmap_advise_as_ctx(advise));
	OK(doca_ec_matrix_destroy(matrix));
	OK(doca_aes_gcm_key_destroy(key));
	OK(doca_dma_destroy(dma));
	OK(doca_compress_destroy(compress));
	OK(doca_ec_destroy(ec));
	OK(doca_sha_destroy(sha));
	OK(doca_aes_gcm_destroy(gcm));
	OK(doca_mmap_advise_destroy(advise));
	foreign_destroy(&foreign);
	world_destroy(&world);
}

/* Two instances of a world, connected. */
struct rdma_pair {
	struct doca_rdma *rdma[2];
	struct doca_rdma_connection *connection[2];
};

static struct rdma_pair rdma_pair_create(struct world *world)
{
	struct rdma_pair pair;
	const void *details[2];
	size_t length[2];

	for (int i = 0; i < 2; i++) {
		pair.rdma[i] = rdma_create(world);
		OK(doca_rdma_task_receive_set_conf(pair.rdma[i], doca_rdma_task_receive_completed,
						   doca_rdma_task_receive_failed, 1));
		OK(doca_rdma_task_send_set_conf(pair.rdma[i], doca_rdma_task_send_completed, doca_rdma_task_send_failed,
						1));
		OK(doca_rdma_task_read_set_conf(pair.rdma[i], doca_rdma_task_read_completed, doca_rdma_task_read_failed,
						1));
		world_start(world, doca_rdma_as_ctx(pair.rdma[i]));
		OK(doca_rdma_export(pair.rdma[i], &details[i], &length[i], &pair.connection[i]));
	}
	for (int i = 0; i < 2; i++)
		OK(doca_rdma_connect(pair.rdma[i], details[!i], length[!i], pair.connection[i]));
	return pair;
}

TEST(rdma_does_not_reach_memory_of_other_devices, doca_task_submit)
{
	struct world world = world_create();
	struct foreign foreign = foreign_create();
	struct rdma_pair pair = rdma_pair_create(&world);
	struct doca_rdma_task_receive *receive;
	struct doca_rdma_task_send *send;
	struct doca_rdma_task_read *read;
	struct doca_mmap *remote;
	struct doca_buf *remote_data, *room = world_room(&world, 0, 4096);
	const void *blob;
	size_t length;

	for (int map = 0; map < FOREIGN; map++) {
		struct doca_buf *buf = foreign_buf(&world, &foreign, map);

		OK(doca_rdma_task_send_allocate_init(pair.rdma[0], pair.connection[0], buf, NO_DATA, &send));
		REFUSED(doca_task_submit(doca_rdma_task_send_as_task(send)));
		doca_task_free(doca_rdma_task_send_as_task(send));
		OK(doca_rdma_task_receive_allocate_init(pair.rdma[1], buf, NO_DATA, &receive));
		REFUSED(doca_task_submit(doca_rdma_task_receive_as_task(receive)));
		doca_task_free(doca_rdma_task_receive_as_task(receive));
		world_release(buf);
	}
	/* The memory of the peer was imported with another device. */
	OK(doca_mmap_export_rdma(world.mmap, world.dev, &blob, &length));
	OK(doca_mmap_create_from_export(NULL, blob, length, foreign.host, &remote));
	OK(doca_buf_inventory_buf_get_by_data(world.inventory, remote, world.memory, 64, &remote_data));
	OK(doca_rdma_task_read_allocate_init(pair.rdma[0], pair.connection[0], remote_data, room, NO_DATA, &read));
	REFUSED(doca_task_submit(doca_rdma_task_read_as_task(read)));
	doca_task_free(doca_rdma_task_read_as_task(read));
	CHECK(world.completed == 0 && world.failed == 0 && data_length(room) == 0);

	world_release(remote_data);
	world_release(room);
	OK(doca_mmap_destroy(remote));
	for (int i = 0; i < 2; i++)
		world_stop(&world, doca_rdma_as_ctx(pair.rdma[i]));
	for (int i = 0; i < 2; i++)
		OK(doca_rdma_destroy(pair.rdma[i]));
	foreign_destroy(&foreign);
	world_destroy(&world);
}

TEST(the_fast_path_does_not_reach_memory_of_other_devices, doca_ctx_start, doca_task_submit)
{
	struct pair *pair = pair_create(0);
	struct world *world = &pair->server.world;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	struct doca_comch_producer_task_send *send;
	struct doca_buf *buf;

	/* The client's memory at the server's end. */
	OK(doca_comch_consumer_create(pair->server.connection, pair->client.world.mmap, &consumer));
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, doca_comch_consumer_task_post_recv_completed,
						       doca_comch_consumer_task_post_recv_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_consumer_as_ctx(consumer)));
	DOCUMENTED(INVALID_VALUE, doca_ctx_start(doca_comch_consumer_as_ctx(consumer)));
	OK(doca_comch_consumer_destroy(consumer));
	OK(doca_comch_producer_create(pair->server.connection, &producer));
	OK(doca_comch_producer_task_send_set_conf(producer, doca_comch_producer_task_send_completed,
						  doca_comch_producer_task_send_failed, 1));
	OK(doca_pe_connect_ctx(world->pe, doca_comch_producer_as_ctx(producer)));
	OK(doca_ctx_start(doca_comch_producer_as_ctx(producer)));
	OK(doca_buf_inventory_buf_get_by_data(world->inventory, pair->client.world.mmap, pair->client.world.memory, 8, &buf));
	OK(doca_comch_producer_task_send_alloc_init(producer, buf, NULL, 0, 2, &send));
	REFUSED(doca_task_submit(doca_comch_producer_task_send_as_task(send)));
	doca_task_free(doca_comch_producer_task_send_as_task(send));
	world_release(buf);
	stop(pair, doca_comch_producer_as_ctx(producer));
	OK(doca_comch_producer_destroy(producer));
	pair_destroy(pair);
}
