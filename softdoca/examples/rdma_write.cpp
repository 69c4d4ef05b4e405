/*
 * One process writes into another's memory.
 *
 *   rdma_write responder 03:00.0 SOCKET         owns the memory, and does not call the library meanwhile
 *   rdma_write requester 03:00.0 SOCKET TEXT    writes the text into it
 *
 * The descriptions of the connection and of the memory, which RDMA needs beforehand, are exchanged over a Unix socket; any other
 * channel would do.
 */
#include "check.h"
#include "devices.h"

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_rdma.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string &what)
{
	std::fprintf(stderr, "%s\n", what.c_str());
	std::exit(EXIT_FAILURE);
}

/* Blobs over a Unix socket: a length and the bytes. */
class Exchange {
public:
	Exchange(const std::string &path, bool listens)
	{
		sockaddr_un address{};
		address.sun_family = AF_UNIX;
		if (path.size() >= sizeof(address.sun_path))
			fail("the socket's path is too long");
		std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
		auto *generic = reinterpret_cast<sockaddr *>(&address);
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (listens) {
			if (bind(fd, generic, sizeof(address)) != 0 || listen(fd, 1) != 0)
				fail("cannot listen on " + path);
			socket_ = accept(fd, nullptr, nullptr);
			close(fd);
			unlink(path.c_str());
			return;
		}
		/* The responder may start later. */
		for (int attempt = 0; connect(fd, generic, sizeof(address)) != 0; attempt++) {
			if (attempt == 500)
				fail("no process listens on " + path);
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		}
		socket_ = fd;
	}

	Exchange(const Exchange &) = delete;
	Exchange &operator=(const Exchange &) = delete;

	~Exchange()
	{
		close(socket_);
	}

	void send(const void *data, size_t length)
	{
		uint64_t prefix = length;
		if (write(socket_, &prefix, sizeof(prefix)) != sizeof(prefix) ||
		    write(socket_, data, length) != static_cast<ssize_t>(length))
			fail("the peer is gone");
	}

	std::vector<char> receive()
	{
		uint64_t prefix = 0;
		read_exactly(reinterpret_cast<char *>(&prefix), sizeof(prefix));
		if (prefix > 1024 * 1024)
			fail("the peer sends too much");
		std::vector<char> data(prefix);
		read_exactly(data.data(), data.size());
		return data;
	}

private:
	void read_exactly(char *data, size_t length)
	{
		while (length > 0) {
			ssize_t count = read(socket_, data, length);
			if (count <= 0)
				fail("the peer is gone");
			data += count;
			length -= static_cast<size_t>(count);
		}
	}

	int socket_ = -1;
};

/* An RDMA context connected to the peer's. */
class Endpoint {
public:
	Endpoint(doca_dev *device, Exchange &exchange)
	{
		CHECK(doca_pe_create(&pe_));
		CHECK(doca_rdma_create(device, &rdma_));
		doca_ctx *ctx = doca_rdma_as_ctx(rdma_);
		CHECK(doca_pe_connect_ctx(pe_, ctx));
		CHECK(doca_rdma_set_permissions(rdma_, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE));
		CHECK(doca_rdma_task_write_set_conf(rdma_, written, written, 1));
		CHECK(doca_ctx_start(ctx));

		const void *details;
		size_t length;
		CHECK(doca_rdma_export(rdma_, &details, &length, &connection_));
		exchange.send(details, length);
		std::vector<char> peer = exchange.receive();
		CHECK(doca_rdma_connect(rdma_, peer.data(), peer.size(), connection_));
	}

	Endpoint(const Endpoint &) = delete;
	Endpoint &operator=(const Endpoint &) = delete;

	~Endpoint()
	{
		doca_ctx *ctx = doca_rdma_as_ctx(rdma_);
		doca_error_t result = doca_ctx_stop(ctx);
		if (result != DOCA_ERROR_IN_PROGRESS)
			CHECK(result);
		for (doca_ctx_states state = DOCA_CTX_STATE_STOPPING; state != DOCA_CTX_STATE_IDLE;) {
			(void)doca_pe_progress(pe_);
			CHECK(doca_ctx_get_state(ctx, &state));
		}
		CHECK(doca_rdma_destroy(rdma_));
		CHECK(doca_pe_destroy(pe_));
	}

