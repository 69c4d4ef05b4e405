//! Bytes that an NBD client sends: options of the handshake, then requests.

use std::sync::Arc;

use arbitrary::{Arbitrary, Result, Unstructured};
use nbd_frontend::negotiation::{Agreement, Negotiation, Next, Security, Violation};
use nbd_frontend::protocol::Export;
use nbd_frontend::transmission::{self, Body, Limits, Outcome, Transmission};
use volume::Operation;

use crate::control_frames::rest;
use crate::harness::{self, Damage, Pieces, spoil};

/// Size of the export in bytes.
const SIZE: u64 = 4096;

/// Bytes that the state machines of a connection may allocate, in addition to the payload buffer of a staged read.
const MEMORY: usize = 1 << 20;

/// A client's bytes, and the configuration of the server.
#[derive(Debug, Clone)]
pub struct Input {
    tls: bool,
    read_only: bool,
    native_fua: bool,
    pieces: Pieces,
    bytes: Vec<u8>,
}

/// Messages as sent by a client.
#[derive(Debug, Arbitrary)]
struct Parts {
    structured: bool,
    allocation: bool,
    options: Vec<(u8, Vec<u8>)>,
    export_name: bool,
    requests: Vec<(u8, u16, u16, u16)>,
    damage: Vec<Damage>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = u.int_in_range(0..=7)?;
        Ok(Self {
            tls: kind == 7,
            read_only: u.arbitrary()?,
            native_fua: u.arbitrary()?,
            pieces: u.arbitrary()?,
            bytes: if kind == 0 {
                rest(u)?
            } else {
                u.arbitrary::<Parts>()?.bytes()
            },
        })
    }
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        let mut option = |number: u8, data: &[u8]| {
            bytes.extend(b"IHAVEOPT");
            bytes.extend(u32::from(number).to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
        };
        for (number, data) in &self.options {
            option(number % 12, data);
        }
        if self.structured {
            option(8, &[]);
        }
        if self.allocation {
            option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation");
        }
        if self.export_name {
            option(1, &[]);
        } else {
            option(7, b"\0\0\0\0\0\x01\0\x03");
        }
        for (cookie, (command, flags, offset, len)) in self.requests.iter().enumerate() {
            // Some requests exceed the export, or set invalid flags.
            let flags = if flags % 4 == 0 { flags >> 11 } else { 0 };
            bytes.extend(0x2560_9513_u32.to_be_bytes());
            bytes.extend(flags.to_be_bytes());
            bytes.extend(u16::from(command % 9).to_be_bytes());
            bytes.extend((cookie as u64).to_be_bytes());
            bytes.extend((u64::from(*offset) % (SIZE + 100)).to_be_bytes());
            let len = u32::from(*len) % 3000;
            bytes.extend(len.to_be_bytes());
            if command % 9 == 1 {
                bytes.resize(bytes.len() + len as usize, 0x5a);
            }
        }
        spoil(&mut bytes, &self.damage);
        bytes
    }
}

/// Observable behaviour of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    /// Number of bytes consumed.
    consumed: usize,
    /// Bytes sent to the client.
    sent: Vec<u8>,
    agreed: Option<Agreement>,
    ended_by: Option<Violation>,
    disk: Vec<u8>,
}

/// For any bytes in any pieces: the behaviour does not depend on the pieces, no I/O is outside the export, read-only
/// exports are not written, and memory is bounded.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    let whole = run(input, &Pieces::default());
    let divided = run(input, &input.pieces);
    assert_eq!(whole, divided);
    if input.read_only {
        assert_eq!(whole.disk, vec![0xa5; SIZE as usize]);
    }
    harness::count("NBD handshake", whole.agreed.is_some());
}

fn run(input: &Input, pieces: &Pieces) -> Course {
    let export = Arc::new(Export {
        name: "disk".to_owned(),
        description: String::new(),
        size: SIZE,
        preferred_block: 512,
        max_payload: 2000,
        read_only: input.read_only,
        flush: true,
    });
    let security = if input.tls {
        Security::TlsRequired
    } else {
        Security::Plain
    };
    // Received bytes and sent replies, each counted twice while its buffer grows.
    let limit = MEMORY + 8 * input.bytes.len();
    harness::within_memory(limit, "an NBD connection", || {
        let mut sent = Vec::new();
        let mut connection = Connection {
            negotiation: Some(Negotiation::new(Arc::clone(&export), security, &mut sent)),
            transmission: None,
            export,
            native_fua: input.native_fua,
            received: Vec::new(),
            course: Course {
                consumed: 0,
                sent,
                agreed: None,
                ended_by: None,
                disk: vec![0xa5; SIZE as usize],
            },
        };
        for piece in pieces.divide(&input.bytes) {
            connection.received.extend(piece);
            if let Err(violation) = connection.advance() {
                connection.course.ended_by = Some(violation);
                break;
            }
        }
        connection.course
    })
}

