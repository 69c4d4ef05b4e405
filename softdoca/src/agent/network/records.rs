//! Records of TLS 1.3 (RFC 8446, section 5) over a socket, with the keys of a handshake by rustls.
//!
//! rustls' own records take an allocation and a further copy each. Here both directions have one buffer: output is
//! gathered into the buffer and encrypted in place, and input is decrypted in place and scattered to its destinations.
//! A system call moves several records.
//!
//! Sending changes the keys long before a cipher's limit. A peer sends data, key updates, and a last alert: other
//! records end the connection, as do unlimited key updates and empty records, which would keep this process in
//! [`Records::receive`].

use std::os::fd::BorrowedFd;

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::{AlertDescription, ConnectionTrafficSecrets, ExtractedSecrets};

use super::stream::{MOST_PIECES, Piece, receive_from_socket, send_to_socket};
use crate::error::{Error, Result};
use crate::log;

/// Bytes of a record's header: kind, version, length of the remaining bytes.
const HEADER: usize = 5;
const TAG: usize = 16;
const NONCE: usize = 12;
/// Maximum size of the data of a record in bytes.
const MOST: usize = 1 << 14;
/// Maximum number of bytes after a header: data, kind, padding and tag.
const MOST_SEALED: usize = MOST + 256;
/// Size of a buffer, in records.
const RECORDS: usize = 8;
/// Space for a record that is sent, and for a key update before it.
const ROOM: usize = 2 * (HEADER + 1 + TAG) + KEY_UPDATE.len() + MOST;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A `KeyUpdate` that requests none.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// A `KeyUpdate` that the peer has to answer with its own.
const KEY_UPDATES: [u8; 5] = [24, 0, 0, 1, 1];
/// The `close_notify` alert.
const CLOSE: [u8; 2] = [1, 0];

/// Records after which a sender changes its key: less than a third of the 2^23.5 that RFC 8446 allows with AES-GCM.
const UPDATE_AFTER: u64 = 1 << 21;

/// Key updates and empty records that a peer may send without data between them. BoringSSL has the same limit.
const MOST_WITHOUT_DATA: u32 = 32;

/// Next keys of a connection.
pub(super) trait Keys: Send {
    fn next_to_send(&mut self) -> std::result::Result<ConnectionTrafficSecrets, rustls::Error>;

    fn next_to_receive(&mut self) -> std::result::Result<ConnectionTrafficSecrets, rustls::Error>;
}

impl<Data> Keys for KernelConnection<Data>
where
    KernelConnection<Data>: Send,
{
    fn next_to_send(&mut self) -> std::result::Result<ConnectionTrafficSecrets, rustls::Error> {
        self.update_tx_secret().map(|(_, secrets)| secrets)
    }

    fn next_to_receive(&mut self) -> std::result::Result<ConnectionTrafficSecrets, rustls::Error> {
        self.update_rx_secret().map(|(_, secrets)| secrets)
    }
}

/// Key of one direction, and the number of its next record.
struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE],
    next: u64,
}

impl Cipher {
    fn new(next: u64, secrets: &ConnectionTrafficSecrets) -> Result<Cipher> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::NotSupported),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| Error::Unexpected)?;
        Ok(Cipher {
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().map_err(|_| Error::Unexpected)?,
            next,
        })
    }

    /// The nonce of the next record. Nonces are unique for each key.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE - 8..].iter_mut().zip(self.next.to_be_bytes()) {
            *byte ^= number;
        }
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// A record that was received.
enum Record {
    Incomplete,
    /// A data record, whose content is in [`Records::data`].
    Opened,
    /// The peer sends no further data.
    End,
}

