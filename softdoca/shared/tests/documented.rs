//! The errors that DOCA's API pages name: every error that can be provoked is provoked and compared.
//!
//! The table is in `doca_abi`. Errors for NULL arguments, for numbers out of range, for started objects and for full
//! pools are provoked by a program that is generated from the declarations of the functions, with objects of
//! `softdoca/tests/c/objects.h` as arguments; other errors by lines `DOCUMENTED(error, call)` of the tests in C.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use doca_abi::{
    CALLBACKS, DOCUMENTED_ERRORS, DocumentedError, FUNCTION_TYPEDEFS, FunctionDecl, Parameter,
    Provocation,
};
use softdoca_sdk::State;

use support::{Language, PROGRAMS, Sdk, compile, repository_source, succeed};

/// Parameters for which NULL is valid: bufs that are set later or are not needed, optional callbacks, data of the
/// program, and callbacks that have their own error.
const NULLABLE: &[(&str, &[&str])] = &[
    ("doca_ctx_set_state_changed_cb", &["cb"]),
    ("doca_mmap_set_free_cb", &["free_cb", "opaque"]),
    (
        "doca_rdma_set_connection_state_callbacks",
        &[
            "request_cb",
            "established_cb",
            "failure_cb",
            "disconnect_cb",
        ],
    ),
    (
        "doca_rdma_task_remote_net_sync_event_get_allocate_init",
        &["event"],
    ),
    // `NOT_PERMITTED`: the node has a context.
    ("doca_graph_instance_set_user_node_data", &["cookie"]),
];

/// Numbers that are invalid, in addition to those of tasks (see [`invalid_numbers`]): unknown values of enumerations,
/// sizes of 0 and sizes above the capabilities.
const INVALID_NUMBERS: &[(&str, &str, &[&str])] = &[
    ("doca_devinfo_rep_create_list", "filter", &["-1"]),
    ("doca_devinfo_get_ibdev_name", "size", &["0"]),
    ("doca_devinfo_get_iface_name", "size", &["0"]),
    ("doca_devinfo_get_ipv4_addr", "size", &["0"]),
    ("doca_devinfo_get_ipv6_addr", "size", &["0"]),
    ("doca_devinfo_get_mac_addr", "size", &["0"]),
    ("doca_devinfo_rep_get_iface_name", "size", &["0"]),
    ("doca_devinfo_rep_get_vuid", "size", &["0"]),
    ("doca_mmap_set_max_num_devices", "max_num_devices", &["0"]),
    ("doca_mmap_set_memrange", "len", &["0", "SIZE_MAX"]),
    ("doca_mmap_set_permissions", "access_mask", &["1u << 31"]),
    ("doca_buf_inventory_create", "num_elements", &["0"]),
    ("doca_buf_inventory_expand", "num_elements", &["0"]),
    ("doca_buf_pool_create", "num_elements", &["0", "SIZE_MAX"]),
    ("doca_buf_pool_create", "element_size", &["0"]),
    (
        "doca_buf_pool_set_element_alignment",
        "element_alignment",
        &["0", "3"],
    ),
    ("doca_buf_arr_create", "num_elem", &["0"]),
    (
        "doca_ctx_set_completion_vector",
        "comp_vector",
        &["UINT32_MAX"],
    ),
    (
        "doca_comch_server_set_max_msg_size",
        "size",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_comch_client_set_max_msg_size",
        "size",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_comch_server_set_recv_queue_size",
        "size",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_comch_client_set_recv_queue_size",
        "size",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_comch_consumer_set_imm_data_len",
        "imm_data_len",
        &["UINT32_MAX"],
    ),
    (
        "doca_comch_producer_task_send_alloc_init",
        "imm_data_len",
        &["UINT32_MAX"],
    ),
    ("doca_rdma_set_gid_index", "gid_index", &["UINT32_MAX"]),
    ("doca_rdma_set_mtu", "mtu", &["77"]),
    ("doca_rdma_set_sl", "sl", &["UINT32_MAX"]),
    (
        "doca_rdma_set_rnr_retry_count",
        "rnr_retry_count",
        &["UINT8_MAX"],
    ),
    ("doca_rdma_set_send_queue_size", "send_queue_size", &["0"]),
    ("doca_rdma_set_recv_queue_size", "recv_queue_size", &["0"]),
    (
        "doca_rdma_set_max_send_buf_list_len",
        "max_send_buf_list_len",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_rdma_task_receive_set_dst_buf_list_len",
        "buf_list_len",
        &["0", "UINT32_MAX"],
    ),
    (
        "doca_rdma_cap_task_receive_get_max_dst_buf_list_len",
        "transport_type",
        &["77"],
    ),
    ("doca_rdma_cap_get_gid", "start_index", &["UINT32_MAX"]),
    ("doca_rdma_cap_get_gid", "num_entries", &["0", "UINT32_MAX"]),
    ("doca_ec_matrix_create", "matrix_type", &["77"]),
    (
        "doca_ec_matrix_create",
        "data_block_count",
        &["0", "SIZE_MAX"],
    ),
    (
        "doca_ec_matrix_create",
        "rdnc_block_count",
        &["0", "SIZE_MAX"],
    ),
    (
        "doca_ec_matrix_create_from_raw",
        "data_block_count",
        &["0", "SIZE_MAX"],
    ),
    (
        "doca_ec_matrix_create_from_raw",
        "rdnc_block_count",
        &["0", "SIZE_MAX"],
    ),
    (
        "doca_ec_matrix_create_recover",
        "n_missing",
        &["0", "SIZE_MAX"],
    ),
    (
        "doca_ec_matrix_create_update",
        "n_updates",
        &["0", "SIZE_MAX"],
    ),
    ("doca_sha_cap_get_min_dst_buf_size", "algorithm", &["77"]),
    (
        "doca_sha_cap_get_partial_hash_block_size",
        "algorithm",
        &["77"],
    ),
    ("doca_sha_cap_task_hash_get_supported", "algorithm", &["77"]),
    (
        "doca_sha_cap_task_partial_hash_get_supported",
        "algorithm",
        &["77"],
    ),
    ("doca_sha_task_hash_set_algorithm", "algorithm", &["77"]),
    (
        "doca_sha_task_partial_hash_set_algorithm",
        "algorithm",
        &["77"],
    ),
    ("doca_aes_gcm_key_create", "raw_key_type", &["77"]),
    (
        "doca_aes_gcm_cap_task_encrypt_is_key_type_supported",
        "key_type",
        &["77"],
    ),
    (
        "doca_aes_gcm_cap_task_decrypt_is_key_type_supported",
        "key_type",
        &["77"],
    ),
    ("doca_graph_set_conf", "num_instances", &["0"]),
];

