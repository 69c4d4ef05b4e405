/** Nonzero if a result is an error. */
#define DOCA_IS_ERROR(r) doca_unlikely((r) != DOCA_SUCCESS)

/** Puts the result t into the variable r, unless r already holds an error: the first one is kept. */
#define DOCA_ERROR_PROPAGATE(r, t)                                                                                     \
	do {                                                                                                           \
		if (!DOCA_IS_ERROR(r))                                                                                 \
			(r) = (t);                                                                                     \
	} while (0)
