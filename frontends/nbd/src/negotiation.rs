//! The handshake: from the greeting to the transmission phase, as a state machine without I/O.
//!
//! [`Negotiation::advance`] gets all bytes that were received but not consumed yet, consumes at most one message, and
//! appends the reply. The driver sends the reply before the next call, so that unread replies of a client do not
//! accumulate.

use std::sync::Arc;

use crate::protocol::{
    self, BASE_ALLOCATION, ClientOption, Export, HandshakeFlags, MetaRequest, OPTION_HEADER_SIZE,
    OptionHeader, Refusal, RefusalKind,
};

/// Maximum size of an option's data that is parsed, in bytes; longer data is skipped, and the option is refused.
pub const MAX_OPTION: usize = 32 * 1024;
/// Maximum number of options of one connection.
pub const MAX_OPTIONS: u32 = 256;
/// Maximum number of bytes that a client may send before the transmission phase.
pub const MAX_HANDSHAKE: u64 = 4 << 20;

/// Metadata context id of `base:allocation` while it is selected.
pub const ALLOCATION_ID: u32 = 1;

/// Use of TLS on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// The server has no certificate: `NBD_OPT_STARTTLS` is refused.
    Plain,
    /// Every option but `NBD_OPT_STARTTLS` and `NBD_OPT_ABORT` is refused until TLS is used.
    TlsRequired,
    Encrypted,
}

/// Result of the negotiation, for the transmission phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Reads have structured replies.
    pub structured: bool,
    /// `base:allocation` is selected.
    pub allocation: bool,
}

/// Next step of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another message, once it was received completely.
    Message,
    /// Send the reply, then use TLS for all further bytes, including those already received, and call [`Negotiation::encrypted`].
    StartTls,
    /// Send the reply, then begin transmission.
    Transmission(Agreement),
    /// Send the reply, then close the connection.
    Close,
}

/// Violation of the protocol after which the connection is closed without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The client does not use NBD, or the stream is out of sync.
    #[error("expected an option, got magic {0:#018x}")]
    OptionMagic(u64),
    /// The client sets flags that were not offered.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// The client does not use fixed newstyle negotiation, so it expects no reply to an option.
    #[error("option {0} of a client without fixed newstyle negotiation")]
    NotFixed(u32),
    /// The client named another export in `NBD_OPT_EXPORT_NAME`, which has no error reply.
    #[error("no export of this name")]
    UnknownExport,
    /// The client sent `NBD_OPT_EXPORT_NAME`, which has no error reply, before it started TLS.
    #[error("an export was chosen before TLS was started")]
    TlsRequired,
    /// The client sent a malformed `NBD_OPT_EXPORT_NAME`, which has no error reply.
    #[error("malformed export name: {0}")]
    ExportName(Refusal),
    /// More than [`MAX_OPTIONS`] options.
    #[error("more than {MAX_OPTIONS} options")]
    TooManyOptions,
    /// More than [`MAX_HANDSHAKE`] bytes.
    #[error("more than {MAX_HANDSHAKE} bytes before transmission")]
    TooLong,
    /// The bytes are not a request: the stream is out of sync.
    #[error("expected a request, got magic {0:#010x}")]
    RequestMagic(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ClientFlags,
    Option,
    /// Remaining data of an option that is too long.
    Skip {
        option: u32,
        remaining: u32,
    },
}

/// The server's side of a handshake.
#[derive(Debug)]
pub struct Negotiation {
    export: Arc<Export>,
    security: Security,
    state: State,
    fixed: bool,
    zeroes: bool,
    agreed: Agreement,
    options: u32,
    received: u64,
}

impl Negotiation {
    /// Starts a handshake, and appends the greeting.
    pub fn new(export: Arc<Export>, security: Security, out: &mut Vec<u8>) -> Self {
        protocol::emit_greeting(out);
        Self {
            export,
            security,
            state: State::ClientFlags,
            fixed: false,
            zeroes: true,
            agreed: Agreement::default(),
            options: 0,
            received: 0,
        }
    }

