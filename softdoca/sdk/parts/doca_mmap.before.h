/** A memory map as the DPA knows it. */
typedef uint32_t doca_dpa_dev_mmap_t;
