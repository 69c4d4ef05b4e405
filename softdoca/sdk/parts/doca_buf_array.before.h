/** Handle of an array on the DPA. */
typedef uint64_t doca_dpa_dev_buf_arr_t;
