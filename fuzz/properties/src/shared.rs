//! Messages between softdoca processes of one machine: exports, connections and frames.

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use softdoca::{DECODERS, Decoder};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// Bytes, and the decoder to which they are passed.
#[derive(Debug, Clone)]
pub struct Input {
    decoder: usize,
    bytes: Vec<u8>,
}

/// Valid messages for each decoder.
static EXAMPLES: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let examples = |decoder: &Decoder| (decoder.examples)().expect("they are made");
    DECODERS.iter().map(examples).collect()
});

/// One byte selects the decoder, one the kind, and the remaining bytes are the content, so that a message can be used
/// as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let decoder = u.choose_index(DECODERS.len())?;
        let bytes = match u.int_in_range(0..=2)? {
            0 => rest(u)?,
            1 => {
                // Magic and version are valid.
                let example: &Vec<u8> = u.choose(&EXAMPLES[decoder])?;
                let mut bytes = example[..example.len().min(10)].to_vec();
                bytes.extend(rest(u)?);
                bytes
            }
            _ => {
                let mut bytes: Vec<u8> = u.choose(&EXAMPLES[decoder])?.clone();
                spoil(&mut bytes, &u.arbitrary::<Vec<Damage>>()?);
                bytes
            }
        };
        Ok(Self { decoder, bytes })
    }
}

/// Accepted input encodes to the same bytes, no byte is read beyond its end, and the decoded value is no larger than
/// the input.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    LazyLock::force(&EXAMPLES);
    let Decoder { name, again, .. } = DECODERS[input.decoder];
    let counting = Counting::of(name);
    let bytes = input.bytes.as_slice();
    // A copy of the input, a growing buffer for the encoded bytes, and a text.
    let limit = 4096 + 8 * bytes.len();
    let result = harness::within_memory(limit, name, || again(bytes));
    match &result {
        Ok(written) => {
            let came = &bytes[..written.len().min(bytes.len())];
            assert!(
                written == came,
                "{name}: {bytes:x?} came, {written:x?} is the same"
            );
            assert!(
                written.len() == bytes.len() || name == "request to an agent",
                "{name}: bytes after the end of {bytes:x?}"
            );
        }
        Err(text) => assert!(!text.is_empty()),
    }
    counting.done(result.is_ok());
}
