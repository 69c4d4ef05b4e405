//! Conversion between messages of the `wire` crate and the values in vector files.

use wire::control::{
    AnnouncedStorage, FeatureQuery, FrameDecoder, IdentifiedStorage, IdentityQuery, Message,
    Payload, RdmaConnectionDetails,
};
use wire::io_message::{IoMessage, IoMessageType, Repr};
use wire::release::{CorrelationId as _, IoLayout, Release3_0, Release3_1};
use wire::{backing, io_message_3_0, io_message_3_1, sbc, stored_block};

use super::to_hex;

/// Fields by name, with values formatted as in vector files, and the bytes that the crate encodes for them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) values: Vec<(&'static str, String)>,
    pub(super) encoded: Vec<u8>,
}

/// Decodes a complete message of this name.
///
/// # Errors
///
/// The `wire` crate cannot decode it, or it is of another type.
pub(super) fn decode(message: &str, bytes: &[u8]) -> Result<Decoded, String> {
    match message {
        "io_message" => io_message(bytes),
        "io_message_3_1" => io_message_3_1(bytes),
        "io_message_3_0" => io_message_3_0(bytes),
        "sbc_header" => sbc_header(bytes),
        "backing_header" => backing_header(bytes),
        "backing_superblock" => backing_superblock(bytes),
        "backing_set_record" => backing_set_record(bytes),
        "stored_block" => whole_stored_block(bytes),
        _ => control(message, bytes),
    }
}

fn control(name: &str, bytes: &[u8]) -> Result<Decoded, String> {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let message = decoder.next().map_err(|error| error.to_string())?;
    let message = message.ok_or("the frame is not complete")?;
    if decoder.buffered() != 0 {
        return Err(format!("{} bytes follow the frame", decoder.buffered()));
    }
    let came = message.payload.message_type();
    if message.payload.name() != name {
        return Err(format!("it is a {}", message.payload.name()));
    }
    let mut values = vec![
        ("length", (bytes.len() - 4).to_string()),
        ("type", came.number().to_string()),
        ("message_id", message.message_id.to_string()),
        ("correlation_id", message.correlation_id.to_string()),
    ];
    values.extend(payload(&message.payload));
    Ok(Decoded {
        values,
        encoded: Message::encode_to_vec(&message),
    })
}

fn payload(payload: &Payload) -> Vec<(&'static str, String)> {
    let connection = |details: &RdmaConnectionDetails| {
        vec![
            ("context_index", details.context_index.to_string()),
            ("role", details.role.to_string()),
            (
                "connection_details",
                details.connection_details.len().to_string(),
            ),
        ]
    };
    match payload {
        Payload::ErrorResponse(error) => vec![
            ("error_code", error.error_code.to_string()),
            ("message", error.message.len().to_string()),
        ],
        Payload::QueryStorageResponse(details) => vec![
            ("total_size", details.total_size.to_string()),
            ("block_size", details.block_size.to_string()),
        ],
        Payload::IdentifyStorageRequest(query) => vec![
            ("mark", IdentityQuery::MARK.to_string()),
            ("set_high", query.set_high.to_string()),
            ("set_low", query.set_low.to_string()),
            ("epoch", query.epoch.to_string()),
            ("epoch_id", query.epoch_id.to_string()),
            ("next_epoch", query.next_epoch.to_string()),
            ("next_epoch_id", query.next_epoch_id.to_string()),
            ("member", query.member.to_string()),
            ("state", query.state.name().to_owned()),
            ("flags", query.flags.to_string()),
        ],
        Payload::IdentifiedStorageResponse(storage) => vec![
            ("total_size", storage.total_size.to_string()),
            ("block_size", storage.block_size.to_string()),
            ("mark", IdentifiedStorage::MARK.to_string()),
            ("set_high", storage.set_high.to_string()),
            ("set_low", storage.set_low.to_string()),
            ("epoch", storage.epoch.to_string()),
            ("epoch_id", storage.epoch_id.to_string()),
            ("next_epoch", storage.next_epoch.to_string()),
            ("next_epoch_id", storage.next_epoch_id.to_string()),
            ("member", storage.member.to_string()),
            ("state", storage.state.name().to_owned()),
            ("flags", storage.flags.to_string()),
            ("identity", storage.identity.len().to_string()),
        ],
        Payload::AnnounceStorageRequest(query) => vec![
            ("mark", FeatureQuery::MARK.to_string()),
            ("features", query.features.to_string()),
        ],
        Payload::AnnouncedStorageResponse(storage) => vec![
            ("total_size", storage.total_size.to_string()),
            ("block_size", storage.block_size.to_string()),
            ("mark", AnnouncedStorage::MARK.to_string()),
            ("features", storage.features.to_string()),
        ],
        Payload::InitStorageRequest(init) => vec![
            ("transaction_count", init.transaction_count.to_string()),
            ("core_count", init.core_count.to_string()),
            ("mmap_export_blob", init.mmap_export_blob.len().to_string()),
        ],
        Payload::BatchedInitStorageRequest(init) => vec![
            ("transaction_count", init.transaction_count.to_string()),
            ("batch_size", init.batch_size.to_string()),
            ("core_count", init.core_count.to_string()),
            ("mmap_export_blob", init.mmap_export_blob.len().to_string()),
        ],
        Payload::CreateRdmaConnectionRequest(details)
        | Payload::CreateRdmaConnectionResponse(details) => connection(details),
        Payload::QueryStorageRequest
        | Payload::InitStorageResponse
        | Payload::StartStorageRequest
        | Payload::StartStorageResponse
        | Payload::StopStorageRequest
        | Payload::StopStorageResponse
        | Payload::ShutdownRequest
        | Payload::ShutdownResponse => Vec::new(),
    }
}

