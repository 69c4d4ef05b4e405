/** Handles of sync events on the DPA and on GPUs. */
typedef uint64_t doca_dpa_dev_sync_event_t;
typedef uint64_t doca_dpa_dev_sync_event_remote_net_t;
typedef uint64_t doca_gpu_dev_sync_event_t;
typedef uint64_t doca_gpu_dev_sync_event_remote_net_t;

/* Declared, but used by no function. */
struct doca_dpa_sync_event;
struct doca_gpu_sync_event;
