#include <doca_build_config.h>

/** Programs that test for it find out that softdoca is what they were compiled for. */
#define DOCA_SOFTDOCA 1
