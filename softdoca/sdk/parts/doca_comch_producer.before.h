/** Handle of a producer on the DPA. */
typedef uint64_t doca_dpa_dev_comch_producer_t;
