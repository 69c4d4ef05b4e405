/*
 * One end of a channel between two processes, with the first Comm Channel of 2.5 and 2.6; the other end is a
 * `channel_peer` of any release, or another endpoint.
 *
 *   endpoint_peer server     on the DPU
 *   endpoint_peer client     on the host; exits with EX_UNAVAILABLE if there is no server yet
 */
#include "world.h"

#include <doca_comm_channel.h>
#include <doca_version.h>

#include <sched.h>
#include <sysexits.h>

/* A Comch server refuses clients with another size. */
#define MAX_MESSAGE_SIZE 1000

void test_register(const char *name, const char *functions, test_function run)
{
	(void)name;
	(void)functions;
	(void)run;
}

static void send_control(struct doca_comm_channel_ep_t *ep, struct doca_comm_channel_addr_t *peer, const char *text)
{
	doca_error_t result;

	while ((result = doca_comm_channel_ep_sendto(ep, text, strlen(text), DOCA_CC_MSG_FLAG_NONE, peer)) ==
	       DOCA_ERROR_AGAIN)
		sched_yield();
	OK(result);
}

static struct doca_comm_channel_addr_t *expect_control(struct doca_comm_channel_ep_t *ep, const char *text)
{
	struct doca_comm_channel_addr_t *from = NULL;
	char message[MAX_MESSAGE_SIZE];
	doca_error_t result;
	size_t length;

	for (;;) {
		length = sizeof(message);
		result = doca_comm_channel_ep_recvfrom(ep, message, &length, DOCA_CC_MSG_FLAG_NONE, &from);
		if (result != DOCA_ERROR_AGAIN)
			break;
		sched_yield();
	}
	OK(result);
	CHECK(length == strlen(text) && memcmp(message, text, length) == 0);
	return from;
}

static void run_server(struct doca_comm_channel_ep_t *ep, struct doca_dev *dev)
{
	struct doca_comm_channel_addr_t *client;
	struct doca_devinfo_rep **reps;
	struct doca_dev_rep *rep;
	uint32_t count;

	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	OK(doca_dev_rep_open(reps[0], &rep));
	OK(doca_devinfo_rep_destroy_list(reps));
	OK(doca_comm_channel_ep_set_device_rep(ep, rep));
	OK(doca_comm_channel_ep_listen(ep, "channel"));
	client = expect_control(ep, "question");
	send_control(ep, client, "answer");
	/* Until the client disconnects. */
	while (doca_comm_channel_peer_addr_update_info(client) == DOCA_SUCCESS)
		sched_yield();
	OK(doca_comm_channel_ep_disconnect(ep, client));
	OK(doca_comm_channel_ep_destroy(ep));
	OK(doca_dev_rep_close(rep));
}

static void run_client(struct doca_comm_channel_ep_t *ep)
{
	struct doca_comm_channel_addr_t *server;
	doca_error_t result = doca_comm_channel_ep_connect(ep, "channel", &server);

	if (result == DOCA_ERROR_CONNECTION_ABORTED)
		exit(EX_UNAVAILABLE);
	OK(result);
	while ((result = doca_comm_channel_peer_addr_update_info(server)) == DOCA_ERROR_CONNECTION_INPROGRESS)
		sched_yield();
	OK(result);
	send_control(ep, server, "question");
	CHECK(expect_control(ep, "answer") == server);
	OK(doca_comm_channel_ep_disconnect(ep, server));
	OK(doca_comm_channel_ep_destroy(ep));
}

int main(int argc, char **argv)
{
	bool is_server = argc >= 2 && strcmp(argv[1], "server") == 0;
	struct doca_comm_channel_ep_t *ep;
	struct doca_dev *dev;

	if (!is_server && (argc < 2 || strcmp(argv[1], "client") != 0))
		return EX_USAGE;
	dev = world_open(is_server ? DPU_DEVICE : HOST_DEVICE);
	OK(doca_comm_channel_ep_create(&ep));
	OK(doca_comm_channel_ep_set_device(ep, dev));
	OK(doca_comm_channel_ep_set_max_msg_size(ep, MAX_MESSAGE_SIZE));
	if (is_server)
		run_server(ep, dev);
	else
		run_client(ep);
	OK(doca_dev_close(dev));
	printf("%s endpoint of DOCA %s\n", argv[1], DOCA_VERSION_STRING);
	return EXIT_SUCCESS;
}
