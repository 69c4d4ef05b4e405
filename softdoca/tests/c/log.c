/* Logs. */
#define _GNU_SOURCE
#include "world.h"

#include <doca_log.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

DOCA_LOG_REGISTER(TEST::LOG)

/* A file, and what has been written to it. Back ends are never destroyed, so the file stays open until exit. */
struct sink {
	struct sink *earlier;
	FILE *file;
	char text[65536];
};

static struct sink *sinks;

static struct sink *sink_create(void)
{
	struct sink *sink = calloc(1, sizeof(*sink));

	CHECK(sink != NULL);
	sink->earlier = sinks;
	sinks = sink;
	sink->file = tmpfile();
	CHECK(sink->file != NULL);
	return sink;
}

static bool sink_has(struct sink *sink, const char *text)
{
	ssize_t length = pread(fileno(sink->file), sink->text, sizeof(sink->text) - 1, 0);

	CHECK(length >= 0);
	sink->text[length] = '\0';
	return strstr(sink->text, text) != NULL;
}

/* Makes the SDK log: an error, and further messages at the lowest level. */
static void provoke(void)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	CHECK(doca_mmap_start(mmap) != DOCA_SUCCESS);
	OK(doca_mmap_destroy(mmap));
}

TEST(programs_log, doca_log, doca_log_backend_create_with_file, doca_log_register_source, doca_log_unregister_source)
{
	struct sink *sink = sink_create();
	struct doca_log_backend *backend = NULL;
	char longest[2000];
	int source = -1, other = -1;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	OK(doca_log_backend_create_with_file(sink->file, &backend));
	CHECK(backend != NULL);
	DOCA_LOG_ERR("%s %d %.1f %c", "words", -42, 1.5, 'z');
	CHECK(sink_has(sink, "words -42 1.5 z") && sink_has(sink, "log.c") && sink_has(sink, "ERR"));
	DOCA_LOG_WARN("%s!", longest);
	CHECK(sink_has(sink, longest) && sink_has(sink, "x!"));
	OK(doca_log_register_source("A::B", &source));
	OK(doca_log_register_source("A::C", &other));
	CHECK(source != other);
	OK(doca_log_unregister_source(source));
	CHECK(doca_log_unregister_source(source) != DOCA_SUCCESS);
	REFUSED(doca_log(DOCA_LOG_LEVEL_ERROR, log_source, __FILE__, __LINE__, __func__, NULL));
}

TEST(loggers_have_levels, doca_logger_create_list, doca_logger_destroy_list, doca_logger_set_level, doca_logger_get_level,
     doca_logger_get_name, doca_logger_find_by_name, doca_log_get_max_num_backends_sdk)
{
	struct sink *sink = sink_create();
	struct doca_log_backend *backend;
	struct doca_logger **list = NULL, *test, *log;
	char name[DOCA_LOGGER_NAME_SIZE];
	uint32_t count = 0, inner = 0;
	int level = 0;

	CHECK(doca_log_get_max_num_backends_sdk() >= 100);
	OK(doca_log_backend_create_with_file(sink->file, &backend));
	OK(doca_logger_create_list(NULL, 0, &list, &count));
	CHECK(count >= 2 && list[count] == NULL);
	/* DOCA_LOG_REGISTER(TEST::LOG) makes two. */
	test = doca_logger_find_by_name(list, "TEST");
	log = doca_logger_find_by_name(list, "TEST::LOG");
	CHECK(test != NULL && log != NULL && test != log && doca_logger_find_by_name(list, "LOG") == NULL);
	OK(doca_logger_destroy_list(list));
	OK(doca_logger_create_list(test, 1, &list, &inner));
	CHECK(inner == 1 && list[0] == log);
	OK(doca_logger_get_name(list[0], name));
	CHECK(strcmp(name, "TEST::LOG") == 0);
	OK(doca_logger_destroy_list(list));
	OK(doca_logger_get_level(log, &level));
	CHECK(level == DOCA_LOG_LEVEL_TRACE);
	/* A level above, without and with those below. */
	OK(doca_logger_set_level(test, DOCA_LOG_LEVEL_ERROR, 0));
	DOCA_LOG_WARN("one");
	CHECK(sink_has(sink, "one"));
	OK(doca_logger_set_level(test, DOCA_LOG_LEVEL_ERROR, 1));
	DOCA_LOG_WARN("two");
	DOCA_LOG_ERR("three");
	CHECK(!sink_has(sink, "two") && sink_has(sink, "three"));
	OK(doca_logger_get_level(log, &level));
	CHECK(level == DOCA_LOG_LEVEL_ERROR);
	OK(doca_logger_set_level(NULL, DOCA_LOG_LEVEL_TRACE, 1));
	DOCA_LOG_WARN("four");
	CHECK(sink_has(sink, "four"));
	REFUSED(doca_logger_set_level(NULL, DOCA_LOG_LEVEL_TRACE, 0));
	REFUSED(doca_logger_set_level(test, 55, 0));
	REFUSED(doca_logger_get_level(NULL, &level));
	REFUSED(doca_logger_get_name(NULL, name));
	REFUSED(doca_logger_create_list(NULL, 0, NULL, &count));
	REFUSED(doca_logger_destroy_list(NULL));
	RETURNS(DOCA_ERROR_NOT_FOUND, doca_logger_get_level((struct doca_logger *)sink, &level));
	RETURNS(DOCA_ERROR_NOT_FOUND, doca_logger_create_list((struct doca_logger *)sink, 0, &list, &count));
}