fn io_message(bytes: &[u8]) -> Result<Decoded, String> {
    let view = IoMessage::new_checked(bytes).map_err(|error| error.to_string())?;
    let repr = Repr::parse(&view).map_err(|error| error.to_string())?;
    let message_type = match repr.message_type {
        IoMessageType::Result => "result",
        IoMessageType::Read => "read",
        IoMessageType::Write => "write",
        IoMessageType::Flush => "flush",
        IoMessageType::WriteFua => "write_fua",
    };
    Ok(Decoded {
        values: vec![
            ("message_type", message_type.to_owned()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("requester_offset", repr.requester_offset.to_string()),
            ("storage_offset", repr.storage_offset.to_string()),
        ],
        encoded: repr.to_bytes().to_vec(),
    })
}

/// Verifies the generated view, too: encodes the values that it has decoded.
fn io_message_3_1(bytes: &[u8]) -> Result<Decoded, String> {
    let view = io_message_3_1::IoMessage::new_checked(bytes).map_err(|error| error.to_string())?;
    let repr = io_message_3_1::Repr::parse(&view).map_err(|error| error.to_string())?;
    Ok(Decoded {
        values: vec![
            ("message_type", repr.message_type.name().to_owned()),
            ("correlation_id", repr.correlation_id.to_string()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("requester_offset", repr.requester_offset.to_string()),
            ("storage_offset", repr.storage_offset.to_string()),
        ],
        encoded: written_by(Release3_1, bytes)?,
    })
}

fn io_message_3_0(bytes: &[u8]) -> Result<Decoded, String> {
    let view = io_message_3_0::IoMessage::new_checked(bytes).map_err(|error| error.to_string())?;
    let repr = io_message_3_0::Repr::parse(&view).map_err(|error| error.to_string())?;
    let layout = Release3_0 {
        requester_address: 0x7f00_0000_0000,
    };
    Ok(Decoded {
        values: vec![
            ("message_type", repr.message_type.name().to_owned()),
            ("correlation_id", repr.correlation_id.to_string()),
            ("user_data", repr.user_data.to_string()),
            ("result", repr.result.to_string()),
            ("size", repr.size.to_string()),
            ("io_address", repr.io_address.to_string()),
            ("remote_offset", repr.remote_offset.to_string()),
        ],
        encoded: written_by(layout, bytes)?,
    })
}

/// Bytes that the interface over the releases encodes for a decoded message.
fn written_by<L: IoLayout>(layout: L, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let bytes = bytes.try_into().map_err(|_| "not 64 bytes".to_owned())?;
    let message_type = IoMessage::new_unchecked_len(bytes)
        .message_type()
        .map_err(|error| error.to_string())?;
    let values = Repr {
        message_type,
        ..layout.answer_to(bytes)
    };
    Ok(layout
        .to_bytes(&values, L::CorrelationId::read(bytes))
        .to_vec())
}

fn sbc_header(bytes: &[u8]) -> Result<Decoded, String> {
    let header = sbc::Header::parse(bytes).map_err(|error| error.to_string())?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", sbc::MAGIC)),
            ("block_size", header.block_size.to_string()),
            ("block_count", header.block_count.to_string()),
        ],
        encoded: header.emit().to_vec(),
    })
}

/// Checks the checksum at the end of a backing file's record.
fn check_checksum(record: &[u8], stored: u32) -> Result<(), String> {
    let checksum = crc32c::crc32c(&record[..record.len() - size_of_val(&stored)]);
    if checksum == stored {
        Ok(())
    } else {
        Err(format!(
            "the checksum is {stored:#x}, that of the bytes is {checksum:#x}"
        ))
    }
}

