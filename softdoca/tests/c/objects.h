/* An object of each kind, idle and started, as arguments for the generated test of documented errors. */
#ifndef OBJECTS_H
#define OBJECTS_H

#include "comch.h"
#include "rdma.h"

#include <doca_aes_gcm.h>
#include <doca_argp.h>
#include <doca_buf_array.h>
#include <doca_buf_pool.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>
#include <doca_compress.h>
#include <doca_dma.h>
#include <doca_erasure_coding.h>
#include <doca_graph.h>
#include <doca_log.h>
#include <doca_mmap_advise.h>
#include <doca_rdma_bridge.h>
#include <doca_sha.h>
#include <doca_sync_event.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDLE, STARTED };

/* Stands for every callback: none of them is called. */
static inline void nothing(void)
{
}

static struct {
	struct pair *pair;
	struct world *world;
	struct doca_dev *dev;
	struct doca_devinfo *devinfo;
	struct doca_dev_rep *rep;
	struct doca_devinfo_rep *devinfo_rep;
	struct doca_pe *pe;
	struct doca_mmap *mmap[2];
	struct doca_buf_inventory *inventory[2];
	struct doca_buf_pool *pool[2];
	struct doca_buf_arr *array[2];
	struct doca_buf *buf;
	struct doca_dma *dma[2];
	struct doca_compress *compress[2];
	struct doca_ec *ec[2];
	struct doca_ec_matrix *matrix;
	struct doca_sha *sha[2];
	struct doca_sha_task_hash *hash;
	struct doca_sha_task_partial_hash *partial_hash;
	struct doca_aes_gcm *gcm[2];
	struct doca_aes_gcm_key *key;
	struct doca_mmap_advise *advise[2];
	struct doca_rdma *rdma[2];
	struct doca_rdma_connection *rdma_connection;
	struct doca_rdma_addr *address;
	struct doca_sync_event *event[2];
	struct doca_sync_event_remote_net *remote_event;
	struct doca_graph *graph[2];
	struct doca_graph_node *node;
	struct doca_graph_instance *graph_instance;
	struct doca_comch_server *server[2];
	struct doca_comch_client *client[2];
	struct doca_comch_connection *connection;
	struct doca_comch_consumer *consumer[2];
	struct doca_comch_producer *producer[2];
	struct doca_task *task;
	struct doca_argp_param *param;
	struct doca_argp_cmd *cmd;
	/* Memory behind pointers to plain values. */
	uint64_t scratch[512];
} object;

static inline void start_context(struct doca_ctx *ctx)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;
	doca_error_t result;

	OK(doca_pe_connect_ctx(object.pe, ctx));
	result = doca_ctx_start(ctx);
	CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS);
	while (state != DOCA_CTX_STATE_RUNNING) {
		progress(object.pair);
		OK(doca_ctx_get_state(ctx, &state));
	}
}