TEST(log_levels_have_limits, doca_log_backend_set_level_lower_limit, doca_log_backend_set_level_upper_limit,
     doca_log_level_set_global_lower_limit, doca_log_level_set_global_upper_limit, doca_log_level_get_global_lower_limit,
     doca_log_level_get_global_upper_limit)
{
	struct sink *sink = sink_create();
	struct doca_log_backend *backend;

	CHECK(doca_log_level_get_global_lower_limit() == DOCA_LOG_LEVEL_INFO);
	CHECK(doca_log_level_get_global_upper_limit() == DOCA_LOG_LEVEL_CRIT);
	OK(doca_log_backend_create_with_file(sink->file, &backend));
	DOCA_LOG_DBG("one");
	CHECK(!sink_has(sink, "one"));
	OK(doca_log_backend_set_level_lower_limit(backend, DOCA_LOG_LEVEL_DEBUG));
	DOCA_LOG_DBG("two");
	CHECK(sink_has(sink, "two"));
	OK(doca_log_backend_set_level_upper_limit(backend, DOCA_LOG_LEVEL_WARNING));
	DOCA_LOG_CRIT("three");
	DOCA_LOG_WARN("four");
	CHECK(!sink_has(sink, "three") && sink_has(sink, "four"));
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_WARNING));
	CHECK(doca_log_level_get_global_lower_limit() == DOCA_LOG_LEVEL_WARNING);
	DOCA_LOG_INFO("five");
	CHECK(!sink_has(sink, "five"));
	OK(doca_log_level_set_global_upper_limit(DOCA_LOG_LEVEL_ERROR));
	CHECK(doca_log_level_get_global_upper_limit() == DOCA_LOG_LEVEL_ERROR);
	DOCA_LOG_ERR("six");
	DOCA_LOG_CRIT("seven");
	CHECK(sink_has(sink, "six") && !sink_has(sink, "seven"));
}

TEST(strict_limits_stay, doca_log_backend_set_level_lower_limit_strict, doca_log_backend_set_level_upper_limit_strict)
{
	struct sink *sink = sink_create();
	struct doca_log_backend *backend;

	OK(doca_log_backend_create_with_file(sink->file, &backend));
	OK(doca_log_backend_set_level_upper_limit(backend, DOCA_LOG_LEVEL_ERROR));
	OK(doca_log_backend_set_level_lower_limit_strict(backend));
	OK(doca_log_backend_set_level_upper_limit_strict(backend));
	(void)doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_DEBUG);
	(void)doca_log_level_set_global_upper_limit(DOCA_LOG_LEVEL_CRIT);
	DOCA_LOG_DBG("below");
	DOCA_LOG_CRIT("above");
	DOCA_LOG_ERR("between");
	CHECK(!sink_has(sink, "below") && !sink_has(sink, "above") && sink_has(sink, "between"));
}

