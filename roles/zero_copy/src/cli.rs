//! Flags of the zero copy service.

use clap::Parser;
use role_common::Failure;
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, server_address};
use role_common::network::HostPort;
use role_common::service::ServiceFlags;

const EXAMPLES: &str = "\
Examples:
  A service for the host function 3b:00.0, with the storage of a target:
    doca_storage_comch_to_rdma_zero_copy -d 03:00.0 -r 3b:00.0 --storage-server 172.17.0.1:12345 --cpu 0";

// A constant and not a doc comment: rustdoc would take the placeholders for HTML tags.
const STORAGE_SERVER: &str = "Storage server addresses in <ip_addr>:<port> or <host>:<port> format";

/// A storage service that forwards the I/O of an initiator to a storage target
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Flags common to all services.
    #[command(flatten)]
    pub service: ServiceFlags,

    /// Address of the storage target.
    #[arg(long, value_name = "ADDRESS", value_parser = server_address, help = STORAGE_SERVER)]
    pub storage_server: HostPort,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.service.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        Ok(self.service.tls.check()?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use role_common::flags::{self, FlagsError};

    use super::*;

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn command_line_of_the_guide_is_accepted() {
        let flags = parse("-d 03:00.0 -r 3b:00.0 --storage-server 172.17.0.1:12345 --cpu 0")
            .expect("flags");
        assert_eq!(
            (
                flags.service.device.as_str(),
                flags.service.representor.as_str()
            ),
            ("03:00.0", "3b:00.0")
        );
        assert_eq!(flags.storage_server.port(), 12345);
        assert_eq!(flags.service.command_channel_name, "doca_storage_comch");
        assert_eq!(flags.service.control_timeout, Duration::from_secs(5));
    }

    #[test]
    fn errors_name_mandatory_flags_and_ranges() {
        let cases = [
            ("-r y --storage-server 1.2.3.4:5 --cpu 0", "--device"),
            ("-d x --storage-server 1.2.3.4:5 --cpu 0", "--representor"),
            ("-d x -r y --cpu 0", "--storage-server"),
            ("-d x -r y --storage-server 1.2.3.4:5", "--cpu"),
            (
                "-d x -r y --storage-server 1.2.3:5 --cpu 0",
                "<host>:<port>",
            ),
            (
                "-d x -r y --storage-server 1.2.3.4:5 --cpu 0 --control-timeout 0",
                "--control-timeout",
            ),
            (
                "-d x -r y --storage-server 1.2.3.4:5 --cpu 0 --command-channel-name=",
                "--command-channel-name",
            ),
        ];
        for (args, part) in cases {
            match parse(args) {
                Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
                other => panic!("{args}: {other:?}"),
            }
        }
    }
}
