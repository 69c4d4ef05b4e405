//! The storage's reservation for one service, in one of two places of the backing file, or in memory with the blocks.

use std::fs::File;

use control::Failure;
use control::reservation::Reservation;
use wire::backing::{RESERVATION_OFFSETS, RESERVATION_SIZE, Reservation as Stored};
use wire::control::MAX_HOLDER_NAME;

use crate::content::io_failure;
use crate::metadata::{Places, Record};

/// A reservation as stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredReservation {
    generation: u64,
    holder: u128,
    name: [u8; MAX_HOLDER_NAME],
    name_length: usize,
}

impl StoredReservation {
    /// Converts a reservation to its stored form.
    #[must_use]
    pub fn new(reservation: &Reservation) -> Self {
        let bytes = reservation.name_bytes();
        let name_length = bytes.len().min(MAX_HOLDER_NAME);
        let mut name = [0; MAX_HOLDER_NAME];
        name[..name_length].copy_from_slice(&bytes[..name_length]);
        Self {
            generation: reservation.generation,
            holder: reservation.holder,
            name,
            name_length,
        }
    }

    /// The reservation.
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        let name = String::from_utf8_lossy(&self.name[..self.name_length]);
        Reservation::new(self.generation, self.holder, &name)
    }
}

/// CRC-32C of the record before its checksum, and of the name after it.
fn checksum(bytes: &[u8; RESERVATION_SIZE]) -> u32 {
    let (record, name) = bytes.split_at(Stored::SIZE);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&record[..record.len() - size_of::<u32>()]);
    digest.update(name);
    digest.finalize() as u32
}

impl Record for StoredReservation {
    const OFFSETS: [u64; 2] = RESERVATION_OFFSETS;

    type Bytes = [u8; RESERVATION_SIZE];

    const BLANK: Self::Bytes = [0; RESERVATION_SIZE];

    fn emit(&self, sequence: u64) -> Self::Bytes {
        let mut record = Stored {
            sequence,
            generation: self.generation,
            holder_high: (self.holder >> 64) as u64,
            holder_low: self.holder as u64,
            // At most 64.
            name_length: self.name_length as u32,
            checksum: 0,
        };
        let mut bytes = [0; RESERVATION_SIZE];
        bytes[Stored::SIZE..].copy_from_slice(&self.name);
        bytes[..Stored::SIZE].copy_from_slice(&record.emit());
        record.checksum = checksum(&bytes);
        bytes[..Stored::SIZE].copy_from_slice(&record.emit());
        bytes
    }

    fn parse(bytes: &Self::Bytes) -> Result<Option<(u64, Self)>, Failure> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let (record, name) = bytes.split_at(Stored::SIZE);
        let record = Stored::parse(record)?;
        let expected = checksum(bytes);
        if record.checksum != expected {
            let found = record.checksum;
            return Err(Failure::invalid(format!(
                "expected the checksum {expected:#010x}, found {found:#010x}"
            )));
        }
        let reservation = Self {
            generation: record.generation,
            holder: u128::from(record.holder_high) << 64 | u128::from(record.holder_low),
            name: name.try_into().unwrap_or([0; MAX_HOLDER_NAME]),
            name_length: record.name_length as usize,
        };
        Ok(Some((record.sequence, reservation)))
    }
}

/// Reads the reservation of a file.
///
/// # Errors
///
/// The file cannot be read, or both places are damaged.
pub(crate) fn read(file: &File, name: &str) -> Result<Places<StoredReservation>, Failure> {
    let mut damaged = 0;
    let places = Places::read(file, |why| {
        damaged += 1;
        tracing::warn!("{name}: a reservation is damaged: {why}");
    })
    .map_err(|error| io_failure(name, &error))?;
    if damaged == RESERVATION_OFFSETS.len() {
        // Not treated as none, because a service that another one has taken over from would be served.
        return Err(Failure::invalid(format!(
            "{name}: both reservations are damaged: which service may use the storage is unknown; use a new backing file, which the set rebuilds"
        )));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `conformance/vectors/backing_reservation.toml`, with its name.
    #[test]
    fn record_matches_the_vector() {
        let holder = 0x0102_0304_0506_0708_f1f2_f3f4_f5f6_f7f8;
        let reservation = Reservation::new(6, holder, "b on dpu-1").expect("a generation");
        let bytes = StoredReservation::new(&reservation).emit(31);
        assert_eq!(
            bytes[Stored::SIZE - 4..Stored::SIZE],
            0xa4cc_013c_u32.to_be_bytes()
        );
        assert_eq!(&bytes[Stored::SIZE..][..10], b"b on dpu-1");
    }

    #[test]
    fn record_carries_every_field_and_a_changed_byte_is_found() {
        let longest = "n".repeat(MAX_HOLDER_NAME);
        for name in ["", "dpu-b, doca_storage_comch", &longest] {
            let reservation = Reservation::new(7, (5 << 64) | 6, name).expect("a generation");
            let stored = StoredReservation::new(&reservation);
            let bytes = stored.emit(3);
            assert_eq!(StoredReservation::parse(&bytes), Ok(Some((3, stored))));
            assert_eq!(stored.reservation(), Some(reservation));
            for at in 0..bytes.len() {
                let mut wrong = bytes;
                wrong[at] ^= 0x10;
                assert!(StoredReservation::parse(&wrong).is_err(), "byte {at}");
            }
        }
        assert_eq!(
            StoredReservation::parse(&[0; RESERVATION_SIZE]),
            Ok(None),
            "never reserved"
        );
    }
}