/// The object that is passed for a type of handle; `[]` is replaced by the state, for objects that exist both idle and
/// started.
const OBJECTS: &[(&str, &str)] = &[
    ("doca_devinfo", "devinfo"),
    ("doca_dev", "dev"),
    ("doca_devinfo_rep", "devinfo_rep"),
    ("doca_dev_rep", "rep"),
    ("doca_pe", "pe"),
    ("doca_buf", "buf"),
    ("doca_task", "task"),
    ("doca_mmap", "mmap[]"),
    ("doca_buf_inventory", "inventory[]"),
    ("doca_buf_pool", "pool[]"),
    ("doca_buf_arr", "array[]"),
    ("doca_dma", "dma[]"),
    ("doca_compress", "compress[]"),
    ("doca_ec", "ec[]"),
    ("doca_ec_matrix", "matrix"),
    ("doca_sha", "sha[]"),
    ("doca_sha_task_hash", "hash"),
    ("doca_sha_task_partial_hash", "partial_hash"),
    ("doca_aes_gcm", "gcm[]"),
    ("doca_aes_gcm_key", "key"),
    ("doca_mmap_advise", "advise[]"),
    ("doca_rdma", "rdma[]"),
    ("doca_rdma_connection", "rdma_connection"),
    ("doca_rdma_addr", "address"),
    ("doca_sync_event", "event[]"),
    ("doca_sync_event_remote_net", "remote_event"),
    ("doca_graph", "graph[]"),
    ("doca_graph_node", "node"),
    ("doca_graph_instance", "graph_instance"),
    ("doca_comch_server", "server[]"),
    ("doca_comch_client", "client[]"),
    ("doca_comch_connection", "connection"),
    ("doca_comch_consumer", "consumer[]"),
    ("doca_comch_producer", "producer[]"),
    ("doca_argp_param", "param"),
    ("doca_argp_cmd", "cmd"),
];

fn functions() -> BTreeMap<&'static str, &'static FunctionDecl> {
    doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
        .map(|function| (function.name, function))
        .collect()
}

fn is_callback(parameter: &Parameter) -> bool {
    CALLBACKS
        .iter()
        .any(|callback| callback.name == parameter.ty.base())
}

fn is_pointer(parameter: &Parameter) -> bool {
    parameter.ty.pointers().next().is_some() || is_callback(parameter)
}

