/** Sync events as the DPA and GPUs know them. */
typedef uint64_t doca_dpa_dev_sync_event_t;
typedef uint64_t doca_dpa_dev_sync_event_remote_net_t;
typedef uint64_t doca_gpu_dev_sync_event_t;
typedef uint64_t doca_gpu_dev_sync_event_remote_net_t;

/* Named, and used by no function. */
struct doca_dpa_sync_event;
struct doca_gpu_sync_event;
