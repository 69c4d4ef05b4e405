//! Decodes the program's files without its code, except for LZ4 of single blocks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Multiplication and division in GF(2^8) with the polynomial 0x11D, by tables of logarithms.
struct Field {
    exponentials: [u8; 255],
    logarithms: [usize; 256],
}

impl Field {
    fn new() -> Self {
        let mut field = Self {
            exponentials: [0; 255],
            logarithms: [0; 256],
        };
        let mut power = 1u16;
        for exponent in 0..255 {
            field.exponentials[exponent] = power as u8;
            field.logarithms[power as usize] = exponent;
            power <<= 1;
            if power >= 256 {
                power ^= 0x11D;
            }
        }
        field
    }

    fn multiply(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 {
            return 0;
        }
        let sum = self.logarithms[a as usize] + self.logarithms[b as usize];
        self.exponentials[sum % 255]
    }

    fn inverse(&self, a: u8) -> u8 {
        self.exponentials[(255 - self.logarithms[a as usize]) % 255]
    }

    /// Factors of the two data chunks in the parity: Cauchy 1 / (i + 2), Vandermonde (i + 1)^0.
    fn factors(&self, matrix: &str) -> [u8; 2] {
        match matrix {
            "cauchy" => [self.inverse(2), self.inverse(3)],
            "vandermonde" => [1, 1],
            other => panic!("matrix {other}"),
        }
    }
}

struct Sandbox(TempDir);

impl Sandbox {
    fn new(content: &[u8]) -> Self {
        let sandbox = Self(tempfile::tempdir().expect("a directory"));
        std::fs::write(sandbox.path("content"), content).expect("written");
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.into_string().expect("text"))
            .filter(|name| name != "run")
            .collect();
        names.sort();
        names
    }

    fn generate(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_doca_storage_gga_offload_sbc_generator"))
            .current_dir(self.0.path())
            .env("SOFTDOCA_RUNTIME_DIR", self.path("run"))
            .args(["-d", "03:00.0", "--original-input-data", "content"])
            .args(["--data-1", "d1", "--data-2", "d2", "--data-p", "dp"])
            .args(arguments)
            .output()
            .expect("the program runs")
    }

    /// Half blocks of a file, after a check of its header.
    fn halves(&self, name: &str, half: usize, count: usize) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(self.path(name)).expect("a file");
        let mut header = vec![0xDE, 0xAD, 0xF0, 0x0D, 0x13, 0x37, 0xFA, 0xDE];
        header.extend((half as u32).to_be_bytes());
        header.extend((count as u32).to_be_bytes());
        assert_eq!(bytes[..16], header, "{name}");
        assert_eq!(bytes.len(), 16 + half * count, "{name}");
        bytes[16..].chunks(half).map(<[u8]>::to_vec).collect()
    }
}

/// Content and trailer of a stored block.
fn decode(stored: &[u8], logical: usize) -> (Vec<u8>, u32) {
    let number = |at: usize| u32::from_be_bytes(stored[at..at + 4].try_into().expect("4")) as usize;
    let (original, compressed) = (number(0), number(4));
    assert_eq!(original, logical);
    assert!(compressed <= stored.len() - 12);
    let trailer = number(stored.len() - 4) as u32;
    let (mut data, padding) = stored[8..stored.len() - 4].split_at(compressed);
    assert!(padding.iter().all(|&byte| byte == 0), "padding");
    let mut content = Vec::new();
    while !data.is_empty() {
        let (prefix, after) = data.split_at(4);
        let prefix = u32::from_le_bytes(prefix.try_into().expect("4"));
        let (block, after) = after.split_at((prefix & 0x7FFF_FFFF) as usize);
        let expected = (original - content.len()).min(65536);
        if prefix >> 31 == 1 {
            assert_eq!(block.len(), expected);
            content.extend(block);
        } else {
            assert!(block.len() < expected, "else it would be raw");
            let block = lz4_flex::block::decompress(block, expected).expect("LZ4");
            assert_eq!(block.len(), expected);
            content.extend(block);
        }
        data = after;
    }
    (content, trailer)
}

