use super::*;

fn header(name: &str) -> String {
    headers()
        .into_iter()
        .find(|header| header.name == name)
        .unwrap_or_else(|| panic!("no header {name}"))
        .text
}

#[test]
fn every_function_is_declared_in_its_header() {
    let headers = headers();
    for function in doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
    {
        let declaration = format!("{}(", function.name);
        for header in &headers {
            assert_eq!(
                header.text.contains(&declaration),
                header.name == function.header,
                "{} in {}",
                function.name,
                header.name
            );
        }
    }
}

/// A program that uses a published function, type or enum compiles, even if softdoca does not support it.
#[test]
fn every_published_name_is_declared() {
    let headers = headers();
    let declares = |header: &Header, name: &str| {
        header
            .text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .any(|word| word == name)
    };
    let mut missing = Vec::new();
    let mut functions = 0;
    for line in include_str!("../../published/3.0.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [file, kind, name] = line
            .split(' ')
            .collect::<Vec<_>>()
            .try_into()
            .expect("header, kind and name");
        functions += usize::from(kind == "function");
        // Types are opaque or shared, so any header may declare them.
        let declared = headers
            .iter()
            .filter(|header| kind != "function" || header.name == file)
            .any(|header| declares(header, name));
        if !declared {
            missing.push(line);
        }
    }
    assert!(functions > 600, "the list has {functions} functions");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn declarations_are_those_of_c() {
    let buf = header("doca_buf.h");
    assert!(
        buf.contains("\ndoca_error_t doca_buf_get_len(const struct doca_buf *buf, size_t *len);\n"),
        "{buf}"
    );
    let mmap = header("doca_mmap.h");
    assert!(
        mmap.contains(
            "typedef void (doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *cookie);"
        ) && mmap.contains("doca_mmap_memrange_free_cb_t *free_cb,"),
        "{mmap}"
    );
    assert!(
        mmap.contains(
            "\ndoca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,\n"
        ),
        "{mmap}"
    );
    let pe = header("doca_pe.h");
    assert!(
        pe.contains("\nunion doca_data doca_task_get_user_data(const struct doca_task *task);\n"),
        "{pe}"
    );
    assert!(
        pe.contains("\ntypedef void (*doca_task_completion_cb_t)(struct doca_task *task, union doca_data task_user_data,\n"),
        "{pe}"
    );
    assert!(
        pe.contains("\nvoid doca_task_free(struct doca_task *task);\n"),
        "{pe}"
    );
    let ctx = header("doca_ctx.h");
    assert!(
        ctx.contains(
            "doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state);"
        ),
        "{ctx}"
    );
    assert!(
        header("doca_error.h").contains("\nconst char *doca_error_get_name(doca_error_t error);\n")
    );
    assert!(header("doca_dev.h").contains("#define DOCA_DEVINFO_PCI_ADDR_SIZE 13\n"));
}

#[test]
fn headers_are_generated_deterministically() {
    assert_eq!(headers(), headers());
}
