#include <doca_build_config.h>

/** Lets programs detect at compile time that they are built for softdoca. */
#define DOCA_SOFTDOCA 1
