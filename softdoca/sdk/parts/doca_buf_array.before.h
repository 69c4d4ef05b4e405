/** An array as the DPA knows it. */
typedef uint64_t doca_dpa_dev_buf_arr_t;
