/* An RDMA instance. */
#ifndef RDMA_H
#define RDMA_H

#include "world.h"

#include <doca_rdma.h>

static inline struct doca_rdma *rdma_create(struct world *world)
{
	struct doca_rdma *rdma = NULL;

	OK(doca_rdma_create(world->dev, &rdma));
	CHECK(rdma != NULL);
	OK(doca_rdma_set_permissions(rdma, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ |
						   DOCA_ACCESS_FLAG_RDMA_WRITE | DOCA_ACCESS_FLAG_RDMA_ATOMIC));
	return rdma;
}

#endif
