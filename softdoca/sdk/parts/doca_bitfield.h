#include <arpa/inet.h>

#include <doca_types.h>

/*
 * Fields of bits in bytes and in integers in network byte order. A mask has the bits of one field; those of the BE macros are in network
 * byte order, like the integers.
 */

/** Number of the lowest bit of a mask, which has at least one. */
#define DOCA_SHIFT(mask) __builtin_ctzll((unsigned long long)(mask))

/** To and from network byte order. */
#define DOCA_HTOBE16(value) htons((uint16_t)(value))
#define DOCA_HTOBE32(value) htonl((uint32_t)(value))
#define DOCA_BETOH16(value) ntohs((uint16_t)(value))
#define DOCA_BETOH32(value) ntohl((uint32_t)(value))

/** The mask of the bits from low to high, both of them included. */
#define DOCA_U8_GENMASK(high, low) ((uint8_t)(0xffu >> (7 - (high)) & 0xffu << (low)))
#define DOCA_BE16_GENMASK(high, low) DOCA_HTOBE16(0xffffu >> (15 - (high)) & 0xffffu << (low))
#define DOCA_BE32_GENMASK(high, low) DOCA_HTOBE32(0xffffffffu >> (31 - (high)) & 0xffffffffu << (low))

/** Writes the mask to *place. */
#define DOCA_U8P_GENMASK(high, low, place)                                                                             \
	do {                                                                                                           \
		*(uint8_t *)(place) = DOCA_U8_GENMASK(high, low);                                                      \
	} while (0)
#define DOCA_BE16P_GENMASK(high, low, place)                                                                           \
	do {                                                                                                           \
		*(doca_be16_t *)(place) = DOCA_BE16_GENMASK(high, low);                                                \
	} while (0)
#define DOCA_BE32P_GENMASK(high, low, place)                                                                           \
	do {                                                                                                           \
		*(doca_be32_t *)(place) = DOCA_BE32_GENMASK(high, low);                                                \
	} while (0)

/** A value shifted to the position of a field; excess bits are dropped. */
#define DOCA_U8_SET(mask, value) ((uint8_t)((uint32_t)(value) << DOCA_SHIFT(mask) & (mask)))
#define DOCA_BE16_SET(mask, value)                                                                                     \
	((doca_be16_t)(DOCA_HTOBE16((uint32_t)(value) << DOCA_SHIFT(DOCA_BETOH16(mask))) & (mask)))
#define DOCA_BE32_SET(mask, value)                                                                                     \
	((doca_be32_t)(DOCA_HTOBE32((uint32_t)(value) << DOCA_SHIFT(DOCA_BETOH32(mask))) & (mask)))

/** Sets the bits of a value in *place, without clearing others. The macros include the semicolon. */
#define DOCA_U8P_SET(mask, value, place)                                                                               \
	do {                                                                                                           \
		*(uint8_t *)(place) = (uint8_t)(*(uint8_t *)(place) | DOCA_U8_SET(mask, value));                       \
	} while (0);
#define DOCA_BE16P_SET(mask, value, place)                                                                             \
	do {                                                                                                           \
		*(doca_be16_t *)(place) = (doca_be16_t)(*(doca_be16_t *)(place) | DOCA_BE16_SET(mask, value));         \
	} while (0);
#define DOCA_BE32P_SET(mask, value, place)                                                                             \
	do {                                                                                                           \
		*(doca_be32_t *)(place) |= DOCA_BE32_SET(mask, value);                                                 \
	} while (0);

/** The value of a field. */
#define DOCA_U8_GET(mask, field) ((uint8_t)(((mask) & (field)) >> DOCA_SHIFT(mask)))
#define DOCA_BE16_GET(mask, field) ((uint16_t)(DOCA_BETOH16((mask) & (field)) >> DOCA_SHIFT(DOCA_BETOH16(mask))))
#define DOCA_BE32_GET(mask, field) (DOCA_BETOH32((mask) & (field)) >> DOCA_SHIFT(DOCA_BETOH32(mask)))
