//! The headers, compiled with several compilers.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Language, Sdk, succeed};

fn check(sdk: &Sdk, language: Language, sources: &[PathBuf]) {
    for compiler in language.compilers() {
        succeed(
            Command::new(&compiler)
                .args(language.flags())
                .arg("-fsyntax-only")
                .arg("-I")
                .arg(sdk.include())
                .args(sources),
        );
    }
}

#[test]
fn each_header_compiles_alone_and_twice() {
    let sdk = Sdk::install();
    for language in Language::ALL {
        let sources: Vec<PathBuf> = softdoca_sdk::headers()
            .iter()
            .map(|header| {
                let name = header.name;
                // A C source must not be empty, hence the declaration.
                let text = format!("#include <{name}>\n#include <{name}>\nextern int nothing;\n");
                sdk.source(&format!("{name}.{}", language.suffix()), &text)
            })
            .collect();
        assert!(sources.len() > 20);
        check(&sdk, language, &sources);
    }
}

#[test]
fn enums_constants_and_sizes_are_those_of_the_table() {
    let sdk = Sdk::install();
    let text = softdoca_sdk::assertions();
    assert!(text.contains("\nASSERT(DOCA_ERROR_AGAIN == 5, "), "{text}");
    for language in Language::ALL {
        let source = sdk.source(&format!("assertions.{}", language.suffix()), &text);
        check(&sdk, language, &[source]);
    }
    // The assertions can fail.
    let wrong = text.replace("(DOCA_ERROR_AGAIN == 5,", "(DOCA_ERROR_AGAIN == 6,");
    let source = sdk.source("wrong.c", &wrong);
    for compiler in Language::C.compilers() {
        let output = Command::new(compiler)
            .arg("-fsyntax-only")
            .arg("-I")
            .arg(sdk.include())
            .arg(&source)
            .output()
            .unwrap();
        assert!(!output.status.success());
    }
}

/// Integers in network byte order have the types of the kernel's headers where there are any, and plain integer types elsewhere.
const TYPES: &str = r#"
#include <doca_types.h>
#include <stdio.h>

#ifdef __linux__
typedef __u32 comes_with_it;
#endif

int main(void)
{
	doca_be16_t half = 1;
	doca_be32_t word = 2;
	doca_be64_t longest = 3;
	unsigned short *as_half = &half;
	unsigned int *as_word = &word;
	unsigned long long *as_longest = &longest;

	return printf("%hu %u %llu", *as_half, *as_word, *as_longest) < 0;
}
"#;

/// Uses a type declared by rdma-core, without including its header.
const RDMA: &str = "#include <doca_rdma.h>\nextern struct declared_by_rdma_cma event;\nstruct declared_by_rdma_cma event;\n";

#[test]
fn headers_of_the_system_are_included_where_they_are_installed() {
    let sdk = Sdk::install();
    let system = sdk.scratch("system");
    std::fs::create_dir(system.join("rdma")).unwrap();
    let declaration = "struct declared_by_rdma_cma { int value; };\n";
    std::fs::write(system.join("rdma/rdma_cma.h"), declaration).unwrap();
    for language in Language::ALL {
        let types = sdk.source(&format!("types.{}", language.suffix()), TYPES);
        let rdma = sdk.source(&format!("rdma.{}", language.suffix()), RDMA);
        for compiler in language.compilers() {
            // Without the macro, the headers take the branch for systems without a Linux kernel.
            for (flags, source) in [(&[][..], &types), (&["-U__linux__"], &types), (&[], &rdma)] {
                succeed(
                    Command::new(&compiler)
                        .args(language.flags())
                        .arg("-fsyntax-only")
                        .args(flags)
                        .arg("-I")
                        .arg(sdk.include())
                        .arg("-I")
                        .arg(&system)
                        .arg(source),
                );
            }
        }
    }
}

/// Typical uses of the macros.
const MACROS: &str = r#"
#include <doca_build_config.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_version.h>

DOCA_LOG_REGISTER(TEST::MACROS)

#ifdef DOCA_ARCH_DPU
#error "this is a host"
#endif
#ifndef DOCA_ARCH_HOST
#error "this is a host"
#endif
#if DOCA_VERSION_MAJOR < 3
#error "too old"
#endif

