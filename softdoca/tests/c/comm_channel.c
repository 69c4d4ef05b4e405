/* The first Comm Channel, doca_comm_channel_*, of 2.5 and 2.6: endpoints of a service and of clients in one process. */
#include "channel.h"
#include "world.h"

#include <doca_comm_channel.h>

#include <poll.h>

#define SIZE 64

/* A service and a client that are connected; each knows the other by an address. */
struct channel {
	struct doca_dev *dpu, *host;
	struct doca_dev_rep *rep;
	struct doca_comm_channel_ep_t *service, *client;
	struct doca_comm_channel_addr_t *of_service, *of_client;
};

static struct channel devices_open(void)
{
	struct channel channel = {0};
	struct doca_devinfo_rep **reps;
	uint32_t count;

	channel.dpu = world_open(DPU_DEVICE);
	channel.host = world_open(HOST_DEVICE);
	OK(doca_devinfo_rep_create_list(channel.dpu, DOCA_DEVINFO_REP_FILTER_NET, &reps, &count));
	OK(doca_dev_rep_open(reps[0], &channel.rep));
	OK(doca_devinfo_rep_destroy_list(reps));
	OK(doca_comm_channel_ep_create(&channel.service));
	OK(doca_comm_channel_ep_create(&channel.client));
	OK(doca_comm_channel_ep_set_device(channel.service, channel.dpu));
	OK(doca_comm_channel_ep_set_device_rep(channel.service, channel.rep));
	OK(doca_comm_channel_ep_set_device(channel.client, channel.host));
	return channel;
}

static size_t receive(struct doca_comm_channel_ep_t *ep, char *message, struct doca_comm_channel_addr_t **from)
{
	size_t length = SIZE;
	doca_error_t result;

	while ((result = doca_comm_channel_ep_recvfrom(ep, message, &length, DOCA_CC_MSG_FLAG_NONE, from)) ==
	       DOCA_ERROR_AGAIN)
		length = SIZE;
	OK(result);
	return length;
}

static bool is_ready(doca_event_channel_t fd)
{
	struct pollfd waits = {.fd = fd, .events = POLLIN};

	return poll(&waits, 1, 0) == 1;
}

static struct channel channel_open(void)
{
	struct channel channel = devices_open();
	char message[SIZE];

	OK(doca_comm_channel_ep_listen(channel.service, "test"));
	OK(doca_comm_channel_ep_connect(channel.client, "test", &channel.of_service));
	RETURNS(DOCA_ERROR_CONNECTION_INPROGRESS, doca_comm_channel_peer_addr_update_info(channel.of_service));
	/* Admits the client, whose update then finds the answer. */
	OK(doca_comm_channel_ep_update_service_state_info(channel.service));
	OK(doca_comm_channel_peer_addr_update_info(channel.of_service));
	OK(doca_comm_channel_ep_sendto(channel.client, "hello", 6, DOCA_CC_MSG_FLAG_NONE, channel.of_service));
	CHECK(receive(channel.service, message, &channel.of_client) == 6 && strcmp(message, "hello") == 0);
	return channel;
}

static void channel_close(struct channel channel)
{
	OK(doca_comm_channel_ep_destroy(channel.client));
	OK(doca_comm_channel_ep_destroy(channel.service));
	OK(doca_dev_rep_close(channel.rep));
	OK(doca_dev_close(channel.host));
	OK(doca_dev_close(channel.dpu));
}

