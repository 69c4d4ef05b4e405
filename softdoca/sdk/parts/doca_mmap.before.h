/** Handle of a memory map on the DPA. */
typedef uint32_t doca_dpa_dev_mmap_t;
