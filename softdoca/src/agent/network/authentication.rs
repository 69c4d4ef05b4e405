//! Mutual authentication with the pre-shared key of the deployment, before any other message.
//!
//! ```text
//! server  "SDTCP\0", u16 version, 32 random bytes
//! client  32 random bytes, u64 purpose, 16 bytes process, 16 bytes key, HMAC of all of the above
//! server  u32 result, u32 0, HMAC of all of the above
//! ```
//!
//! HMAC-SHA256 with the shared key; the authenticated text of each side begins with its own label, so that one side's
//! HMAC cannot be replayed as the other's. Integers are little endian. The client authenticates first: a peer without
//! the key receives only random bytes, and the connection is closed. Without TLS, the bytes that follow are neither
//! encrypted nor authenticated: this excludes unauthorized peers, but not an attacker who can modify packets in
//! transit. With TLS, the handshake is encrypted by it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};
use crate::runtime::Key;

pub(super) const MAGIC: [u8; 6] = *b"SDTCP\0";
const VERSION: u16 = 1;
const NONCE: usize = 32;
const TAG: usize = 32;

/// Secret shared by the processes of a deployment.
#[derive(Clone)]
pub(super) struct SharedKey(Vec<u8>);

impl SharedKey {
    pub(super) fn new(bytes: Vec<u8>) -> SharedKey {
        SharedKey(bytes)
    }
}

/// Omits the secret, because the text is used in logs.
impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Purpose {
    /// Detection of the peer's death.
    Liveness = 1,
    /// Access to exported memory.
    Memory = 2,
    /// To be connected with a service.
    Service = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    /// The intended process, because its port may have been reused by another one.
    pub(super) process: Key,
    /// Key of the service.
    pub(super) key: Key,
}

pub(super) const SERVER_HELLO: usize = 8 + NONCE;
pub(super) const CLIENT_HELLO: usize = NONCE + 8 + 2 * Key::SIZE + TAG;
pub(super) const SERVER_ANSWER: usize = 8 + TAG;

/// One side of a handshake, after the server's hello.
pub(super) struct Handshake<'a> {
    key: &'a [u8],
    transcript: Vec<u8>,
}

/// First message of a server.
pub(super) fn server_hello() -> Result<[u8; SERVER_HELLO]> {
    let mut hello = [0; SERVER_HELLO];
    hello[..6].copy_from_slice(&MAGIC);
    hello[6..8].copy_from_slice(&VERSION.to_le_bytes());
    fill(&mut hello[8..])?;
    Ok(hello)
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::OperatingSystem.because(format_args!("no random numbers from the kernel: {error}"))
    })
}

impl<'a> Handshake<'a> {
    /// Decodes messages of either side after the server's hello.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for any other message, [`Error::UnsupportedVersion`].
    pub(super) fn new(key: Option<&'a SharedKey>, hello: &[u8; SERVER_HELLO]) -> Result<Self> {
        if hello[..6] != MAGIC {
            return Err(Error::InvalidValue);
        }
        if hello[6..8] != VERSION.to_le_bytes() {
            return Err(Error::UnsupportedVersion);
        }
        Ok(Handshake {
            // Without a key, both sides use an empty key with the same format.
            key: key.map_or(&[], |key| &key.0),
            transcript: hello.to_vec(),
        })
    }

    fn mac(&self, label: &[u8]) -> Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key).map_err(|_| Error::Unexpected)?;
        mac.update(label);
        mac.update(&self.transcript);
        Ok(mac)
    }

    fn tag(&self, label: &[u8]) -> Result<[u8; TAG]> {
        Ok(self.mac(label)?.finalize().into_bytes().into())
    }

    pub(super) fn client_hello(&mut self, request: &Request) -> Result<[u8; CLIENT_HELLO]> {
        let mut bytes = [0; CLIENT_HELLO];
        fill(&mut bytes[..NONCE])?;
        bytes[32..40].copy_from_slice(&(request.purpose as u64).to_le_bytes());
        bytes[40..56].copy_from_slice(&request.process.to_bytes());
        bytes[56..72].copy_from_slice(&request.key.to_bytes());
        self.transcript
            .extend_from_slice(&bytes[..CLIENT_HELLO - TAG]);
        bytes[CLIENT_HELLO - TAG..].copy_from_slice(&self.tag(CLIENT)?);
        Ok(bytes)
    }

    /// Checks a client's hello, and returns the request in it.
    ///
    /// # Errors
    /// [`Error::Authentication`] for another key; [`Error::InvalidValue`] for an unknown purpose.
    pub(super) fn receive_client_hello(&mut self, bytes: &[u8; CLIENT_HELLO]) -> Result<Request> {
        let (text, tag) = bytes.split_at(CLIENT_HELLO - TAG);
        self.transcript.extend_from_slice(text);
        // Compared in constant time.
        self.mac(CLIENT)?
            .verify_slice(tag)
            .map_err(|_| Error::Authentication)?;
        let word = |at| Key::from_bytes(*text[at..].first_chunk().unwrap_or(&[0; Key::SIZE]));
        let purpose = match text[32..40] {
            [1, 0, 0, 0, 0, 0, 0, 0] => Purpose::Liveness,
            [2, 0, 0, 0, 0, 0, 0, 0] => Purpose::Memory,
            [3, 0, 0, 0, 0, 0, 0, 0] => Purpose::Service,
            _ => return Err(Error::InvalidValue),
        };
        Ok(Request {
            purpose,
            process: word(40),
            key: word(56),
        })
    }

    /// Encodes the server's answer to an authenticated client.
    pub(super) fn answer(&mut self, result: Result<()>) -> Result<[u8; SERVER_ANSWER]> {
        let mut bytes = [0; SERVER_ANSWER];
        let code = result.map_or_else(Error::code, |()| 0);
        bytes[..4].copy_from_slice(&code.to_le_bytes());
        self.transcript.extend_from_slice(&bytes[..8]);
        bytes[8..].copy_from_slice(&self.tag(SERVER)?);
        Ok(bytes)
    }

    /// Checks the server's answer.
    ///
    /// # Errors
    /// [`Error::Authentication`] if it has another key, and the error that it has answered.
    pub(super) fn conclude(&mut self, bytes: &[u8; SERVER_ANSWER]) -> Result<()> {
        let (text, tag) = bytes.split_at(8);
        self.transcript.extend_from_slice(text);
        self.mac(SERVER)?
            .verify_slice(tag)
            .map_err(|_| Error::Authentication)?;
        match u32::from_le_bytes([text[0], text[1], text[2], text[3]]) {
            0 => Ok(()),
            code => Err(Error::from_code(code).unwrap_or(Error::Unknown)),
        }
    }
}

