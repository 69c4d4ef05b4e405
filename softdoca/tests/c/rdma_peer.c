/*
 * One end of an RDMA connection between two processes. Each is compiled with the headers of a release: until 2.6, a context
 * has one connection, which is made while it starts.
 *
 *   rdma_peer responder DIRECTORY     receives, and lets its peer access its memory
 *   rdma_peer requester DIRECTORY     sends, writes and reads
 *
 * The ends exchange their descriptions as files of the directory, which the guide leaves to the program.
 */
#define _GNU_SOURCE
#include "rdma.h"

#include <doca_version.h>

#include <sysexits.h>
#include <unistd.h>

/* Contexts run before they are connected, to any number of peers. */
#define HAS_CONNECTIONS (DOCA_VERSION_MAJOR > 2 || DOCA_VERSION_MINOR > 6)

CALLBACKS(doca_rdma_task_receive)
CALLBACKS(doca_rdma_task_send)
CALLBACKS(doca_rdma_task_write)
CALLBACKS(doca_rdma_task_read)

/* Where the requester writes, and where it reads from, in the memory of the responder. */
#define WRITTEN 4096
#define READ 8192

struct end {
	struct world world; /* first: user data of the context */
	const char *name, *peer;
	struct doca_rdma *rdma;
	struct doca_ctx *ctx;
#if HAS_CONNECTIONS
	struct doca_rdma_connection *connection;
#endif
};

#if HAS_CONNECTIONS
#define OF_CONNECTION(end) (end)->connection,
#else
#define OF_CONNECTION(end)
#endif

void test_register(const char *name, const char *functions, test_function run)
{
	(void)name;
	(void)functions;
	(void)run;
}

/* Makes a description visible to the peer, complete. */
static void publish(struct end *end, const char *what, const void *description, size_t length)
{
	char name[64];
	FILE *file = fopen(end->name, "wb");

	snprintf(name, sizeof(name), "%s.%s", end->name, what);
	CHECK(file != NULL);
	CHECK(fwrite(description, 1, length, file) == length);
	CHECK(fclose(file) == 0);
	CHECK(rename(end->name, name) == 0);
}

/* Waits for a description of the peer. */
static size_t obtain(struct end *end, const char *what, uint8_t description[512])
{
	char name[64];
	FILE *file;
	size_t length;

	snprintf(name, sizeof(name), "%s.%s", end->peer, what);
	while ((file = fopen(name, "rb")) == NULL)
		usleep(1000);
	length = fread(description, 1, 512, file);
	CHECK(length > 0 && length < 512);
	fclose(file);
	return length;
}

static void connect(struct end *end)
{
	uint8_t theirs[512];
	const void *ours = NULL;
	size_t length = 0;

#if HAS_CONNECTIONS
	OK(doca_rdma_export(end->rdma, &ours, &length, &end->connection));
#else
	OK(doca_rdma_export(end->rdma, &ours, &length));
#endif
	publish(end, "connection", ours, length);
	length = obtain(end, "connection", theirs);
#if HAS_CONNECTIONS
	OK(doca_rdma_connect(end->rdma, theirs, length, end->connection));
#else
	OK(doca_rdma_connect(end->rdma, theirs, length));
#endif
}

static void changed(const union doca_data user_data, struct doca_ctx *ctx, enum doca_ctx_states previous,
		    enum doca_ctx_states next)
{
	(void)ctx;
	(void)previous;
	if (next == (HAS_CONNECTIONS ? DOCA_CTX_STATE_RUNNING : DOCA_CTX_STATE_STARTING))
		connect(user_data.ptr);
}

static void run(struct end *end)
{
	union doca_data data = {.ptr = end};
	enum doca_ctx_states state;

	end->world = world_create();
	end->rdma = rdma_create(&end->world);
	end->ctx = doca_rdma_as_ctx(end->rdma);
	OK(doca_rdma_task_receive_set_conf(end->rdma, doca_rdma_task_receive_completed, doca_rdma_task_receive_failed, 2));
	OK(doca_rdma_task_send_set_conf(end->rdma, doca_rdma_task_send_completed, doca_rdma_task_send_failed, 1));
	OK(doca_rdma_task_write_set_conf(end->rdma, doca_rdma_task_write_completed, doca_rdma_task_write_failed, 1));
	OK(doca_rdma_task_read_set_conf(end->rdma, doca_rdma_task_read_completed, doca_rdma_task_read_failed, 1));
	OK(doca_pe_connect_ctx(end->world.pe, end->ctx));
	OK(doca_ctx_set_user_data(end->ctx, data));
	OK(doca_ctx_set_state_changed_cb(end->ctx, changed));
	RETURNS(HAS_CONNECTIONS ? DOCA_SUCCESS : DOCA_ERROR_IN_PROGRESS, doca_ctx_start(end->ctx));
	do {
		(void)doca_pe_progress(end->world.pe);
		OK(doca_ctx_get_state(end->ctx, &state));
	} while (state != DOCA_CTX_STATE_RUNNING);
}

