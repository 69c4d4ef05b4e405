#ifdef __has_include
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#endif
#endif
