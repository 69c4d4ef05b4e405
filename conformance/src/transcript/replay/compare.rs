//! What came, field by field beside what was recorded.

use wire::control::Message;

use crate::transcript::{Field, Value, fields};

/// What a comparison has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// What must be the same and is not.
    pub(super) differences: Vec<String>,
    /// What is other and may be.
    pub(super) notes: Vec<String>,
    /// It is another message: nothing after it can be trusted.
    pub(super) is_other: bool,
}

/// Compares. Texts are for people, and blobs only for those who connect with them: the latter must be there, whatever they hold.
pub(super) fn compare(recorded: &Message, came: &Message, ids: bool) -> Comparison {
    let mut result = Comparison::default();
    let (expected, got) = (recorded.payload.message_type(), came.payload.message_type());
    if expected != got {
        let said: Vec<_> = fields(&came.payload).iter().map(Field::to_string).collect();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(" ({})", said.join(", ")),
        };
        result
            .differences
            .push(format!("expected {expected}, {got} came{said}"));
        result.is_other = true;
    }
    if ids {
        for (name, expected, got) in [
            ("message_id", recorded.message_id, came.message_id),
            (
                "correlation_id",
                recorded.correlation_id,
                came.correlation_id,
            ),
        ] {
            if expected != got {
                result
                    .differences
                    .push(format!("{name}: expected {expected}, {got} came"));
            }
        }
    }
    if !result.is_other {
        for (expected, got) in std::iter::zip(fields(&recorded.payload), fields(&came.payload)) {
            result.field(&expected, &got);
        }
    }
    result
}

impl Comparison {
    fn field(&mut self, expected: &Field, got: &Field) {
        let differs = || {
            format!(
                "{}: expected {}, {} came",
                got.name, expected.value, got.value
            )
        };
        match (&expected.value, &got.value) {
            (Value::Blob(expected), Value::Blob(got)) => {
                if expected.is_empty() != got.is_empty() {
                    self.differences.push(differs());
                }
            }
            (Value::Text(expected), Value::Text(got)) => {
                if expected != got {
                    self.notes.push(differs());
                }
            }
            (expected, got) => {
                if expected != got {
                    self.differences.push(differs());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::control::{ErrorResponse, InitStorage, Payload, StorageDetails};

    use super::*;

    fn message(payload: Payload) -> Message {
        Message {
            message_id: 1,
            correlation_id: 2,
            payload,
        }
    }

    #[test]
    fn every_field_that_differs_is_named() {
        let details = |total_size, block_size| {
            message(Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size,
            }))
        };
        let mut came = details(1024, 512);
        came.correlation_id = 9;
        let found = compare(&details(2048, 512), &came, true);
        assert_eq!(
            found.differences,
            [
                "correlation_id: expected 2, 9 came",
                "total_size: expected 2048, 1024 came"
            ]
        );
        assert!(!found.is_other);
        let found = compare(&details(1024, 512), &came, false);
        assert_eq!(found, Comparison::default());
    }

    #[test]
    fn blobs_must_be_there_and_texts_may_differ() {
        let init = |blob: &'static [u8]| {
            message(Payload::InitStorageRequest(InitStorage {
                transaction_count: 1,
                core_count: 1,
                mmap_export_blob: blob.into(),
            }))
        };
        assert_eq!(
            compare(&init(b"one"), &init(b"another"), true),
            Comparison::default()
        );
        let found = compare(&init(b"one"), &init(b""), true);
        assert_eq!(
            found.differences,
            ["mmap_export_blob: expected 3 bytes 6f6e65, 0 bytes came"]
        );
        let error = |text: &str| {
            message(Payload::ErrorResponse(ErrorResponse {
                error_code: 6,
                message: text.to_owned(),
            }))
        };
        let found = compare(&error("no"), &error("never"), true);
        assert!(found.differences.is_empty() && found.notes.len() == 1);
    }

    #[test]
    fn another_message_is_told_with_what_it_says() {
        let error = Payload::ErrorResponse(ErrorResponse {
            error_code: 18,
            message: "busy".to_owned(),
        });
        let found = compare(
            &message(Payload::StartStorageResponse),
            &message(error),
            true,
        );
        assert!(found.is_other);
        assert_eq!(
            found.differences,
            [
                "expected start_storage_response, error_response came (error_code 18, message \"busy\")"
            ]
        );
    }
}
