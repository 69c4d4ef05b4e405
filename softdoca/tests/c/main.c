/* Starts the tests of a program; see test.h. */
#define _GNU_SOURCE
#include "test.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time limit of a test: longer than any test takes, also under valgrind on a busy machine. */
#define SECONDS_PER_TEST 120

static struct {
	const char *name;
	const char *functions;
	test_function run;
} tests[256];

static size_t count;

/* Bounds of the section that DOCUMENTED fills, made by the linker; NULL in a program without any. */
extern const char *const __start_documented[] __attribute__((weak));
extern const char *const __stop_documented[] __attribute__((weak));

void test_register(const char *name, const char *functions, test_function run)
{
	if (count == sizeof(tests) / sizeof(tests[0])) {
		fprintf(stderr, "too many tests\n");
		exit(EXIT_FAILURE);
	}
	tests[count].name = name;
	tests[count].functions = functions;
	tests[count++].run = run;
}

/* Writes "return number" over the beginning of a function. */
static void break_function(const char *name, unsigned int number)
{
#if defined(__x86_64__)
	uint8_t code[] = {0xb8, (uint8_t)number, 0, 0, 0, 0xc3};
#elif defined(__aarch64__)
	uint32_t code[] = {0x52800000u | (number & 0xff) << 5, 0xd65f03c0u};
#else
#error "how does a function of this machine return a number?"
#endif
	void *function = dlsym(RTLD_DEFAULT, name);
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)function & ~(page - 1);

	if (function == NULL) {
		fprintf(stderr, "there is no function %s\n", name);
		exit(EXIT_FAILURE);
	}
	/* The code may lie across two pages. */
	if (mprotect((void *)start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
		perror("mprotect");
		exit(EXIT_FAILURE);
	}
	memcpy(function, code, sizeof(code));
	__builtin___clear_cache((char *)function, (char *)function + sizeof(code));
}

/* Runs every test in a child of its own, so that a tool with a slow start is started once. */
static int run_each(void)
{
	int result = EXIT_SUCCESS;

	for (size_t i = 0; i < count; i++) {
		int status;
		pid_t child;

		/* Otherwise both processes would write the buffered output. */
		fflush(NULL);
		child = fork();
		if (child == 0) {
			alarm(SECONDS_PER_TEST);
			tests[i].run();
			exit(EXIT_SUCCESS);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
			fprintf(stderr, "%s failed\n", tests[i].name);
			result = EXIT_FAILURE;
		}
	}
	return result;
}

int main(int argc, char **argv)
{
	char *broken = getenv("SOFTDOCA_BREAK");

	if (argc != 2) {
		fprintf(stderr, "usage: %s --list | --each | --documented | TEST\n", argv[0]);
		return EXIT_FAILURE;
	}
	if (strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < count; i++)
			printf("%s: %s\n", tests[i].name, tests[i].functions);
		return EXIT_SUCCESS;
	}
	if (strcmp(argv[1], "--each") == 0)
		return run_each();
	if (strcmp(argv[1], "--documented") == 0) {
		for (const char *const *entry = __start_documented; entry < __stop_documented; entry++)
			printf("%s\n", *entry);
		return EXIT_SUCCESS;
	}
	alarm(SECONDS_PER_TEST);
	if (broken != NULL) {
		char *number = strchr(broken, '=');

		if (number == NULL)
			return EXIT_FAILURE;
		*number = '\0';
		/* Reached only if the wait has timed out. */
		alarm(2);
		break_function(broken, (unsigned int)strtoul(number + 1, NULL, 10));
	}
	for (size_t i = 0; i < count; i++) {
		if (strcmp(tests[i].name, argv[1]) == 0) {
			tests[i].run();
			return EXIT_SUCCESS;
		}
	}
	fprintf(stderr, "there is no test %s\n", argv[1]);
	return EXIT_FAILURE;
}