fn backing_superblock(bytes: &[u8]) -> Result<Decoded, String> {
    let superblock = backing::Superblock::parse(bytes).map_err(|error| error.to_string())?;
    check_checksum(&bytes[..backing::RECORD_SIZE], superblock.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::Superblock::MAGIC)),
            ("sequence", superblock.sequence.to_string()),
            ("set_high", superblock.set_high.to_string()),
            ("set_low", superblock.set_low.to_string()),
            ("epoch", superblock.epoch.to_string()),
            ("epoch_id", superblock.epoch_id.to_string()),
            ("next_epoch", superblock.next_epoch.to_string()),
            ("next_epoch_id", superblock.next_epoch_id.to_string()),
            ("member", superblock.member.to_string()),
            ("state", superblock.state.to_string()),
            ("flags", superblock.flags.to_string()),
            ("boot_high", superblock.boot_high.to_string()),
            ("boot_low", superblock.boot_low.to_string()),
            ("checksum", superblock.checksum.to_string()),
        ],
        encoded: superblock.emit().to_vec(),
    })
}

fn backing_set_record(bytes: &[u8]) -> Result<Decoded, String> {
    let record = backing::SetRecord::parse(bytes).map_err(|error| error.to_string())?;
    check_checksum(&bytes[..backing::SetRecord::SIZE], record.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::SetRecord::MAGIC)),
            ("set_high", record.set_high.to_string()),
            ("set_low", record.set_low.to_string()),
            ("epoch", record.epoch.to_string()),
            ("member", record.member.to_string()),
            ("state", record.state.to_string()),
            ("boot_high", record.boot_high.to_string()),
            ("boot_low", record.boot_low.to_string()),
            ("checksum", record.checksum.to_string()),
        ],
        encoded: record.emit().to_vec(),
    })
}

fn backing_header(bytes: &[u8]) -> Result<Decoded, String> {
    let header = backing::Header::parse(bytes).map_err(|error| error.to_string())?;
    check_checksum(&bytes[..backing::HEADER_SIZE], header.checksum)?;
    Ok(Decoded {
        values: vec![
            ("magic", format!("{:#x}", backing::Header::MAGIC)),
            ("version", backing::Header::VERSION.to_string()),
            ("block_size", header.block_size.to_string()),
            ("block_count", header.block_count.to_string()),
            ("content_offset", backing::CONTENT_OFFSET.to_string()),
            ("record_offset", backing::RECORD_OFFSETS[0].to_string()),
            ("identity_high", header.identity_high.to_string()),
            ("identity_low", header.identity_low.to_string()),
            ("checksum", header.checksum.to_string()),
        ],
        encoded: header.emit().to_vec(),
    })
}

fn whole_stored_block(bytes: &[u8]) -> Result<Decoded, String> {
    let (header_size, trailer_size) = (stored_block::Header::SIZE, stored_block::Trailer::SIZE);
    let end = bytes
        .len()
        .checked_sub(trailer_size)
        .filter(|&end| end >= header_size + stored_block::DataBlock::SIZE)
        .ok_or_else(|| format!("{} bytes are too few", bytes.len()))?;
    let message = |error: wire::DecodeError| error.to_string();
    let header = stored_block::Header::parse(&bytes[..header_size]).map_err(message)?;
    let data = &bytes[header_size..end];
    let data_block =
        stored_block::DataBlock::parse(&data[..stored_block::DataBlock::SIZE]).map_err(message)?;
    let trailer = stored_block::Trailer::parse(&bytes[end..]).map_err(message)?;
    let checksum = crc32c::crc32c(&bytes[..end]);
    if trailer.checksum != 0 && trailer.checksum != checksum.max(1) {
        return Err(format!(
            "its checksum is {}, the CRC-32C of its bytes {checksum}",
            trailer.checksum
        ));
    }
    let content = stored_block::DataBlock::SIZE..header.compressed_size as usize;
    let lz4 = data.get(content).ok_or("its LZ4 data is cut off")?;
    let original = lz4_flex::block::decompress(lz4, header.original_size as usize)
        .map_err(|error| error.to_string())?;
    if original.len() != header.original_size as usize {
        let length = original.len();
        return Err(format!("its content has {length} bytes"));
    }
    let mut encoded = header.emit().to_vec();
    encoded.extend(data_block.emit());
    encoded.extend(lz4);
    encoded.resize(end, 0);
    encoded.extend(trailer.emit());
    Ok(Decoded {
        values: vec![
            ("original_size", header.original_size.to_string()),
            ("compressed_size", header.compressed_size.to_string()),
            ("size_and_raw", data_block.size_and_raw.to_string()),
            ("lz4 data", to_hex(lz4)),
            ("checksum", trailer.checksum.to_string()),
        ],
        encoded,
    })
}