TEST(messages_of_endpoints_go_both_ways, doca_comm_channel_ep_create, doca_comm_channel_ep_listen,
     doca_comm_channel_ep_connect, doca_comm_channel_ep_sendto, doca_comm_channel_ep_recvfrom,
     doca_comm_channel_peer_addr_update_info, doca_comm_channel_ep_update_service_state_info)
{
	struct channel channel = channel_open();
	struct doca_comm_channel_addr_t *from = NULL;
	char message[SIZE];
	size_t length = 3;

	OK(doca_comm_channel_ep_sendto(channel.service, "answer", 7, 0, channel.of_client));
	/* A buffer that is too small does not lose the message. */
	REFUSED(doca_comm_channel_ep_recvfrom(channel.client, message, &length, 0, &from));
	CHECK(receive(channel.client, message, &from) == 7 && strcmp(message, "answer") == 0);
	CHECK(from == channel.of_service);
	length = SIZE;
	RETURNS(DOCA_ERROR_AGAIN, doca_comm_channel_ep_recvfrom(channel.client, message, &length, 0, &from));

	REFUSED(doca_comm_channel_ep_sendto(channel.client, NULL, 1, 0, channel.of_service));
	REFUSED(doca_comm_channel_ep_sendto(channel.client, message, 4081, 0, channel.of_service));
	REFUSED(doca_comm_channel_ep_sendto(channel.client, message, 1, 1, channel.of_service));
	REFUSED(doca_comm_channel_ep_recvfrom(channel.client, message, &length, 0, NULL));
	RETURNS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_sendto(channel.client, message, 1, 0, NULL));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_comm_channel_ep_listen(channel.service, "another"));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_comm_channel_ep_connect(channel.client, "test", &from));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_update_service_state_info(channel.client));
	channel_close(channel);
}

TEST(endpoints_need_what_they_use, doca_comm_channel_ep_listen, doca_comm_channel_ep_connect)
{
	struct channel channel = devices_open();
	struct doca_comm_channel_ep_t *ep = NULL;
	struct doca_comm_channel_addr_t *peer = NULL;
	char message[SIZE];
	size_t length = SIZE;

	OK(doca_comm_channel_ep_create(&ep));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_listen(ep, "test"));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_connect(ep, "test", &peer));
	RETURNS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_recvfrom(ep, message, &length, 0, &peer));
	OK(doca_comm_channel_ep_destroy(ep));
	REFUSED(doca_comm_channel_ep_listen(channel.service, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_connect(channel.service, "test", &peer));
	/* No service listens. */
	RETURNS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_ep_connect(channel.client, "test", &peer));
	OK(doca_comm_channel_ep_listen(channel.service, "test"));
	/* Devices of active endpoints stay open. */
	RETURNS(DOCA_ERROR_IN_USE, doca_dev_close(channel.dpu));
	OK(doca_comm_channel_ep_connect(channel.client, "test", &peer));
	channel_close(channel);
}

#define SIZES(what, set, got)                                                                                          \
	do {                                                                                                           \
		uint16_t value = 0;                                                                                    \
		OK(doca_comm_channel_ep_set_##what(channel.client, set));                                              \
		OK(doca_comm_channel_ep_get_##what(channel.client, &value));                                           \
		CHECK(value == (got));                                                                                 \
		REFUSED(doca_comm_channel_ep_set_##what(channel.client, 0));                                           \
		RETURNS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_set_##what(channel.service, set));                  \
	} while (0)

TEST(endpoints_have_properties, doca_comm_channel_ep_get_device, doca_comm_channel_ep_get_device_rep,
     doca_comm_channel_ep_get_max_msg_size, doca_comm_channel_ep_get_send_queue_size,
     doca_comm_channel_ep_get_recv_queue_size, doca_comm_channel_ep_set_device, doca_comm_channel_ep_set_device_rep,
     doca_comm_channel_ep_set_max_msg_size, doca_comm_channel_ep_set_send_queue_size,
     doca_comm_channel_ep_set_recv_queue_size)
{
	struct channel channel = devices_open();
	struct doca_dev *dev = channel.host;
	struct doca_dev_rep *rep = NULL;

	OK(doca_comm_channel_ep_listen(channel.service, "test"));
	OK(doca_comm_channel_ep_get_device(channel.service, &dev));
	CHECK(dev == channel.dpu);
	OK(doca_comm_channel_ep_get_device_rep(channel.service, &rep));
	CHECK(rep == channel.rep);
	RETURNS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_set_device(channel.service, channel.dpu));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_set_device_rep(channel.service, channel.rep));
	SIZES(max_msg_size, 1024, 1024);
	SIZES(send_queue_size, 10, 16);
	SIZES(recv_queue_size, 8190, 8192);
	channel_close(channel);
}

#define LIMIT(expected, call)                                                                                          \
	do {                                                                                                           \
		uint32_t value = 0;                                                                                    \
		OK(call);                                                                                              \
		CHECK(value expected);                                                                                 \
	} while (0)

TEST(devices_have_limits_of_endpoints, doca_comm_channel_get_max_service_name_len,
     doca_comm_channel_get_max_message_size, doca_comm_channel_get_max_send_queue_size,
     doca_comm_channel_get_max_recv_queue_size, doca_comm_channel_get_service_max_num_connections)
{
	struct channel channel = devices_open();
	struct doca_devinfo *dpu = doca_dev_as_devinfo(channel.dpu), *host = doca_dev_as_devinfo(channel.host);
	uint32_t count;

	LIMIT(== 120, doca_comm_channel_get_max_service_name_len(&value));
	LIMIT(== 4080, doca_comm_channel_get_max_message_size(host, &value));
	LIMIT(== 8192, doca_comm_channel_get_max_send_queue_size(host, &value));
	LIMIT(== 8192, doca_comm_channel_get_max_recv_queue_size(host, &value));
	LIMIT(>= 1, doca_comm_channel_get_service_max_num_connections(dpu, &value));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_get_service_max_num_connections(host, &count));
	REFUSED(doca_comm_channel_get_max_message_size(NULL, &count));
	channel_close(channel);
}