/// The end of a connection that carries TLS records.
pub(super) struct Records {
    keys: Box<dyn Keys>,
    sending: Cipher,
    update_after: u64,
    /// The peer has requested a key update.
    update_requested: bool,
    output: Box<[u8]>,
    /// Records in [`Self::output`] that have not been sent.
    unsent: std::ops::Range<usize>,
    receiving: Cipher,
    input: Box<[u8]>,
    /// Records in [`Self::input`] that have not been decrypted.
    sealed: std::ops::Range<usize>,
    /// Data in [`Self::input`] that has not been consumed.
    data: std::ops::Range<usize>,
    /// Key updates and empty records received since the last data.
    without_data: u32,
    /// The peer has sent a `close_notify` alert.
    has_ended: bool,
    /// After a failure, no further records are decrypted.
    failed: Option<Error>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    pub(super) fn new(secrets: ExtractedSecrets, keys: Box<dyn Keys>) -> Result<Records> {
        let buffer = || vec![0; RECORDS * (HEADER + MOST_SEALED)].into_boxed_slice();
        Ok(Records {
            keys,
            sending: Cipher::new(secrets.tx.0, &secrets.tx.1)?,
            update_after: UPDATE_AFTER,
            update_requested: false,
            output: buffer(),
            unsent: 0..0,
            receiving: Cipher::new(secrets.rx.0, &secrets.rx.1)?,
            input: buffer(),
            sealed: 0..0,
            data: 0..0,
            without_data: 0,
            has_ended: false,
            failed: None,
        })
    }

