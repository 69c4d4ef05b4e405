/** A producer as the DPA knows it. */
typedef uint64_t doca_dpa_dev_comch_producer_t;
