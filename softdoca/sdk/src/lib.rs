//! Development files for C and C++ programs: headers, pkg-config files, and their installation.
//!
//! The headers are generated from the table of [`doca_abi`] at installation and are not in the repository, so they
//! always match the installed library. Content that the table cannot express (macros, the variadic log function, a few
//! plain types) is in `parts/`, and is included in the header of the same name.

#![forbid(unsafe_code)]

mod declarations;
mod headers;
mod install;

pub use declarations::{Function, functions};
pub use doca_abi::Release;
pub use headers::{Header, headers};
pub use install::{
    Directories, Error, Installed, Layout, METAPACKAGE, Machine, Module, Side, assertions,
    environment, install, modules,
};

use std::fmt::Write as _;

use doca_abi::{EARLIER_FUNCTIONS, Earlier};

/// SONAME of the library, and name of the installed file.
///
/// The number is that of DOCA's API: a program linked to another version cannot be started with this library.
pub const SONAME: &str = "libsoftdoca.so.3";

/// SONAME of the library in an installation for a release. Its length equals that of [`SONAME`], which it replaces in
/// the file.
pub const fn soname(release: Release) -> &'static str {
    match release {
        Release::V2_5 | Release::V2_6 | Release::V2_9 => "libsoftdoca.so.2",
        Release::V3_3 => SONAME,
    }
}

/// Exported functions that are not in the table because they are variadic.
pub const VARIADIC_FUNCTIONS: &[&str] = &["doca_log"];

/// Support status of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Works,
    /// Returns `DOCA_ERROR_NOT_SUPPORTED`: the hardware is not emulated.
    NotSupported,
    /// Accepted without effect.
    NothingToDo,
}

impl State {
    pub const fn description(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::NotSupported => "answers `DOCA_ERROR_NOT_SUPPORTED`",
            Self::NothingToDo => "has nothing to do",
        }
    }
}

/// Functions of the DPA, of GPUs, of Ethernet queues, and of rdma-core's connection manager.
const NOT_SUPPORTED: &[&str] = &[
    "doca_buf_arr_get_dpa_handle",
    "doca_buf_arr_get_gpu_handle",
    "doca_buf_arr_set_target_dpa",
    "doca_buf_arr_set_target_gpu",
    "doca_comch_consumer_completion_create",
    "doca_comch_consumer_completion_destroy",
    "doca_comch_consumer_completion_get_dpa_handle",
    "doca_comch_consumer_completion_get_imm_data_len",
    "doca_comch_consumer_completion_get_max_num_consumers",
    "doca_comch_consumer_completion_get_max_num_recv",
    "doca_comch_consumer_completion_set_dpa_thread",
    "doca_comch_consumer_completion_set_imm_data_len",
    "doca_comch_consumer_completion_set_max_num_consumers",
    "doca_comch_consumer_completion_set_max_num_recv",
    "doca_comch_consumer_completion_start",
    "doca_comch_consumer_completion_stop",
    "doca_comch_consumer_get_dpa_handle",
    "doca_comch_consumer_set_completion",
    "doca_comch_consumer_set_dev_max_num_recv",
    "doca_comch_producer_dpa_completion_attach",
    "doca_comch_producer_get_dpa_handle",
    "doca_comch_producer_set_dev_max_num_send",
    "doca_dev_accelerate_resource_reclaim",
    "doca_devinfo_get_lid",
    "doca_dma_get_gpu_handle",
    "doca_mmap_dev_get_dpa_handle",
    "doca_mmap_set_dmabuf_memrange",
    "doca_mmap_set_dpa_memrange",
    "doca_rdma_bridge_accept",
    "doca_rdma_bridge_established",
    "doca_rdma_bridge_get_buf_mkey",
    "doca_rdma_bridge_get_dev_pd",
    "doca_rdma_bridge_get_mmap_mkey_from_pd",
    "doca_rdma_bridge_open_dev_from_pd",
    "doca_rdma_bridge_prepare_connection",
    "doca_rdma_dpa_completion_attach",
    "doca_rdma_get_dpa_handle",
    "doca_rdma_get_gpu_handle",
    "doca_sync_event_add_publisher_location_dpa",
    "doca_sync_event_add_publisher_location_gpu",
    "doca_sync_event_add_subscriber_location_dpa",
    "doca_sync_event_add_subscriber_location_gpu",
    "doca_sync_event_get_dpa_handle",
    "doca_sync_event_get_gpu_handle",
    "doca_sync_event_remote_net_get_dpa_handle",
    "doca_sync_event_remote_net_get_gpu_handle",
    "doca_task_batch_get_status",
    "doca_task_batch_submit",
    "doca_task_batch_try_submit",
];

