/* Command lines. */
#define _GNU_SOURCE
#include "test.h"

#include <doca_argp.h>
#include <doca_dev.h>
#include <doca_log.h>

#include <fcntl.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

struct config {
	int number;
	bool flag;
	char text[64];
	unsigned int texts;
	unsigned int validated;
	unsigned int commands;
};

static doca_error_t take_number(void *value, void *config)
{
	((struct config *)config)->number = *(int *)value;
	return DOCA_SUCCESS;
}

static doca_error_t take_flag(void *value, void *config)
{
	((struct config *)config)->flag = *(bool *)value;
	return DOCA_SUCCESS;
}

static doca_error_t take_text(void *value, void *config)
{
	struct config *own = config;

	own->texts++;
	snprintf(own->text, sizeof(own->text), "%s", (const char *)value);
	return DOCA_SUCCESS;
}

static struct doca_argp_param *param(const char *short_name, const char *long_name, enum doca_argp_type type,
				     doca_argp_param_cb_t callback)
{
	struct doca_argp_param *param = NULL;

	OK(doca_argp_param_create(&param));
	CHECK(param != NULL);
	if (short_name != NULL)
		doca_argp_param_set_short_name(param, short_name);
	doca_argp_param_set_long_name(param, long_name);
	doca_argp_param_set_description(param, "What it is for");
	doca_argp_param_set_callback(param, callback);
	doca_argp_param_set_type(param, type);
	return param;
}

/* doca_argp_start with the arguments. */
#define START(...)                                                                                                     \
	doca_argp_start((int)(sizeof((char *[]){"test", __VA_ARGS__}) / sizeof(char *)), (char *[]){"test", __VA_ARGS__})

/* Output of a function to stdout and stderr before it returns or exits the process. */
static const char *printed(void (*function)(void), int *status)
{
	static char text[65536];
	size_t length = 0;
	ssize_t count;
	int ends[2];
	pid_t child;

	CHECK(pipe(ends) == 0);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(ends[1], STDOUT_FILENO) >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
		close(ends[0]);
		function();
		exit(99);
	}
	close(ends[1]);
	while ((count = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)count;
	text[length] = '\0';
	close(ends[0]);
	CHECK(waitpid(child, status, 0) == child);
	return text;
}

TEST(parameters_are_parsed, doca_argp_init, doca_argp_start, doca_argp_destroy, doca_argp_register_param,
     doca_argp_param_create, doca_argp_param_set_short_name, doca_argp_param_set_long_name, doca_argp_param_set_callback,
     doca_argp_param_set_type)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	OK(doca_argp_register_param(param("ft", "flag", DOCA_ARGP_TYPE_BOOLEAN, take_flag)));
	OK(doca_argp_register_param(param("t", "text", DOCA_ARGP_TYPE_STRING, take_text)));
	OK(START("-n", "-42", "-ft", "--text", "some words"));
	CHECK(config.number == -42 && config.flag && strcmp(config.text, "some words") == 0);
	OK(doca_argp_destroy());
	/* The parser was destroyed. */
	CHECK(doca_argp_destroy() != DOCA_SUCCESS);
	/* A value that is not a number. */
	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	CHECK(START("-n", "many") != DOCA_SUCCESS);
	OK(doca_argp_destroy());
}

TEST(mandatory_parameters_must_be_there, doca_argp_param_set_mandatory)
{
	struct config config = {0};
	struct doca_argp_param *number;

	OK(doca_argp_init("test", &config));
	number = param("n", "number", DOCA_ARGP_TYPE_INT, take_number);
	doca_argp_param_set_mandatory(number);
	OK(doca_argp_register_param(number));
	CHECK(START("-l", "50") != DOCA_SUCCESS);
	OK(doca_argp_destroy());
}

TEST(parameters_are_repeated_when_they_may, doca_argp_param_set_multiplicity)
{
	struct config config = {0};
	struct doca_argp_param *text;

	OK(doca_argp_init("test", &config));
	text = param("t", "text", DOCA_ARGP_TYPE_STRING, take_text);
	doca_argp_param_set_multiplicity(text);
	OK(doca_argp_register_param(text));
	OK(START("-t", "one", "-t", "two"));
	CHECK(config.texts == 2 && strcmp(config.text, "two") == 0);
	OK(doca_argp_destroy());
}

TEST(singular_parameters_are_alone, doca_argp_param_set_singular)
{
	struct config config = {0};
	struct doca_argp_param *text;

	OK(doca_argp_init("test", &config));
	text = param("t", "text", DOCA_ARGP_TYPE_STRING, take_text);
	doca_argp_param_set_singular(text);
	OK(doca_argp_register_param(text));
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	CHECK(START("-t", "one", "-n", "1") != DOCA_SUCCESS);
	OK(doca_argp_destroy());
}