    /// Records that TLS is used from now on, and discards the options negotiated before.
    pub fn encrypted(&mut self) {
        self.security = Security::Encrypted;
        self.agreed = Agreement::default();
    }

    /// Consumes a message, if `input` begins with a complete message, and appends the reply to `out`. Returns the
    /// number of bytes consumed and the next step; 0 bytes means that the message is incomplete.
    ///
    /// # Errors
    ///
    /// The connection must be closed.
    pub fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), Violation> {
        let (consumed, next) = match self.state {
            State::ClientFlags => self.client_flags(input)?,
            State::Option => self.option(input, out)?,
            State::Skip { option, remaining } => {
                let skipped = input.len().min(remaining as usize);
                let remaining = remaining - skipped as u32;
                self.state = State::Skip { option, remaining };
                if remaining == 0 {
                    self.too_long(option, out)?;
                }
                (skipped, Next::Message)
            }
        };
        self.received += consumed as u64;
        if self.received > MAX_HANDSHAKE {
            return Err(Violation::TooLong);
        }
        Ok((consumed, next))
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<(usize, Next), Violation> {
        let Some(bits) = input.first_chunk().copied().map(u32::from_be_bytes) else {
            return Ok((0, Next::Message));
        };
        let flags = u16::try_from(bits)
            .ok()
            .and_then(HandshakeFlags::from_bits)
            .ok_or(Violation::ClientFlags(bits))?;
        self.fixed = flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        self.zeroes = !flags.contains(HandshakeFlags::NO_ZEROES);
        self.state = State::Option;
        Ok((4, Next::Message))
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), Violation> {
        let Some((header, rest)) = input.split_first_chunk() else {
            return Ok((0, Next::Message));
        };
        let OptionHeader { option, len } =
            OptionHeader::parse(header).map_err(Violation::OptionMagic)?;
        if len as usize > MAX_OPTION {
            if u64::from(len) > MAX_HANDSHAKE {
                return Err(Violation::TooLong);
            }
            self.count()?;
            self.state = State::Skip {
                option,
                remaining: len,
            };
            return Ok((OPTION_HEADER_SIZE, Next::Message));
        }
        let Some(data) = rest.get(..len as usize) else {
            return Ok((0, Next::Message));
        };
        self.count()?;
        let next = match ClientOption::parse(option, data) {
            Ok(parsed) => self.reply(option, &parsed, out)?,
            Err(refusal) => self.refuse(option, refusal, out)?,
        };
        Ok((OPTION_HEADER_SIZE + data.len(), next))
    }

    fn count(&mut self) -> Result<(), Violation> {
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Err(Violation::TooManyOptions);
        }
        Ok(())
    }

    fn too_long(&mut self, option: u32, out: &mut Vec<u8>) -> Result<(), Violation> {
        self.state = State::Option;
        let refusal = Refusal {
            kind: RefusalKind::TooBig,
            message: "expected an option of at most 32 KiB",
        };
        self.refuse(option, refusal, out).map(|_| ())
    }

    /// Refuses an option. While TLS is required but not used, the reply gives this as the reason.
    fn refuse(
        &mut self,
        option: u32,
        refusal: Refusal,
        out: &mut Vec<u8>,
    ) -> Result<Next, Violation> {
        const EXPORT_NAME: u32 = 1;
        const SET_META_CONTEXT: u32 = 10;
        const START_TLS: u32 = 5;
        if option == EXPORT_NAME {
            return Err(Violation::ExportName(refusal));
        }
        if !self.fixed {
            return Err(Violation::NotFixed(option));
        }
        if option == SET_META_CONTEXT {
            // Contexts selected before are deselected, even if the option fails.
            self.agreed.allocation = false;
        }
        let refusal = if self.security == Security::TlsRequired && option != START_TLS {
            TLS_REQUIRED
        } else {
            refusal
        };
        protocol::emit_refusal(option, refusal, out);
        Ok(Next::Message)
    }

    fn reply(
        &mut self,
        option: u32,
        parsed: &ClientOption<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Next, Violation> {
        if let ClientOption::ExportName(name) = parsed {
            return self.export_name(name, out);
        }
        if !self.fixed {
            return Err(Violation::NotFixed(option));
        }
        let allowed = matches!(parsed, ClientOption::StartTls | ClientOption::Abort);
        if self.security == Security::TlsRequired && !allowed {
            return self.refuse(option, TLS_REQUIRED, out);
        }
        let result = match parsed {
            ClientOption::ExportName(_) => Ok(Next::Message),
            ClientOption::Abort => Ok(Next::Close),
            ClientOption::List => {
                protocol::emit_server(option, &self.export, out);
                Ok(Next::Message)
            }
            ClientOption::StartTls => self.start_tls(),
            ClientOption::Info(request) | ClientOption::Go(request) => {
                self.known(request.name).map(|()| {
                    let structured = self.agreed.structured;
                    protocol::emit_info(option, request, &self.export, structured, out);
                    if matches!(parsed, ClientOption::Go(_)) {
                        Next::Transmission(self.agreed)
                    } else {
                        Next::Message
                    }
                })
            }
            ClientOption::StructuredReply => {
                self.agreed.structured = true;
                Ok(Next::Message)
            }
            ClientOption::ListMetaContext(request) => self.meta_context(request).map(|()| {
                let is_listed = |query| query == BASE_ALLOCATION || query == "base:";
                if request.is_empty() || request.queries().any(is_listed) {
                    protocol::emit_meta_context(option, 0, out);
                }
                Next::Message
            }),
            ClientOption::SetMetaContext(request) => {
                self.agreed.allocation = false;
                self.meta_context(request).map(|()| {
                    if request.queries().any(|query| query == BASE_ALLOCATION) {
                        self.agreed.allocation = true;
                        protocol::emit_meta_context(option, ALLOCATION_ID, out);
                    }
                    Next::Message
                })
            }
        };
        match result {
            Ok(next) => {
                protocol::emit_ack(option, out);
                Ok(next)
            }
            Err(refusal) => self.refuse(option, refusal, out),
        }
    }

    fn export_name(&self, name: &str, out: &mut Vec<u8>) -> Result<Next, Violation> {
        if self.security == Security::TlsRequired {
            return Err(Violation::TlsRequired);
        }
        self.known(name).map_err(|_| Violation::UnknownExport)?;
        protocol::emit_export(&self.export, self.agreed.structured, self.zeroes, out);
        Ok(Next::Transmission(self.agreed))
    }

    fn start_tls(&self) -> Result<Next, Refusal> {
        match self.security {
            Security::TlsRequired => Ok(Next::StartTls),
            Security::Plain => Err(Refusal {
                kind: RefusalKind::Policy,
                message: "the server has no certificate",
            }),
            Security::Encrypted => Err(Refusal {
                kind: RefusalKind::Invalid,
                message: "TLS is in use already",
            }),
        }
    }

    fn known(&self, name: &str) -> Result<(), Refusal> {
        if self.export.is_called(name) {
            return Ok(());
        }
        Err(Refusal {
            kind: RefusalKind::Unknown,
            message: "no export of this name",
        })
    }

    fn meta_context(&self, request: &MetaRequest<'_>) -> Result<(), Refusal> {
        if !self.agreed.structured {
            return Err(Refusal {
                kind: RefusalKind::Invalid,
                message: "expected structured replies to be negotiated first",
            });
        }
        self.known(request.name)
    }
}

const TLS_REQUIRED: Refusal = Refusal {
    kind: RefusalKind::TlsRequired,
    message: "expected NBD_OPT_STARTTLS first",
};
