use doca_abi::{CHANGES, Change, EARLIER_FUNCTIONS, Effect, headers};

use super::*;

fn releases(from: &str, to: &str) -> Releases {
    Releases::new(from.parse().unwrap(), to.parse().unwrap()).unwrap()
}

fn examined(source: &str, language: Language) -> Examined {
    examine(source, language, releases("2.5", "3.3"), &Names::default())
}

fn findings(source: &str, language: Language) -> Vec<Finding> {
    examined(source, language).findings
}

/// Line, column and name of each finding in a file of C.
fn places(source: &str) -> Vec<(usize, usize, String)> {
    findings(source, Language::C)
        .into_iter()
        .map(|it| (it.position.line, it.position.column, it.name))
        .collect()
}

fn names(source: &str, language: Language) -> Vec<String> {
    let found = findings(source, language);
    found.into_iter().map(|it| it.name).collect()
}

fn place(line: usize, column: usize, name: &str) -> (usize, usize, String) {
    (line, column, name.to_owned())
}

#[test]
fn calls_types_values_macros_and_headers_are_found_where_they_are() {
    let source = r#"#include <doca_cc.h>
#include "doca_comm_channel.h"
static unsigned int version = DOCA_VER_MAJOR;
static int sent(struct doca_cc_connection *to)
{
	return /* é */ count(to, DOCA_CC_COUNTER_SENT_BYTES) + doca_rdma_task_read_get_result_length(read);
}
"#;
    assert_eq!(
        places(source),
        [
            place(1, 11, "doca_cc.h"),
            place(2, 11, "doca_comm_channel.h"),
            place(3, 31, "DOCA_VER_MAJOR"),
            place(4, 24, "doca_cc_connection"),
            place(6, 27, "DOCA_CC_COUNTER_SENT_BYTES"),
            place(6, 57, "doca_rdma_task_read_get_result_length"),
        ]
    );
    let found = findings(source, Language::C);
    let symbols: Vec<_> = found.iter().map(|it| it.symbol).collect();
    use SymbolKind::{EnumValue, Function, Header, Macro, Type};
    assert_eq!(symbols, [Header, Header, Macro, Type, EnumValue, Function]);
    assert_eq!(found[3].position.end_column, 24 + 18);
    assert!(found[3].is_fixed_by_replacement());
    assert_eq!(
        found[5].replacement,
        Some("doca_rdma_task_read_get_result_len")
    );
    assert_eq!(
        (found[1].kind, found[1].is_fixed_by_replacement()),
        (Kind::Replaced, false)
    );
}

#[test]
fn comments_strings_members_and_labels_are_not_uses() {
    let source = r#"
// doca_cc_client_destroy(client)
/* doca_cc_client_destroy(client) */
struct own { int doca_cc_client_destroy; };
static int f(struct own *own, struct own other)
{
	puts("doca_cc_client_destroy");
	own->doca_cc_client_destroy = other.doca_cc_client_destroy;
	struct own third = { .doca_cc_client_destroy = 1 };
	goto doca_cc_client_destroy;
doca_cc_client_destroy:
	return third.doca_cc_client_destroy;
}
"#;
    assert_eq!(places(source), []);
}

#[test]
fn local_variables_and_parameters_are_not_uses() {
    let source = "
static int f(int doca_cc_client_destroy)
{
	return doca_cc_client_destroy;
}
static int g(void)
{
	for (int doca_argp_get_grpc_addr = 0; doca_argp_get_grpc_addr < 3; doca_argp_get_grpc_addr++) {
		int *doca_cc_client_create = 0, doca_cc_client_as_ctx[2];
		use(doca_cc_client_create, &doca_cc_client_as_ctx);
	}
	return doca_cc_client_create(0);
}
void h(int (*doca_cc_server_create)(int)) { doca_cc_server_create(1); }
";
    assert_eq!(places(source), [place(12, 9, "doca_cc_client_create")]);
}