/* A JSON file with a program's flags; its name. */
static char *json_file(const char *flags)
{
	static char path[64];
	FILE *file;

	strcpy(path, "/tmp/softdoca-argp-XXXXXX");
	file = fdopen(mkstemp(path), "w");
	CHECK(file != NULL);
	CHECK(fprintf(file, "{\n\t// A comment\n\t\"doca_program_flags\": { %s }\n}\n", flags) > 0);
	CHECK(fclose(file) == 0);
	return path;
}

TEST(json_files_are_read, doca_argp_param_set_cli_only)
{
	struct config config = {0};
	struct doca_argp_param *text;
	char *path = json_file("\"number\": 7, \"text\": \"from the file\"");

	OK(doca_argp_init("test", &config));
	text = param("t", "text", DOCA_ARGP_TYPE_STRING, take_text);
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	OK(doca_argp_register_param(text));
	OK(START("-j", path));
	CHECK(config.number == 7 && strcmp(config.text, "from the file") == 0);
	OK(doca_argp_destroy());

	OK(doca_argp_init("test", &config));
	text = param("t", "text", DOCA_ARGP_TYPE_STRING, take_text);
	doca_argp_param_set_cli_only(text);
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	OK(doca_argp_register_param(text));
	config.texts = 0;
	CHECK(START("-j", path) != DOCA_SUCCESS || config.texts == 0);
	OK(doca_argp_destroy());
	CHECK(unlink(path) == 0);
}

TEST(json_files_have_arrays_and_general_flags, doca_argp_param_set_multiplicity, doca_argp_get_log_level)
{
	struct config config = {0};
	struct doca_argp_param *text;
	char path[] = "/tmp/softdoca-argp-XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");
	int level = 0;

	CHECK(file != NULL);
	CHECK(fputs("{ // The layout of DOCA's own files.\n"
		    "\"doca_general_flags\": { \"log-level\": 60 },\n"
		    "\"doca_program_flags\": { \"text\": [\"one\", \"two\", \"three\"] } }\n",
		    file) >= 0);
	CHECK(fclose(file) == 0);
	OK(doca_argp_init("test", &config));
	text = param("t", "text", DOCA_ARGP_TYPE_STRING, take_text);
	doca_argp_param_set_multiplicity(text);
	OK(doca_argp_register_param(text));
	OK(START("--json", path));
	CHECK(config.texts == 3 && strcmp(config.text, "three") == 0);
	OK(doca_argp_get_log_level(&level));
	CHECK(level == 60);
	OK(doca_argp_destroy());
	CHECK(unlink(path) == 0);
}

static void print_usage(void)
{
	struct config config = {0};
	struct doca_argp_param *shown, *hidden;

	OK(doca_argp_init("test", &config));
	shown = param("s", "shown", DOCA_ARGP_TYPE_STRING, take_text);
	hidden = param("hi", "secret", DOCA_ARGP_TYPE_STRING, take_text);
	doca_argp_param_set_arguments(shown, "<the-argument>");
	doca_argp_param_set_description(shown, "A description of it");
	doca_argp_param_set_hidden(hidden);
	OK(doca_argp_register_param(shown));
	OK(doca_argp_register_param(hidden));
	doca_argp_usage();
}

TEST(usage_shows_the_parameters, doca_argp_usage, doca_argp_param_set_arguments, doca_argp_param_set_description,
     doca_argp_param_set_hidden)
{
	int status;
	const char *text = printed(print_usage, &status);

	CHECK(strstr(text, "Usage: test") != NULL && strstr(text, "--shown") != NULL);
	CHECK(strstr(text, "<the-argument>") != NULL && strstr(text, "A description of it") != NULL);
	CHECK(strstr(text, "--secret") == NULL);
}

static doca_error_t print_version(void *param, void *config)
{
	(void)param;
	(void)config;
	printf("version of the test\n");
	return DOCA_SUCCESS;
}

static void ask_for_version(void)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_version_callback(print_version));
	(void)START("--version");
}

TEST(programs_print_their_version, doca_argp_register_version_callback)
{
	int status;

	CHECK(strstr(printed(ask_for_version, &status), "version of the test") != NULL);
}

static doca_error_t validate(void *config)
{
	((struct config *)config)->validated++;
	return DOCA_ERROR_TOO_BIG;
}

