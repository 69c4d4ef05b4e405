/*
 * The one variadic function of the API: formats the message and passes the text to the engine.
 *
 * Hidden: lib.rs exports it, because rustc exports only symbols defined in Rust.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint32_t doca_error_t;

/* In softdoca, capi/doca_log.rs. */
doca_error_t softdoca_log_formatted(uint32_t level, int source, const char *file, int line, const char *function,
				    const char *message);

__attribute__((visibility("hidden"), format(printf, 6, 7))) doca_error_t
softdoca_log_variadic(uint32_t level, int source, const char *file, int line, const char *function, const char *format,
		      ...)
{
	/* Most messages fit; a longer one costs an allocation and a second pass. */
	char buffer[512];
	char *message = buffer;
	va_list arguments;

	if (format == NULL)
		return softdoca_log_formatted(level, source, file, line, function, NULL);

	va_start(arguments, format);
	int length = vsnprintf(buffer, sizeof(buffer), format, arguments);
	va_end(arguments);

	if (length < 0) {
		/* An argument that its conversion cannot print: the format alone is better than no message. */
		return softdoca_log_formatted(level, source, file, line, function, format);
	}
	if ((size_t)length >= sizeof(buffer)) {
		char *whole = malloc((size_t)length + 1);
		/* Without memory the message is truncated. */
		if (whole != NULL) {
			va_start(arguments, format);
			vsnprintf(whole, (size_t)length + 1, format, arguments);
			va_end(arguments);
			message = whole;
		}
	}
	doca_error_t result = softdoca_log_formatted(level, source, file, line, function, message);
	if (message != buffer)
		free(message);
	return result;
}