TEST(descriptors_of_endpoints_become_readable, doca_comm_channel_ep_get_event_channel,
     doca_comm_channel_ep_get_service_event_channel, doca_comm_channel_ep_event_handle_arm_send,
     doca_comm_channel_ep_event_handle_arm_recv)
{
	struct channel channel = channel_open();
	doca_event_channel_t send = -1, receives = -1, service = -1;
	char message[4080] = {0};
	doca_error_t result;

	OK(doca_comm_channel_ep_get_event_channel(channel.client, &send, NULL));
	OK(doca_comm_channel_ep_get_event_channel(channel.service, NULL, &receives));
	REFUSED(doca_comm_channel_ep_get_event_channel(channel.client, NULL, NULL));
	OK(doca_comm_channel_ep_get_service_event_channel(channel.service, &service));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_get_service_event_channel(channel.client, &service));

	CHECK(!is_ready(receives) && !is_ready(service));
	REFUSED(doca_comm_channel_ep_event_handle_arm_recv(NULL));
	OK(doca_comm_channel_ep_event_handle_arm_recv(channel.service));
	/* Until the queue is full; then, until the service has received. */
	do {
		result = doca_comm_channel_ep_sendto(channel.client, message, sizeof(message), 0, channel.of_service);
	} while (result == DOCA_SUCCESS);
	RETURNS(DOCA_ERROR_AGAIN, result);
	REFUSED(doca_comm_channel_ep_event_handle_arm_send(NULL));
	OK(doca_comm_channel_ep_event_handle_arm_send(channel.client));
	CHECK(is_ready(receives) && !is_ready(send));
	do {
		size_t length = sizeof(message);

		result = doca_comm_channel_ep_recvfrom(channel.service, message, &length, 0, &channel.of_client);
	} while (result == DOCA_SUCCESS);
	RETURNS(DOCA_ERROR_AGAIN, result);
	CHECK(is_ready(send) && !is_ready(receives));
	OK(doca_comm_channel_ep_sendto(channel.client, message, 1, 0, channel.of_service));
	CHECK(!is_ready(send));
	/* Without a full queue, messages can be sent at once. */
	OK(doca_comm_channel_ep_event_handle_arm_send(channel.client));
	CHECK(is_ready(send));

	OK(doca_comm_channel_ep_disconnect(channel.client, channel.of_service));
	CHECK(is_ready(service));
	OK(doca_comm_channel_ep_update_service_state_info(channel.service));
	CHECK(!is_ready(service));
	channel_close(channel);
}

