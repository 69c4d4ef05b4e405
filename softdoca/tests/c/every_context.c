/* Rules that hold for contexts of every kind: the engine, the states, the device that a running context uses. */
#include "objects.h"

#define KINDS 12

struct kind {
	const char *name;
	struct doca_ctx *(*context)(int state);
	doca_error_t (*destroy)(int state);
	/* The error that the page of the kind names for a context that is not idle, or ours if it names none. */
	doca_error_t when_active;
};

#define KIND(name, as_ctx)                                                                                             \
	static struct doca_ctx *name##_context(int state)                                                              \
	{                                                                                                              \
		return as_ctx(object.name[state]);                                                                     \
	}

#define DESTROYED(name, destroy_it)                                                                                    \
	static doca_error_t name##_destroyed(int state)                                                                \
	{                                                                                                              \
		return destroy_it(object.name[state]);                                                                 \
	}

KIND(dma, doca_dma_as_ctx)
KIND(compress, doca_compress_as_ctx)
KIND(ec, doca_ec_as_ctx)
KIND(sha, doca_sha_as_ctx)
KIND(gcm, doca_aes_gcm_as_ctx)
KIND(advise, doca_mmap_advise_as_ctx)
KIND(rdma, doca_rdma_as_ctx)
KIND(event, doca_sync_event_as_ctx)
KIND(server, doca_comch_server_as_ctx)
KIND(client, doca_comch_client_as_ctx)
KIND(consumer, doca_comch_consumer_as_ctx)
KIND(producer, doca_comch_producer_as_ctx)
DESTROYED(dma, doca_dma_destroy)
DESTROYED(compress, doca_compress_destroy)
DESTROYED(ec, doca_ec_destroy)
DESTROYED(sha, doca_sha_destroy)
DESTROYED(gcm, doca_aes_gcm_destroy)
DESTROYED(advise, doca_mmap_advise_destroy)
DESTROYED(rdma, doca_rdma_destroy)
DESTROYED(event, doca_sync_event_destroy)
DESTROYED(server, doca_comch_server_destroy)
DESTROYED(client, doca_comch_client_destroy)
DESTROYED(consumer, doca_comch_consumer_destroy)
DESTROYED(producer, doca_comch_producer_destroy)

static const struct kind kinds[KINDS] = {
	{"dma", dma_context, dma_destroyed, DOCA_ERROR_IN_USE},
	{"compress", compress_context, compress_destroyed, DOCA_ERROR_IN_USE},
	{"ec", ec_context, ec_destroyed, DOCA_ERROR_BAD_STATE},
	{"sha", sha_context, sha_destroyed, DOCA_ERROR_IN_USE},
	{"gcm", gcm_context, gcm_destroyed, DOCA_ERROR_BAD_STATE},
	{"advise", advise_context, advise_destroyed, DOCA_ERROR_IN_USE},
	{"rdma", rdma_context, rdma_destroyed, DOCA_ERROR_BAD_STATE},
	{"event", event_context, event_destroyed, DOCA_ERROR_IN_USE},
	{"server", server_context, server_destroyed, DOCA_ERROR_IN_USE},
	{"client", client_context, client_destroyed, DOCA_ERROR_IN_USE},
	{"consumer", consumer_context, consumer_destroyed, DOCA_ERROR_IN_USE},
	{"producer", producer_context, producer_destroyed, DOCA_ERROR_IN_USE},
};

/* The kind under test: calls have no arguments. */
static const struct kind *kind;

/* The idle DMA context of the objects has an engine, and tasks that are arguments of other calls. */
static void create_idle_objects(void)
{
	create_objects();
	CONFIGURE(doca_comch_consumer_task_post_recv, object.consumer[IDLE]);
	CONFIGURE(doca_comch_producer_task_send, object.producer[IDLE]);
}

static struct doca_pe *new_engine(void)
{
	struct doca_pe *pe;

	OK(doca_pe_create(&pe));
	return pe;
}