	/* Writes and waits for the completion. */
	void write(doca_buf *source, doca_buf *destination)
	{
		doca_rdma_task_write *task;
		doca_data data{};
		bool done = false;

		data.ptr = &done;
		CHECK(doca_rdma_task_write_allocate_init(rdma_, connection_, source, destination, data, &task));
		CHECK(doca_task_submit(doca_rdma_task_write_as_task(task)));
		while (!done)
			(void)doca_pe_progress(pe_);
		CHECK(doca_task_get_status(doca_rdma_task_write_as_task(task)));
		doca_task_free(doca_rdma_task_write_as_task(task));
	}

private:
	static void written(doca_rdma_task_write *, doca_data task_data, doca_data)
	{
		*static_cast<bool *>(task_data.ptr) = true;
	}

	doca_pe *pe_ = nullptr;
	doca_rdma *rdma_ = nullptr;
	doca_rdma_connection *connection_ = nullptr;
};

void respond(doca_dev *device, Exchange &exchange)
{
	std::array<char, 4096> memory{};
	doca_mmap *mmap;
	{
		Endpoint endpoint(device, exchange);

		CHECK(doca_mmap_create(&mmap));
		CHECK(doca_mmap_add_dev(mmap, device));
		CHECK(doca_mmap_set_memrange(mmap, memory.data(), memory.size()));
		CHECK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE));
		CHECK(doca_mmap_start(mmap));

		const void *description;
		size_t length;
		CHECK(doca_mmap_export_rdma(mmap, device, &description, &length));
		exchange.send(description, length);
		/* The requester reports the write and its length: an RDMA write does not notify the responder. */
		std::vector<char> said = exchange.receive();
		std::printf("found %s\n", std::string(memory.data(), strnlen(memory.data(), memory.size())).c_str());
		exchange.send(said.data(), said.size());
	}
	CHECK(doca_mmap_stop(mmap));
	CHECK(doca_mmap_destroy(mmap));
}

void request(doca_dev *device, Exchange &exchange, std::string text)
{
	doca_mmap *local, *remote;
	doca_buf_inventory *inventory;
	{
		Endpoint endpoint(device, exchange);

		std::vector<char> description = exchange.receive();
		CHECK(doca_mmap_create_from_export(nullptr, description.data(), description.size(), device, &remote));
		CHECK(doca_mmap_create(&local));
		CHECK(doca_mmap_add_dev(local, device));
		CHECK(doca_mmap_set_memrange(local, text.data(), text.size()));
		CHECK(doca_mmap_start(local));

		/* Addresses in the remote map are those of its owner. */
		void *address;
		size_t length;
		CHECK(doca_mmap_get_memrange(remote, &address, &length));
		if (text.size() >= length)
			fail("the text is longer than the responder's memory");

		doca_buf *source, *destination;
		CHECK(doca_buf_inventory_create(2, &inventory));
		CHECK(doca_buf_inventory_start(inventory));
		CHECK(doca_buf_inventory_buf_get_by_data(inventory, local, text.data(), text.size(), &source));
		CHECK(doca_buf_inventory_buf_get_by_addr(inventory, remote, address, length, &destination));
		endpoint.write(source, destination);
		CHECK(doca_buf_dec_refcount(source, nullptr));
		CHECK(doca_buf_dec_refcount(destination, nullptr));

		exchange.send(text.data(), text.size());
		(void)exchange.receive();
	}
	CHECK(doca_buf_inventory_stop(inventory));
	CHECK(doca_buf_inventory_destroy(inventory));
	CHECK(doca_mmap_destroy(remote));
	CHECK(doca_mmap_stop(local));
	CHECK(doca_mmap_destroy(local));
	std::printf("wrote %s\n", text.c_str());
}

} /* namespace */

int main(int argc, char **argv)
{
	std::vector<std::string> arguments(argv + 1, argv + argc);
	bool responds = arguments.size() == 3 && arguments[0] == "responder";
	bool requests = arguments.size() == 4 && arguments[0] == "requester" && !arguments[3].empty();

	if (!responds && !requests)
		fail("usage: rdma_write responder DEVICE SOCKET | requester DEVICE SOCKET TEXT");
	doca_dev *device = open_device(arguments[1].c_str());
	{
		Exchange exchange(arguments[2], responds);
		if (responds)
			respond(device, exchange);
		else
			request(device, exchange, arguments[3]);
	}
	CHECK(doca_dev_close(device));
	return EXIT_SUCCESS;
}
