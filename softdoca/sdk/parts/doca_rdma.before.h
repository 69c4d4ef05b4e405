/** A global identifier of an RDMA port. */
struct doca_rdma_gid {
	uint8_t raw[DOCA_GID_BYTE_LENGTH]; /**< Bytes in network order. */
};
