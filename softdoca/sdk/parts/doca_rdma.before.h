/*
 * Programs use what the headers of rdma-core bring along. Where they are not installed, what comes with the C library takes their
 * place.
 */
#ifdef __has_include
#if __has_include(<rdma/rdma_cma.h>)
#include <rdma/rdma_cma.h>
#endif
#if __has_include(<rdma/ib_user_verbs.h>)
#include <rdma/ib_user_verbs.h>
#endif
#endif
#ifndef IB_DEVICE_NAME_MAX
#define IB_DEVICE_NAME_MAX 64
#endif

/** A global identifier of an RDMA port. */
struct doca_rdma_gid {
	uint8_t raw[DOCA_GID_BYTE_LENGTH]; /**< Bytes in network order. */
};

/** Handle of an instance on the DPA. */
typedef uint64_t doca_dpa_dev_rdma_t;
