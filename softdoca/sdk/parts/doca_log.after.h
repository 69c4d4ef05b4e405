/**
 * Logs a message; use the macros below.
 *
 * format and the arguments are those of printf.
 */
DOCA_EXPERIMENTAL doca_error_t doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
					const char *format, ...) __attribute__((format(printf, 6, 7)));

/**
 * Sets the name of the source of a file's messages; once in each file that logs, outside of functions.
 *
 * The source is registered before other constructors run, so that they can log.
 */
#define DOCA_LOG_REGISTER(source)                                                                                      \
	static int log_source;                                                                                         \
	static void __attribute__((destructor(101), used)) doca_log_source_unregister(void)                            \
	{                                                                                                              \
		(void)doca_log_unregister_source(log_source);                                                          \
	}                                                                                                              \
	static void __attribute__((constructor(101), used)) doca_log_source_register(void)                             \
	{                                                                                                              \
		(void)doca_log_register_source(#source, &log_source);                                                  \
	}

/** Logs a message of a level: a format of printf and its arguments. */
#define DOCA_LOG(level, ...) doca_log(level, log_source, __FILE__, __LINE__, __func__, __VA_ARGS__)

/** The program cannot continue. */
#define DOCA_LOG_CRIT(...) DOCA_LOG(DOCA_LOG_LEVEL_CRIT, __VA_ARGS__)
/** An operation failed. */
#define DOCA_LOG_ERR(...) DOCA_LOG(DOCA_LOG_LEVEL_ERROR, __VA_ARGS__)
/** An unexpected condition that was handled. */
#define DOCA_LOG_WARN(...) DOCA_LOG(DOCA_LOG_LEVEL_WARNING, __VA_ARGS__)
/** Information for users. */
#define DOCA_LOG_INFO(...) DOCA_LOG(DOCA_LOG_LEVEL_INFO, __VA_ARGS__)
/** Information for developers. */
#define DOCA_LOG_DBG(...) DOCA_LOG(DOCA_LOG_LEVEL_DEBUG, __VA_ARGS__)

/** Data-path detail; compiled only with DOCA_LOGGING_ALLOW_TRACE, but always checked by the compiler. */
#ifdef DOCA_LOGGING_ALLOW_TRACE
#define DOCA_LOG_TRC(...) DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__)
#else
#define DOCA_LOG_TRC(...)                                                                                              \
	do {                                                                                                           \
		if (0)                                                                                                 \
			DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__);                                                   \
	} while (0)
#endif