static doca_error_t start_without_engine(void)
{
	return doca_ctx_start(kind->context(IDLE));
}

static doca_error_t stop_without_engine(void)
{
	return doca_ctx_stop(kind->context(IDLE));
}

static doca_error_t connect(void)
{
	return doca_pe_connect_ctx(object.pe, kind->context(IDLE));
}

static doca_error_t connect_again(void)
{
	OK(connect());
	return connect();
}

static doca_error_t connect_to_another(void)
{
	OK(connect());
	return doca_pe_connect_ctx(new_engine(), kind->context(IDLE));
}

static doca_error_t connect_active(void)
{
	return doca_pe_connect_ctx(object.pe, kind->context(STARTED));
}

static doca_error_t connect_active_to_another(void)
{
	return doca_pe_connect_ctx(new_engine(), kind->context(STARTED));
}

static doca_error_t destroy_idle(void)
{
	return kind->destroy(IDLE);
}

/* Also after the engine was connected. */
static doca_error_t destroy_connected(void)
{
	OK(connect());
	return kind->destroy(IDLE);
}

static doca_error_t destroy_active(void)
{
	return kind->destroy(STARTED);
}

/* A refused destruction leaves the context as it was. */
static doca_error_t destroy_after_refusal(void)
{
	enum doca_ctx_states state;

	CHECK(kind->destroy(STARTED) != DOCA_SUCCESS);
	OK(doca_ctx_get_state(kind->context(STARTED), &state));
	CHECK(state == DOCA_CTX_STATE_RUNNING);
	return kind->destroy(STARTED);
}

static int compare_kinds(const char *what, call_function call, doca_error_t expected)
{
	int different = 0;
	char name[96];

	for (kind = kinds; kind < kinds + KINDS; kind++) {
		snprintf(name, sizeof(name), "%s: %s", kind->name, what);
		different += compare(name, call, expected);
	}
	return different;
}

TEST(contexts_of_every_kind_have_one_engine, doca_pe_connect_ctx, doca_ctx_start, doca_ctx_stop)
{
	create_idle_objects();
	CHECK(compare_kinds("start without an engine", start_without_engine, DOCA_ERROR_NOT_CONNECTED) == 0);
	CHECK(compare_kinds("stop without an engine", stop_without_engine, DOCA_ERROR_NOT_CONNECTED) == 0);
	CHECK(compare_kinds("connect", connect, DOCA_SUCCESS) == 0);
	CHECK(compare_kinds("connect again", connect_again, DOCA_ERROR_NOT_PERMITTED) == 0);
	CHECK(compare_kinds("connect to another engine", connect_to_another, DOCA_ERROR_NOT_PERMITTED) == 0);
	CHECK(compare_kinds("connect an active one", connect_active, DOCA_ERROR_BAD_STATE) == 0);
	CHECK(compare_kinds("connect an active one to another engine", connect_active_to_another, DOCA_ERROR_BAD_STATE) ==
	      0);
	_exit(EXIT_SUCCESS);
}

TEST(contexts_of_every_kind_are_destroyed_when_idle, doca_dma_destroy, doca_compress_destroy, doca_ec_destroy,
     doca_sha_destroy, doca_aes_gcm_destroy, doca_mmap_advise_destroy, doca_rdma_destroy, doca_sync_event_destroy,
     doca_comch_server_destroy, doca_comch_client_destroy, doca_comch_consumer_destroy, doca_comch_producer_destroy)
{
	int different = 0;

	create_idle_objects();
	CHECK(compare_kinds("destroy an idle one", destroy_idle, DOCA_SUCCESS) == 0);
	CHECK(compare_kinds("destroy one with an engine", destroy_connected, DOCA_SUCCESS) == 0);
	for (kind = kinds; kind < kinds + KINDS; kind++) {
		different += compare(kind->name, destroy_active, kind->when_active);
		different += compare(kind->name, destroy_after_refusal, kind->when_active);
	}
	CHECK(different == 0);
	_exit(EXIT_SUCCESS);
}
