/*
 * Comch under its names in all releases: 2.5 and 2.6 have doca_cc_*, which programs that include this file may also use with
 * the names of 2.6 or of Comch.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <doca_version.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if DOCA_VERSION_MAJOR > 2 || DOCA_VERSION_MINOR > 6

#include <doca_comch.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>

typedef uint32_t message_length;
typedef uint8_t change_result;

#define TASKS(log) (1u << (log))
/* Without immediate data. */
#define send_of_producer(producer, buf, id, task)                                                                      \
	doca_comch_producer_task_send_alloc_init(producer, buf, NULL, 0, id, task)

#else

#include <doca_cc.h>
#include <doca_cc_consumer.h>
#include <doca_cc_producer.h>

#if DOCA_VERSION_MINOR >= 6
typedef uint32_t message_length;
typedef uint32_t number;
typedef uint8_t change_result;
#define TASKS(log) (1u << (log))
#else
typedef size_t message_length;
typedef size_t number;
typedef bool change_result;
#define TASKS(log) (log)
#define doca_cc_task_send doca_cc_send_task
#define doca_cc_task_send_as_task doca_cc_send_task_as_task
#define doca_cc_server_task_send_set_conf doca_cc_server_send_task_set_conf
#define doca_cc_server_task_send_alloc_init doca_cc_server_send_task_alloc_init
#define doca_cc_client_task_send_set_conf doca_cc_client_send_task_set_conf
#define doca_cc_client_task_send_alloc_init doca_cc_client_send_task_alloc_init
#define doca_cc_consumer_cap_is_supported doca_cc_cap_is_consumer_supported
#define doca_cc_consumer_task_post_recv doca_cc_consumer_post_recv_task
#define doca_cc_consumer_task_post_recv_set_conf doca_cc_consumer_post_recv_task_set_conf
#define doca_cc_consumer_task_post_recv_alloc_init doca_cc_consumer_post_recv_task_alloc_init
#define doca_cc_consumer_task_post_recv_get_buf doca_cc_consumer_post_recv_task_get_buf
#define doca_cc_consumer_task_post_recv_set_buf doca_cc_consumer_post_recv_task_set_buf
#define doca_cc_consumer_task_post_recv_as_task doca_cc_consumer_post_recv_task_as_task
#define doca_cc_producer_cap_is_supported doca_cc_cap_is_producer_supported
#define doca_cc_producer_task_send doca_cc_producer_send_task
#define doca_cc_producer_task_send_set_conf doca_cc_producer_send_task_set_conf
#define doca_cc_producer_task_send_alloc_init doca_cc_producer_send_task_alloc_init
#define doca_cc_producer_task_send_get_buf doca_cc_producer_send_task_get_buf
#define doca_cc_producer_task_send_set_buf doca_cc_producer_send_task_set_buf
#define doca_cc_producer_task_send_get_consumer_id doca_cc_producer_send_task_get_consumer_id
#define doca_cc_producer_task_send_set_consumer_id doca_cc_producer_send_task_set_consumer_id
#define doca_cc_producer_task_send_as_task doca_cc_producer_send_task_as_task
#endif

#define doca_comch_server doca_cc_server
#define doca_comch_client doca_cc_client
#define doca_comch_connection doca_cc_connection
#define doca_comch_task_send doca_cc_task_send
#define doca_comch_task_send_as_task doca_cc_task_send_as_task
#define doca_comch_event_msg_recv doca_cc_event_msg_recv
#define doca_comch_event_connection_status_changed doca_cc_event_connection_status_changed
#define doca_comch_event_consumer doca_cc_event_consumer
#define doca_comch_server_create doca_cc_server_create
#define doca_comch_server_destroy doca_cc_server_destroy
#define doca_comch_server_as_ctx doca_cc_server_as_ctx
#define doca_comch_server_get_server_ctx doca_cc_server_get_server_ctx
#define doca_comch_server_set_max_msg_size doca_cc_server_set_max_msg_size
#define doca_comch_server_set_recv_queue_size doca_cc_server_set_recv_queue_size
#define doca_comch_server_task_send_set_conf doca_cc_server_task_send_set_conf
#define doca_comch_server_task_send_alloc_init doca_cc_server_task_send_alloc_init
#define doca_comch_server_event_msg_recv_register doca_cc_server_event_msg_recv_register
#define doca_comch_server_event_connection_status_changed_register doca_cc_server_event_connection_register
#define doca_comch_server_event_consumer_register doca_cc_server_event_consumer_register
#define doca_comch_client_create doca_cc_client_create
#define doca_comch_client_destroy doca_cc_client_destroy
#define doca_comch_client_as_ctx doca_cc_client_as_ctx
#define doca_comch_client_get_client_ctx doca_cc_client_get_client_ctx
#define doca_comch_client_get_connection doca_cc_client_get_connection
#define doca_comch_client_set_max_msg_size doca_cc_client_set_max_msg_size
#define doca_comch_client_set_recv_queue_size doca_cc_client_set_recv_queue_size
#define doca_comch_client_task_send_set_conf doca_cc_client_task_send_set_conf
#define doca_comch_client_task_send_alloc_init doca_cc_client_task_send_alloc_init
#define doca_comch_client_event_msg_recv_register doca_cc_client_event_msg_recv_register
#define doca_comch_client_event_consumer_register doca_cc_client_event_consumer_register
#define doca_comch_consumer doca_cc_consumer
#define doca_comch_consumer_create doca_cc_consumer_create
#define doca_comch_consumer_destroy doca_cc_consumer_destroy
#define doca_comch_consumer_as_ctx doca_cc_consumer_as_ctx
#define doca_comch_consumer_task_post_recv doca_cc_consumer_task_post_recv
#define doca_comch_consumer_task_post_recv_set_conf doca_cc_consumer_task_post_recv_set_conf
#define doca_comch_consumer_task_post_recv_alloc_init doca_cc_consumer_task_post_recv_alloc_init
#define doca_comch_consumer_task_post_recv_as_task doca_cc_consumer_task_post_recv_as_task
#define doca_comch_producer doca_cc_producer
#define doca_comch_producer_create doca_cc_producer_create
#define doca_comch_producer_destroy doca_cc_producer_destroy
#define doca_comch_producer_as_ctx doca_cc_producer_as_ctx
#define doca_comch_producer_task_send doca_cc_producer_task_send
#define doca_comch_producer_task_send_set_conf doca_cc_producer_task_send_set_conf
#define doca_comch_producer_task_send_as_task doca_cc_producer_task_send_as_task

#define send_of_producer(producer, buf, id, task) doca_cc_producer_task_send_alloc_init(producer, buf, id, task)

#endif

#endif
