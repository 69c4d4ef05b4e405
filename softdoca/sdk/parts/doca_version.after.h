#include <stddef.h>

#define DOCA_VERSION_TEXT_OF(number) #number
#define DOCA_VERSION_TEXT(major, minor, patch)                                                                         \
	DOCA_VERSION_TEXT_OF(major) "." DOCA_VERSION_TEXT_OF(minor) "." DOCA_VERSION_TEXT_OF(patch)

/** The version as text. */
#define DOCA_VERSION_STRING DOCA_VERSION_TEXT(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH)

/** A version as one number, with every patch. */
#define DOCA_VERSION_CALC_EXACT(major, minor, patch) ((size_t)((major) << 24 | (minor) << 16 | (patch)))
/** The version of these headers as one number, with every patch. */
#define DOCA_VERSION_EXACT DOCA_VERSION_CALC_EXACT(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH)
/** An official version as one number. */
#define DOCA_VERSION_CALC(major, minor, patch) ((size_t)((major) << 24 | (minor) << 16 | ((patch) * 1000)))
/** The official version of these headers as one number. */
#define DOCA_VERSION_OFFICIAL DOCA_VERSION_CALC(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH)
/** Nonzero if a version is that of these headers. */
#define DOCA_VERSION_EQ_CURRENT(major, minor, patch) (DOCA_VERSION_CALC(major, minor, patch) == DOCA_VERSION_OFFICIAL)
/** Nonzero if a version is not later than that of these headers. */
#define DOCA_VERSION_LTE_CURRENT(major, minor, patch) (DOCA_VERSION_CALC(major, minor, patch) <= DOCA_VERSION_OFFICIAL)
