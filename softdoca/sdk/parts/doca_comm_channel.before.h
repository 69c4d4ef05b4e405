/* A file descriptor of an endpoint, for epoll and poll. */
typedef doca_event_handle_t doca_event_channel_t;
