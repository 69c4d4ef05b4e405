/*
 * The tests of one program, each run in a process of its own.
 *
 *   program --list       prints each test's name and the functions that it covers
 *   program TEST         runs it; exit status 0, or the failure on stderr
 *   program --each       runs all, each in a child
 *   program --documented prints the functions with the documented errors that the tests provoke
 *
 * SOFTDOCA_BREAK=FUNCTION=NUMBER makes a function of the library only return the number, to verify that a test fails then.
 */
#ifndef TEST_H
#define TEST_H

#include <doca_error.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*test_function)(void);

/* Defined by main.c. */
void test_register(const char *name, const char *functions, test_function run);

/* TEST(name, functions…) { … } */
#define TEST(name, ...)                                                                                                \
	static void name(void);                                                                                        \
	static void __attribute__((constructor)) register_##name(void)                                                 \
	{                                                                                                              \
		test_register(#name, #__VA_ARGS__, name);                                                              \
	}                                                                                                              \
	static void name(void)

/* Ends the process unless the condition holds. */
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);                       \
			exit(EXIT_FAILURE);                                                                            \
		}                                                                                                      \
	} while (0)

/* Ends the process unless the call returns the result. */
#define RETURNS(expected, call)                                                                                        \
	do {                                                                                                           \
		doca_error_t returned = (call);                                                                        \
		if (returned != (expected)) {                                                                          \
			fprintf(stderr, "%s:%d: expected %s of %s, got error %d\n", __FILE__, __LINE__, #expected,     \
				#call, (int)returned);                                                                 \
			exit(EXIT_FAILURE);                                                                            \
		}                                                                                                      \
	} while (0)

/*
 * As RETURNS, for an error that the documentation of the function names. `program --documented` prints the error and the
 * call of each of these lines, which a test compares with the table of documented errors.
 */
#define DOCUMENTED(error, call)                                                                                        \
	do {                                                                                                           \
		static const char *const entry __attribute__((used, section("documented"))) = #error " " #call;       \
		RETURNS(DOCA_ERROR_##error, call);                                                                     \
	} while (0)

#define OK(call) RETURNS(DOCA_SUCCESS, call)
#define REFUSED(call) RETURNS(DOCA_ERROR_INVALID_VALUE, call)

#endif