/// Functions that have no effect in software, and functions of task batches, which programs cannot allocate.
const NOTHING_TO_DO: &[&str] = &[
    "doca_ctx_flush_tasks",
    "doca_task_batch_free",
    "doca_task_batch_get_ctx",
    "doca_task_batch_get_ctx_user_data",
    "doca_task_batch_get_tasks_num",
    "doca_task_batch_get_user_data",
    "doca_task_batch_set_user_data",
];

/// The status of a function of the API.
pub fn state(function: &str) -> State {
    if NOT_SUPPORTED.contains(&function) {
        State::NotSupported
    } else if NOTHING_TO_DO.contains(&function) {
        State::NothingToDo
    } else {
        State::Works
    }
}

/// All functions with their status, in Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "# Functions of softdoca\n\n\
         Written by `doca-storage sdk functions` from the table that the headers are written from. Each function has a test in C\n\
         ([`tests/c`](tests/c)), which has been seen to fail when the function does nothing, and when it answers\n\
         `DOCA_ERROR_NOT_SUPPORTED`.\n",
    );
    for header in doca_abi::headers() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {}\n\n| function | state |\n| --- | --- |\n",
            header.name
        );
        let variadic: &[&str] = match header.name {
            "doca_log.h" => VARIADIC_FUNCTIONS,
            _ => &[],
        };
        for name in header
            .functions
            .iter()
            .map(|function| function.name)
            .chain(variadic.iter().copied())
        {
            let _ = writeln!(text, "| `{name}` | {} |", state(name).description());
        }
    }
    text.push_str(
        "\n## Earlier releases\n\n\
         Functions that the headers of `sdk install --api 2.5` and `--api 2.6` declare instead.\n\n\
         | function | header | releases | state | in 3.3 |\n| --- | --- | --- | --- | --- |\n",
    );
    for Earlier { since, until, decl } in EARLIER_FUNCTIONS {
        let releases: Vec<&str> = Release::ALL
            .into_iter()
            .filter(|release| (since..=until).contains(&release))
            .map(Release::name)
            .collect();
        let current = match decl.current {
            Some(name) => format!("`{name}`"),
            None if decl.symbol != decl.function.name => "another signature".to_owned(),
            None => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {} | {} | {current} |",
            decl.function.name,
            decl.function.header,
            releases.join(", "),
            state(decl.current.unwrap_or(decl.symbol)).description()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::*;

    fn softdoca() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// Functions whose source refuses every call: those in an `unsupported!` block, and those that call `unsupported`
    /// or log the reason.
    fn refusing(source: &str) -> BTreeSet<String> {
        let name = |text: &str| {
            let end = text.find('(').unwrap_or_default();
            text[..end].to_owned()
        };
        let mut names = BTreeSet::new();
        for block in source.split("\nunsupported! {\n").skip(1) {
            let block = block.split("\n}").next().unwrap_or_default();
            let lines = block.lines().map(str::trim_start);
            names.extend(lines.filter(|line| line.starts_with("doca_")).map(name));
        }
        for function in source.split("extern \"C\" fn ").skip(1) {
            let body = function.split("\n}\n").next().unwrap_or_default();
            let refuses = body.contains("unsupported(") || body.contains("NotSupported.because(");
            if function.starts_with("doca_") && refuses {
                names.insert(name(function));
            }
        }
        names
    }

    #[test]
    fn unsupported_functions_are_listed() {
        // These refuse only some contexts or devices.
        let by_object = [
            "doca_comch_cap_server_is_supported",
            "doca_ctx_set_datapath_on_dpa",
            "doca_ctx_set_datapath_on_gpu",
        ];
        let mut defined = BTreeSet::new();
        for entry in softdoca().join("src/capi").read_dir().unwrap() {
            if let Ok(source) = fs::read_to_string(entry.unwrap().path()) {
                defined.append(&mut refusing(&source));
            }
        }
        let names = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|&name| name.to_owned()).collect()
        };
        let known = &names(NOTHING_TO_DO) | &names(&by_object);
        assert_eq!(&defined - &known, names(NOT_SUPPORTED));
    }

    #[test]
    fn every_entry_of_the_state_table_is_a_function() {
        let functions: BTreeSet<&str> = doca_abi::headers()
            .iter()
            .flat_map(|header| header.functions)
            .map(|function| function.name)
            .collect();
        for name in NOT_SUPPORTED.iter().chain(NOTHING_TO_DO) {
            assert!(functions.contains(name), "{name}");
            assert_ne!(state(name), State::Works);
        }
    }

    #[test]
    fn the_committed_table_is_current() {
        let committed = fs::read_to_string(softdoca().join("FUNCTIONS.md")).unwrap();
        assert!(
            committed == table(),
            "softdoca/FUNCTIONS.md is not what the table of functions says; write it anew with \
             `cargo run -p doca-storage -- sdk functions > softdoca/FUNCTIONS.md`"
        );
    }
}