struct versioned {
	DOCA_STRUCT_START;
	int value;
};

doca_error_t use(void);

doca_error_t use(void)
{
	doca_error_t result = DOCA_SUCCESS, next = DOCA_ERROR_AGAIN;
	struct versioned versioned;

	DOCA_STRUCT_MEMSET_CTOR(versioned);
	if (DOCA_STRUCT_GET_VERSION(&versioned) != DOCA_VERSION_EXACT || !DOCA_VERSION_LTE_CURRENT(2, 9, 0))
		return DOCA_ERROR_UNEXPECTED;
	DOCA_ERROR_PROPAGATE(result, next);
	DOCA_LOG_CRIT("no argument");
	DOCA_LOG_ERR("%s", doca_error_get_descr(result));
	DOCA_LOG_WARN("%d of %zu", 1, sizeof(versioned));
	DOCA_LOG_INFO(DOCA_VERSION_STRING);
	DOCA_LOG_DBG("%s", doca_version());
	DOCA_LOG_TRC("%s", doca_version_runtime());
	return DOCA_IS_ERROR(result) ? result : next;
}
"#;

/// Bit fields, with results that depend on the order of bytes in memory.
const BITFIELDS: &str = r#"
#include <doca_bitfield.h>

#include <assert.h>
#include <string.h>

int main(void)
{
	uint8_t byte = 0, bytes[4] = {0};
	doca_be16_t half = 0;
	doca_be32_t word = 0;

	assert(DOCA_SHIFT(0x30) == 4 && DOCA_BETOH32(DOCA_HTOBE32(0x12345678)) == 0x12345678);
	assert(DOCA_U8_GENMASK(7, 0) == 0xff && DOCA_U8_GENMASK(5, 4) == 0x30);
	assert(DOCA_U8_SET(0x30, 2) == 0x20 && DOCA_U8_SET(0x30, 7) == 0x30 && DOCA_U8_GET(0x30, 0xef) == 2);
	DOCA_U8P_GENMASK(3, 2, &byte);
	assert(byte == 0x0c);
	DOCA_U8P_SET(0xf0, 5, &byte)
	assert(byte == 0x5c);
	half = DOCA_BE16_GENMASK(11, 4);
	memcpy(bytes, &half, 2);
	assert(bytes[0] == 0x0f && bytes[1] == 0xf0);
	half = DOCA_BE16_SET(half, 0xab);
	memcpy(bytes, &half, 2);
	assert(bytes[0] == 0x0a && bytes[1] == 0xb0);
	assert(DOCA_BE16_GET(DOCA_BE16_GENMASK(11, 4), half) == 0xab);
	DOCA_BE16P_SET(DOCA_BE16_GENMASK(3, 0), 0xc, &half)
	assert(DOCA_BETOH16(half) == 0x0abc);
	DOCA_BE16P_GENMASK(15, 15, &half);
	assert(DOCA_BETOH16(half) == 0x8000);
	DOCA_BE32P_GENMASK(31, 0, &word);
	assert(word == 0xffffffff);
	word = DOCA_BE32_SET(DOCA_BE32_GENMASK(23, 8), 0xbeef);
	memcpy(bytes, &word, 4);
	assert(bytes[0] == 0 && bytes[1] == 0xbe && bytes[2] == 0xef && bytes[3] == 0);
	assert(DOCA_BE32_GET(DOCA_BE32_GENMASK(23, 8), word) == 0xbeef);
	DOCA_BE32P_SET(DOCA_BE32_GENMASK(31, 24), 1, &word)
	assert(DOCA_BETOH32(word) == 0x01beef00);
	return 0;
}
"#;

#[test]
fn bitfields_match_the_wire_format() {
    let sdk = Sdk::install();
    for language in Language::ALL {
        let source = sdk.source(&format!("bitfields.{}", language.suffix()), BITFIELDS);
        check(&sdk, language, std::slice::from_ref(&source));
        let program = sdk.program(language, &source, &[]);
        succeed(&mut sdk.command(&program, "run"));
    }
}

#[test]
fn macros_work_as_programs_use_them() {
    let sdk = Sdk::install();
    for language in Language::ALL {
        let source = sdk.source(&format!("macros.{}", language.suffix()), MACROS);
        check(&sdk, language, &[source]);
    }
}