#[test]
fn names_that_the_program_defines_are_not_uses() {
    let source = "
#define doca_cc_client_destroy(x) own(x)
static int doca_cc_client_create(int x) { return x; }
enum { DOCA_CC_MSG_FLAG_NONE };
int f(void) { doca_cc_client_destroy(1); return doca_cc_client_create(DOCA_CC_MSG_FLAG_NONE); }
";
    let mine = examined(source, Language::C);
    assert_eq!(mine.findings, []);
    for name in [
        "doca_cc_client_destroy",
        "doca_cc_client_create",
        "DOCA_CC_MSG_FLAG_NONE",
    ] {
        assert!(mine.defined.contains(name), "{name}");
    }
    let mut other = examined(
        "int g(void) { return doca_cc_client_create(1) + doca_own(1); }",
        Language::C,
    );
    assert_eq!(other.findings.len(), 1);
    assert!(other.unknown.contains_key("doca_own"));
    other.remove_defined(&mine.defined);
    other.remove_defined(&BTreeSet::from(["doca_own".to_owned()]));
    assert_eq!((other.findings.len(), other.unknown.len()), (0, 0));
}

#[test]
fn a_tag_of_c_is_not_a_variable() {
    let source = "
extern int unrelated;
int f(void) { return g(doca_cc_client); }
int h(struct doca_cc_client *doca_cc_client) { return g(doca_cc_client); }
";
    assert_eq!(places(source), [place(4, 14, "doca_cc_client")]);
}