static unsigned int flushed;

static void flush(char *buffer)
{
	CHECK(strstr(buffer, "flush") != NULL || strstr(buffer, "mmap") != NULL);
	flushed++;
}

TEST(logs_go_to_buffers_and_descriptors, doca_log_backend_create_with_buf, doca_log_backend_create_with_fd)
{
	static char buffer[1000];
	struct sink *sink = sink_create();
	struct doca_log_backend *backend = NULL, *descriptor = NULL;

	OK(doca_log_backend_create_with_buf(buffer, sizeof(buffer), flush, &backend));
	OK(doca_log_backend_create_with_fd(fileno(sink->file), &descriptor));
	CHECK(backend != NULL && descriptor != NULL);
	DOCA_LOG_ERR("flush");
	CHECK(flushed == 1 && sink_has(sink, "flush"));
}

TEST(the_standard_back_end_is_the_terminal, doca_log_backend_create_standard)
{
	struct sink *out = sink_create(), *err = sink_create();
	int old_out = dup(STDOUT_FILENO), old_err = dup(STDERR_FILENO);

	OK(doca_log_backend_create_standard());
	CHECK(dup2(fileno(out->file), STDOUT_FILENO) >= 0 && dup2(fileno(err->file), STDERR_FILENO) >= 0);
	DOCA_LOG_INFO("good");
	DOCA_LOG_ERR("bad");
	fflush(NULL);
	CHECK(dup2(old_out, STDOUT_FILENO) >= 0 && dup2(old_err, STDERR_FILENO) >= 0);
	CHECK(sink_has(out, "good") && !sink_has(out, "bad"));
	CHECK(sink_has(err, "bad") && !sink_has(err, "good"));
}

TEST(the_sdk_logs_apart, doca_log_backend_create_with_file_sdk, doca_log_backend_create_with_fd_sdk,
     doca_log_backend_create_with_buf_sdk, doca_log_backend_set_sdk_level, doca_log_level_set_global_sdk_limit,
     doca_log_level_get_global_sdk_limit)
{
	static char buffer[1000];
	struct sink *file = sink_create(), *fd = sink_create(), *quiet = sink_create(), *global = sink_create();
	struct doca_log_backend *backend = NULL;

	OK(doca_log_backend_create_with_file_sdk(quiet->file, &backend));
	OK(doca_log_backend_set_sdk_level(backend, DOCA_LOG_LEVEL_DISABLE));
	OK(doca_log_backend_create_with_file_sdk(file->file, &backend));
	OK(doca_log_backend_create_with_fd_sdk(fileno(fd->file), &backend));
	OK(doca_log_backend_create_with_buf_sdk(buffer, sizeof(buffer), flush, &backend));
	provoke();
	DOCA_LOG_ERR("of the program");
	CHECK(sink_has(file, "mmap") && !sink_has(file, "of the program"));
	CHECK(sink_has(fd, "mmap"));
	CHECK(!sink_has(quiet, "mmap"));
	CHECK(flushed == 1);
	OK(doca_log_level_set_global_sdk_limit(DOCA_LOG_LEVEL_DISABLE));
	CHECK(doca_log_level_get_global_sdk_limit() == DOCA_LOG_LEVEL_DISABLE);
	OK(doca_log_backend_create_with_file_sdk(global->file, &backend));
	provoke();
	CHECK(!sink_has(global, "mmap") && flushed == 1);
}

TEST(logs_go_to_syslog, doca_log_backend_create_with_syslog, doca_log_backend_create_with_syslog_sdk)
{
	struct doca_log_backend *backend = NULL, *sdk = NULL;

	/* The messages of the system's daemon may not be readable, so only the success is checked. */
	OK(doca_log_backend_create_with_syslog("softdoca-test", &backend));
	OK(doca_log_backend_create_with_syslog_sdk("softdoca-test", &sdk));
	CHECK(backend != NULL && sdk != NULL);
	REFUSED(doca_log_backend_create_with_syslog(NULL, &backend));
}
