//! Copies a volume to a file, or a file to a volume: `copy to FILE`, `copy from FILE`.
//!
//! `VOLUME_SERVICE` names the Comch server of the service, if it is not `doca_storage_comch`.

use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write as _};

use volume::{Config, Volume};

const PIECE: usize = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [direction, path] = arguments.as_slice() else {
        return Err("expected: copy to|from FILE".into());
    };
    let mut config = Config::default();
    if let Ok(service) = std::env::var("VOLUME_SERVICE") {
        config.services[0].name = service;
    }
    let mut volume = Volume::open(config)?;
    let size = volume.size();
    let mut queue = volume.take_queues().remove(0).into_blocking();
    let mut bytes = vec![0; PIECE];
    let pieces = (0..size)
        .step_by(PIECE)
        .map(|offset| (offset, (size - offset).min(PIECE as u64) as usize));
    match direction.as_str() {
        "to" => {
            let mut file = File::create(path)?;
            for (offset, len) in pieces {
                queue.read_at(&mut bytes[..len], offset)?;
                file.write_all(&bytes[..len])?;
            }
            file.sync_all()?;
        }
        "from" => {
            let mut file = File::open(path)?;
            let length = file.metadata()?.len();
            if length > size {
                return Err(format!("{path} has {length} bytes, and the volume {size}").into());
            }
            for (offset, len) in pieces.take_while(|(offset, _)| *offset < length) {
                let len = (length - offset).min(len as u64) as usize;
                file.read_exact(&mut bytes[..len])?;
                queue.write_at(&bytes[..len], offset)?;
            }
            if volume.capabilities().flush {
                queue.flush()?;
            }
        }
        other => return Err(format!("expected to or from, got {other}").into()),
    }
    drop(queue);
    volume.close()?;
    println!("{size} bytes");
    Ok(())
}