#define COUNTER(expected, what, peer)                                                                                  \
	do {                                                                                                           \
		uint64_t value = 99;                                                                                   \
		OK(doca_comm_channel_peer_addr_get_##what(peer, &value));                                              \
		CHECK(value == (expected));                                                                            \
	} while (0)

TEST(addresses_have_user_data_and_counters, doca_comm_channel_peer_addr_set_user_data,
     doca_comm_channel_peer_addr_get_user_data, doca_comm_channel_peer_addr_get_send_messages,
     doca_comm_channel_peer_addr_get_send_bytes, doca_comm_channel_peer_addr_get_recv_messages,
     doca_comm_channel_peer_addr_get_recv_bytes, doca_comm_channel_peer_addr_get_send_in_flight_messages)
{
	struct channel channel = channel_open();

	COUNTER(0, user_data, channel.of_client);
	OK(doca_comm_channel_peer_addr_set_user_data(channel.of_client, 42));
	COUNTER(42, user_data, channel.of_client);
	COUNTER(0, send_messages, channel.of_service);
	OK(doca_comm_channel_peer_addr_update_info(channel.of_service));
	OK(doca_comm_channel_peer_addr_update_info(channel.of_client));
	COUNTER(1, send_messages, channel.of_service);
	COUNTER(6, send_bytes, channel.of_service);
	COUNTER(1, recv_messages, channel.of_client);
	COUNTER(6, recv_bytes, channel.of_client);
	COUNTER(0, send_in_flight_messages, channel.of_service);
	REFUSED(doca_comm_channel_peer_addr_update_info(NULL));
	channel_close(channel);
}

TEST(services_list_their_clients, doca_comm_channel_ep_update_service_state_info,
     doca_comm_channel_ep_get_peer_addr_list, doca_comm_channel_ep_get_pending_connections)
{
	struct channel channel = channel_open();
	struct doca_comm_channel_addr_t **addresses = NULL;
	uint32_t count = 99;

	OK(doca_comm_channel_ep_update_service_state_info(channel.service));
	OK(doca_comm_channel_ep_get_peer_addr_list(channel.service, &addresses, &count));
	CHECK(count == 1 && addresses[0] == channel.of_client);
	count = 99;
	OK(doca_comm_channel_ep_get_pending_connections(channel.service, &count));
	CHECK(count == 0);
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_get_peer_addr_list(channel.client, &addresses, &count));
	OK(doca_comm_channel_ep_disconnect(channel.client, channel.of_service));
	OK(doca_comm_channel_ep_update_service_state_info(channel.service));
	OK(doca_comm_channel_ep_get_peer_addr_list(channel.service, &addresses, &count));
	CHECK(count == 0);
	channel_close(channel);
}

TEST(ends_of_endpoints_are_found, doca_comm_channel_ep_disconnect, doca_comm_channel_ep_destroy)
{
	struct channel channel = channel_open();
	char message[SIZE];
	size_t length = SIZE;
	struct doca_comm_channel_addr_t *from = NULL;

	OK(doca_comm_channel_ep_sendto(channel.service, "last", 5, 0, channel.of_client));
	OK(doca_comm_channel_ep_disconnect(channel.service, channel.of_client));
	RETURNS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_disconnect(channel.service, channel.of_client));
	/* What was sent before arrives. */
	CHECK(receive(channel.client, message, &from) == 5 && strcmp(message, "last") == 0);
	RETURNS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_peer_addr_update_info(channel.of_service));
	RETURNS(DOCA_ERROR_CONNECTION_RESET, doca_comm_channel_ep_recvfrom(channel.client, message, &length, 0, &from));
	RETURNS(DOCA_ERROR_CONNECTION_RESET,
		doca_comm_channel_ep_sendto(channel.client, message, 1, 0, channel.of_service));
	/* The client may connect again. */
	OK(doca_comm_channel_ep_disconnect(channel.client, channel.of_service));
	OK(doca_comm_channel_ep_connect(channel.client, "test", &channel.of_service));
	OK(doca_comm_channel_ep_update_service_state_info(channel.service));
	OK(doca_comm_channel_peer_addr_update_info(channel.of_service));
	/* A service that has gone. */
	OK(doca_comm_channel_ep_destroy(channel.service));
	RETURNS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_peer_addr_update_info(channel.of_service));
	RETURNS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_destroy(NULL));
	OK(doca_comm_channel_ep_destroy(channel.client));
	OK(doca_dev_rep_close(channel.rep));
	OK(doca_dev_close(channel.host));
	OK(doca_dev_close(channel.dpu));
}