TEST(programs_validate, doca_argp_register_validation_callback)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_validation_callback(validate));
	CHECK(START("-l", "50") != DOCA_SUCCESS);
	CHECK(config.validated == 1);
	OK(doca_argp_destroy());
}

TEST(log_levels_are_known, doca_argp_get_log_level, doca_argp_get_sdk_log_level)
{
	struct config config = {0};
	int program = 0, sdk = 0;

	OK(doca_argp_init("test", &config));
	OK(START("-l", "60", "--sdk-log-level", "20"));
	OK(doca_argp_get_log_level(&program));
	OK(doca_argp_get_sdk_log_level(&sdk));
	CHECK(program == 60 && sdk == 20);
	OK(doca_argp_destroy());
}

static char said[4096];

static doca_error_t say(enum doca_log_level level, const char *format, va_list arguments)
{
	size_t length = strlen(said);

	(void)level;
	vsnprintf(said + length, sizeof(said) - length, format, arguments);
	return DOCA_SUCCESS;
}

TEST(programs_print_errors_themselves, doca_argp_register_logger_callback, doca_argp_disable_logger_callback)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_logger_callback(say));
	CHECK(START("--unheard-of") != DOCA_SUCCESS);
	CHECK(strstr(said, "unheard-of") != NULL);
	said[0] = '\0';
	OK(doca_argp_disable_logger_callback());
	CHECK(START("--unheard-of") != DOCA_SUCCESS);
	CHECK(said[0] == '\0');
	OK(doca_argp_destroy());
}

static struct {
	unsigned int opened;
	void *context;
	struct doca_dev *dev;
	double ratio;
} taken;

static doca_error_t open_device(struct doca_devinfo *devinfo, void *context, struct doca_dev **dev)
{
	taken.opened++;
	taken.context = context;
	return doca_dev_open(devinfo, dev);
}

static doca_error_t refuse_device(struct doca_devinfo *devinfo, void *context, struct doca_dev **dev)
{
	(void)devinfo;
	(void)context;
	(void)dev;
	return DOCA_ERROR_DRIVER;
}

static doca_error_t take_device(void *value, void *config)
{
	(void)config;
	taken.dev = ((struct doca_argp_device_ctx *)value)->dev;
	return DOCA_SUCCESS;
}

TEST(programs_open_devices_themselves, doca_argp_register_dev_open_callback)
{
	struct config config = {0};
	uint8_t equal = 0;

	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_dev_open_callback(open_device, &config));
	REFUSED(doca_argp_register_dev_open_callback(NULL, &config));
	OK(doca_argp_register_param(param("d", "device", DOCA_ARGP_TYPE_DEVICE, take_device)));
	OK(START("-d", "mlx5_0"));
	CHECK(taken.opened == 1 && taken.context == &config && taken.dev != NULL);
	OK(doca_devinfo_is_equal_pci_addr(doca_dev_as_devinfo(taken.dev), "0000:03:00.0", &equal));
	CHECK(equal == 1);
	OK(doca_dev_close(taken.dev));
	OK(doca_argp_destroy());
	/* The return value of the callback is returned. */
	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_dev_open_callback(refuse_device, NULL));
	OK(doca_argp_register_param(param("d", "device", DOCA_ARGP_TYPE_DEVICE, take_device)));
	RETURNS(DOCA_ERROR_DRIVER, START("-d", "mlx5_0"));
	OK(doca_argp_destroy());
	RETURNS(DOCA_ERROR_BAD_STATE, doca_argp_register_dev_open_callback(open_device, NULL));
}

static doca_error_t take_ratio(void *value, void *config)
{
	(void)config;
	taken.ratio = *(double *)value;
	return DOCA_SUCCESS;
}

TEST(unknown_keys_are_ignored, doca_argp_disable_pedantic_config_parsing)
{
	struct config config = {0};
	char path[] = "/tmp/softdoca-argp-XXXXXX";
	static const char text[] = "{\"doca_program_flags\": {\"unknown\": 1, \"ratio\": 2.5}}";
	int file = mkstemp(path);

	CHECK(file >= 0 && write(file, text, sizeof(text) - 1) == sizeof(text) - 1);
	OK(doca_argp_init("test", &config));
	OK(doca_argp_register_param(param("r", "ratio", DOCA_ARGP_TYPE_DOUBLE, take_ratio)));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, START("-j", path));
	OK(doca_argp_disable_pedantic_config_parsing());
	OK(START("-j", path));
	CHECK(taken.ratio == 2.5);
	OK(START("-r", "-0.125"));
	CHECK(taken.ratio == -0.125);
	OK(doca_argp_destroy());
	RETURNS(DOCA_ERROR_BAD_STATE, doca_argp_disable_pedantic_config_parsing());
	close(file);
	CHECK(unlink(path) == 0);
}

