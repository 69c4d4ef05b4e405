#include <time.h>

/** A reading of a clock. */
union doca_clock_timespec_t {
	struct timespec ts; /**< Seconds and nanoseconds. */
	uint64_t counter;   /**< Cycles of a counter. */
};
