/* An RDMA instance, and what tests of two connected ones share. */
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

/* Submits a send, and waits until it and the receive have completed. */
static inline void deliver(struct world *world, struct doca_task *task)
{
	unsigned int before = world->completed;

	OK(doca_task_submit(task));
	while (world->completed + world->failed < before + 2)
		(void)doca_pe_progress(world->pe);
	CHECK(world->failed == 0);
}

/* The 8 bytes at offset. */
static inline uint64_t word(const struct world *world, size_t offset)
{
	uint64_t value;

	memcpy(&value, world->memory + offset, sizeof(value));
	return value;
}

#endif
