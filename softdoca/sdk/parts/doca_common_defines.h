/** The condition is nearly always true. */
#define doca_likely(x) __builtin_expect(!!(x), 1)

/** The condition is nearly always false. */
#define doca_unlikely(x) __builtin_expect(!!(x), 0)