#[test]
fn bodies_of_macros_are_examined() {
    let source = "#define STOP(client, doca_cc_client_as_ctx) \\
	do { \\
		if (doca_cc_client_destroy(client)) /* doca_cc_client_create */ \\
			log(\"doca_cc_client_create\", doca_cc_client_as_ctx, (client)->doca_cc_client_create); \\
	} while (0)
#define TYPE struct doca_cc_server * // doca_cc_client_create
#define EXPORT(r, a, b) doca_rdma_export(r, a, b)
#define MIGRATED(r, a, b, c) doca_rdma_export(r, a, b, c)
#undef DOCA_VER_STRING
#if DOCA_VER_MAJOR > 1 || defined(DOCA_VER_MINOR)
#endif
#ifdef DOCA_VER_PATCH
#endif
";
    assert_eq!(
        places(source),
        [
            place(3, 7, "doca_cc_client_destroy"),
            place(6, 21, "doca_cc_server"),
            place(7, 25, "doca_rdma_export"),
            place(9, 8, "DOCA_VER_STRING"),
            place(10, 5, "DOCA_VER_MAJOR"),
            place(10, 35, "DOCA_VER_MINOR"),
            place(12, 8, "DOCA_VER_PATCH"),
        ]
    );
}

#[test]
fn calls_with_the_new_number_of_arguments_are_not_reported() {
    let source = "
void f(void)
{
	doca_rdma_export(rdma, &details, &size);
	doca_rdma_export(rdma, &details, &size, /* new */ &connection);
	try(doca_rdma_connect(rdma, details, size));
	take(doca_rdma_connect);
}
";
    let found = findings(source, Language::C);
    let lines: Vec<_> = found.iter().map(|it| (it.position.line, it.kind)).collect();
    let kind = Kind::Arguments;
    assert_eq!(lines, [(4, kind), (6, kind), (7, kind)]);
    assert!(
        found
            .iter()
            .all(|it| it.replacement.is_none() && !it.note.is_empty())
    );
}

#[test]
fn changed_types_are_compared_with_the_declarations() {
    let source = "
struct own { double old; uint64_t new_; };
void f(struct own *own, struct doca_mmap *map, double *pointer)
{
	double before;
	uint64_t after;
	doca_devinfo_get_active_rate(info, &before);
	doca_devinfo_get_active_rate(info, &after);
	doca_devinfo_get_active_rate(info, &own->old);
	doca_devinfo_get_active_rate(info, &own->new_);
	doca_devinfo_get_active_rate(info, pointer);
	doca_devinfo_get_active_rate(info, (uint64_t *)pointer);
	doca_devinfo_get_active_rate(info, &global);
	doca_buf_arr_create(map, &array);
	doca_buf_arr_create(64, &array);
}
";
    let lines: Vec<_> = places(source).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(lines, [7, 9, 11, 13, 14]);
}

#[test]
fn levels_of_log_messages_are_values() {
    let source = "
void f(int level)
{
	DOCA_LOG(INFO, \"a\");
	DOCA_LOG(DOCA_LOG_LEVEL_INFO, \"b\");
	DOCA_LOG(level, \"c\");
	DOCA_LOG_INFO(\"d\");
}
";
    assert_eq!(places(source), [place(4, 2, "DOCA_LOG")]);
}

#[test]
fn a_comment_says_that_arguments_are_checked() {
    let source = "
void f(void)
{
	doca_devinfo_get_active_rate(info, &a); // sdk migrate: checked
	doca_devinfo_get_active_rate(info, &b);
	/* sdk migrate: checked */
	doca_devinfo_get_active_rate(info, &c);
	doca_cc_client_destroy(d); // sdk migrate: checked
}
";
    assert_eq!(
        places(source),
        [
            place(5, 2, "doca_devinfo_get_active_rate"),
            place(8, 2, "doca_cc_client_destroy")
        ]
    );
}

#[test]
fn cpp_is_parsed_with_its_own_rules() {
    let source = r#"
namespace own { int doca_cc_client_destroy(int); template <typename T> struct holder {}; }
class Channel {
	int doca_cc_client_create = 0;
	int get() { return doca_cc_client_create; }
public:
	std::unique_ptr<doca_cc_client, own::deleter> client;
	int doca_cc_client_as_ctx();
};
auto text = R"(doca_cc_client_destroy(x))";
using server = doca_cc_server;
void stop(Channel &channel) {
	own::doca_cc_client_destroy(1);
	::doca_cc_client_destroy(channel.client.get());
	channel.doca_cc_client_as_ctx();
	auto f = [](int doca_cc_server_destroy) { return doca_cc_server_destroy; };
	f(sizeof(doca_cc_consumer));
}
"#;
    let found = findings(source, Language::Cpp);
    let lines: Vec<_> = found
        .iter()
        .map(|it| (it.position.line, &*it.name))
        .collect();
    assert_eq!(
        lines,
        [
            (7, "doca_cc_client"),
            (11, "doca_cc_server"),
            (14, "doca_cc_client_destroy"),
            (17, "doca_cc_consumer"),
        ]
    );
}

#[test]
fn headers_are_parsed_as_the_language_that_fits() {
    let cpp = "class A { public: explicit A(doca_cc_client *c); A &operator=(A &&) = delete; };";
    assert_eq!(names(cpp, Language::Header), ["doca_cc_client"]);
    let c = "struct A { struct doca_cc_client *class; int new; };";
    assert_eq!(names(c, Language::Header), ["doca_cc_client"]);
    let kinds = ["a.c", "b/c.cpp", "d.h", "e.cu", "f.rs", "c"].map(Language::of_file);
    use Language::{C, Cpp, Header};
    assert_eq!(
        kinds,
        [Some(C), Some(Cpp), Some(Header), Some(Cpp), None, None]
    );
}

#[test]
fn errors_of_syntax_do_not_hide_what_follows() {
    let source = "
DOCA_LOG_REGISTER(A::B);
void f( { doca_cc_client_destroy(x; }
void g(void) { doca_cc_server_destroy(y); }
";
    assert_eq!(
        names(source, Language::C),
        ["doca_cc_client_destroy", "doca_cc_server_destroy"]
    );
}

#[test]
fn replacements_are_names_of_the_release_that_is_asked_for() {
    let name = "void f(void) { doca_cc_server_send_task_alloc_init(a, b, c, d, e); }";
    let replacement = |from, to| {
        examine(name, Language::C, releases(from, to), &Names::default())
            .findings
            .first()
            .and_then(|it| it.replacement)
    };
    assert_eq!(
        replacement("2.5", "2.6"),
        Some("doca_cc_server_task_send_alloc_init")
    );
    for to in ["2.9", "2.10", "3.0", "3.1", "3.2", "3.3"] {
        assert_eq!(
            replacement("2.5", to),
            Some("doca_comch_server_task_send_alloc_init"),
            "{to}"
        );
    }
    // The name is not in any later release, regardless of the program's release.
    assert_eq!(
        replacement("3.0", "3.3"),
        Some("doca_comch_server_task_send_alloc_init")
    );
}

#[test]
fn notes_of_all_steps_are_given() {
    let source = "void f(void) { doca_cc_producer_send_task_set_conf(a, b, c, 5); \
                  doca_cc_producer_send_task_alloc_init(a, b, 1, &t); \
                  doca_cc_cap_get_max_msg_size(a, &size); }";
    let found = findings(source, Language::C);
    let replaced: Vec<_> = found
        .iter()
        .map(|it| (it.kind, it.replacement.unwrap()))
        .collect();
    assert_eq!(
        replaced,
        [
            (Kind::Replaced, "doca_comch_producer_task_send_set_conf"),
            (Kind::Replaced, "doca_comch_producer_task_send_alloc_init"),
            (Kind::Replaced, "doca_comch_cap_get_max_msg_size"),
        ]
    );
    assert!(found[0].note.contains("logarithm"));
    assert!(found[1].note.contains("NULL and 0"));
    assert!(found[2].note.contains("uint32_t"));
}

#[test]
fn changes_of_arguments_before_the_old_release_are_not_reported() {
    let source = "void f(bool b) { doca_rdma_get_grh_enabled(r, &b); doca_rdma_export(a, b, c); }";
    let found = |from, to| {
        let examined = examine(source, Language::C, releases(from, to), &Names::default());
        examined
            .findings
            .into_iter()
            .map(|it| it.name)
            .collect::<Vec<_>>()
    };
    let [enabled, export] = ["doca_rdma_get_grh_enabled", "doca_rdma_export"];
    assert_eq!(found("2.5", "2.6"), [enabled]);
    assert_eq!(found("2.5", "2.9"), [enabled, export]);
    assert_eq!(found("2.6", "2.9"), [export]);
    assert_eq!(found("2.9", "3.3"), [] as [&str; 0]);
}

#[test]
fn names_outside_of_the_tables_are_listed() {
    let mut known = Names::default();
    known.add_header(
        "doca_pe.h",
        "doca_error_t doca_pe_create(struct doca_pe **pe);",
    );
    let source = r#"
#include <doca_pe.h>
#include <doca_flow.h>
#include "doca_own.h"
#ifndef DOCA_OWN_H_
#define DOCA_OWN_H_
static doca_error_t f(struct doca_pe *pe, struct doca_flow_pipe *pipe)
{
	doca_flow_x(pipe);
	doca_flow_x(pipe->doca_member);
	return doca_pe_create(&pe);
}
#endif
"#;
    let examined = examine(source, Language::C, releases("2.5", "3.3"), &known);
    assert_eq!(examined.findings, []);
    let lines: Vec<(&str, Vec<usize>)> = examined
        .unknown
        .iter()
        .map(|(name, uses)| (&**name, uses.iter().map(|it| it.line).collect()))
        .collect();
    assert_eq!(
        lines,
        [
            ("doca_flow.h", vec![3]),
            ("doca_flow_pipe", vec![7]),
            ("doca_flow_x", vec![9, 10])
        ]
    );
    assert_eq!(examined.includes, ["doca_own.h"]);
}

#[test]
fn releases_are_in_order() {
    assert!(matches!(
        "2.7".parse::<ReleaseNumber>(),
        Err(ReleaseError::Unknown(_))
    ));
    let [old, new] = ["2.9", "2.10"].map(|text| text.parse::<ReleaseNumber>().unwrap());
    assert!(Releases::new(old, new).is_ok());
    assert_eq!(Releases::new(new, old), Err(ReleaseError::Order(new, old)));
    assert_eq!(Releases::new(new, new), Err(ReleaseError::Order(new, new)));
}

/// Functions in the table of earlier releases map to a function of the current release, and those with the name of a
/// current function have an entry in the list of changes.
#[test]
fn every_earlier_function_has_a_verdict() {
    let current: BTreeSet<&str> = headers()
        .iter()
        .flat_map(|header| header.functions)
        .map(|function| function.name)
        .collect();
    for earlier in EARLIER_FUNCTIONS {
        let name = earlier.decl.function.name;
        let source = format!("void f(void) {{ {name}(); }}");
        let found = findings(&source, Language::C);
        if name == "doca_rdma_create" {
            // Contexts are started differently; the change is reported for the functions that connect them.
            assert_eq!(found, []);
            continue;
        }
        assert_eq!(found.len(), 1, "{name}");
        match (current.contains(name), found[0].replacement) {
            (true, replacement) => assert_eq!(replacement, None, "{name}"),
            (false, Some(replacement)) => assert!(current.contains(replacement), "{name}"),
            (false, None) => assert_eq!(found[0].kind, Kind::Removed, "{name}"),
        }
    }
}

/// A replacement is never reported again.
#[test]
fn replacements_are_final() {
    for change in CHANGES {
        let Change { name, effect, .. } = change;
        if matches!(effect, Effect::Arguments(_)) || change.kind == SymbolKind::Header {
            continue;
        }
        for finding in findings(
            &format!("struct {name} *f(int x) {{ {name}(x); }}"),
            Language::C,
        ) {
            if let Some(replacement) = finding.replacement {
                let again =
                    format!("void f(void) {{ struct {replacement} *x; {replacement}(x); }}");
                let again = findings(&again, Language::C);
                assert!(
                    again.iter().all(|it| it.kind == Kind::Arguments),
                    "{name}: {again:?}"
                );
            }
        }
    }
}

/// Missing includes of a program that consists of a file and a header that it includes in quotes.
fn missing_includes(header: &str, file: &str, from: &str, is_found: bool) -> Vec<(usize, String)> {
    let releases = releases(from, "3.3");
    let mut known = Names::default();
    for file in ["doca_dma.h", "doca_pe.h", "doca_rdma.h"] {
        known.add_header(file, "");
    }
    let mut files = BTreeMap::from([
        ("own.h", examine(header, Language::C, releases, &known)),
        ("main.c", examine(file, Language::C, releases, &known)),
    ]);
    let included = BTreeMap::from([("main.c", vec![is_found.then_some("own.h")])]);
    add_missing_includes(&mut files, &included, releases);
    let findings = files.into_values().flat_map(|it| it.findings);
    findings
        .map(|it| {
            assert_eq!(it.kind, Kind::Include);
            (it.position.line, it.name)
        })
        .collect()
}

#[test]
fn headers_that_are_not_included_any_more_are_reported_once() {
    let file = "#include <doca_rdma.h>\n#include \"own.h\"\n\
                void f(struct doca_pe *pe) { doca_pe_progress(pe); doca_pe_destroy(pe); }\n";
    let use_ = (3, "doca_pe_progress".to_owned());
    assert_eq!(missing_includes("", file, "2.5", true), [use_]);
    // No finding if the program includes the header, or if an unknown header may include it.
    assert_eq!(
        missing_includes("#include <doca_pe.h>\n", file, "2.6", true),
        []
    );
    assert_eq!(missing_includes("", file, "2.6", false), []);
    let other = "#include <doca_flow.h>\n";
    assert_eq!(missing_includes(other, file, "2.6", true), []);
    // No finding for a program of a release whose headers do not include each other.
    assert_eq!(missing_includes("", file, "2.9", true), []);
    // If a header of the program also lacks it, the header is the place to include it.
    let header = "#include <doca_dma.h>\nenum doca_ctx_states g(void);\nstatic inline int h(void) { return doca_pe_progress(0); }\n";
    assert_eq!(
        missing_includes(header, file, "2.6", true),
        [(3, "doca_pe_progress".to_owned())]
    );
    let pointers = "#include <doca_rdma.h>\nvoid f(struct doca_pe *pe, struct doca_dev *dev);\n";
    assert_eq!(missing_includes("", pointers, "2.6", true), []);
}