/// A valid argument, in C. Numbers are 1, and pointers to plain values, or to pointers, point to scratch memory.
fn argument(parameter: &Parameter, state: &str) -> String {
    let (base, pointers) = (parameter.ty.base(), parameter.ty.pointers().count());
    if is_callback(parameter) {
        let star = match FUNCTION_TYPEDEFS.contains(&base) {
            true => " *",
            false => "",
        };
        return format!("({base}{star})nothing");
    }
    match pointers {
        0 if base == "doca_data" => "NO_DATA".to_owned(),
        0 => "1".to_owned(),
        1 if base == "doca_ctx" => format!("doca_dma_as_ctx(object.dma[{state}])"),
        1 => match OBJECTS.iter().find(|(handle, _)| *handle == base) {
            Some((_, object)) => {
                format!("object.{}", object.replace("[]", &format!("[{state}]")))
            }
            None => "(void *)object.scratch".to_owned(),
        },
        _ => "(void *)object.scratch".to_owned(),
    }
}

/// `true` if the function is called before an object is started.
fn configures(function: &str) -> bool {
    [
        "_set_",
        "_register",
        "_add_",
        "_destroy",
        "_rm_dev",
        "_start",
        "enable_",
        "_connect_ctx",
        "doca_graph_",
    ]
    .iter()
    .any(|part| function.contains(part))
}

/// A generated call and the error that it must return.
struct Call {
    function: &'static str,
    what: String,
    /// Expressions in C that are evaluated in order; the last one is compared.
    calls: Vec<String>,
    error: &'static str,
}

/// The invalid values of a parameter: those of [`INVALID_NUMBERS`], and for pools of tasks, 0 and a number above the
/// maximum.
fn invalid_numbers(function: &FunctionDecl, parameter: &Parameter) -> Vec<&'static str> {
    let name = parameter.name;
    if function.name.ends_with("_set_conf") && name.ends_with("tasks") {
        return match name.starts_with("log_") {
            true => vec!["UINT8_MAX"],
            false => vec!["0", "UINT32_MAX"],
        };
    }
    let rows = INVALID_NUMBERS.iter();
    rows.filter(|row| (row.0, row.1) == (function.name, name))
        .flat_map(|row| row.2)
        .copied()
        .collect()
}

/// A call with valid arguments, except for the argument at an index.
fn call(function: &FunctionDecl, state: &str, invalid: Option<(usize, &str)>) -> String {
    let arguments: Vec<String> = function
        .params
        .iter()
        .enumerate()
        .map(|(index, parameter)| match invalid {
            Some((replaced, value)) if replaced == index => value.to_owned(),
            _ => argument(parameter, state),
        })
        .collect();
    format!("{}({})", function.name, arguments.join(", "))
}

/// `true` if the argument may be NULL in a valid call.
fn is_nullable(function: &FunctionDecl, parameter: &Parameter) -> bool {
    // Tasks are allocated without bufs, which are set later.
    let of_task = function.name.contains("alloc") && parameter.ty.base() == "doca_buf";
    let single = parameter.ty.pointers().count() == 1;
    let listed = NULLABLE
        .iter()
        .any(|(name, parameters)| *name == function.name && parameters.contains(&parameter.name));
    (of_task && single) || listed
}

fn calls(documented: &DocumentedError, function: &'static FunctionDecl) -> Vec<Call> {
    let DocumentedError {
        error, provocation, ..
    } = *documented;
    let state = match provocation {
        Provocation::Null | Provocation::Valid if configures(function.name) => "IDLE",
        _ => "STARTED",
    };
    let (name, one) = (function.name, |what: String, calls: Vec<String>| Call {
        function: function.name,
        what,
        calls,
        error,
    });
    match provocation {
        Provocation::Null => {
            let is_emulated = softdoca_sdk::state(name) != State::NotSupported;
            let pointers = function
                .params
                .iter()
                .enumerate()
                .filter(|(_, parameter)| is_pointer(parameter))
                // A function that is not supported still checks the object passed to it.
                .take(if is_emulated { usize::MAX } else { 1 });
            let refused = pointers.filter(|(_, parameter)| !is_nullable(function, parameter));
            let nulls = refused.map(|(index, parameter)| {
                let what = format!("{name} without {}", parameter.name);
                one(what, vec![call(function, state, Some((index, "NULL")))])
            });
            let numbers = function
                .params
                .iter()
                .enumerate()
                .flat_map(|(index, parameter)| {
                    let values = invalid_numbers(function, parameter);
                    values
                        .into_iter()
                        .map(move |value| (index, parameter.name, value))
                })
                .map(|(index, parameter, value)| {
                    let what = format!("{name} with {parameter} {value}");
                    one(what, vec![call(function, state, Some((index, value)))])
                });
            nulls.chain(numbers).collect()
        }
        Provocation::Started => vec![one(
            format!("{name} of a started object"),
            vec![call(function, state, None)],
        )],
        Provocation::Exhausted => vec![one(
            format!("{name} of a full pool"),
            vec![call(function, state, None); 2],
        )],
        Provocation::Valid => vec![one(name.to_owned(), vec![call(function, state, None)])],
        Provocation::Written | Provocation::Never(_) => Vec::new(),
    }
}