/* Types of parameters had other numbers. */
TEST(types_are_those_of_the_release, doca_argp_param_set_type)
{
	struct config config = {0};
	struct doca_argp_param *object, *device;

	CHECK(setenv("SOFTDOCA_API", "3.0", 1) == 0);
	OK(doca_argp_init("test", &config));
	object = param("o", "object", (enum doca_argp_type)4, take_text);
	OK(doca_argp_register_param(object));
	/* There is no 5: the parameter has no type. */
	device = param("d", "device", (enum doca_argp_type)5, take_text);
	RETURNS(DOCA_ERROR_INITIALIZATION, doca_argp_register_param(device));
	OK(doca_argp_destroy());
}

static int dpdk_arguments;

static doca_error_t take_dpdk(int argc, char **argv)
{
	(void)argv;
	dpdk_arguments = argc;
	return DOCA_SUCCESS;
}

TEST(dpdk_gets_its_arguments, doca_argp_set_dpdk_program)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	doca_argp_set_dpdk_program(take_dpdk);
	OK(doca_argp_register_param(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	OK(START("-c", "3", "--", "-n", "5"));
	CHECK(dpdk_arguments >= 3 && config.number == 5);
	OK(doca_argp_destroy());
}

TEST(parameters_are_destroyed, doca_argp_param_destroy)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_param_destroy(param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	REFUSED(doca_argp_param_destroy(NULL));
	OK(doca_argp_destroy());
}

static doca_error_t run_command(void *config)
{
	((struct config *)config)->commands++;
	return DOCA_SUCCESS;
}

static struct doca_argp_cmd *command(const char *name)
{
	struct doca_argp_cmd *cmd = NULL;

	OK(doca_argp_cmd_create(&cmd));
	CHECK(cmd != NULL);
	doca_argp_cmd_set_name(cmd, name);
	doca_argp_cmd_set_description(cmd, "Does something");
	doca_argp_cmd_set_callback(cmd, run_command);
	return cmd;
}

TEST(commands_are_found, doca_argp_register_cmd, doca_argp_cmd_create, doca_argp_cmd_set_name, doca_argp_cmd_set_callback,
     doca_argp_cmd_register_cmd, doca_argp_cmd_register_param)
{
	struct config config = {0};
	struct doca_argp_cmd *outer, *inner;

	OK(doca_argp_init("test", &config));
	outer = command("outer");
	inner = command("inner");
	OK(doca_argp_cmd_register_param(inner, param("n", "number", DOCA_ARGP_TYPE_INT, take_number)));
	OK(doca_argp_cmd_register_cmd(outer, inner));
	OK(doca_argp_register_cmd(outer));
	OK(START("outer", "inner", "-n", "9"));
	CHECK(config.number == 9 && config.commands >= 1);
	OK(doca_argp_destroy());
}

TEST(commands_inherit_parameters, doca_argp_param_set_inherited)
{
	struct config config = {0};
	struct doca_argp_param *number;

	OK(doca_argp_init("test", &config));
	number = param("n", "number", DOCA_ARGP_TYPE_INT, take_number);
	doca_argp_param_set_inherited(number);
	OK(doca_argp_register_param(number));
	OK(doca_argp_register_cmd(command("command")));
	OK(START("command", "-n", "9"));
	CHECK(config.number == 9);
	OK(doca_argp_destroy());
}

static void print_commands(void)
{
	struct config config = {0};
	struct doca_argp_cmd *shown, *hidden;

	OK(doca_argp_init("test", &config));
	shown = command("shown");
	hidden = command("secret");
	doca_argp_cmd_set_description(shown, "A description of the command");
	doca_argp_cmd_set_hidden(hidden);
	OK(doca_argp_register_cmd(shown));
	OK(doca_argp_register_cmd(hidden));
	doca_argp_usage();
}

TEST(usage_shows_the_commands, doca_argp_cmd_set_description, doca_argp_cmd_set_hidden)
{
	int status;
	const char *text = printed(print_commands, &status);

	CHECK(strstr(text, "shown") != NULL && strstr(text, "A description of the command") != NULL);
	CHECK(strstr(text, "secret") == NULL);
}

TEST(commands_are_destroyed, doca_argp_cmd_destroy)
{
	struct config config = {0};

	OK(doca_argp_init("test", &config));
	OK(doca_argp_cmd_destroy(command("command")));
	REFUSED(doca_argp_cmd_destroy(NULL));
	OK(doca_argp_destroy());
}