const CLIENT: &[u8] = b"softdoca client";
const SERVER: &[u8] = b"softdoca server";

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        purpose: Purpose::Service,
        process: Key::from_bytes([1; 16]),
        key: Key::from_bytes([2; 16]),
    };

    fn shared(byte: u8) -> SharedKey {
        SharedKey::new(vec![byte; 32])
    }

    /// Results of the server and of the client.
    fn shake(
        client: Option<&SharedKey>,
        server: Option<&SharedKey>,
        result: Result<()>,
        change: impl Fn(&mut [u8], &mut [u8]),
    ) -> (Result<Request>, Result<()>) {
        let hello = server_hello().unwrap();
        let mut ours = Handshake::new(client, &hello).unwrap();
        let mut theirs = Handshake::new(server, &hello).unwrap();
        let mut ask = ours.client_hello(&REQUEST).unwrap();
        change(&mut ask, &mut []);
        let heard = theirs.receive_client_hello(&ask);
        let mut answer = theirs.answer(result).unwrap();
        change(&mut [], &mut answer);
        (heard, ours.conclude(&answer))
    }

    #[test]
    fn peers_with_the_same_key_authenticate() {
        for key in [Some(&shared(1)), None] {
            let good = shake(key, key, Ok(()), |_, _| {});
            assert_eq!(good, (Ok(REQUEST), Ok(())));
            let refused = shake(key, key, Err(Error::NotFound), |_, _| {});
            assert_eq!(refused, (Ok(REQUEST), Err(Error::NotFound)));
        }
    }

    #[test]
    fn another_or_missing_key_is_refused() {
        let (one, other) = (shared(1), shared(2));
        for (client, server) in [
            (Some(&one), Some(&other)),
            (None, Some(&one)),
            (Some(&one), None),
        ] {
            let (heard, concluded) = shake(client, server, Ok(()), |_, _| {});
            assert_eq!(heard, Err(Error::Authentication));
            assert_eq!(concluded, Err(Error::Authentication));
        }
    }

    #[test]
    fn a_change_of_any_byte_is_detected() {
        let key = shared(1);
        for at in 0..CLIENT_HELLO {
            let (heard, _) = shake(Some(&key), Some(&key), Ok(()), |ask, _| {
                if let Some(byte) = ask.get_mut(at) {
                    *byte ^= 1;
                }
            });
            assert_eq!(heard, Err(Error::Authentication), "byte {at} of the client");
        }
        for at in 0..SERVER_ANSWER {
            let (_, concluded) = shake(Some(&key), Some(&key), Ok(()), |_, answer| {
                if let Some(byte) = answer.get_mut(at) {
                    *byte ^= 1;
                }
            });
            assert_eq!(
                concluded,
                Err(Error::Authentication),
                "byte {at} of the server"
            );
        }
    }

    #[test]
    fn a_tag_is_valid_for_one_connection_and_one_direction() {
        let key = shared(1);
        let hello = server_hello().unwrap();
        let request = Handshake::new(Some(&key), &hello)
            .unwrap()
            .client_hello(&REQUEST)
            .unwrap();
        let mut again = Handshake::new(Some(&key), &server_hello().unwrap()).unwrap();
        assert_eq!(
            again.receive_client_hello(&request),
            Err(Error::Authentication)
        );
        let mut client = Handshake::new(Some(&key), &hello).unwrap();
        let request = client.client_hello(&REQUEST).unwrap();
        let mut reflected = [0; SERVER_ANSWER];
        reflected[8..].copy_from_slice(&request[CLIENT_HELLO - TAG..]);
        assert_eq!(client.conclude(&reflected), Err(Error::Authentication));
    }

    #[test]
    fn other_versions_and_protocols_have_different_errors() {
        let mut hello = server_hello().unwrap();
        hello[6] += 1;
        assert_eq!(
            Handshake::new(None, &hello).err(),
            Some(Error::UnsupportedVersion)
        );
        hello[0] = b'H';
        assert_eq!(
            Handshake::new(None, &hello).err(),
            Some(Error::InvalidValue)
        );
    }
}
