#include <doca_config.h>

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <doca_version.h>

/*
 * Stability of a function. softdoca exports all functions and warns about none: DOCA_ALLOW_EXPERIMENTAL_API and
 * DOCA_ALLOW_DEPRECATED_API have no effect.
 */

/** A stable function. */
#define DOCA_STABLE
/** A function that may change in a later release. */
#define DOCA_EXPERIMENTAL
/** A function that will be removed. */
#define DOCA_DEPRECATED

/*
 * Structures filled by the program start with the version that the program was compiled for.
 */

/** Declares the version, as first member. */
#define DOCA_STRUCT_START size_t __doca_api_version
/** Version of a structure behind a pointer. */
#define DOCA_STRUCT_GET_VERSION(_X_) (_X_)->__doca_api_version
/** Sets the version of a structure. */
#define DOCA_STRUCT_CTOR(_X_) (_X_).__doca_api_version = DOCA_VERSION_EXACT
/** Sets the version of a structure behind a pointer. */
#define DOCA_STRUCT_PTR_CTOR(_X_) DOCA_STRUCT_CTOR(*(_X_))
/** Clears a structure and sets its version. */
#define DOCA_STRUCT_MEMSET_CTOR(_X_)                                                                                   \
	do {                                                                                                           \
		memset(&(_X_), 0, sizeof(_X_));                                                                        \
		DOCA_STRUCT_CTOR(_X_);                                                                                 \
	} while (0)
/** Clears a structure behind a pointer and sets its version. */
#define DOCA_STRUCT_PTR_MEMSET_CTOR(_X_) DOCA_STRUCT_MEMSET_CTOR(*(_X_))
/** The version in a list of designated initialisers. */
#define DOCA_STRUCT_CTOR_LIST_START .__doca_api_version = DOCA_VERSION_EXACT
/** Defines a structure with its version. */
#define DOCA_STRUCT_DEF(__st__, __name__) struct __st__ __name__ = {.__doca_api_version = DOCA_VERSION_EXACT}
