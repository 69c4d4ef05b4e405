struct doca_dev;
struct doca_dev_rep;

/** A device that a user named on the command line. */
struct doca_argp_device_ctx {
	struct doca_dev *dev; /**< Opened; to be closed by the program. */
	const char *devargs;  /**< Device arguments after the first comma, or NULL; valid until the parser is destroyed. */
};

/** A representor that a user named on the command line. */
struct doca_argp_device_rep_ctx {
	struct doca_argp_device_ctx dev_ctx; /**< Its device. */
	struct doca_dev_rep *dev_rep;        /**< Opened; to be closed by the program. */
};
