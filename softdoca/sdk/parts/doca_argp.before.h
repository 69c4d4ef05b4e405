struct doca_dev;
struct doca_dev_rep;

/** A device that a user named: what DOCA_ARGP_TYPE_DEVICE hands to a callback. */
struct doca_argp_device_ctx {
	struct doca_dev *dev; /**< Opened; the program closes it. */
	const char *devargs;  /**< What followed the name behind a comma, or NULL; until doca_argp_destroy. */
};

/** A representor that a user named: what DOCA_ARGP_TYPE_DEVICE_REP hands to a callback. */
struct doca_argp_device_rep_ctx {
	struct doca_argp_device_ctx dev_ctx; /**< Its device. */
	struct doca_dev_rep *dev_rep;	     /**< Opened; the program closes it. */
};