static void finish(struct end *end)
{
	world_stop(&end->world, end->ctx);
	OK(doca_rdma_destroy(end->rdma));
	world_destroy(&end->world);
}

static void receive(struct end *end, const char *expected)
{
	struct doca_buf *room = world_room(&end->world, 0, 100);
	struct doca_rdma_task_receive *task;

	OK(doca_rdma_task_receive_allocate_init(end->rdma, room, NO_DATA, &task));
	world_run(&end->world, doca_rdma_task_receive_as_task(task), true);
	CHECK(data_length(room) == strlen(expected) && memcmp(end->world.memory, expected, strlen(expected)) == 0);
	doca_task_free(doca_rdma_task_receive_as_task(task));
	world_release(room);
}

static void send_text(struct end *end, const char *text)
{
	struct doca_buf *data;
	struct doca_rdma_task_send *task;

	memcpy(end->world.memory, text, strlen(text));
	data = world_data(&end->world, 0, strlen(text));
	OK(doca_rdma_task_send_allocate_init(end->rdma, OF_CONNECTION(end) data, NO_DATA, &task));
	world_run(&end->world, doca_rdma_task_send_as_task(task), true);
	doca_task_free(doca_rdma_task_send_as_task(task));
	world_release(data);
}

static void run_responder(struct end *end)
{
	const void *map = NULL;
	size_t length = 0;

	run(end);
	strcpy((char *)end->world.memory + READ, "to be read");
	OK(doca_mmap_export_rdma(end->world.mmap, end->world.dev, &map, &length));
	publish(end, "memory", map, length);
	receive(end, "question");
	send_text(end, "answer");
	receive(end, "written");
	CHECK(strcmp((char *)end->world.memory + WRITTEN, "by the requester") == 0);
	finish(end);
}

static void run_requester(struct end *end)
{
	uint8_t description[512];
	size_t length;
	struct doca_mmap *map;
	struct doca_buf *ours, *theirs;
	struct doca_rdma_task_write *write;
	struct doca_rdma_task_read *read;
	void *address;

	run(end);
	send_text(end, "question");
	receive(end, "answer");

	length = obtain(end, "memory", description);
	OK(doca_mmap_create_from_export(NULL, description, length, end->world.dev, &map));
	OK(doca_mmap_get_memrange(map, &address, &length));
	CHECK(length == MEMORY_SIZE);
	strcpy((char *)end->world.memory + WRITTEN, "by the requester");
	ours = world_data(&end->world, WRITTEN, strlen("by the requester") + 1);
	OK(doca_buf_inventory_buf_get_by_addr(end->world.inventory, map, (uint8_t *)address + WRITTEN, 100, &theirs));
	OK(doca_rdma_task_write_allocate_init(end->rdma, OF_CONNECTION(end) ours, theirs, NO_DATA, &write));
	world_run(&end->world, doca_rdma_task_write_as_task(write), true);
	doca_task_free(doca_rdma_task_write_as_task(write));
	world_release(ours);
	world_release(theirs);

	ours = world_room(&end->world, READ, 100);
	OK(doca_buf_inventory_buf_get_by_data(end->world.inventory, map, (uint8_t *)address + READ, 11, &theirs));
	OK(doca_rdma_task_read_allocate_init(end->rdma, OF_CONNECTION(end) theirs, ours, NO_DATA, &read));
	world_run(&end->world, doca_rdma_task_read_as_task(read), true);
	CHECK(data_length(ours) == 11 && strcmp((char *)end->world.memory + READ, "to be read") == 0);
	doca_task_free(doca_rdma_task_read_as_task(read));
	world_release(ours);
	world_release(theirs);

	send_text(end, "written");
	OK(doca_mmap_destroy(map));
	finish(end);
}

int main(int argc, char **argv)
{
	struct end end = {0};

	if (argc != 3 || chdir(argv[2]) != 0)
		return EX_USAGE;
	end.name = argv[1];
	if (strcmp(argv[1], "responder") == 0) {
		end.peer = "requester";
		run_responder(&end);
	} else if (strcmp(argv[1], "requester") == 0) {
		end.peer = "responder";
		run_requester(&end);
	} else {
		return EX_USAGE;
	}
	printf("%s of DOCA %s\n", argv[1], DOCA_VERSION_STRING);
	return EXIT_SUCCESS;
}