/// The program, which compares all calls and fails if one differs.
fn program(calls: &[Call]) -> String {
    let mut text = String::from("#include \"objects.h\"\n\n");
    for (index, call) in calls.iter().enumerate() {
        let (last, first) = call.calls.split_last().expect("at least one");
        let _ = writeln!(text, "static doca_error_t call_{index}(void)\n{{");
        for call in first {
            let _ = writeln!(text, "\tOK({call});");
        }
        let _ = writeln!(text, "\treturn {last};\n}}\n");
    }
    text.push_str("int main(void)\n{\n\tint different = 0;\n\n\tcreate_objects();\n");
    for (index, call) in calls.iter().enumerate() {
        let _ = writeln!(
            text,
            "\tdifferent += compare(\"{}\", call_{index}, DOCA_ERROR_{});",
            call.what, call.error
        );
    }
    text.push_str("\treturn different != 0;\n}\n");
    text
}

#[test]
fn generated_calls_return_the_documented_errors() {
    let functions = functions();
    let calls: Vec<Call> = DOCUMENTED_ERRORS
        .iter()
        .flat_map(|documented| calls(documented, functions[documented.function]))
        .collect();
    let generated = DOCUMENTED_ERRORS.iter().filter(|documented| {
        !matches!(
            documented.provocation,
            Provocation::Written | Provocation::Never(_)
        )
    });
    let called: BTreeSet<_> = calls
        .iter()
        .map(|call| (call.function, call.error))
        .collect();
    assert_eq!(called.len(), generated.count());
    let replaced: BTreeSet<_> = calls.iter().map(|call| call.what.as_str()).collect();
    for (function, parameter, values) in INVALID_NUMBERS {
        for value in *values {
            let what = format!("{function} with {parameter} {value}");
            assert!(
                replaced.contains(what.as_str()),
                "{what}: no such parameter"
            );
        }
    }
    let sdk = Sdk::install();
    // The source includes a header of the tests by a relative path.
    let header = repository_source("tests/c/objects.h");
    let text = program(&calls).replace("objects.h", &header.to_string_lossy());
    let source = sdk.source("documented.c", &text);
    let program = sdk.program(Language::C, &source, &["softdoca"]);
    succeed(&mut sdk.command(&program, "run"));
}

#[test]
fn written_tests_provoke_the_other_documented_errors() {
    let sdk = Sdk::install();
    let mut provoked = BTreeSet::new();
    for name in PROGRAMS {
        let program = compile(&sdk, name);
        for line in succeed(sdk.command(&program, "run").arg("--documented")).lines() {
            let (error, call) = line.split_once(' ').expect("an error and a call");
            let function = call.split('(').next().expect("a function").to_owned();
            provoked.insert((function, error.to_owned()));
        }
    }
    let rows = |written: bool| -> BTreeSet<(String, String)> {
        DOCUMENTED_ERRORS
            .iter()
            .filter(|row| !written || row.provocation == Provocation::Written)
            .map(|row| (row.function.to_owned(), row.error.to_owned()))
            .collect()
    };
    let missing: Vec<_> = rows(true).difference(&provoked).cloned().collect();
    assert!(missing.is_empty(), "no test in C provokes {missing:?}");
    let unknown: Vec<_> = provoked.difference(&rows(false)).cloned().collect();
    assert!(
        unknown.is_empty(),
        "tests in C provoke errors that are not documented: {unknown:?}"
    );
}

/// The numbers in softdoca's documents.
#[test]
fn documents_count_the_documented_errors() {
    let functions: BTreeSet<_> = DOCUMENTED_ERRORS.iter().map(|row| row.function).collect();
    let is_provoked = |row: &&DocumentedError| !matches!(row.provocation, Provocation::Never(_));
    let total = DOCUMENTED_ERRORS.len();
    let provoked = DOCUMENTED_ERRORS.iter().filter(is_provoked).count();
    let document = |name| {
        std::fs::read_to_string(repository_source(name)).expect("a document of the repository")
    };
    let expected = format!(
        "{total} of {} functions, is in a table with its condition: {provoked} are provoked",
        functions.len()
    );
    assert!(
        document("README.md").contains(&expected),
        "README.md: expected {expected:?}"
    );
    let expected = format!("{} of {total} are not provoked", total - provoked);
    assert!(
        document("SEMANTICS.md").contains(&expected),
        "SEMANTICS.md: expected {expected:?}"
    );
}
