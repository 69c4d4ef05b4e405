#include <stdint.h>

/** A file descriptor that carries events. */
typedef int doca_event_handle_t;

/** A file descriptor that carries a progress engine's notifications. */
typedef doca_event_handle_t doca_notification_handle_t;

/** No descriptor. */
#define doca_event_invalid_handle (-1)

/** Integers in network byte order: the bytes are in memory as they are on the wire. */
typedef uint16_t doca_be16_t;
typedef uint32_t doca_be32_t;
typedef uint64_t doca_be64_t;

/** A value that the library keeps for its user and hands back. */
union doca_data {
	void *ptr;    /**< As a pointer. */
	uint64_t u64; /**< As an integer. */
};