/// Compressible text without repeated lines.
fn text(len: usize) -> Vec<u8> {
    let mut text: Vec<u8> = (0..)
        .flat_map(|line: u64| {
            format!("{line}: all blocks differ, {:x}\n", line * 0x9E37_79B9).into_bytes()
        })
        .take(len)
        .collect();
    text[len - 1] = 0xFF;
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the generator for a text of this length in blocks of this size, and checks its files.
fn check(block_size: usize, length: usize, arguments: &[&str]) {
    let content = text(length);
    let sandbox = Sandbox::new(&content);
    let output = sandbox.generate(arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(sandbox.names(), ["content", "d1", "d2", "dp"]);

    let (half, count) = (block_size / 2, length.div_ceil(block_size));
    let [first, second, parity] = ["d1", "d2", "dp"].map(|name| sandbox.halves(name, half, count));
    let field = Field::new();
    let factors = field.factors(match arguments.contains(&"cauchy") {
        true => "cauchy",
        false => "vandermonde",
    });
    let mut decoded = Vec::new();
    for block in 0..count {
        let (d1, d2, dp) = (&first[block], &second[block], &parity[block]);
        let expected: Vec<u8> = std::iter::zip(d1, d2)
            .map(|(&a, &b)| field.multiply(factors[0], a) ^ field.multiply(factors[1], b))
            .collect();
        assert!(*dp == expected, "parity of block {block}");
        // Recovers data_1: the parity without the contribution of data_2, divided by the factor of data_1.
        let inverse = field.inverse(factors[0]);
        let recovered: Vec<u8> = std::iter::zip(dp, d2)
            .map(|(&p, &b)| field.multiply(inverse, p ^ field.multiply(factors[1], b)))
            .collect();
        assert!(recovered == *d1, "recovery of block {block}");
        let stored = [&d1[..], d2].concat();
        let (content, trailer) = decode(&stored, block_size);
        assert_eq!(trailer, 0, "trailer of block {block}");
        decoded.extend(content);
    }
    let (data, padding) = decoded.split_at(content.len());
    assert!(data == content, "content");
    assert!(padding.iter().all(|&byte| byte == 0));
}

#[test]
fn small_blocks_decode() {
    check(4096, 40_000, &[]);
    check(4096, 8192, &["--matrix-type", "cauchy"]);
    check(
        384,
        2000,
        &["--matrix-type", "cauchy", "--block-size", "384"],
    );
}

#[test]
fn large_blocks_have_several_lz4_blocks() {
    check(65536, 200_000, &["--block-size", "65536"]);
    check(
        1 << 20,
        (1 << 20) + 1,
        &["--matrix-type", "cauchy", "--block-size", "1048576"],
    );
    // Not a multiple of 64 KiB: the last LZ4 block is shorter.
    check(65664, 65664, &["--block-size", "65664"]);
}

#[test]
fn incompressible_block_is_named_and_no_file_is_written() {
    let mut content = text(4 * 4096);
    content[2 * 4096..3 * 4096].copy_from_slice(&contents::noise(1, 4096));
    let sandbox = Sandbox::new(&content);
    std::fs::write(sandbox.path("d1"), b"of yesterday").expect("written");
    let output = sandbox.generate(&[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    for part in [
        "block 2",
        "8192",
        "12287",
        "4100",
        "4084",
        "--logical-block-size 4096",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(sandbox.names(), ["content", "d1"]);
    let old = std::fs::read(sandbox.path("d1")).expect("still there");
    assert_eq!(old, b"of yesterday");
}

#[test]
fn invalid_inputs_are_reported() {
    let sandbox = Sandbox::new(b"");
    let output = sandbox.generate(&[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    for value in ["content", "DOCA_ERROR_INVALID_VALUE"] {
        assert!(text.contains(value), "{value}: {text}");
    }

    std::fs::remove_file(sandbox.path("content")).expect("removed");
    let output = sandbox.generate(&[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    for value in ["--original-input-data", "content", "DOCA_ERROR_NOT_FOUND"] {
        assert!(text.contains(value), "{value}: {text}");
    }
    assert!(sandbox.names().is_empty());

    let sandbox = Sandbox::new(b"some");
    let program = env!("CARGO_BIN_EXE_doca_storage_gga_offload_sbc_generator");
    let output = Command::new(program)
        .current_dir(sandbox.0.path())
        .env("SOFTDOCA_RUNTIME_DIR", sandbox.path("run"))
        .args(["-d", "no_such_device", "--original-input-data", "content"])
        .args(["--data-1", "d1", "--data-2", "d2", "--data-p", "dp"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    for value in ["--device", "no_such_device"] {
        assert!(stderr.contains(value), "{stderr}");
    }
    assert_eq!(sandbox.names(), ["content"]);
}

#[test]
fn output_is_text_of_the_reference_or_json() {
    let sandbox = Sandbox::new(&text(5000));
    let output = sandbox.generate(&[]);
    let stdout = String::from_utf8(output.stdout).expect("text");
    let expected = "Processing data...\nOutput info:\n\tBlock size: 4096\n\tOut block count: 2\n\
                    \tData 1(d1) created successfully\n\tData 2(d2) created successfully\n\
                    \tData p(dp) created successfully\n";
    assert!(stdout.ends_with(expected), "{stdout}");

    let output = sandbox.generate(&["--output", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["block_count"], 2);
    assert_eq!(report["block_size"], 4096);
    assert_eq!(report["matrix_type"], "vandermonde");
    assert_eq!(
        Path::new(report["data_p"].as_str().expect("text")),
        Path::new("dp")
    );
}
