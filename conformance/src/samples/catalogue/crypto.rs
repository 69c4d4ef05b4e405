//! `doca_sha` and `doca_aes_gcm`: digests of messages that the standard has as examples, and a file there and back.

use super::DPU;
use crate::samples::content::Content;
use crate::samples::scenario::{Check, Event, Party, Scenario};

/// Examples of FIPS 180-4 for SHA-256, the algorithm of the samples; the second has more than one block.
const SHORT: (&str, &str) = (
    "abc",
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
);
const LONG: (&str, &str) = (
    "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
    "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        digest("sha_create", "short", SHORT),
        digest("sha_create", "long", LONG),
        digest("sha_partial_create", "long", LONG),
        there_and_back("key_128", "00112233445566778899aabbccddeeff", 16),
        there_and_back(
            "key_256",
            "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef",
            12,
        ),
    ]
}

fn digest(sample: &'static str, kind: &str, (message, digest): (&str, &str)) -> Scenario {
    let party = Party::new(sample, sample)
        .arguments(["-d", message])
        .says(format!("SHA256 output is: {digest}"));
    Scenario::new("doca_sha", format!("{sample}:{kind}")).party(party)
}

/// Encrypted by one sample and decrypted by the other, with some bytes that are authenticated only.
fn there_and_back(kind: &str, key: &str, tag_size: usize) -> Scenario {
    let content = Content::Noise(50_000);
    let tag_size = tag_size.to_string();
    let common = [
        "-p",
        DPU,
        "-k",
        key,
        "-i",
        "0102030405060708090a0b0c",
        "-t",
        &tag_size,
        "-a",
        "20",
    ];
    let encrypt = Party::new("encrypt", "aes_gcm_encrypt")
        .arguments(common)
        .arguments(["-f", "{shared}/input", "-o", "{dir}/output"])
        .says("encrypted successfully");
    let decrypt = Party::new("decrypt", "aes_gcm_decrypt")
        .arguments(common)
        .arguments(["-f", "{shared}/encrypt/output", "-o", "{dir}/output"])
        .starts_when(Event::ends("encrypt"))
        .says("decrypted successfully");
    Scenario::new("doca_aes_gcm", format!("aes_gcm_encrypt:{kind}"))
        .input("{shared}/input", content.clone())
        .party(encrypt)
        .party(decrypt)
        .check(Check::File {
            path: "{shared}/decrypt/output".to_owned(),
            content,
        })
}