struct Connection {
    /// `Some` during the handshake.
    negotiation: Option<Negotiation>,
    transmission: Option<Transmission>,
    export: Arc<Export>,
    native_fua: bool,
    received: Vec<u8>,
    course: Course,
}

impl Connection {
    fn consume(&mut self, count: usize) {
        self.received.drain(..count);
        self.course.consumed += count;
    }

    fn advance(&mut self) -> std::result::Result<(), Violation> {
        while let Some(negotiation) = &mut self.negotiation {
            let (count, next) = negotiation.advance(&self.received, &mut self.course.sent)?;
            match next {
                Next::Message if count == 0 => return Ok(()),
                Next::Message => {}
                Next::StartTls => negotiation.encrypted(),
                Next::Close => self.negotiation = None,
                Next::Transmission(agreed) => {
                    self.negotiation = None;
                    self.course.agreed = Some(agreed);
                    let limits = Limits {
                        segment: 1024,
                        in_flight: 2,
                        unsent: 3000,
                        parts: 2,
                        piece: 2048,
                        pieces: 1,
                    };
                    let export = Arc::clone(&self.export);
                    let phase = Transmission::new(export, self.native_fua, agreed, limits);
                    self.transmission = Some(phase);
                }
            }
            self.consume(count);
        }
        while self.transmit()? {}
        Ok(())
    }

    /// Performs one step; returns `false` if more bytes are needed.
    fn transmit(&mut self) -> std::result::Result<bool, Violation> {
        let Some(transmission) = &mut self.transmission else {
            return Ok(false);
        };
        match transmission.next(0) {
            transmission::Next::Request => {
                let Some(bytes) = self.received.first_chunk() else {
                    return Ok(false);
                };
                let result = transmission.request(bytes, &mut self.course.sent);
                harness::count("NBD request", result.is_ok());
                result?;
                self.consume(nbd_frontend::protocol::REQUEST_SIZE);
            }
            transmission::Next::Issue(part) => {
                let number = transmission.issue();
                self.execute(number, part, &[]);
            }
            transmission::Next::Fill(part) => {
                let len = part.len as usize;
                let Some(payload) = self.received.get(..len).map(<[u8]>::to_vec) else {
                    return Ok(false);
                };
                let number = transmission.issue();
                self.consume(len);
                self.execute(number, part, &payload);
            }
            transmission::Next::Skip(count) => {
                let count = self.received.len().min(count as usize);
                if count == 0 {
                    return Ok(false);
                }
                transmission.skipped(count as u32);
                self.consume(count);
            }
            transmission::Next::Wait => {
                panic!("nothing is in flight, as every I/O completes at once")
            }
            transmission::Next::End => {
                assert!(transmission.is_idle());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn execute(&mut self, number: u32, part: transmission::Part, payload: &[u8]) {
        let Some(transmission) = &mut self.transmission else {
            return;
        };
        let end = part.offset + u64::from(part.len);
        assert!(end <= SIZE, "{part:?} is not inside the export");
        let place = &mut self.course.disk[part.offset as usize..end as usize];
        let mut data = Vec::new();
        match part.operation {
            Operation::Read => data = place.to_vec(),
            Operation::Write { .. } => place.copy_from_slice(payload),
            Operation::WriteZeroes { .. } | Operation::Discard => place.fill(0),
            Operation::Flush => {}
        }
        let outcome = transmission.complete(number, Ok(()), &data, &mut self.course.sent);
        match outcome {
            Outcome::Pending | Outcome::Reply(Body::None) => {}
            Outcome::Reply(Body::Part) => self.course.sent.extend(data),
            Outcome::Reply(Body::Whole(bytes)) => self.course.sent.extend(bytes),
            Outcome::Submit(number, part) => self.execute(number, part, &[]),
            Outcome::Broken => panic!("no I/O fails"),
        }
    }
}
