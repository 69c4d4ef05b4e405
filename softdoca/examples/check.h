/* Results of DOCA's functions in the examples: the first failure exits the program. */
#ifndef CHECK_H
#define CHECK_H

#include <doca_error.h>

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check((call), #call)

static inline void check(doca_error_t result, const char *call)
{
	if (result == DOCA_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", call, doca_error_get_descr(result));
	exit(EXIT_FAILURE);
}

#endif
