/** Nonzero if a result is an error. */
#define DOCA_IS_ERROR(r) doca_unlikely((r) != DOCA_SUCCESS)

/** Stores the result t in the variable r, unless r already holds an error. */
#define DOCA_ERROR_PROPAGATE(r, t)                                                                                     \
	do {                                                                                                           \
		if (!DOCA_IS_ERROR(r))                                                                                 \
			(r) = (t);                                                                                     \
	} while (0)
