#include <stdint.h>
#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/types.h>)
#include <linux/types.h>
#define SOFTDOCA_HAS_LINUX_TYPES
#endif
#endif

/** A file descriptor that carries events. */
typedef int doca_event_handle_t;

/** A file descriptor that carries a progress engine's notifications. */
typedef doca_event_handle_t doca_notification_handle_t;

/** No descriptor. */
#define doca_event_invalid_handle (-1)

/** Integers in network byte order: the bytes are in memory as they are on the wire. */
#ifdef SOFTDOCA_HAS_LINUX_TYPES
typedef __be16 doca_be16_t;
typedef __be32 doca_be32_t;
typedef __be64 doca_be64_t;
#else
typedef unsigned short doca_be16_t;
typedef unsigned int doca_be32_t;
__extension__ typedef unsigned long long doca_be64_t;
#endif

/** User data that the library stores and passes back to the program. */
union doca_data {
	void *ptr;    /**< As a pointer. */
	uint64_t u64; /**< As an integer. */
};

/** A range of memory, and the next one of a list. */
struct doca_gather_list {
	void *addr;                    /**< First byte. */
	uint64_t len;                  /**< Length in bytes. */
	struct doca_gather_list *next; /**< The next range, or NULL. */
};