#define CONFIGURE(kind, instance)                                                                                      \
	OK(kind##_set_conf(instance, (kind##_completion_cb_t)nothing, (kind##_completion_cb_t)nothing, 1))

static inline void create_contexts(int state)
{
	OK(doca_dma_create(object.dev, &object.dma[state]));
	OK(doca_compress_create(object.dev, &object.compress[state]));
	OK(doca_ec_create(object.dev, &object.ec[state]));
	OK(doca_sha_create(object.dev, &object.sha[state]));
	OK(doca_aes_gcm_create(object.dev, &object.gcm[state]));
	OK(doca_mmap_advise_create(object.dev, &object.advise[state]));
	OK(doca_rdma_create(object.dev, &object.rdma[state]));
	OK(doca_sync_event_create(&object.event[state]));
	OK(doca_comch_consumer_create(object.connection, object.world->mmap, &object.consumer[state]));
	OK(doca_comch_producer_create(object.connection, &object.producer[state]));
	OK(doca_graph_create(object.pe, &object.graph[state]));
}

static inline void configure_contexts(void)
{
	struct doca_sync_event *event = object.event[STARTED];
	struct doca_rdma *rdma = object.rdma[STARTED];

	CONFIGURE(doca_dma_task_memcpy, object.dma[STARTED]);
	CONFIGURE(doca_compress_task_compress_deflate, object.compress[STARTED]);
	CONFIGURE(doca_compress_task_decompress_deflate, object.compress[STARTED]);
	CONFIGURE(doca_compress_task_decompress_lz4_stream, object.compress[STARTED]);
	CONFIGURE(doca_compress_task_decompress_lz4_block, object.compress[STARTED]);
	CONFIGURE(doca_ec_task_galois_mul, object.ec[STARTED]);
	CONFIGURE(doca_ec_task_create, object.ec[STARTED]);
	CONFIGURE(doca_ec_task_update, object.ec[STARTED]);
	CONFIGURE(doca_ec_task_recover, object.ec[STARTED]);
	/* The argument is a binary logarithm. */
	OK(doca_sha_task_hash_set_conf(object.sha[STARTED], (doca_sha_task_hash_completion_cb_t)nothing,
				       (doca_sha_task_hash_completion_cb_t)nothing, 0));
	OK(doca_sha_task_partial_hash_set_conf(object.sha[STARTED], (doca_sha_task_partial_hash_completion_cb_t)nothing,
					       (doca_sha_task_partial_hash_completion_cb_t)nothing, 0));
	CONFIGURE(doca_aes_gcm_task_encrypt, object.gcm[STARTED]);
	CONFIGURE(doca_aes_gcm_task_decrypt, object.gcm[STARTED]);
	CONFIGURE(doca_mmap_advise_task_invalidate_cache, object.advise[STARTED]);
	CONFIGURE(doca_rdma_task_receive, rdma);
	CONFIGURE(doca_rdma_task_send, rdma);
	CONFIGURE(doca_rdma_task_send_imm, rdma);
	CONFIGURE(doca_rdma_task_read, rdma);
	CONFIGURE(doca_rdma_task_write, rdma);
	CONFIGURE(doca_rdma_task_write_imm, rdma);
	CONFIGURE(doca_rdma_task_atomic_cmp_swp, rdma);
	CONFIGURE(doca_rdma_task_atomic_fetch_add, rdma);
	CONFIGURE(doca_rdma_task_remote_net_sync_event_get, rdma);
	CONFIGURE(doca_rdma_task_remote_net_sync_event_notify_set, rdma);
	CONFIGURE(doca_rdma_task_remote_net_sync_event_notify_add, rdma);
	OK(doca_sync_event_add_publisher_location_cpu(event, object.dev));
	OK(doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_add_publisher_location_remote_pci(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, object.dev));
	CONFIGURE(doca_sync_event_task_get, event);
	CONFIGURE(doca_sync_event_task_notify_set, event);
	CONFIGURE(doca_sync_event_task_notify_add, event);
	CONFIGURE(doca_sync_event_task_wait_eq, event);
	CONFIGURE(doca_sync_event_task_wait_neq, event);
	CONFIGURE(doca_comch_consumer_task_post_recv, object.consumer[STARTED]);
	CONFIGURE(doca_comch_producer_task_send, object.producer[STARTED]);
}

static inline void start_contexts(void)
{
	start_context(doca_dma_as_ctx(object.dma[STARTED]));
	start_context(doca_compress_as_ctx(object.compress[STARTED]));
	start_context(doca_ec_as_ctx(object.ec[STARTED]));
	start_context(doca_sha_as_ctx(object.sha[STARTED]));
	start_context(doca_aes_gcm_as_ctx(object.gcm[STARTED]));
	start_context(doca_mmap_advise_as_ctx(object.advise[STARTED]));
	start_context(doca_rdma_as_ctx(object.rdma[STARTED]));
	start_context(doca_sync_event_as_ctx(object.event[STARTED]));
	start_context(doca_comch_consumer_as_ctx(object.consumer[STARTED]));
	start_context(doca_comch_producer_as_ctx(object.producer[STARTED]));
}

static inline void create_tasks(void)
{
	struct doca_dma_task_memcpy *copy;
	struct doca_sha *sha = object.sha[STARTED];

	/* Of contexts of their own, so that the pools of the others are full. */
	OK(doca_sha_create(object.dev, &sha));
	CONFIGURE(doca_sha_task_hash, sha);
	CONFIGURE(doca_sha_task_partial_hash, sha);
	start_context(doca_sha_as_ctx(sha));
	OK(doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, object.buf, object.buf, NO_DATA, &object.hash));
	OK(doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, object.buf, object.buf, NO_DATA,
						 &object.partial_hash));
	OK(doca_dma_create(object.dev, &object.dma[IDLE]));
	CONFIGURE(doca_dma_task_memcpy, object.dma[IDLE]);
	start_context(doca_dma_as_ctx(object.dma[IDLE]));
	OK(doca_dma_task_memcpy_alloc_init(object.dma[IDLE], object.buf, object.buf, NO_DATA, &copy));
	object.task = doca_dma_task_memcpy_as_task(copy);
}