    /// Encrypts and sends as much as fits; returns the number of accepted bytes. They may not have been sent: see
    /// [`Records::flush`].
    ///
    /// # Errors
    /// As [`Stream::send`](super::stream::Stream::send).
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, pieces: &[Piece]) -> Result<usize> {
        if !self.flush(socket)? {
            return Err(Error::Again);
        }
        let (mut places, mut taken) = (Places::new(pieces), 0);
        while !places.is_empty() && self.output.len() - self.unsent.end >= ROOM {
            self.update_key_in_time()?;
            let from = self.unsent.end + HEADER;
            // SAFETY: the buffer has room for so many bytes.
            match unsafe { places.gather(self.output[from..].as_mut_ptr(), MOST) } {
                Ok(len) => {
                    self.seal(DATA, len)?;
                    taken += len;
                }
                Err(error) if taken == 0 => return Err(error),
                // Reported by the next call.
                Err(_) => break,
            }
        }
        self.flush(socket)?;
        Ok(taken)
    }

    /// Sends encrypted records; returns `true` if none are left.
    ///
    /// # Errors
    /// [`Error::ConnectionReset`] if the peer has disconnected.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool> {
        while !self.unsent.is_empty() {
            match send_to_socket(socket, &[Piece::of(&self.output[self.unsent.clone()])]) {
                Ok(sent) => self.unsent.start += sent,
                Err(Error::Again) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.unsent = 0..0;
        Ok(true)
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends a `close_notify` alert, if possible without waiting.
    pub(super) fn close(&mut self, socket: BorrowedFd<'_>) {
        if let Ok(true) = self.flush(socket) {
            self.output[HEADER..HEADER + CLOSE.len()].copy_from_slice(&CLOSE);
            if self.seal(ALERT, CLOSE.len()).is_ok() {
                let _ = self.flush(socket);
            }
        }
    }

    /// Changes keys after `records` records.
    #[cfg(test)]
    pub(super) fn update_after(&mut self, records: u64) {
        self.update_after = records;
    }

    fn update_key_in_time(&mut self) -> Result<()> {
        if self.sending.next < self.update_after && !self.update_requested {
            return Ok(());
        }
        self.update_requested = false;
        let from = self.unsent.end + HEADER;
        self.output[from..from + KEY_UPDATE.len()].copy_from_slice(&KEY_UPDATE);
        self.seal(HANDSHAKE, KEY_UPDATE.len())?;
        let secrets = self
            .keys
            .next_to_send()
            .map_err(|_| Error::ConnectionReset)?;
        self.sending = Cipher::new(0, &secrets)?;
        Ok(())
    }

    /// Encrypts the `len` bytes after the space for the header.
    fn seal(&mut self, kind: u8, len: usize) -> Result<()> {
        let record = &mut self.output[self.unsent.end..];
        let sealed = len + 1 + TAG;
        let header = header(sealed);
        record[..HEADER].copy_from_slice(&header);
        record[HEADER + len] = kind;
        let text = &mut record[HEADER..HEADER + len + 1];
        let nonce = self.sending.nonce();
        let tag = self
            .sending
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), text)
            .map_err(|_| Error::ConnectionReset)?;
        record[HEADER + len + 1..HEADER + sealed].copy_from_slice(tag.as_ref());
        self.unsent.end += HEADER + sealed;
        Ok(())
    }

    /// Receives and decrypts available bytes, as [`Stream::receive`](super::stream::Stream::receive).
    ///
    /// # Errors
    /// Also [`Error::ConnectionReset`] for a connection that ends without its alert, or after bytes that the peer has
    /// not sent, and [`Error::Authentication`] when the peer does not accept the certificate of this process.
    ///
    /// # Safety
    /// The pieces are the caller's to write, or not mapped at all.
    pub(super) unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        pieces: &[Piece],
    ) -> Result<usize> {
        let (mut places, mut taken) = (Places::new(pieces), 0);
        loop {
            if !self.data.is_empty() {
                let data = &self.input[self.data.clone()];
                // SAFETY: the caller's promise.
                match unsafe { places.scatter(data) } {
                    Ok(len) => {
                        self.data.start += len;
                        taken += len;
                    }
                    Err(error) if taken == 0 => return Err(error),
                    Err(_) => return Ok(taken),
                }
            }
            if places.is_empty() {
                return Ok(taken);
            }
            match self.open() {
                Ok(Record::Opened) => continue,
                Ok(Record::End) => return Ok(taken),
                Ok(Record::Incomplete) if taken == 0 => self.fill(socket)?,
                Err(error) if taken == 0 => return Err(error),
                // Reported by the next call.
                Ok(Record::Incomplete) | Err(_) => return Ok(taken),
            }
        }
    }

    /// Receives encrypted records.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        if self.sealed.is_empty() {
            self.sealed = 0..0;
        } else if self.input.len() - self.sealed.start < HEADER + MOST_SEALED {
            self.input.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        let place = Piece::of_mut(&mut self.input[self.sealed.end..]);
        // SAFETY: a part of the buffer that is not otherwise used.
        match unsafe { receive_from_socket(socket, &[place]) }? {
            // Without a close_notify alert, the stream may have been truncated.
            0 => Err(Error::ConnectionReset),
            received => {
                self.sealed.end += received;
                Ok(())
            }
        }
    }

    fn open(&mut self) -> Result<Record> {
        if self.has_ended {
            return Ok(Record::End);
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        let opened = self.open_next();
        if let Err(error) = opened {
            self.failed = Some(error);
        }
        opened
    }

    fn open_next(&mut self) -> Result<Record> {
        let waiting = &mut self.input[self.sealed.clone()];
        let Some(header) = waiting.first_chunk::<HEADER>().copied() else {
            return Ok(Record::Incomplete);
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[..3] != [DATA, 3, 3] || !(1 + TAG..=MOST_SEALED).contains(&len) {
            return Err(broken("something that is no record of its data"));
        }
        let Some(record) = waiting.get_mut(HEADER..HEADER + len) else {
            return Ok(Record::Incomplete);
        };
        let nonce = self.receiving.nonce();
        let text = self
            .receiving
            .key
            .open_in_place(nonce, Aad::from(header), record)
            .map_err(|_| broken("a record that was changed on its way"))?;
        // Zeros after the kind are padding.
        let Some(end) = text.iter().rposition(|byte| *byte != 0) else {
            return Err(broken("a record without a kind"));
        };
        let (text, kind) = (&text[..end], text[end]);
        let from = self.sealed.start + HEADER;
        self.sealed.start = from + len;
        match (kind, text) {
            (DATA, []) => self.count_without_data()?,
            (DATA, text) if text.len() <= MOST => {
                self.without_data = 0;
                self.data = from..from + text.len();
            }
            (HANDSHAKE, text) if *text == KEY_UPDATE || *text == KEY_UPDATES => {
                self.update_requested |= *text == KEY_UPDATES;
                let secrets = self.keys.next_to_receive();
                let secrets = secrets.map_err(|_| Error::ConnectionReset)?;
                self.receiving = Cipher::new(0, &secrets)?;
                self.count_without_data()?;
            }
            (ALERT, text) if *text == CLOSE => {
                self.has_ended = true;
                return Ok(Record::End);
            }
            (ALERT, [_, description]) => return Err(alerted(AlertDescription::from(*description))),
            _ => return Err(broken("a record of another kind")),
        }
        Ok(Record::Opened)
    }

    /// Counts a record without data.
    fn count_without_data(&mut self) -> Result<()> {
        self.without_data += 1;
        if self.without_data > MOST_WITHOUT_DATA {
            return Err(broken("too many key updates or empty records in a row"));
        }
        Ok(())
    }

    /// Sends a key update that the peer has to answer.
    #[cfg(test)]
    pub(super) fn send_key_update(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        let from = self.unsent.end + HEADER;
        self.output[from..from + KEY_UPDATES.len()].copy_from_slice(&KEY_UPDATES);
        self.seal(HANDSHAKE, KEY_UPDATES.len())?;
        let secrets = self.keys.next_to_send().expect("keys");
        self.sending = Cipher::new(0, &secrets)?;
        self.flush(socket).map(|_| ())
    }

    /// Sends a record of no bytes.
    #[cfg(test)]
    pub(super) fn send_empty(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        self.seal(DATA, 0)?;
        self.flush(socket).map(|_| ())
    }
}

fn header(sealed: usize) -> [u8; HEADER] {
    // At most 2^14 and 17.
    let [high, low] = (sealed as u16).to_be_bytes();
    [DATA, 3, 3, high, low]
}

#[cold]
fn broken(what: &str) -> Error {
    log::info!("a connection with TLS has ended: it carried {what}");
    Error::ConnectionReset
}

#[cold]
fn alerted(alert: AlertDescription) -> Error {
    use AlertDescription as Alert;
    match alert {
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
        | Alert::CertificateRequired => Error::Authentication.because(format_args!(
            "TLS: a peer on another machine does not accept the certificate of this process: received fatal alert: {alert:?}"
        )),
        alert => {
            log::info!("a connection with TLS has ended: received fatal alert: {alert:?}");
            Error::ConnectionReset
        }
    }
}

/// Checks that this process may copy by system calls between places in its own memory.
///
/// # Errors
/// The operating system's.
pub(super) fn check_copies() -> Result<()> {
    let (from, mut to) = ([7; 1], [0; 1]);
    let pieces = [Piece {
        exported: true,
        ..Piece::of(&from)
    }];
    // SAFETY: `to` has one byte.
    match unsafe { Places::new(&pieces).gather(to.as_mut_ptr(), 1) } {
        Ok(1) => Ok(()),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Error::OperatingSystem, |code| {
                rustix::io::Errno::from_raw_os_error(code).into()
            })),
    }
}