static inline void create_objects(void)
{
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	static const uint8_t bits[32];
	/* Not destroyed, like the objects, and not leaked. */
	static struct doca_devinfo_rep **reps;
	static struct doca_sync_event *event;
	const void *details;
	const uint8_t *blob;
	size_t length;
	uint32_t count;

	object.pair = pair_create(0);
	object.world = &object.pair->server.world;
	object.dev = object.world->dev;
	object.devinfo = doca_dev_as_devinfo(object.dev);
	object.rep = object.pair->rep;
	OK(doca_devinfo_rep_create_list(object.dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	object.devinfo_rep = reps[0];
	object.pe = object.world->pe;
	object.server[STARTED] = object.pair->server.server;
	object.client[STARTED] = object.pair->client.client;
	object.connection = object.pair->server.connection;
	OK(doca_comch_server_create(object.dev, object.rep, "idle", &object.server[IDLE]));
	OK(doca_comch_client_create(object.pair->client.world.dev, "idle", &object.client[IDLE]));

	OK(doca_mmap_create(&object.mmap[IDLE]));
	object.mmap[STARTED] = world_map(object.dev, memory, sizeof(memory), DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	OK(doca_buf_inventory_create(1, &object.inventory[IDLE]));
	object.inventory[STARTED] = object.world->inventory;
	object.buf = world_data(object.world, 0, 64);
	for (int state = IDLE; state <= STARTED; state++) {
		OK(doca_buf_pool_create(1, 64, object.mmap[STARTED], &object.pool[state]));
		OK(doca_buf_arr_create(1, &object.array[state]));
	}
	OK(doca_buf_pool_start(object.pool[STARTED]));

	/* Its tasks are arguments; another idle one replaces it. */
	create_tasks();
	create_contexts(IDLE);
	create_contexts(STARTED);
	OK(doca_ec_matrix_create(object.ec[IDLE], DOCA_EC_MATRIX_TYPE_CAUCHY, 1, 1, &object.matrix));
	OK(doca_aes_gcm_key_create(object.gcm[STARTED], bits, DOCA_AES_GCM_KEY_256, &object.key));
	configure_contexts();
	start_contexts();
	OK(doca_graph_node_create_from_ctx(object.graph[STARTED], doca_dma_as_ctx(object.dma[STARTED]), &object.node));
	OK(doca_graph_set_conf(object.graph[STARTED], (doca_graph_completion_cb_t)nothing,
			       (doca_graph_completion_cb_t)nothing, 2));
	OK(doca_graph_start(object.graph[STARTED]));
	OK(doca_graph_instance_create(object.graph[STARTED], &object.graph_instance));
	OK(doca_rdma_export(object.rdma[STARTED], &details, &length, &object.rdma_connection));
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", 4711, &object.address));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, object.dev));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_net(event, &blob, &length));
	OK(doca_sync_event_remote_net_create_from_export(object.dev, blob, length, &object.remote_event));
	OK(doca_argp_init("program", object.scratch));
	OK(doca_argp_param_create(&object.param));
	OK(doca_argp_cmd_create(&object.cmd));
}

/* A call of the API, made in a child of its own. */
typedef doca_error_t (*call_function)(void);

/* Result of a call that may change, or crash, the process: compared with the documented error. Returns 1 if it differs. */
static inline int compare(const char *what, call_function call, doca_error_t expected)
{
	doca_error_t result;
	int status, ends[2];
	ssize_t length;
	pid_t child;

	CHECK(pipe(ends) == 0);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(20);
		result = call();
		fflush(NULL);
		length = write(ends[1], &result, sizeof(result));
		(void)length;
		/* An exit would have valgrind search for leaks: what the threads of the parent own has no owner here. */
		kill(getpid(), SIGKILL);
	}
	CHECK(waitpid(child, &status, 0) == child);
	close(ends[1]);
	length = read(ends[0], &result, sizeof(result));
	close(ends[0]);
	if (length == sizeof(result) && result == expected)
		return 0;
	if (length == sizeof(result))
		fprintf(stderr, "%s: expected %s, got %s\n", what, doca_error_get_name(expected),
			doca_error_get_name(result));
	else
		fprintf(stderr, "%s: expected %s, got wait status %#x\n", what, doca_error_get_name(expected), status);
	return 1;
}

#endif