/// Pieces of memory, with the number of bytes already processed.
struct Places<'a> {
    pieces: &'a [Piece],
    /// Number of processed bytes of the first piece.
    done: usize,
}

impl<'a> Places<'a> {
    fn new(pieces: &'a [Piece]) -> Places<'a> {
        let mut places = Places {
            pieces: &pieces[..pieces.len().min(MOST_PIECES)],
            done: 0,
        };
        places.skip(0);
        places
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn skip(&mut self, len: usize) {
        self.done += len;
        while let Some((first, rest)) = self.pieces.split_first()
            && self.done >= first.len
        {
            self.done -= first.len;
            self.pieces = rest;
        }
    }

    /// Copies at most `most` bytes to `to`; returns their number.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for memory that is not mapped.
    ///
    /// # Safety
    /// `to` is writable for `most` bytes. Pieces that are not exported are mapped.
    unsafe fn gather(&mut self, to: *mut u8, most: usize) -> Result<usize> {
        // SAFETY: `memcpy` writes at most `most` bytes to `to`, from a piece that is mapped, which may be written by others meanwhile: the
        // bytes are then any.
        let copy = |done: usize, from: *mut u8, len: usize| unsafe {
            std::ptr::copy_nonoverlapping(from, to.add(done), len);
        };
        self.copy(most, copy, |vectors| {
            let local = libc::iovec {
                iov_base: to.cast(),
                iov_len: most,
            };
            // SAFETY: the kernel writes at most `most` bytes to `to`, and checks the addresses of the others.
            unsafe {
                libc::process_vm_readv(
                    libc::getpid(),
                    &local,
                    1,
                    vectors.as_ptr(),
                    vectors.len() as _,
                    0,
                )
            }
        })
    }

    /// Copies as many bytes as fit to the destinations; returns their number.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for memory that is not mapped.
    ///
    /// # Safety
    /// The pieces are the caller's to write. Those that are not exported are mapped.
    unsafe fn scatter(&mut self, bytes: &[u8]) -> Result<usize> {
        // SAFETY: the pieces are mapped and the caller's to write; no more than the bytes are read.
        let copy = |done: usize, to: *mut u8, len: usize| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(done), to, len);
        };
        self.copy(bytes.len(), copy, |vectors| {
            let local = libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            };
            // SAFETY: the kernel reads the bytes, and checks the addresses of the places, which are the caller's to write.
            unsafe {
                libc::process_vm_writev(
                    libc::getpid(),
                    &local,
                    1,
                    vectors.as_ptr(),
                    vectors.len() as _,
                    0,
                )
            }
        })
    }

    /// Copies at most `most` bytes between a buffer and the places. `copy` copies between the buffer at an offset and a piece that is mapped, and
    /// `by_kernel` between the buffer and pieces some of which may not be.
    fn copy(
        &mut self,
        most: usize,
        copy: impl Fn(usize, *mut u8, usize),
        by_kernel: impl FnOnce(&[libc::iovec]) -> isize,
    ) -> Result<usize> {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let (mut vectors, mut count, mut len) = ([none; MOST_PIECES], 0, 0);
        let (mut first, mut is_mapped) = (self.done, true);
        for piece in self.pieces {
            let part = (piece.len - first).min(most - len);
            vectors[count] = libc::iovec {
                iov_base: piece.start.wrapping_add(first).cast(),
                iov_len: part,
            };
            is_mapped &= !piece.exported && !piece.start.is_null();
            (count, len, first) = (count + 1, len + part, 0);
            if len == most {
                break;
            }
        }
        if is_mapped {
            let mut done = 0;
            for vector in &vectors[..count] {
                copy(done, vector.iov_base.cast(), vector.iov_len);
                done += vector.iov_len;
            }
        } else {
            let copied = by_kernel(&vectors[..count]);
            let copied = usize::try_from(copied).map_err(|_| Error::InvalidValue)?;
            if copied < len {
                len = self.before_failure(&vectors[..count], copied);
            }
            if len == 0 {
                return Err(Error::InvalidValue);
            }
        }
        self.skip(len);
        Ok(len)
    }

    /// Number of bytes to keep after a copy has failed at `copied` bytes: the header of the unreadable piece is
    /// dropped.
    fn before_failure(&self, vectors: &[libc::iovec], copied: usize) -> usize {
        let mut from = 0;
        for (index, vector) in vectors.iter().enumerate() {
            if from + vector.iov_len > copied {
                return match index.checked_sub(1) {
                    Some(before) if !self.pieces[before].exported => from - vectors[before].iov_len,
                    _ => copied,
                };
            }
            from += vector.iov_len;
        }
        copied
    }
}
